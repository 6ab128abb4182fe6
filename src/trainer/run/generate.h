// Generates text. The prompt goes through the `prefill` Program in chunks, then `decode` runs once
// for each token.
#pragma once
#include <cstdint>
#include <functional>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "run/executor.h"
#include "run/sampler.h"

namespace crest {

class Tokenizer;

// The keys and values of one sequence, in an executor whose session has the Programs `prefill` and
// `decode`. The session may also train: Decoder writes only the cache, the inputs, and position and
// length of the scalars. The weights stay the same while it exists. On later pipeline stages
// nothing reads the tokens, and logits are zeros.
class Decoder {
 public:
  explicit Decoder(Executor& executor);

  // Appends tokens (at least one) to the sequence. Returns the next token's logits, fp32 [vocab]
  // without padding, valid until the next call. If the cache is full, drops the oldest tokens:
  // keeps the last half of the cache (more if `tokens` is longer, up to the capacity) and
  // recomputes it from position 0.
  std::span<const float> feed(std::span<const int32_t> tokens);
  // Drops all tokens.
  void reset() { window_.clear(), done_ = 0; }
  // Drops the tokens behind the longest beginning that the sequence shares with `tokens`. Returns
  // how many are left.
  int64_t keep_shared(std::span<const int32_t> tokens);

  int64_t cache_length() const { return cache_length_; }
  int64_t chunk() const { return chunk_; }  // tokens per prefill call
  int64_t vocab() const { return vocab_; }
  // Number of tokens visible to the next token.
  int64_t position() const { return int64_t(window_.size()); }
  // How often tokens were dropped.
  int64_t slides() const { return slides_; }

 private:
  void run(const std::vector<SegmentCall>& calls, int64_t count);

  Executor& executor_;
  std::vector<SegmentCall> share_, prefill_, decode_;  // share_: once, of a weight on two pipeline stages
  int64_t cache_length_, chunk_, vocab_, slides_ = 0;
  std::vector<int32_t> window_;  // tokens of the sequence still in the cache
  int64_t done_ = 0;             // how many of them are in the cache
  std::vector<float> logits_;
};

struct GenerateOptions {
  int64_t max_tokens = 256;
  SamplerOptions sampler;
  uint64_t sample = 0;  // index of the sample: samples of one prompt differ
  int64_t vocab = 0;    // draw ids below this (if the tokenizer is smaller than the model); 0: the model's vocabulary
  std::vector<uint32_t> end_tokens;  // each ends the text and is left out
  bool keep_cache = false;           // does not compute the cached beginning of the prompt again
  // Asked before each chunk of the prompt and each token: whether to end.
  std::function<bool()> interrupted = {};
};

enum class GenerateEnd { length, end_token, stopped, interrupted };

struct Generated {
  std::vector<int32_t> tokens;
  GenerateEnd end = GenerateEnd::length;
  int64_t kept = 0;           // tokens of the prompt taken from the cache
  double prompt_seconds = 0;  // until the first logits
  double decode_seconds = 0;  // from there to the end
};

// Clears the decoder (with keep_cache only its tokens behind the prompt's beginning), feeds the
// prompt (at least one token, all in the vocabulary) and draws tokens. `token` receives each token
// at once. If it returns false, generation ends.
Generated generate(Decoder& decoder, std::span<const int32_t> prompt, const GenerateOptions& options,
                   const std::function<bool(int32_t)>& token = {});

// A prompt's tokens, with special tokens. An empty prompt becomes `begin`, or a newline without
// `begin`. add_begin: prompts start with `begin` unless they contain it already. `vocab`: the
// model's; a token beyond it is an error.
std::vector<int32_t> prompt_tokens(const Tokenizer& tokenizer, std::string_view prompt, int64_t vocab,
                                   std::optional<uint32_t> begin, bool add_begin = false);

// Continues a prompt with default options, up to the first of `ends`, for samples during training.
// Always draws all tokens: ranks with shards of the weights gather them together for each token,
// and rounding may let one rank draw a different token. tokenizer: null on ranks that only take
// part; they return no text.
std::string generate_text(Executor& executor, const Tokenizer* tokenizer, std::span<const int32_t> prompt,
                          std::span<const uint32_t> ends, int64_t max_tokens, uint64_t seed);

}  // namespace crest
