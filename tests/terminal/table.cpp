#include "terminal/table.h"

#include <gtest/gtest.h>

#include <unistd.h>

#include <cstdlib>

#include "core/error.h"
#include "terminal/fit_table.h"

using namespace crest;

TEST(Table, TextInLines) {
  EXPECT_EQ(wrapped("one two three", {.width = 7}), "one two\nthree");
  EXPECT_EQ(wrapped("one  two three", {.width = 7, .indent = "> "}), "one two\n> three");
  EXPECT_EQ(wrapped("one two", {.width = 7, .taken = 1}), "one\ntwo");
  EXPECT_EQ(wrapped("\u65e5\u672c \u65e5\u672c", {.width = 8}), "\u65e5\u672c\n\u65e5\u672c") << "columns, not bytes";
  EXPECT_EQ(wrapped("incomprehensible it", {.width = 4}), "incomprehensible\nit");
  auto no_minus = [](std::string_view word) { return word != "-"; };
  EXPECT_EQ(wrapped("a - b", {.width = 1, .may_begin_line = no_minus}), "a -\nb");
  EXPECT_EQ(wrapped("one two - b", {.width = 8, .may_begin_line = no_minus}), "one\ntwo - b");
  EXPECT_EQ(wrapped("", {}), "");
}

TEST(Table, WidthsOfUnicode) {
  EXPECT_EQ(display_width("abc"), 3u);
  EXPECT_EQ(display_width("na\u00efve"), 5u);
  EXPECT_EQ(display_width("nai\u0308ve"), 5u) << "a combining mark takes no column";
  EXPECT_EQ(display_width("\u65e5\u672c"), 4u);
  EXPECT_EQ(display_width("\U0001F600"), 2u);
  EXPECT_EQ(display_width("\xff\xc3"), 2u) << "bytes that are no UTF-8";
  EXPECT_EQ(display_width("\u28ff\u2500"), 2u);
}

TEST(Table, FitsText) {
  EXPECT_EQ(fit_width("abcdef", 6), "abcdef");
  EXPECT_EQ(fit_width("abcdefg", 6), "abcde\u2026");
  EXPECT_EQ(fit_width("\u65e5\u672c\u8a9e", 4), "\u65e5\u2026") << "a wide character is not cut in half";
  EXPECT_EQ(fit_width("abc", 0), "");
}

TEST(Table, ReplacesInvalidUtf8) {
  EXPECT_EQ(valid_utf8("a\u00e9\u65e5"), "a\u00e9\u65e5");
  EXPECT_EQ(valid_utf8("a\xff"), "a\xEF\xBF\xBD");
  EXPECT_EQ(valid_utf8("\xc0\xaf"), "\xEF\xBF\xBD\xEF\xBF\xBD") << "overlong forms are no UTF-8";
  EXPECT_EQ(valid_utf8("\xed\xa0\x80"), "\xEF\xBF\xBD\xEF\xBF\xBD\xEF\xBF\xBD") << "surrogates neither";
  EXPECT_EQ(valid_utf8("\xe2\x82"), "\xEF\xBF\xBD") << "cut short";
}

TEST(Table, AlignsNumbersRight) {
  Table t({{"name", Align::left}, {"ms"}});
  t.row({"na\u00efve", "1.5"});
  t.rule();
  t.row({"b", "12.25"});
  t.row({"only"});
  EXPECT_EQ(t.text(),
            "name      ms\n"
            "\u2500\u2500\u2500\u2500\u2500  \u2500\u2500\u2500\u2500\u2500\n"
            "na\u00efve    1.5\n"
            "\u2500\u2500\u2500\u2500\u2500  \u2500\u2500\u2500\u2500\u2500\n"
            "b      12.25\n"
            "only\n");
  EXPECT_EQ(t.text(true).substr(0, 4), "\x1b[1m");
  EXPECT_THROW(t.row({"a", "b", "c"}), Error);
}

TEST(Table, MarkdownEscapesPipesAndControl) {
  Table t({{"a|b", Align::left}, {"n"}});
  t.row({"x|y\n\x1b[31m", "1"});
  EXPECT_EQ(t.markdown(), "| a\\|b | n |\n|---|---:|\n| x\\|y\\x0a\\x1b[31m | 1 |\n");
}

TEST(Table, NoColorWithoutATerminal) {
  int pipe_ends[2];
  ASSERT_EQ(pipe(pipe_ends), 0);
  EXPECT_FALSE(use_color(pipe_ends[1]));
  setenv("COLUMNS", "133", 1);
  EXPECT_EQ(terminal_width(pipe_ends[1]), 133);
  setenv("COLUMNS", "rubbish", 1);
  EXPECT_EQ(terminal_width(pipe_ends[1]), 80);
  unsetenv("COLUMNS");
  close(pipe_ends[0]), close(pipe_ends[1]);
}

TEST(FitTable, ConstantColumnsGoIntoALineAndOthersAreLeftOutByRank) {
  std::vector<FitColumn> columns = {
      {{"name", Align::left}, 0}, {{"model", Align::left}, 1}, {{"median ms"}, 2}, {{"tokens/s"}, 0}};
  std::vector<std::vector<std::string>> rows = {{"first", "nano", "12.5", "1000"}, {"second", "nano", "13.5", "900"}};
  std::string wide = fit_table(columns, rows, 80, false);
  EXPECT_NE(wide.find("name    model  median ms  tokens/s"), std::string::npos) << wide;
  std::string narrow = fit_table(columns, rows, 28, false);
  EXPECT_EQ(narrow.rfind("same in all rows: model nano\n", 0), 0u) << narrow;
  EXPECT_NE(narrow.find("name    median ms  tokens/s"), std::string::npos) << narrow;
  EXPECT_EQ(narrow.find("left out"), std::string::npos) << narrow;
  std::string tiny = fit_table(columns, rows, 20, false);
  EXPECT_NE(tiny.find("name    tokens/s"), std::string::npos) << tiny;
  EXPECT_NE(tiny.find("median ms"), std::string::npos) << "named below the table:\n" << tiny;
  EXPECT_NE(fit_table(columns, {rows[0]}, 28, false).find("model"), std::string::npos) << "one row has no constants";
}

TEST(FitTable, NamesAreCutToWhatIsLeft) {
  std::vector<FitColumn> columns = {{{"ms"}}, {{"calls"}, 1}, {{"name", Align::left}, 0, 8}};
  std::vector<std::vector<std::string>> rows = {{"1.5", "12", "a name of twenty-four it"}, {"2.5", "13", "short"}};
  EXPECT_NE(fit_table(columns, rows, 80, false).find("12  a name of twenty-four it"), std::string::npos);
  std::string narrow = fit_table(columns, rows, 24, false), tiny = fit_table(columns, rows, 14, false);
  EXPECT_NE(narrow.find("1.5     12  a name of t\u2026\n"), std::string::npos) << narrow;
  EXPECT_NE(tiny.find("1.5  a name o\u2026\n"), std::string::npos) << tiny;
  EXPECT_NE(tiny.find("left out for\n  lack of\n  room: calls\n"), std::string::npos) << tiny;
}
