// The scripts behind `make`, with apt-get, sudo and dpkg-query replaced: nothing is installed by
// these tests.
#include <gtest/gtest.h>
#include <unistd.h>

#include <algorithm>
#include <filesystem>
#include <fstream>
#include <regex>
#include <sstream>

#include "host/external.h"

using namespace crest;
namespace fs = std::filesystem;

namespace {

// For a shell: paths may hold blanks.
std::string in_quotes(const std::string& path) { return "'" + path + "'"; }
std::string script_path(const std::string& name) {
  return in_quotes(std::string(CREST_TEST_DIR) + "/../scripts/" + name);
}

// A folder of stand-ins, found before the system's commands.
struct Mocks {
  fs::path path = fs::path(testing::TempDir()) / ("crest_mocks_" + std::to_string(getpid()));
  std::string system_path;

  Mocks() {
    fs::remove_all(path);
    fs::create_directories(path);
    // "installed" holds one package a line.
    script("dpkg-query", "for p; do :; done; grep -qx \"$p\" " + in_quotes(file("installed")) + " && printf installed");
    script("apt-get",
           "echo \"apt-get $*\" >> " + in_quotes(file("log")) + "; [ ! -e " + in_quotes(file("offline")) + " ]");
    script("id", "echo 0");
    put("installed", "");
  }
  ~Mocks() { fs::remove_all(path); }

  std::string file(const std::string& name) const { return (path / name).string(); }
  void put(const std::string& name, const std::string& text) const { std::ofstream(path / name) << text; }
  void script(const std::string& name, const std::string& body) const {
    put(name, "#!/bin/sh\n" + body + "\n");
    fs::permissions(path / name, fs::perms::owner_all);
  }
  std::string log() const {
    std::stringstream text;
    text << std::ifstream(path / "log").rdbuf();
    return text.str();
  }
  // Begins a command line.
  std::string search_path() const { return "PATH=" + in_quotes(path.string()); }
  CommandOutput run(const std::string& groups = "build") const {
    return run_command(search_path() + ":\"$PATH\" CREST_CACHE=" + in_quotes(file("cache")) + " sh " +
                       script_path("install-deps.sh") + " " + groups);
  }
};

// The packages required by a build, one a line.
std::string required_packages() {
  CommandOutput r = run_command("sh " + script_path("install-deps.sh") + " --list build");
  EXPECT_EQ(r.exit_code, 0) << r.err;
  EXPECT_NE(r.out.find("libfmt-dev\n"), std::string::npos) << r.out;
  return r.out;
}

}  // namespace

TEST(InstallDeps, AllPresentTouchesNothing) {
  Mocks m;
  m.put("installed", required_packages() + "ccache\nmold\nbible-kjv\nlibgloo-dev\nlibcivetweb-dev\n");
  CommandOutput r = m.run();
  EXPECT_EQ(r.exit_code, 0) << r.err;
  EXPECT_EQ(r.out + r.err, "");
  EXPECT_EQ(m.log(), "") << "no apt-get, so it works offline";
}

TEST(InstallDeps, RootInstallsWhatIsMissing) {
  Mocks m;
  m.put("installed", "g++\ncmake\nninja-build\nlibdnnl-dev\n");
  CommandOutput r = m.run();
  EXPECT_EQ(r.exit_code, 0) << r.err;
  EXPECT_NE(m.log().find(" update"), std::string::npos);
  EXPECT_NE(m.log().find("libfmt-dev"), std::string::npos);
  EXPECT_NE(m.log().find("bible-kjv"), std::string::npos);
  EXPECT_EQ(m.log().find("libdnnl-dev"), std::string::npos) << "what is there is not asked for";
}

