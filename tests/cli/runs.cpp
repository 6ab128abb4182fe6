// crest runs.
#include <algorithm>
#include <sstream>

#include "run.h"

using namespace crest::test;
using nlohmann::json;

namespace {

class CliRuns : public testing::Test {
 protected:
  TempFolder folder_;
  std::string store_ = folder_ / "runs.db";

  RunResult run(std::vector<std::string> flags, RunOptions options = {}) {
    std::vector<std::string> all = {"runs"};
    all.insert(all.end(), flags.begin(), flags.end());
    all.insert(all.end(), {"--store", store_});
    options.folder = folder_.path().string();
    return run_crest(all, options);
  }
  RunResult done(std::vector<std::string> flags) {
    RunResult r = run(flags);
    EXPECT_EQ(r.code, 0) << r.err;
    return r;
  }
  void fails(std::vector<std::string> flags, int code, const std::vector<std::string>& said) {
    flags.insert(flags.begin(), "runs");
    flags.insert(flags.end(), {"--store", store_});
    expect_error(flags, code, said, {.folder = folder_.path().string()});
  }
  // Two training logs, imported.
  void import_two() {
    std::string a = folder_.write("a.log", "step 1 | loss 3.5 | dt 10ms\nstep 2 | loss 3.25 | dt 12ms\nval loss 3.0\n");
    std::string b = folder_.write("b.log", "iter 5: loss 2.5, time 20ms\n");
    done({"import", a, "--name", "first", "--model", "gpt2-124M", "--batch", "4", "--seq", "128", "--device", "H200"});
    done({"import", b, "--name", "second"});
  }
};

size_t lines_of(const std::string& text) { return size_t(std::count(text.begin(), text.end(), '\n')); }
bool holds(const std::string& text, const std::string& part) { return text.find(part) != std::string::npos; }

}  // namespace

TEST_F(CliRuns, AMissingDatabaseSaysWhatToDoAndIsNotMade) {
  for (const char* action : {"list", "show", "export", "delete"})
    fails({action, std::string(action) == "list" ? "--csv" : "x"}, action == std::string("export") ? 2 : 1, {});
  fails({"list"}, 1, {store_, "no run database", "crest bench", "--store", "CREST_STORE"});
  EXPECT_FALSE(std::filesystem::exists(store_));
}

TEST_F(CliRuns, AListFitsTheTerminal) {
  import_two();
  std::string wide = done({"list"}).out;
  for (const char* header : {"started (UTC)", "device", "tokens/s"}) EXPECT_TRUE(holds(wide, header)) << wide;
  std::string narrow = run({"list"}, {.environment = {{"COLUMNS", "60"}}}).out;
  std::stringstream lines(narrow);
  for (std::string line; std::getline(lines, line);)
    EXPECT_LE(std::count_if(line.begin(), line.end(), [](char c) { return (c & 0xC0) != 0x80; }), 60) << narrow;
  for (const char* header : {"name", "tokens/s", "loss", "left out for lack of room"})
    EXPECT_TRUE(holds(narrow, header)) << narrow;
}

TEST_F(CliRuns, AnEmptyOneSaysWhatToTry) {
  import_two();
  done({"delete", "first", "second", "--yes"});
  RunResult r = done({});
  EXPECT_EQ(r.out, "");
  EXPECT_TRUE(holds(r.err, "crest bench --model nano")) << r.err;
  EXPECT_EQ(done({"list", "--json"}).json(), json::array());
  EXPECT_EQ(lines_of(done({"list", "--csv"}).out), 1u) << "the header";
}

TEST_F(CliRuns, ListsWithFilters) {
  import_two();
  RunResult r = done({"list"});
  for (const char* part : {"first", "second", "gpt2-124M", "H200", "11.00", "started (UTC)"})
    EXPECT_TRUE(holds(r.out, part)) << part << "\n" << r.out;
  EXPECT_FALSE(holds(r.out, "precision")) << "a column of which no run has a value";
  auto count = [&](std::vector<std::string> flags) {
    flags.insert(flags.begin(), {"list", "--json"});
    return done(flags).json().size();
  };
  EXPECT_EQ(count({}), 2u);
  EXPECT_EQ(count({"--kind", "log"}), 2u);
  EXPECT_EQ(count({"--kind", "bench"}), 0u);
  EXPECT_EQ(count({"--model", "gpt2-124M"}), 1u);
  EXPECT_EQ(count({"--device", "h200"}), 1u);
  EXPECT_EQ(count({"--text", "sec"}), 1u);
  EXPECT_EQ(count({"--limit", "1"}), 1u);
  EXPECT_EQ(count({"--since", "2999"}), 0u);
  EXPECT_EQ(count({"--until", "2999", "--status", "done"}), 2u);
  EXPECT_TRUE(holds(done({"list", "--kind", "bench"}).err, "No run matches"));
  json first = done({"list", "--json", "--text", "first"}).json()[0];
  for (const char* key : {"id", "uid", "name", "kind", "status", "started", "finished", "command", "folder", "grid",
                          "key", "phase", "error", "imported_from", "recipe", "device", "result"})
    EXPECT_TRUE(first.contains(key)) << key;
  EXPECT_EQ(first["result"]["step_ms_median"], 11.0);
  EXPECT_EQ(first["result"]["val_loss"], 3.0);
}

