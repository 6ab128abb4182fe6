// Turns text files into prepared data for training, kept in the cache.
#pragma once
#include <functional>
#include <string>
#include <vector>

#include "data/prepare.h"

namespace crest {

struct PreparedText {
  std::string folder;
  bool reused = false;
  std::string tokenizer;  // as requested, or chosen
  uint64_t tokens = 0;
  uint32_t vocab_size = 0;
};
// Messages for the user.
struct PreparationShown {
  std::function<void(const PrepareProgress&)> progress;
  std::function<void(const std::string&)> message;  // none: to standard error
};
// How text becomes tokens.
struct TextOptions {
  std::string tokenizer = {};      // "": bytes for short texts, else bpe:2048
  std::string chat_template = {};  // "": chosen by ChatFormat
  bool add_bos = false;            // as in PrepareOptions
};
// texts: files and folders. Usage and read errors name the file. Ctrl-C ends it as `interrupted`.
PreparedText prepare_text(const std::vector<std::string>& texts, const TextOptions& options,
                          const PreparationShown& shown = {});
// 4 MiB of data/generated_text.h as bytes.
PreparedText prepare_generated_text();

}  // namespace crest
