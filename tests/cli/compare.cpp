// crest compare: runs of a store, files, recipes measured now; bad input.
#include "contains.h"
#include "run.h"

using namespace crest;
using namespace crest::test;

namespace {

// Two profiles and a bench run of a tiny model in a store shared by all tests.
class CliCompare : public ::testing::Test {
 protected:
  static void SetUpTestSuite() {
    folder_ = new TempFolder;
    std::string model = folder_->write("tiny.toml", tiny_model);
    auto record = [&](std::vector<std::string> flags) {
      for (const char* flag : {"--batch", "4", "--threads", "1", "--samples", "6"}) flags.push_back(flag);
      flags.push_back("--model"), flags.push_back(model);
      RunResult r = run_crest(flags, here());
      ASSERT_EQ(r.code, 0) << r.err;
    };
    const std::string rates = "fp32=1e11,bf16=2e11,bandwidth=1e10";
    record({"profile", "--name", "naive", "--attention", "naive", "--precision", "fp32", "--rates", rates});
    record({"profile", "--name", "flash", "--precision", "fp32", "--rates", rates});
    record({"profile", "--name", "inference", "--precision", "fp32", "--phase", "forward", "--rates", rates});
    record({"bench", "--name", "benched", "--precision", "fp32", "--no-mfu"});
  }
  static void TearDownTestSuite() { delete folder_; }

  // In a folder with a separate run database; "": the shared one.
  static RunOptions in(const std::string& folder) {
    return {.folder = folder, .environment = {{"CREST_STORE", folder + "/crest.db"}}};
  }
  static RunOptions here() { return in(folder_->path().string()); }
  static RunResult compare(std::vector<std::string> arguments, const std::string& folder = "") {
    arguments.insert(arguments.begin(), "compare");
    return run_crest(arguments, folder.empty() ? here() : in(folder));
  }

  static TempFolder* folder_;
};
TempFolder* CliCompare::folder_ = nullptr;

}  // namespace

TEST_F(CliCompare, TwoProfilesOfAStore) {
  RunResult r = compare({"naive", "flash", "--json"});
  ASSERT_EQ(r.code, 0) << r.err;
  auto j = r.json();
  EXPECT_EQ(j["a"]["name"], "naive");
  EXPECT_EQ(j["b"]["name"], "flash");
  EXPECT_EQ(j["join"], "scopes");
  bool attention = false;
  for (auto& d : j["differences"]) {
    attention |= d["section"] == "recipe" && d["key"] == "attention";
    EXPECT_NE(d["section"], "device") << "it is the same: " << d;
    EXPECT_NE(d["section"], "versions") << "they are the same: " << d;
  }
  EXPECT_TRUE(attention);
  double bars = 0, difference = j["difference_ms"];
  for (auto& w : j["waterfall"]) bars += w["ms"].get<double>();
  EXPECT_NEAR(bars, difference, 1e-9);
  for (auto& c : j["causes"]) {
    double sum = 0;
    for (auto& [factor, ms] : c["factors"].items()) sum += ms.get<double>();
    EXPECT_NEAR(sum, c["ms"].get<double>(), 1e-9) << c["label"];
  }
  int64_t memory = 0;
  for (auto& m : j["memory"]["by_category"]) memory += m["b"].get<int64_t>() - m["a"].get<int64_t>();
  EXPECT_EQ(memory, j["b"]["planned_bytes"].get<int64_t>() - j["a"]["planned_bytes"].get<int64_t>());
  // The same backwards.
  auto back = compare({"flash", "naive", "--json"}).json();
  EXPECT_NEAR(back["difference_ms"].get<double>(), -difference, 1e-12);
}

TEST_F(CliCompare, ReadsInATerminal) {
  RunResult r = compare({"naive", "flash", "--top", "3"});
  ASSERT_EQ(r.code, 0) << r.err;
  for (const char* part : {"step", "One change: attention (naive -> flash)", "attention", "naive",
                           "Where the time went", "Memory", "activations"})
    EXPECT_TRUE(contains(r.out, part)) << part << "\n" << r.out;
  for (const char* by : {"class", "layer"}) EXPECT_EQ(compare({"naive", "flash", "--by", by}).code, 0);
  EXPECT_EQ(compare({"naive", "flash", "--per-token"}).code, 0);
}

TEST_F(CliCompare, ARunWithItselfCannotBeToldApart) {
  auto j = compare({"flash", "flash", "--json"}).json();
  EXPECT_EQ(j["noise"]["verdict"], "cannot_tell");
  EXPECT_EQ(j["difference_ms"], 0);
  EXPECT_TRUE(j["differences"].empty());
}

