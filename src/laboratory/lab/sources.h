// The documents behind the tested claims. Experiment files name them by key.
#pragma once
#include <string>
#include <vector>

namespace crest::lab {

struct Source {
  const char *key, *title, *author;
};
const std::vector<Source>& sources();

// A claim's `source` in words: "003, batch sizes" becomes title, author and section. Text without a
// known key is unchanged.
std::string source_text(const std::string& source);
// The section alone: "batch sizes"; "" for documents without a section. Text without a known key is
// unchanged.
std::string section_text(const std::string& source);
// The keys in `source`.
std::vector<std::string> source_keys(const std::string& source);

}  // namespace crest::lab
