// Byte-level BPE trained on a corpus (Sennrich et al. 2016), with the tie rule of Hugging Face
// `tokenizers`: the most frequent pair first; among equals the one with the smallest ids. The same
// text gives the same vocabulary with any number of threads. Training takes at most 10 bytes for
// each byte of text, and 64 MiB: most for text without spaces, whose pre-tokens are all different.
#pragma once
#include <cstdint>
#include <functional>
#include <string_view>
#include <vector>

#include "data/tokenizer.h"
#include "data/tokenizer_tables.h"

namespace crest {

class BpeTrainer {
 public:
  static constexpr uint32_t smallest_vocab = 257;  // the bytes and <|endoftext|>
  static constexpr uint32_t largest_vocab = 1'000'000;
  // In bytes. Text with one character repeated for pages has longer pairs, beyond any tokenizer
  // file.
  static constexpr size_t longest_token = 16 << 10;

  // vocab_size includes the special token. Throws a usage error outside the limits.
  explicit BpeTrainer(uint32_t vocab_size, const SplitRule& rule = gpt2_split_rule());
  // Counts the pre-tokens of a piece of the corpus (a document, or a part of one between safe
  // cuts). Large pieces use all OpenMP threads.
  void add(std::string_view text);
  // Merges until the vocabulary is full. A small corpus can run out of pairs; the vocabulary is
  // then smaller than requested. progress(done merges, all merges) may be empty. Call it once: it
  // uses up the counts. tracked: number of pairs kept in memory (0: by the size of the text); the
  // result does not depend on it.
  Tokenizer train(const std::function<void(size_t, size_t)>& progress = {}, size_t tracked = 0);

  struct Counts {
    StringTable pretokens;
    std::vector<int64_t> counts;
    void add(std::string_view pretoken, int64_t count);
  };

 private:
  uint32_t vocab_size_;
  const SplitRule& rule_;
  Counts counts_;
  uint64_t bytes_ = 0;  // of the text
};

}  // namespace crest