TEST_F(CliCompare, ABenchRunSaysWhatIsMissing) {
  RunResult r = compare({"naive", "benched"});
  ASSERT_EQ(r.code, 0) << r.err;
  EXPECT_TRUE(contains(r.out, "B has no profile")) << r.out;
  EXPECT_TRUE(contains(r.out, "crest profile --model")) << r.out;
  EXPECT_TRUE(contains(r.out, "Work of the Programs")) << r.out;
}

TEST_F(CliCompare, FilesStandForRuns) {
  TempFolder elsewhere;
  std::string both = elsewhere / "both.jsonl", one = elsewhere / "one.jsonl";
  ASSERT_EQ(run_crest({"runs", "export", "naive", "flash", "-o", both}, here()).code, 0);
  ASSERT_EQ(run_crest({"runs", "export", "naive", "-o", one}, here()).code, 0);
  // No store is needed where both sides are files.
  std::string other = elsewhere.path().string();
  auto j = compare({one, both + "#flash", "--json"}, other).json();
  EXPECT_EQ(j["a"]["name"], "naive");
  EXPECT_EQ(j["b"]["name"], "flash");
  EXPECT_EQ(j["difference_ms"], compare({"naive", "flash", "--json"}).json()["difference_ms"]);
  j = compare({one, *folder_ / "crest.db#flash", "--json"}, other).json();
  EXPECT_EQ(j["b"]["name"], "flash");
  expect_error({"compare", one, both}, 1, {"holds 2 runs", "#RUN", "flash"}, in(other));
  expect_error({"compare", one, both + "#flush"}, 1, {"flush", "flash"}, in(other));
  std::string log = elsewhere.write("log.txt", "step 1 | loss 3.0 | dt 10ms\nstep 2 | loss 2.5 | dt 10ms\n");
  EXPECT_EQ(compare({log, log, "--json"}, other).json()["training"]["loss"].size(), 2u);
}

TEST_F(CliCompare, ImportedLogs) {
  TempFolder files;
  std::string other = files.path().string(), a, b;
  for (int i = 1; i <= 12; ++i) {
    std::string n = std::to_string(i);
    a += "step " + n + "/12 | loss 3.0 | 100 ms | 20480 tok/s\n";
    b += "step " + n + "/12 | loss 2.9 | 150 ms | 27307 tok/s\n";
  }
  std::string log_a = files.write("a.log", a), log_b = files.write("b.log", b);
  RunResult r = compare({log_a, log_b, "--json"}, other);
  ASSERT_EQ(r.code, 0) << r.err;
  auto j = r.json();
  EXPECT_EQ(j["a"]["tokens"], 2048) << "by its words about a step";
  EXPECT_EQ(j["b"]["tokens"], 4096);
  EXPECT_TRUE(j["per_token"]);
  EXPECT_EQ(j["noise"]["verdict"], "b_faster") << "by token";
  EXPECT_NEAR(j["a"]["tokens_per_second"].get<double>(), 20480, 1);
  std::string text = compare({log_a, log_b, "--per-token"}, other).out;
  EXPECT_TRUE(contains(text, "tokens/s")) << text;
  EXPECT_FALSE(contains(text, "not recorded")) << text;
  // Against a run of Crest, with a recipe of some thirty keys.
  text = compare({log_a, "flash"}).out;
  EXPECT_FALSE(contains(text, "not recorded")) << text;
  std::string rates = files.write("rates.log", "step 1 | loss 3.0 | 1000 tok/s\nstep 2 | loss 2.5 | 1000 tok/s\n");
  ASSERT_EQ(run_crest({"runs", "import", rates, "--name", "rates", "--batch", "4", "--seq", "100"}, in(other)).code, 0);
  j = compare({"rates", log_a, "--json", "--per-token"}, other).json();
  EXPECT_EQ(j["a"]["tokens"], 400);
  EXPECT_NEAR(j["a"]["step_ms"].get<double>(), 400, 1e-6);
}