TEST(InstallDeps, ListsBeforeItInstallsAndIsQuiet) {
  Mocks m;
  m.put("installed", required_packages());
  m.script("apt-get", "echo scrolling; echo apt-get >&2");
  CommandOutput r = m.run();
  EXPECT_EQ(r.exit_code, 0) << r.err;
  EXPECT_NE(r.err.find("(5), now installed with apt-get"), std::string::npos) << r.err;
  EXPECT_NE(r.err.find("\n  ccache mold bible-kjv libgloo-dev libcivetweb-dev\n"), std::string::npos) << r.err;
  EXPECT_EQ((r.out + r.err).find("scrolling"), std::string::npos) << "what apt-get prints is in its log";
  m.put("installed", "");
  m.script("apt-get", "echo E: scrolling; exit 100");
  r = m.run();
  EXPECT_EQ(r.exit_code, 1);
  EXPECT_NE(r.err.find("E: scrolling"), std::string::npos) << "unless it fails\n" << r.err;
}

TEST(InstallDeps, UserTakesSudo) {
  Mocks m;
  m.script("id", "echo 1000");
  m.script("sudo", "echo \"sudo $1\" >> " + in_quotes(m.file("log")) + "; exec \"$@\"");
  CommandOutput r = m.run("format");
  EXPECT_EQ(r.exit_code, 0) << r.err;
  EXPECT_EQ(m.log().substr(0, 8), "sudo env");
  EXPECT_NE(m.log().find("clang-format-14"), std::string::npos);
}

TEST(InstallDeps, UserWithoutSudoIsTold) {
  Mocks m;
  m.script("id", "echo 1000");
  m.script("grep", "exec /bin/grep \"$@\"");
  // A PATH of the stand-ins and the script's few tools, without sudo.
  for (const char* tool : {"sh", "dirname", "cat", "mkdir", "touch", "env"})
    fs::create_symlink(fs::exists(fs::path("/usr/bin") / tool) ? fs::path("/usr/bin") / tool : fs::path("/bin") / tool,
                       m.path / tool);
  std::string command = m.search_path() + " CREST_CACHE=" + in_quotes(m.file("cache")) + " sh " +
                        script_path("install-deps.sh") + " build";
  CommandOutput r = run_command(command);
  EXPECT_EQ(r.exit_code, 1);
  EXPECT_NE(r.err.find("no sudo"), std::string::npos) << r.err;
  EXPECT_NE(r.err.find("apt-get install"), std::string::npos) << r.err;
  EXPECT_NE(r.err.find("libfmt-dev"), std::string::npos) << r.err;
  EXPECT_EQ(m.log(), "");
  // Only optional packages missing: goes on in silence.
  m.put("installed", required_packages());
  r = run_command(command);
  EXPECT_EQ(r.exit_code, 0) << r.err;
}

TEST(InstallDeps, OfflineWithRequiredPackagesMissingFails) {
  Mocks m;
  m.put("offline", "");
  CommandOutput r = m.run();
  EXPECT_EQ(r.exit_code, 1);
  EXPECT_NE(r.err.find("could not install"), std::string::npos) << r.err;
}

TEST(InstallDeps, OptionalPackagesAreTriedOnce) {
  Mocks m;
  m.put("offline", "");
  m.put("installed", required_packages());
  CommandOutput r = m.run();
  EXPECT_EQ(r.exit_code, 0) << r.err;
  EXPECT_NE(r.err.find("without the optional packages: ccache mold bible-kjv"), std::string::npos) << r.err;
  std::string first = m.log();
  EXPECT_EQ(m.run().exit_code, 0);
  EXPECT_EQ(m.log(), first) << "the second time asks for nothing";
}

TEST(InstallDeps, UnknownOptionalPackageDoesNotBlock) {
  Mocks m;
  m.script("apt-get",
           "echo \"apt-get $*\" >> " + in_quotes(m.file("log")) + "; case \"$*\" in *bible-kjv*) exit 100 ;; esac");
  CommandOutput r = m.run();
  EXPECT_EQ(r.exit_code, 0) << r.err;
  EXPECT_NE(m.log().find("ocl-icd-opencl-dev zlib1g-dev libzstd-dev liblzma-dev\n"), std::string::npos) << m.log();
}

