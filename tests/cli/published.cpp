// scripts/published.py: predictions next to published speeds.
#include <gtest/gtest.h>

#include <cmath>
#include <fstream>
#include <nlohmann/json.hpp>
#include <set>
#include <sstream>

#include "crest_binary.h"
#include "host/external.h"

namespace crest::test {

namespace {

CommandOutput published(const std::string& arguments) {
  return run_command(std::string("CREST='") + crest_binary() + "' python3 '" + CREST_TEST_DIR +
                     "/../scripts/published.py' " + arguments);
}

std::string text_of_file(const std::string& path) {
  std::stringstream text;
  text << std::ifstream(std::string(CREST_TEST_DIR) + "/../" + path).rdbuf();
  return text.str();
}

size_t lines_with(const std::string& text, const std::string& begin) {
  std::istringstream lines(text);
  size_t n = 0;
  for (std::string line; std::getline(lines, line);) n += line.starts_with(begin);
  return n;
}

}  // namespace

TEST(Published, RowsArePredicted) {
  const CommandOutput output = published("--only qwen-1500M --json");
  const nlohmann::json rows = nlohmann::json::parse(output.out);
  ASSERT_EQ(rows.size(), 2U);
  for (auto& row : rows) {
    EXPECT_LT(std::abs(row["difference"].get<double>()), 0.25) << row;
    EXPECT_LT(row["low"], row["predicted"]);
    EXPECT_EQ(row["ranks"], 8);
    EXPECT_EQ(row["fits"], true);
  }
  EXPECT_GT(rows[1]["predicted"], rows[0]["predicted"]) << "fp8 is faster, as published";
}

// The page is printed by hand, since it takes a minute.
TEST(Published, PageHasEveryRow) {
  const std::string data = text_of_file("scripts/published.toml");
  std::string page = text_of_file("docs/results/published.md");
  const size_t search = page.find("\n## A search for");
  ASSERT_NE(search, page.npos);
  page.erase(search, page.find("\n## ", search + 1) - search);
  const size_t sources = lines_with(data, "[source."), rows = lines_with(data, "[[row]]");
  EXPECT_EQ(lines_with(page, "## "), sources);
  EXPECT_EQ(lines_with(page, "| "), sources + rows) << "scripts/published.py > docs/results/published.md";
}

}  // namespace crest::test