TEST_F(CliCompare, APyTorchTraceStandsForARun) {
  std::string events;
  double at = 1000;
  for (int step = 0; step < 4; ++step) {
    events += "{\"ph\":\"X\",\"cat\":\"user_annotation\",\"name\":\"ProfilerStep#" + std::to_string(step) +
              "\",\"pid\":1,\"tid\":1,\"ts\":" + std::to_string(at) + ",\"dur\":90000},";
    for (const char* op : {"aten::mm", "aten::native_layer_norm", "aten::gelu"}) {
      events += std::string("{\"ph\":\"X\",\"cat\":\"cpu_op\",\"name\":\"") + op +
                "\",\"pid\":1,\"tid\":1,\"ts\":" + std::to_string(at + 100) + ",\"dur\":20000,\"args\":{}},";
      at += 25000;
    }
    at += 25000;
  }
  events.pop_back();
  TempFolder files;
  std::string trace = files.write("trace.json", "{\"schemaVersion\": 1, \"traceEvents\": [" + events + "]}");
  RunResult r = compare({trace, "flash", "--json"});
  ASSERT_EQ(r.code, 0) << r.err;
  auto j = r.json();
  EXPECT_TRUE(contains(j["join"], "classes"));
  EXPECT_EQ(j["noise"]["verdict"], "b_faster");
  for (auto& sentence : j["sentences"]) {
    EXPECT_FALSE(contains(sentence, "instructions")) << "a trace has classes: " << sentence;
    EXPECT_FALSE(contains(sentence, "One change")) << "its recipe is not known: " << sentence;
  }
  for (auto& d : j["differences"]) EXPECT_NE(d["key"], "name") << "the trace does not say its device: " << d;
  ASSERT_EQ(j["levers"].size(), 1u) << j["levers"];
  EXPECT_TRUE(j["levers"][0]["lever"].get<std::string>().empty()) << j["levers"];
  double bars = 0;
  for (auto& w : j["waterfall"]) bars += w["ms"].get<double>();
  EXPECT_NEAR(bars, j["difference_ms"].get<double>(), 1e-9);
  std::string damaged = files.write("damaged.json", "{\"traceEvents\": [{\"ph\":");
  expect_error({"compare", damaged, "flash"}, 1, {"damaged.json"}, here());
}

TEST_F(CliCompare, TwoRecipesNow) {
  TempFolder own;
  std::string model = own.write("tiny.toml", tiny_model);
  RunResult r = run_crest({"compare", "--model", model, "--batch", "4", "--precision", "fp32", "--threads", "1",
                           "--samples", "6", "--rates", "fp32=1e11,bandwidth=1e10", "--a",
                           "--fusion off --attention naive --recompute pointwise", "--b", "", "--json"},
                          in(own.path().string()));
  ASSERT_EQ(r.code, 0) << r.err;
  auto j = r.json();
  // Another program's load may differ between the
  // two measurements: reported under "conditions".
  std::vector<std::string> keys;
  for (auto& d : j["differences"])
    if (d["section"] != "conditions") keys.push_back(d["key"]);
  EXPECT_EQ(keys, (std::vector<std::string>{"attention", "fusion"})) << j["differences"];
  EXPECT_EQ(j["a"]["samples"], 6);
  EXPECT_TRUE(j["a"]["profiled"] && j["b"]["profiled"]);
  EXPECT_TRUE(contains(j["noise"]["floor_source"], "measured"));
  // Both are recorded.
  auto runs = run_crest({"runs", "list", "--json"}, in(own.path().string())).json();
  EXPECT_EQ(runs.size(), 2u);
  for (auto& run : runs) EXPECT_EQ(run["status"], "done");
  // The contribution of each change was measured, and is stored with the runs.
  auto again = run_crest({"compare", "2", "1", "--json"}, in(own.path().string())).json();
  for (auto* json : {&j, &again}) {
    EXPECT_EQ((*json)["attribution"]["method"], "shapley") << (*json)["notes"];
    double sum = 0;
    ASSERT_EQ((*json)["levers"].size(), 2u);
    for (auto& e : (*json)["levers"]) {
      sum += e["ms"].get<double>();
      // As the first of two changes or as the last.
      EXPECT_NEAR(e["ms"].get<double>(), (e["alone_ms"].get<double>() + e["last_ms"].get<double>()) / 2, 1e-9);
    }
    EXPECT_NEAR(sum, (*json)["difference_ms"].get<double>(), 1e-9);
  }
  EXPECT_EQ(again["a"]["uid"], j["b"]["uid"]);
}

// One round is kept without a claim, now and when the runs are compared again.
TEST_F(CliCompare, ALimitThatIsTooShortSaysSo) {
  TempFolder own;
  std::string model = own.write("tiny.toml", tiny_model);
  RunResult r =
      run_crest({"compare", "--model", model, "--batch", "4", "--precision", "fp32", "--threads", "1", "--max-seconds",
                 "0", "--rates", "fp32=1e11,bandwidth=1e10", "--a", "--attention naive --fusion off", "--b", ""},
                in(own.path().string()));
  ASSERT_EQ(r.code, 0) << r.err;
  for (auto& text : {r.out, run_crest({"compare", "1", "2"}, in(own.path().string())).out}) {
    EXPECT_TRUE(contains(text, "Too few rounds to tell a difference in speed")) << text;
    EXPECT_TRUE(contains(text, "A verdict needs 4 interleaved rounds, and there is 1")) << text;
    EXPECT_TRUE(contains(text, "The contribution of each change was not measured: 0 seconds are not enough")) << text;
  }
}

