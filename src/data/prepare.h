// `crest data prepare`: text -> shards, tokenizer.json and meta.json in a folder that appears complete or not at all.
#pragma once
#include <cstdint>
#include <filesystem>
#include <functional>
#include <string>
#include <vector>

#include "data/dataset.h"

namespace crest {

struct PrepareProgress {
  const char* stage;             // "reading lines", "counting words", "training the tokenizer", "encoding"
  uint64_t done = 0, total = 0;  // of the stage: bytes, or merges
};

struct PrepareOptions {
  std::vector<std::string> inputs;  // files, folders, "-" for standard input
  std::string tokenizer = "bytes";  // bytes | bpe:VOCAB | path of a file (Tokenizer::load)
  std::string split_rule;           // for bpe:VOCAB and files that do not say it; empty = GPT-2's, or as known
  std::filesystem::path out;
  std::string separator;          // text that divides documents inside files, e.g. "<|endoftext|>"; empty = files only
  std::string text_key = "text";  // of .jsonl files: the key of a line's text
  // The last part of the corpus that is held out for validation. Below 0: a tenth, at most 32 MiB. 0: no validation
  // split.
  double val_fraction = -1;
  int64_t window = 256;  // small corpora: hold out enough for one sequence of this length, if a quarter gives it
  uint64_t shard_tokens = ShardWriter::default_shard_tokens;
  size_t block_bytes = 8 << 20;  // memory use is a small multiple of it
  bool overwrite = false;        // replaces an existing folder of prepared data (never another folder)
  std::function<void(const PrepareProgress&)> progress;  // may throw to cancel: nothing is left behind
  std::function<void(const std::string&)> message;       // one line each: skipped files and the like
  int standard_input = 0;                                // descriptor read for "-"
};

struct PrepareResult {
  std::filesystem::path folder;
  DatasetInfo info;
  bool reused = false;  // prepare_cached found it ready
  double seconds = 0;
};

// Documents (files, and what `separator` divides) are joined with the end-of-text token between them. The tokenizer is
// trained on the training part only. Errors: inputs missing, empty, unreadable, compressed or too short; folder exists;
// disk full.
PrepareResult prepare(const PrepareOptions& options);

// Prepares into cache_root/<hash of spec, paths and contents> unless that is there already, whole and the same.
// `out` and `overwrite` are not used; standard input cannot be cached.
PrepareResult prepare_cached(PrepareOptions options, const std::filesystem::path& cache_root);
inline PrepareResult prepare_cached(const std::filesystem::path& text, const std::filesystem::path& cache_root,
                                    const std::string& tokenizer) {
  PrepareOptions options;
  options.inputs = {text.string()};
  options.tokenizer = tokenizer;
  return prepare_cached(std::move(options), cache_root);
}

}  // namespace crest