TEST(InstallDeps, UnknownGroup) {
  Mocks m;
  EXPECT_EQ(m.run("everything").exit_code, 2);
}

TEST(DemoCorpus, HasHeadingsAndOneVerseALine) {
  // A stand-in for the `bible` command, in its layout.
  Mocks m;
  m.script("bible",
           R"(printf '\nGenesis 1\n\n  1 In the beginning\nGod created.\n  2 And the earth\nwas void; and\ndark.\n'
printf '\nGenesis 2\n\n  1 Thus.\n\n1 Samuel 1\n\n  1 Now there was\n  2 And he had.\n'
i=0; while [ $i -lt 40 ]; do head -c 99999 /dev/zero | tr '\0' x; echo; i=$((i+1)); done; head -c 9999 /dev/zero | tr '\0' y)");
  std::string out = m.file("corpus.txt");
  std::string command = m.search_path() + ":\"$PATH\" sh " + script_path("demo-corpus.sh") + " " + in_quotes(out);
  CommandOutput r = run_command(command);
  ASSERT_EQ(r.exit_code, 0) << r.err;
  std::stringstream text;
  text << std::ifstream(out).rdbuf();
  std::string start =
      "GENESIS\n\nChapter 1\n\nIn the beginning God created.\nAnd the earth was void; and dark.\n\nChapter 2\n\nThus.\n"
      "\n\n1 SAMUEL\n\nChapter 1\n\nNow there was\nAnd he had. xxx";
  EXPECT_EQ(text.str().substr(0, start.size()), start);
  m.script("bible", "echo nothing");
  r = run_command(command);
  EXPECT_EQ(r.exit_code, 1);
  EXPECT_NE(r.err.find("instead of 4 MB"), std::string::npos) << r.err;
}

namespace {
// A copy of the scripts in a separate folder. The stand-in at build/release/crest logs its
// arguments.
struct DemoFolder : Mocks {
  fs::path root = path / "repo";
  explicit DemoFolder(const std::string& crest) {
    fs::create_directories(root / "build/release");
    fs::create_directories(root / ".cache");
    fs::create_directories(root / "runs/demo");
    script("make", "echo \"make $*\" >> " + in_quotes(file("log")));
    fs::copy(std::string(CREST_TEST_DIR) + "/../scripts", root / "scripts");
    fs::copy(std::string(CREST_TEST_DIR) + "/../.ci", root / ".ci");
    std::ofstream(root / ".cache/kjv.txt") << "text";
    script("repo/build/release/crest", "echo \"$*\" >> " + in_quotes(file("log")) + "\n" + crest);
  }
  CommandOutput demo(const std::string& variables = "") const {
    return run_command("unset CREST_CACHE CORPUS MODEL SECONDS_TO_TRAIN SECONDS_TO_MEASURE; " + variables + " " +
                       search_path() + ":\"$PATH\" sh " + in_quotes((root / "scripts/demo.sh").string()));
  }
};
// The result of `data prepare`: the folder named last, with meta.json.
const char* const prepares = "case $1 in data) for d; do :; done; mkdir -p $d; touch $d/meta.json ;; esac";
}  // namespace

