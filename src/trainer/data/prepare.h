// `crest data prepare`: turns text into shards, tokenizer.json and meta.json, in a folder that
// appears complete or not at all.
#pragma once
#include <cstdint>
#include <filesystem>
#include <functional>
#include <string>
#include <vector>

#include "data/dataset.h"
#include "data/sources.h"

namespace crest {

struct PrepareProgress {
  const char* stage;  // "reading", "comparing documents", "counting words", "training the tokenizer", "encoding"
  uint64_t done = 0, total = 0;  // in this stage: bytes, or merges
};

struct PrepareOptions {
  std::vector<std::string> inputs;  // files, folders, "-" for standard input
  std::string tokenizer = "bytes";  // bytes | bpe:VOCAB | path of a file (Tokenizer::load)
  std::string split_rule;           // for bpe:VOCAB and files without a rule; empty = GPT-2's, or as known
  std::filesystem::path out;
  std::string separator;  // separator of documents within files, e.g. "<|endoftext|>"; empty = one per file
  TextFormat format = TextFormat::automatic;
  std::string text_key = "text";  // of JSON lines: the key of a line's text
  std::string chat_template;      // of their conversations; empty: ChatFormat chooses
  uint64_t skip_bad_lines = 0;    // lines of JSON and rows of Parquet without a usable text to skip; one more fails
  bool deduplicate = false;       // of equal documents, only the first stays
  bool add_bos = false;           // every document begins with the tokenizer's begin-of-text token
  // Fraction of the corpus, at its end, held out for validation. Below 0: a tenth, at most 32 MiB.
  // 0: no validation split.
  double val_fraction = -1;
  int64_t window = 256;  // small corpora: hold out enough for one sequence of this length, if a quarter suffices
  uint64_t shard_tokens = ShardWriter::default_shard_tokens;
  size_t block_bytes = 8 << 20;  // memory use is a small multiple of it
  bool overwrite = false;        // replaces an existing folder of prepared data (never another folder)
  // A signal (StopSignal) ends the preparation as `interrupted`; progress may throw to cancel it.
  // No files are left behind.
  std::function<void(const PrepareProgress&)> progress;
  std::function<void(const std::string&)> message;  // one line each: skipped files and the like
  int standard_input = 0;                           // descriptor to read for "-"
};

struct PrepareResult {
  std::filesystem::path folder;
  DatasetInfo info;
  bool reused = false;                                          // prepare_cached found it ready
  uint64_t bad_lines = 0, duplicates = 0, duplicate_bytes = 0;  // skipped; 0 for reused data
  double seconds = 0;
};

// Joins documents (files, and their parts between `separator`) with an end-of-text token between
// them. The tokenizer is trained on the training part only. Errors: inputs missing, empty,
// unreadable, not text or too short; folder exists; disk full.
PrepareResult prepare(const PrepareOptions& options);

// Prepares into cache_root/<hash of spec, paths and contents>, unless it is already there, complete
// and identical. `out` and `overwrite` are ignored; standard input cannot be cached.
PrepareResult prepare_cached(PrepareOptions options, const std::filesystem::path& cache_root);
inline PrepareResult prepare_cached(const std::filesystem::path& text, const std::filesystem::path& cache_root,
                                    const std::string& tokenizer) {
  PrepareOptions options;
  options.inputs = {text.string()};
  options.tokenizer = tokenizer;
  return prepare_cached(std::move(options), cache_root);
}

}  // namespace crest
