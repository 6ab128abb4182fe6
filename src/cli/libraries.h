// Versions of the libraries that Crest uses, as environment files and `crest devices` show them.
#pragma once
#include <string>
#include <utility>
#include <vector>

namespace crest {

// (name, version)
std::vector<std::pair<std::string, std::string>> library_versions();

}  // namespace crest