TEST(Demo, BuildsPreparesTrainsSamplesCompares) {
  DemoFolder d(prepares);
  d.put("repo/runs/demo/log.jsonl", "{\"step\": 3624, \"loss\": 2.9}\n{\"step\": 3624, \"val_loss\": 3.9}\n");
  CommandOutput r = d.demo("SECONDS_TO_TRAIN=7");
  EXPECT_EQ(r.exit_code, 0) << r.err;
  EXPECT_EQ(
      d.log(),
      "make --no-print-directory build\n"
      "data prepare .cache/kjv.txt --tokenizer bpe:2048 --overwrite --out .cache/demo-data\n"
      "train --data .cache/demo-data --model nano --max-seconds 7 --out runs/demo --overwrite\n"
      "sample --run runs/demo --prompt In the beginning --max-tokens 120\n"
      "compare --model nano --vocab 2048 --max-seconds 30 --a --precision fp32 --attention naive --fusion off --b \n"
      "report --all -o runs/demo/report.html\n");
  EXPECT_NE(r.out.find("repo/runs/demo/report.html\n"), std::string::npos) << r.out;
  EXPECT_NE(r.out.find("train --resume runs/demo --steps 7248 "), std::string::npos) << "more than it has\n" << r.out;
  EXPECT_EQ(r.out.rfind("From a text to a model that writes, in six stages:\n", 0), 0u) << r.out;
  for (const char* stage : {"1 build", "2 prepare", "3 train", "4 sample", "5 compare", "6 report"}) {
    EXPECT_NE(r.out.find(std::string("\n  ") + stage), std::string::npos) << r.out;
    EXPECT_NE(r.out.find(std::string("\n== ") + stage), std::string::npos) << r.out;
  }
  EXPECT_NE(r.out.find("  3 train     a model of the preset nano                          about 7 seconds\n"),
            std::string::npos)
      << r.out;
  d.put("log", "");
  EXPECT_EQ(d.demo().exit_code, 0);
  EXPECT_EQ(d.log().find("data prepare"), std::string::npos) << "the shards are kept";
}

TEST(Demo, ItsCommandsCanBePasted) {
  DemoFolder d(prepares);
  CommandOutput r = d.demo();
  EXPECT_EQ(r.exit_code, 0) << r.err;
  std::string ran = d.log(), commands;
  std::stringstream lines(r.out);
  for (std::string line; std::getline(lines, line);)
    if (line.starts_with("$ ")) commands += line.substr(2) + "\n";
  EXPECT_NE(commands.find(" --prompt 'In the beginning' "), std::string::npos) << commands;
  EXPECT_EQ(commands.rfind("export CREST_STORE=", 0), 0u) << commands;
  d.put("log", "");
  CommandOutput pasted =
      run_command("cd " + in_quotes(d.root.string()) + " && " + d.search_path() + ":\"$PATH\" sh -e -c " +
                  in_quotes(std::regex_replace(commands, std::regex("'"), "'\\''")));
  EXPECT_EQ(pasted.exit_code, 0) << pasted.err;
  EXPECT_EQ(d.log(), ran);
}

TEST(Demo, ShowsTheFirstSentencesOfTheComparison) {
  DemoFolder d(std::string(prepares) +
               "\ncase $1 in compare) printf 'B is faster\\nthan A.\\n\\nOne change.\\n\\nTable\\n' ;; esac");
  CommandOutput r = d.demo();
  EXPECT_NE(r.out.find("\nB is faster\nthan A.\n\nOne change.\nThe tables behind these sentences: "
                       "runs/demo/compare.txt\n\n== 6 report"),
            std::string::npos)
      << r.out;
  std::stringstream whole;
  whole << std::ifstream(d.root / "runs/demo/compare.txt").rdbuf();
  EXPECT_EQ(whole.str(), "B is faster\nthan A.\n\nOne change.\n\nTable\n");
}

TEST(Demo, OwnCorpusAndFailures) {
  DemoFolder d(std::string(prepares) + "\ncase $1 in train) exit 130 ;; esac");
  std::ofstream(d.root / "mine.txt") << "text";
  CommandOutput r = d.demo("CORPUS=mine.txt");
  EXPECT_EQ(r.exit_code, 130) << "an interrupted run is still sampled";
  EXPECT_NE(d.log().find("data prepare mine.txt"), std::string::npos) << d.log();
  EXPECT_NE(d.log().find("sample "), std::string::npos);
  EXPECT_EQ(d.log().find("compare "), std::string::npos) << "but not measured";
  EXPECT_EQ(r.out.find("== 6 report"), std::string::npos);
  EXPECT_EQ(r.out.find("report.html"), std::string::npos);
  DemoFolder bad(std::string(prepares) + "\ncase $1 in train) exit 3 ;; esac");
  EXPECT_EQ(bad.demo().exit_code, 3);
  EXPECT_EQ(bad.log().find("sample "), std::string::npos);
}

