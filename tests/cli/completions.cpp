// crest completions: the real shells take the scripts, and bash completes with them.
#include "cli/completions.h"

#include <sstream>

#include "run.h"

using namespace crest;
using namespace crest::test;

namespace {

// Bash's offers after `line`, with its last word unfinished.
std::string offered(const TempFolder& folder, const std::vector<std::string>& line) {
  std::string words;
  for (auto& w : line) words += " '" + w + "'";
  folder.write("ask.sh", "source ./crest.bash\nCOMP_WORDS=(crest" + words + ")\nCOMP_CWORD=" +
                             std::to_string(line.size()) + "\n_crest\nprintf '%s ' \"${COMPREPLY[@]}\"\n");
  std::string command = "cd '" + folder.path().string() + "' && bash --norc ./ask.sh > out 2>&1";
  EXPECT_EQ(std::system(command.c_str()), 0) << folder.read("out");
  return " " + folder.read("out");
}

bool has_word(const std::string& text, const std::string& word) {
  return (" " + text).find(" " + word + " ") != std::string::npos;
}

// The words of a help text.
std::string plain(std::string help) {
  for (char& c : help)
    if (!std::isalnum(static_cast<unsigned char>(c)) && c != '-' && c != '.') c = ' ';
  return help + " ";
}

bool installed(const std::string& shell) { return std::system(("command -v " + shell + " > /dev/null").c_str()) == 0; }

}  // namespace

TEST(Completions, BashCompletesCommandsFlagsAndValues) {
  if (!installed("bash")) GTEST_SKIP() << "bash is not installed";
  TempFolder folder;
  RunResult r = run_crest({"completions", "bash"});
  ASSERT_EQ(r.code, 0) << r.err;
  folder.write("crest.bash", r.out);
  EXPECT_EQ(offered(folder, {"tra"}), " train ");
  EXPECT_TRUE(has_word(offered(folder, {""}), "import"));
  EXPECT_EQ(offered(folder, {"train", "--grad-acc"}), " --grad-accumulation ");
  EXPECT_EQ(offered(folder, {"eval", "--grad-acc"}), "  ") << "no flag of eval";
  EXPECT_EQ(offered(folder, {"train", "--model", "gpt2-1"}), " gpt2-124M gpt2-1558M ");
  EXPECT_EQ(offered(folder, {"plan", "--precision", "b"}), " bf16 ");
  EXPECT_EQ(offered(folder, {"plan", "--precision", "=", "b"}), " bf16 ") << "as bash divides --precision=b";
  EXPECT_EQ(offered(folder, {"plan", "--precision", "="}), " auto fp32 tf32 bf16 fp16 fp8 ");
  EXPECT_EQ(offered(folder, {"plan", "--precision=b"}), " --precision=bf16 ");
  EXPECT_TRUE(has_word(offered(folder, {"plan", "--device", ""}), "h200"));
  EXPECT_FALSE(has_word(offered(folder, {"train", "--device", ""}), "h200"));
  EXPECT_EQ(offered(folder, {"train", "--optimizer", "mu"}), " muon ");
  EXPECT_EQ(offered(folder, {"data", "p"}), " prepare ");
  EXPECT_EQ(offered(folder, {"data", "prepare", ""}), "  ") << "files";
  EXPECT_EQ(offered(folder, {"train", "--data", "--"}), "  ") << "a value, no flag";
  EXPECT_EQ(offered(folder, {"train", "--json", "--init"}), " --init ");
  EXPECT_EQ(offered(folder, {"nothing", ""}), "  ");
}

TEST(Completions, ShellsAcceptTheirScripts) {
  TempFolder folder;
  size_t checked = 0;
  for (std::string shell : {"bash", "zsh", "fish"}) {
    RunResult r = run_crest({"completions", shell});
    ASSERT_EQ(r.code, 0) << r.err;
    std::string path = folder.write("crest." + shell, r.out);
    for (auto& command : completed_commands()) {
      EXPECT_NE(r.out.find(command.name), std::string::npos) << shell << " " << command.name;
      for (auto& flag : command.flags)
        EXPECT_NE(r.out.find(flag.name.substr(2)), std::string::npos) << shell << " " << flag.name;
    }
    if (!installed(shell)) continue;
    EXPECT_EQ(std::system((shell + " -n '" + path + "'").c_str()), 0) << shell;
    ++checked;
  }
  if (checked < 3) GTEST_SKIP() << "not all of bash, zsh and fish are installed: " << checked << " scripts were parsed";
}

// The sets of values are written twice, in the scripts and in the help. This test keeps them equal.
TEST(Completions, ValuesAreThoseOfTheHelp) {
  size_t sets = 0;
  for (auto& command : completed_commands())
    for (auto& flag : command.flags) {
      if (flag.name == "--model" || flag.name == "--device" || flag.name == "--disable-pass" || flag.name == "--after")
        continue;  // from the tables themselves
      for (auto& value : flag.values)
        EXPECT_NE((" " + plain(flag.help)).find(" " + plain(value)), std::string::npos)
            << command.name << " " << flag.name << ": " << value;
      sets += !flag.values.empty();
    }
  EXPECT_GT(sets, 30u);
}

TEST(Completions, WrongUsage) {
  expect_error({"completions"}, 2, {"bash, zsh, fish"});
  expect_error({"completions", "csh"}, 2, {"'csh'", "bash, zsh, fish"});
}
