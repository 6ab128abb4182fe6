// Checks of a report's text.
#pragma once
#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "report/report.h"
#include "store/record.h"

namespace crest::test {

inline bool says(const std::string& text, const std::string& part) {
  if (text.find(part) != std::string::npos) return true;
  ADD_FAILURE() << "no '" << part << "' in\n" << text;
  return false;
}
inline bool silent(const std::string& text, const std::string& part) { return text.find(part) == std::string::npos; }

inline std::string html_of(const std::vector<RunRecord>& runs, const std::string& title = "") {
  return to_html(make_report(runs, title).page);
}

}  // namespace crest::test