TEST(ContinuousIntegration, RunsEverythingAndEndsWithTheSummaries) {
  DemoFolder d("");
  d.script("make",
           "[ \"$CREST_WERROR\" = ON ] || exit 1\necho \"make $*\" >> " + in_quotes(d.file("log")) +
               "\necho noise; echo '100% tests passed, 0 tests failed out of 3'; echo 'Total Test time (real) = 1'\n"
               "printf '\"name\": \"Slow\",\\n\"time\": \"7.5s\",\\n\"classname\": \"Cases\",\\n'"
               " > \"${GTEST_OUTPUT#json:}$1.json\"");
  std::string command = d.search_path() + ":\"$PATH\" bash " + in_quotes((d.root / ".ci/run").string());
  CommandOutput r = run_command(command);
  EXPECT_EQ(r.exit_code, 0) << r.err;
  std::string parts = d.log();
  if (size_t at = parts.find("make cuda CUDA_ARCHS=90a "); at != std::string::npos)  // where there is an nvcc
    parts.erase(at, parts.find('\n', at) + 1 - at);
  EXPECT_EQ(parts,
            "make check-format\nmake check-layers\nmake check-prose\nmake test\nmake asan\nmake fuzz FUZZ_SECONDS=12\n"
            "make tidy TIDY_SECONDS=60\n");
  EXPECT_NE(r.out.rfind("100% tests passed"), std::string::npos);
  EXPECT_GT(r.out.rfind("100% tests passed"), r.out.rfind("sanitizers "));
  EXPECT_NE(r.out.find("7 s Cases.Slow\n"), std::string::npos) << r.out;
  d.script("make", "[ \"$1\" != asan ]");
  EXPECT_NE(run_command(command).exit_code, 0) << "a failed part fails the whole";
}

TEST(Ledger, SaysWhatIsSlowerAndKeepsIt) {
  if (run_command("python3 --version").exit_code != 0) GTEST_SKIP() << "there is no python3";
  Mocks m;
  // Stand-ins with a step time from a file; new flags are unknown to the first.
  auto crest = [&](const std::string& name, const std::string& more = "") {
    m.script(name, more + "echo \"[{\\\"step_ms_median\\\": $(cat " + in_quotes(m.file(name + ".ms")) + ")}]\"");
  };
  crest("old");
  crest("new");
  m.put("old.ms", "10");
  auto ledger = [&](const std::string& ms) {
    m.put("new.ms", ms);
    return run_command("python3 " + script_path("ledger.py") + " --old " + in_quotes(m.file("old")) + " --new " +
                       in_quotes(m.file("new")) + " --rows 'nano forward' --rounds 3 --history " +
                       in_quotes(m.file("ledger.jsonl")));
  };
  CommandOutput equal = ledger("10.05"), slower = ledger("12"), faster = ledger("8");
  EXPECT_EQ(equal.exit_code, 0) << equal.err;
  EXPECT_NE(equal.out.find("equal\nno row is slower"), std::string::npos) << equal.out;
  EXPECT_EQ(slower.exit_code, 1) << slower.err;
  EXPECT_NE(slower.out.find("1.200"), std::string::npos) << slower.out;
  EXPECT_NE(slower.out.find("slower: nano forward bf16\n"), std::string::npos) << slower.out;
  EXPECT_EQ(faster.exit_code, 0) << faster.err;
  EXPECT_NE(faster.out.find("faster"), std::string::npos) << faster.out;
  std::stringstream history;
  history << std::ifstream(m.file("ledger.jsonl")).rdbuf();
  std::string lines = history.str();
  EXPECT_EQ(std::count(lines.begin(), lines.end(), '\n'), 3) << lines;
  EXPECT_NE(lines.find("\"ratio\": 1.2, "), std::string::npos) << lines;
  crest("old", "case $1 in bench) echo unknown >&2; exit 2 ;; esac\n");
  EXPECT_NE(ledger("10").out.find("the base does not know it"), std::string::npos);
  crest("new", "case $1 in bench) echo broken >&2; exit 1 ;; esac\n");
  EXPECT_EQ(ledger("10").exit_code, 2);
}