TEST_F(CliRuns, ShowsARun) {
  import_two();
  RunResult r = done({"show", "first"});
  for (const char* part : {"Run 1", "first", "log", "gpt2-124M", "H200", "step_ms_median 11", "Log (3 rows)", "3.2500"})
    EXPECT_TRUE(holds(r.out, part)) << part << "\n" << r.out;
  json j = done({"show", "1", "--json"}).json();
  EXPECT_EQ(j["log"].size(), 3u);
  EXPECT_EQ(j["log"][1]["step_ms"], 12.0);
  EXPECT_EQ(j["log"][2]["val_loss"], 3.0);
  EXPECT_TRUE(j["log"][2]["loss"].is_null());
  EXPECT_EQ(j["documents"], json::array());
  EXPECT_EQ(done({"show", j["uid"].get<std::string>().substr(0, 12), "--json"}).json(), j);
  fails({"show", "1", "--document", "profile"}, 1, {"no document 'profile'", "It has no documents"});
  fails({"show", "frist"}, 1, {"no run 'frist'", "Did you mean 'first'"});
  fails({"show"}, 2, {"0 runs"});
  fails({"show", "1", "2"}, 2, {"2 runs"});
}

TEST_F(CliRuns, ExportsAndImportsWhatOtherMachinesMeasured) {
  import_two();
  done({"export", "--all", "-o", folder_ / "all.jsonl"});
  std::string other = folder_ / "other.db";
  RunResult r = run_crest({"runs", "import", folder_ / "all.jsonl", "--store", other, "--json"});
  EXPECT_EQ(r.code, 0) << r.err;
  EXPECT_EQ(r.json()[0]["runs"], json({1, 2}));
  json here = done({"show", "second", "--json"}).json();
  json there = run_crest({"runs", "show", "second", "--json", "--store", other}).json();
  EXPECT_EQ(there["imported_from"], folder_ / "all.jsonl");
  there["imported_from"] = here["imported_from"];
  EXPECT_EQ(there, here);
  r = run_crest({"runs", "import", folder_ / "all.jsonl", "--store", other, "--json"});
  EXPECT_EQ(r.json()[0]["known"], 2);

  fails({"export", "first", "-o", folder_ / "all.jsonl"}, 1, {"exists", "--overwrite"});
  done({"export", "first", "-o", folder_ / "all.jsonl", "--overwrite"});
  std::string one = done({"export", "--text", "second", "-o", "-"}).out;
  EXPECT_EQ(lines_of(one), 4u) << one;
  EXPECT_EQ(json::parse(one.substr(0, one.find('\n')))["format"], "crest-runs");
  r = run_crest({"runs", "import", "-", "--store", folder_ / "pipe.db", "--json"}, {.input = one});
  EXPECT_EQ(r.json()[0]["runs"].size(), 1u);

  fails({"export"}, 2, {"no runs", "--all"});
  fails({"export", "--all"}, 2, {"-o"});
  fails({"export", "first", "--all", "-o", "x"}, 2, {"one of them"});
  fails({"export", "--kind", "bench", "-o", "x"}, 1, {"no run matches"});
  fails({"export", "--all", "-o", folder_ / "no/such/folder"}, 1, {"no/such/folder"});
}

TEST_F(CliRuns, ImportsNothingOfADamagedExport) {
  import_two();
  std::string text = done({"export", "--all", "-o", "-"}).out;
  std::string file = folder_.write("cut.jsonl", text.substr(0, text.size() - 30));
  std::string other = folder_ / "other.db";
  expect_error({"runs", "import", file, "--store", other}, 1, {"cut.jsonl, line", "nothing was imported"});
  EXPECT_EQ(run_crest({"runs", "list", "--json", "--store", other}).json(), json::array());
  expect_error({"runs", "import", store_, "--store", other}, 1, {"is a run database, not an export", "--store"});
  expect_error({"runs", "import", folder_ / "none", "--store", other}, 1, {"none"});
  expect_error({"runs", "import", folder_.write("x.txt", "hello\n"), "--store", other}, 1, {"no training steps"});
  expect_error({"runs", "import", "--store", other}, 2, {"no file"});
}

