// Turns text files into the prepared data that training reads, kept in the cache.
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
// What the user sees of it.
struct PreparationShown {
  std::function<void(const PrepareProgress&)> progress;
  std::function<void(const std::string&)> message;  // none: to standard error
};
// texts: files and folders. tokenizer "": bytes for short texts, else bpe:2048. chat_template "":
// chosen by ChatFormat. Usage and read errors name the file. Ctrl-C ends it as `interrupted`.
PreparedText prepare_text(const std::vector<std::string>& texts, const std::string& tokenizer,
                          const std::string& chat_template = {}, const PreparationShown& shown = {});
// 4 MiB of data/generated_text.h as bytes.
PreparedText prepare_generated_text();

}  // namespace crest