TEST(Ninja, PrintsATenthAtATimeInAPipeAndAllThatFails) {
  Mocks m;
  m.script("ninja",
           "i=0; while [ $i -lt 50 ]; do i=$((i+1)); echo \"[$i/50] Building $i\"; done; echo 'a.cpp: warning'; exit "
           "${1#-j}");
  CommandOutput r = run_command(m.search_path() + ":\"$PATH\" bash " + script_path("ninja.sh") + " -j3");
  EXPECT_EQ(r.exit_code, 3) << "ninja's own";
  EXPECT_EQ(std::count(r.out.begin(), r.out.end(), '\n'), 11) << r.out;
  EXPECT_NE(r.out.find("[50/50] Building 50\na.cpp: warning\n"), std::string::npos) << r.out;
}

namespace {
// A tree with a list of two phrases, for check-prose.py.
struct ProseFolder : Mocks {
  ProseFolder() {
    file_of("scripts/banned-phrases.txt",
            "# comment\nany: cannot be told -> inconclusive\noutput: (?<=\")as much(?=\") -> unchanged\n"
            "history: since then -> the present state\n");
  }
  void file_of(const std::string& name, const std::string& text) const {
    fs::create_directories((path / "tree" / name).parent_path());
    std::ofstream(path / "tree" / name) << text;
  }
  CommandOutput check(const std::string& more = "") const {
    return run_command("python3 " + script_path("check-prose.py") + " --root " + in_quotes((path / "tree").string()) +
                       more);
  }
};
}  // namespace

TEST(Prose, FindsPhrasesWhereProseIs) {
  if (run_command("python3 --version").exit_code != 0) GTEST_SKIP() << "no python3";
  ProseFolder p;
  p.file_of("docs/a.md", "It cannot be\ntold.\n\nIt cannot be\n\ntold. `cannot be told`\n\n- since Then\n");
  p.file_of("CHANGELOG.md", "since then\ncannot be told\n");
  p.file_of("src/a.cpp",
            "#include \"as much.h\"\n"
            "// It cannot\n// be told.\nint cannot_be_told;  // cannot be tolded, `cannot be told`\n"
            "const char* a = \"It cannot \"\n                \"be told.\";\n"
            "char b = '\"'; int c = 1'000;  // since then\n"
            "auto d = \"as much\"; auto e = \"twice as much\";\n"
            "auto f = R\"(\n // cannot be told)\";\n");
  p.file_of("src/a.prog", "cannot be told\n");
  p.file_of("tests/a.cpp", "// cannot be told\n");
  p.file_of("build/a.md", "cannot be told\n");
  p.file_of("experiments/a.toml", "text = \"cannot be told\"\n");
  p.file_of("scripts/a.sh", "echo cannot be told\n");
  p.file_of("Makefile", "all: ## cannot be told\n");
  CommandOutput r = p.check();
  EXPECT_EQ(r.exit_code, 1);
  EXPECT_EQ(r.out,
            "CHANGELOG.md:2: \"cannot be told\": write inconclusive\n"
            "Makefile:1: \"cannot be told\": write inconclusive\n"
            "docs/a.md:1: \"cannot be told\": write inconclusive\n"
            "docs/a.md:8: \"since Then\": write the present state\n"
            "experiments/a.toml:1: \"cannot be told\": write inconclusive\n"
            "scripts/a.sh:1: \"cannot be told\": write inconclusive\n"
            "src/a.cpp:2: \"cannot be told\": write inconclusive\n"
            "src/a.cpp:5: \"cannot be told\": write inconclusive\n"
            "src/a.cpp:7: \"since then\": write the present state\n"
            "src/a.cpp:8: \"as much\": write unchanged\n"
            "src/a.cpp:10: \"cannot be told\": write inconclusive\n");
  EXPECT_EQ(p.check(" docs").out.find("src/"), std::string::npos) << "a path limits it";
}

