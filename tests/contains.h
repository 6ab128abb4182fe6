// Common helpers for tests of texts.
#pragma once
#include <string>

namespace crest::test {

inline bool contains(const std::string& text, const std::string& part) { return text.find(part) != std::string::npos; }

}  // namespace crest::test
