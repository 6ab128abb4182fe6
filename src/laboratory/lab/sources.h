// The documents whose claims the experiments test. Experiment files name them by key.
#pragma once
#include <string>
#include <vector>

namespace crest::lab {

struct Source {
  const char *key, *title, *author;
};
const std::vector<Source>& sources();

// `source` of a claim for people: "003, batch sizes" becomes the title with its author, and the
// section. Text without a known key is unchanged.
std::string source_text(const std::string& source);
// The section alone: "batch sizes"; "" when only documents are named. Text without a known key is
// unchanged.
std::string section_text(const std::string& source);
// The keys in it.
std::vector<std::string> source_keys(const std::string& source);

}  // namespace crest::lab
