// Text for people in a terminal: help, the layout of errors.
#include <sys/ioctl.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <regex>
#include <sstream>

#include "run.h"

using namespace crest;
using namespace crest::test;

namespace {

// Runs crest with a terminal of `columns` columns as standard output. Returns its output.
std::string in_terminal(const std::vector<std::string>& arguments, unsigned short columns) {
  int master = posix_openpt(O_RDWR | O_NOCTTY);
  EXPECT_TRUE(master >= 0 && grantpt(master) == 0 && unlockpt(master) == 0) << std::strerror(errno);
  std::string name = ptsname(master), text;
  winsize size{40, columns, 0, 0};
  ioctl(master, TIOCSWINSZ, &size);
  int slave = open(name.c_str(), O_RDWR | O_NOCTTY);
  std::thread reader([&] {
    char buffer[4096];
    for (ssize_t n; (n = read(master, buffer, sizeof buffer)) > 0;) text.append(buffer, size_t(n));
  });
  RunResult r = run_crest(arguments, {.output = name});
  EXPECT_EQ(r.code, 0) << r.err;
  close(slave);
  reader.join();
  close(master);
  text.erase(std::remove(text.begin(), text.end(), '\r'), text.end());
  return text;
}

size_t longest_line(const std::string& text) {
  size_t longest = 0;
  std::istringstream lines(text);
  for (std::string line; std::getline(lines, line);)
    if (!line.starts_with("  crest ")) longest = std::max(longest, line.size());  // examples are not broken
  return longest;
}

}  // namespace

TEST(Help, FitsTheTerminal) {
  for (const char* command : {"plan", "bench", "compare"}) {
    std::string narrow = in_terminal({command, "--help-all"}, 80), wide = in_terminal({command, "--help-all"}, 200);
    EXPECT_LE(longest_line(narrow), 80u) << narrow;
    EXPECT_GT(longest_line(wide), 80u) << wide;
    EXPECT_LE(longest_line(wide), 100u) << wide;
  }
}

// Markdown is for the page in docs/ (tests/cli/before.cpp).
TEST(Help, SettingsFitTheTerminal) {
  std::string text = in_terminal({"help", "settings"}, 80);
  EXPECT_LE(longest_line(text), 80u) << text;
  EXPECT_EQ(text.find('|'), std::string::npos) << text;
  for (const char* part : {"\nModel and batch\n  --model ", "(on resume: refuses)"})
    EXPECT_NE(text.find(part), std::string::npos) << part << text;
}

TEST(Runs, FitTheTerminal) {
  TempFolder folder;
  std::string store = folder.path().string() + "/crest.db";
  std::string log = folder.write("a.log", "step 1 | loss 3.5 | dt 10ms\nstep 2 | loss 3.25 | dt 12ms\nval loss 3.0\n");
  RunResult r = run_crest({"runs", "import", log, "--name", "a-rather-long-name-of-a-run", "--model", "gpt2-124M",
                           "--batch", "4", "--seq", "128", "--device", "NVIDIA H200 SXM", "--store", store});
  ASSERT_EQ(r.code, 0) << r.err;
  std::string narrow = in_terminal({"runs", "--store", store}, 80), wide = in_terminal({"runs", "--store", store}, 200);
  for (std::string part : {"a-rather-long-name-of-a-run", "step ms", "left out for lack of room: "})
    EXPECT_NE(narrow.find(part), std::string::npos) << narrow;
  EXPECT_NE(wide.find("NVIDIA H200"), std::string::npos) << wide;
  EXPECT_EQ(wide.find("left out"), std::string::npos) << wide;
  // Columns: without escape sequences, and the rule below the header has three bytes for each.
  std::istringstream lines(std::regex_replace(narrow, std::regex("\x1b\\[[0-9]*m"), ""));
  for (std::string line; std::getline(lines, line);)
    EXPECT_LE(std::count_if(line.begin(), line.end(), [](char c) { return (c & 0xc0) != 0x80; }), 80) << line;
}

TEST(Help, NamesValuesAndDefaults) {
  std::string help = run_crest({"plan", "--help-all"}).out;
  for (const char* text : {"\nParameters, memory, FLOPs and time before anything runs.\n", "--config FILE ",
                           "--memory SIZE ", "sequences per micro batch (default: 8)", "(flash, naive; default: flash)",
                           "preset (gpt2-124M, ", "--model VALUE "})
    EXPECT_NE(help.find(text), std::string::npos) << text << help;
}

// Advice without a suggestion starts in the same column as any other advice.
TEST(Help, AdviceIsIndentedByTwo) {
  for (const std::vector<std::string>& wrong :
       {std::vector<std::string>{"profile", "--by", "qqqqqqqq"}, {"comm", "qqqqqqqqqqqqqqqq"}, {"qqqqqqqqqqqqqqqq"}}) {
    RunResult r = run_crest(wrong);
    size_t line = r.err.find('\n');
    ASSERT_NE(line, std::string::npos) << r.err;
    EXPECT_EQ(r.err.substr(line + 1, 2), "  ") << r.err;
    EXPECT_NE(r.err[line + 3], ' ') << r.err;
  }
}