TEST_F(CliCompare, ASideThatDoesNotFit) {
  TempFolder own;
  std::string model = own.write("tiny.toml", tiny_model);
  RunResult r = run_crest(
      {"compare", "--model", model, "--precision", "fp32", "--threads", "1", "--samples", "6", "--no-store",
       "--memory-limit", "30MiB", "--rates", "fp32=1e11,bandwidth=1e10", "--a", "--batch 2", "--b", "--batch 4096"},
      in(own.path().string()));
  ASSERT_EQ(r.code, 0) << r.err;
  EXPECT_TRUE(contains(r.out, "B does not fit in memory")) << r.out;
}

TEST_F(CliCompare, BadInputIsOneClearError) {
  expect_error({"compare"}, 2, {"crest compare A B"}, here());
  expect_error({"compare", "naive"}, 2, {"1 run is named"}, here());
  expect_error({"compare", "naive", "flash", "benched"}, 2, {"3 runs"}, here());
  expect_error({"compare", "naive", "flush"}, 1, {"flush", "flash"}, here());
  expect_error({"compare", "naive", "flash", "--by", "groop"}, 2, {"groop", "group"}, here());
  expect_error({"compare", "naive", "flash", "--top", "0"}, 2, {"--top"}, here());
  expect_error({"compare", "naive", "flash", "--a", "--fusion off"}, 2, {"--a"}, here());
  expect_error({"compare", "--a", "--fusoin off", "--b", ""}, 2, {"--fusoin", "--fusion"}, here());
  expect_error({"compare", "--a", "", "--b", "", "--samples", "3"}, 2, {"--samples", "4 or more"}, here());
  expect_error({"compare", "--a", "", "--b", "", "--phase", "all"}, 2,
               {"'all'", "forward, forward-saved, backward, step"}, here());
  expect_error({"compare", "naive", "inference"}, 1, {"phase step", "phase forward", "--phase forward"}, here());
  TempFolder nothing;
  expect_error({"compare", "x", "y"}, 1, {"crest.db"}, in(nothing.path().string()));
  std::string empty = nothing.write("empty.json", ""), binary = nothing.write("noise.bin", "\x01\x02\x1b[2J\xff");
  expect_error({"compare", empty, "flash"}, 1, {"empty.json"}, here());
  expect_error({"compare", binary, "flash"}, 1, {"noise.bin"}, here());
  expect_error({"compare", binary + "#x", "flash"}, 1, {"noise.bin"}, here());
}

// Empty files stand for libraries: on the CPU none is opened.
TEST_F(CliCompare, SidesWithOtherLibrariesAreMeasuredInProcessesOfTheirOwn) {
  TempFolder folder;
  folder.write("one/libcublasLt.so.13", ""), folder.write("two/libcublasLt.so.13", "");
  std::string model = folder.write("tiny.toml", tiny_model), at = folder.path().string();
  RunResult r = compare({"--model",       model,
                         "--batch",       "2",
                         "--threads",     "1",
                         "--device",      "cpu",
                         "--precision",   "fp32",
                         "--samples",     "4",
                         "--max-seconds", "0.5",
                         "--rates",       "fp32=1e11,bandwidth=1e10",
                         "--a",           "--cublaslt one",
                         "--b",           "--cublaslt two --attention naive",
                         "--json"},
                        at);
  ASSERT_EQ(r.code, 0) << r.err;
  auto j = r.json();
  std::set<std::string> differences;
  for (auto& d : j["differences"])
    if (d["section"] == "recipe" || d["section"] == "versions") differences.insert(d["key"]);
  EXPECT_EQ(differences, (std::set<std::string>{"attention", "cublasLt from"})) << j["differences"];
  for (auto& d : j["differences"])
    if (d["key"] == "cublasLt from") {
      EXPECT_EQ(d["a"], at + "/one");
      EXPECT_EQ(d["b"], at + "/two");
    }
  // Both are recorded. Each process gives a sample: two of A in each of two rounds.
  RunResult runs = run_crest({"runs", "list", "--json"}, in(at));
  ASSERT_EQ(runs.code, 0) << runs.err;
  EXPECT_EQ(runs.json().size(), 2u);
  for (auto& [text, part] :
       {std::pair{"--cublaslt three", "'three' does not exist"}, {"--cudnn one", "has no libcudnn.so"}}) {
    RunResult bad = compare({"--model", model, "--a", text, "--b", ""}, at);
    EXPECT_EQ(bad.code, 2) << bad.err;
    EXPECT_TRUE(contains(bad.err, part)) << bad.err;
  }
}