TEST_F(CliRuns, DeletesWhatIsNamed) {
  import_two();
  fails({"delete", "first"}, 2, {"--yes"});
  fails({"delete", "nobody", "--yes"}, 1, {"no run 'nobody'"});
  RunResult r = done({"delete", "first", "1", "--yes", "--json"});
  EXPECT_TRUE(holds(r.err, "deleted 1  first")) << r.err;
  EXPECT_EQ(r.json().size(), 1u);
  EXPECT_EQ(done({"list", "--json"}).json().size(), 1u);
  fails({"delete", "--yes"}, 2, {"no runs"});
}

TEST_F(CliRuns, KeepsARunThatIsRunning) {
  std::string model = folder_.write("tiny.toml", tiny_model);
  std::string text = folder_.write("text.txt", [] {
    std::string t;
    for (int i = 0; i < 3000; ++i) t += "the cat sat on the mat. ";
    return t;
  }());
  bool checked = false;
  RunResult r = run_crest({"train", text, "--tokenizer", "bytes", "--model", model, "--steps", endless, "--out",
                           folder_ / "run", "--store", store_, "--quiet"},
                          {.folder = folder_.path().string(), .while_running = [&](const RunningProcess& process) {
                             checked = process.wait("the record", [&] {
                               RunResult list = run({"list", "--json", "--status", "running"});
                               return list.code == 0 && !list.json().empty();
                             });
                             if (checked) fails({"delete", folder_ / "run", "--yes"}, 1, {"still running", "--force"});
                             kill(process, SIGKILL);
                           }});
  EXPECT_TRUE(checked) << r.err;
  json runs = done({"list", "--json"}).json();
  ASSERT_EQ(runs.size(), 1u);
  EXPECT_EQ(runs[0]["status"], "lost");
  EXPECT_TRUE(holds(done({"show", folder_ / "run/"}).out, "lost: its process ended"));
  done({"delete", folder_ / "run", "--yes"});
}

TEST_F(CliRuns, NamesAreHarmless) {
  std::string log = folder_.write("x.log", "step 1 loss 2\n");
  std::string name = "=cmd|' /C calc'!A1 \x1b[31m<b>,\"\n";
  done({"import", log, "--name", name, "--device", "@SUM(1)"});
  for (auto flags : {std::vector<std::string>{"list"}, {"show", "1"}, {"delete", "1"}}) {
    RunResult r = run(flags);
    EXPECT_FALSE(holds(r.out + r.err, "\x1b")) << r.out;
  }
  std::string csv = done({"list", "--csv"}).out;
  EXPECT_TRUE(holds(csv, "1,\"'=cmd|' /C calc'!A1 \xEF\xBF\xBD[31m<b>,\"\"\n\",log,done,")) << csv;
  EXPECT_TRUE(holds(csv, ",'@SUM(1),")) << csv;
  EXPECT_EQ(done({"show", "1", "--json"}).json()["name"], name);
}

TEST_F(CliRuns, WrongUsage) {
  import_two();
  fails({"lst"}, 2, {"unknown action 'lst'", "Did you mean 'list'"});
  fails({"list", "x"}, 2, {"unexpected argument 'x'", "--text"});
  fails({"list", "--kind", "benhc"}, 2, {"benhc", "Did you mean 'bench'"});
  fails({"list", "--status", "runing"}, 2, {"Did you mean 'running'"});
  fails({"list", "--since", "yesterday"}, 2, {"yesterday", "UTC", "2026-01-31"});
  fails({"list", "--samples"}, 2, {"--samples", "show"});
  fails({"show", "1", "--csv"}, 2, {"--csv", "list"});
  fails({"import", "x", "--kind", "log"}, 2, {"--kind", "export"});
  fails({"list", "--limit", "-1"}, 2, {"--limit"});
  fails({"import", "x", "--batch", "0"}, 2, {"--batch"});
  fails({"list", "--stor", "x"}, 2, {"--stor", "--store"});
}

TEST_F(CliRuns, TheFileMayComeFromTheEnvironment) {
  import_two();
  RunResult r = run_crest({"runs", "--json"}, {.environment = {{"CREST_STORE", store_}}});
  EXPECT_EQ(r.json().size(), 2u);
  expect_error({"runs", "list", "--store", folder_.write("x.db", "no database")}, 1, {"not a run database"});
}