TEST(Prose, FindsLinesOver100Columns) {
  if (run_command("python3 --version").exit_code != 0) GTEST_SKIP() << "no python3";
  ProseFolder p;
  std::string fits(96, 'x'), over = fits + " xxxx";  // 96 and 101 columns
  p.file_of("a.md", over + "\n" + fits + " \u00fc\u00fc\u00fc\n" + "| " + over + " |\n" + "```\n" + over + "\n```\n" +
                        "[a]: " + over + "\nhttps://" + fits + " x y\n" + fits + fits + "\n![" + over + "](a.svg)\n- " +
                        over + "\n");
  p.file_of("src/a.cpp", "// " + over + "\nint a;  // " + over + "\n  // " + fits + "\n//   " + over + "\n");
  p.file_of("tests/a.cpp", "// " + over + "\n");
  p.file_of("studies/a.cpp", "// " + over + "\n");
  CommandOutput r = p.check();
  EXPECT_EQ(r.exit_code, 1);
  EXPECT_EQ(r.out,
            "a.md:1: 101 columns, at most 100\n"
            "a.md:11: 103 columns, at most 100\n"
            "src/a.cpp:1: 104 columns, at most 100\n"
            "tests/a.cpp:1: 104 columns, at most 100\n");
}

TEST(Prose, FailsWhereRelativeWordsRise) {
  if (run_command("python3 --version").exit_code != 0) GTEST_SKIP() << "no python3";
  ProseFolder p;
  p.file_of("docs/how-to/a.md",
            "The run that ends. `that that` One two three four.\n\n```\nthat\n```\n\n- Last words\n");
  p.file_of("src/base/core/a.h", "// That which is what it is.\nint that;\n");
  p.file_of("scripts/prose-rates.txt", "# comment\n11.1  docs/how-to\n50.0  src/base/core\n");
  CommandOutput r = p.check();
  EXPECT_EQ(r.exit_code, 0) << r.out << r.err;
  for (const char* line :
       {"  10.00  docs/how-to\n", "  50.00  src/base/core\n", "  10.00  all Markdown without results\n",
        "  4 words, docs/how-to/a.md:1: The run that ends.\n"})
    EXPECT_NE(r.out.find(line), std::string::npos) << line << r.out;
  p.file_of("docs/start/b.md", "Good text.\n");
  p.file_of("docs/how-to/a.md", "The run that ends, which is what it is.\n");
  r = p.check();
  EXPECT_EQ(r.exit_code, 1);
  EXPECT_NE(r.out.find("docs/how-to: 33.33 relative words in 100, at most 11.1"), std::string::npos) << r.out;
  EXPECT_NE(r.out.find("no row of docs/start"), std::string::npos) << r.out;
  EXPECT_EQ(p.check(" --update-rates").exit_code, 0);
  EXPECT_EQ(p.check(" docs").exit_code, 0) << "a path limits it";
}

TEST(Prose, ChecksThisTreeAndItsOwnList) {
  if (run_command("python3 --version").exit_code != 0) GTEST_SKIP() << "no python3";
  CommandOutput r = run_command("python3 " + script_path("check-prose.py"));
  EXPECT_EQ(r.exit_code, 0) << r.out << r.err;
  ProseFolder p;
  p.file_of("a.md", "Good text.\n");
  EXPECT_EQ(p.check().exit_code, 0);
  for (const char* wrong : {"any: a( -> b\n", "any: Upper -> b\n", "any: a\n", "some: a -> b\n", "any: a -> \n", ""}) {
    p.file_of("scripts/banned-phrases.txt", wrong);
    EXPECT_EQ(p.check().exit_code, 2) << wrong;
  }
}

TEST(Jobs, IsAPositiveNumber) {
  CommandOutput r = run_command("sh " + script_path("jobs.sh"));
  EXPECT_GE(std::stoi(r.out), 1);
}
