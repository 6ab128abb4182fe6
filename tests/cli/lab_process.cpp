// crest lab: measurements in their own processes: ranks of a collective, and recipes with other
// libraries or variables.
#include "cli/run.h"

namespace crest::test {

namespace {

const char* comm =
    "name = \"mine\"\ntitle = \"All-reduce here\"\nkind = \"comm\"\nshow = [\"ms\", \"startup_ms\"]\n[recipe]\n"
    "backend = [\"gloo\", \"nccl\"]\nranks = 2\nbytes = [\"10kB\", \"1MB\"]\nsamples = 6\n"
    "[quantities]\nper_gb = \"slope(ms, gigabytes, backend=gloo)\"\n"
    "[[claim]]\ntext = \"A GPU starts for long\"\nsubject = \"NCCL\"\nsource = \"me\"\n"
    "check = \"min(startup_ms, backend=nccl) > 10000\"\n";

const char* bench_experiment =
    "name = \"mine\"\ntitle = \"A variable\"\nkind = \"bench\"\nshow = [\"ms\", \"planned_bytes\"]\n[recipe]\n"
    "model = \"tiny.toml\"\nprecision = \"fp32\"\nbatch = 2\nsamples = 6\nONEDNN_MAX_CPU_ISA = [\"AVX2\", \"ALL\"]\n"
    "[[claim]]\ntext = \"It is measured\"\nsubject = \"oneDNN\"\nsource = \"me\"\n"
    "check = \"ratio(ms, ONEDNN_MAX_CPU_ISA=AVX2, ONEDNN_MAX_CPU_ISA=ALL) > 1e-12\"\n";

std::string replaced(std::string text, const std::string& old, const std::string& now) {
  size_t at = text.find(old);
  EXPECT_NE(at, std::string::npos) << old;
  return text.replace(at, old.size(), now);
}

// The bench without claims, with other settings instead of the variable.
std::string one_measurement(const std::string& settings) {
  std::string text = replaced(bench_experiment, "ONEDNN_MAX_CPU_ISA = [\"AVX2\", \"ALL\"]", settings);
  return text.substr(0, text.find("[[claim]]"));
}

struct ProcessFolder : TempFolder {
  ProcessFolder() {
    write("tiny.toml", tiny_model);
    options.folder = path().string();
  }
  RunResult run(const std::string& text, RunOptions o = {}) const {
    write("mine.toml", text);
    o.folder = path().string();
    return run_crest({"lab", "run", "mine.toml", "--json"}, o);
  }
  void error(const std::string& text, const std::vector<std::string>& said) const {
    write("mine.toml", text);
    expect_error({"lab", "run", "mine.toml"}, 2, said, options);
  }
  RunOptions options;
};

bool has_gloo() { return run_crest({"comm", "all-reduce", "--ranks", "1", "--sizes", "1kB", "--no-store"}).code == 0; }

std::string absent(const nlohmann::json& row) { return row.value("absent", ""); }

// Children of a process, as the system lists them.
std::vector<pid_t> child_processes_of(pid_t pid) {
  std::string id = std::to_string(pid);
  std::ifstream file("/proc/" + id + "/task/" + id + "/children");
  std::vector<pid_t> list;
  for (pid_t child; file >> child;) list.push_back(child);
  return list;
}

}  // namespace

TEST(LabProcess, RanksAreStartedOnceForAllSizes) {
  if (!has_gloo()) GTEST_SKIP() << "this build has no Gloo";
  ProcessFolder folder;
  RunResult r = folder.run(comm);
  ASSERT_EQ(r.code, 0) << r.err;
  auto result = r.json()[0];
  ASSERT_EQ(result["rows"].size(), 4u);
  auto &small = result["rows"][0], &large = result["rows"][1];
  EXPECT_EQ(small["columns"]["startup_ms"], large["columns"]["startup_ms"]);  // of one launch
  EXPECT_EQ(small["columns"]["gigabytes"], 1e-5);
  for (const char* column : {"ms", "algorithm_gb_per_second", "bus_gb_per_second"})
    EXPECT_TRUE(large["columns"].contains(column)) << column << large;
  EXPECT_TRUE(result["quantities"]["per_gb"]["value"].is_number()) << result["quantities"];
  auto shown = run_crest({"runs", "show", large["run"], "--json"}, folder.options).json();
  EXPECT_EQ(shown["kind"], "comm");
  EXPECT_EQ(shown["samples"].size(), 6u);
  // The tests see no GPU.
  for (size_t i : {2, 3}) EXPECT_NE(absent(result["rows"][i]), "") << result["rows"][i];
  EXPECT_EQ(result["claims"][0]["verdict"], "cannot tell here");
  EXPECT_EQ(result["claims"][0]["reason"], absent(result["rows"][2]));
}

TEST(LabProcess, WhatDoesNotFitLeavesTheOtherSizes) {
  if (!has_gloo()) GTEST_SKIP() << "this build has no Gloo";
  ProcessFolder folder;
  auto result = folder.run(replaced(comm, "\"1MB\"", "\"90TB\"")).json()[0];
  EXPECT_TRUE(result["rows"][0]["columns"].contains("ms")) << result["rows"][0];
  EXPECT_EQ(result["rows"][1]["keys"]["status"], "out_of_memory") << result["rows"][1];
}

TEST(LabProcess, AVariableIsASettingOfTheProcess) {
  ProcessFolder folder;
  RunResult r = folder.run(bench_experiment);
  ASSERT_EQ(r.code, 0) << r.err;
  auto result = r.json()[0];
  EXPECT_EQ(result["claims"][0]["verdict"], "upheld") << result;
  for (auto& row : result["rows"]) {
    EXPECT_EQ(row["columns"]["planned_bytes"], result["rows"][0]["columns"]["planned_bytes"]);
    EXPECT_EQ(row["columns"]["samples"], 6);
    for (const char* record : {"run", "again"}) {  // half of them in each round
      auto shown = run_crest({"runs", "show", row[record], "--json"}, folder.options).json();
      EXPECT_EQ(shown["kind"], "bench");
      EXPECT_EQ(shown["samples"].size(), 3u);
    }
  }
}

TEST(LabProcess, AProfileOfAnotherProcessHasItsInstructions) {
  ProcessFolder folder;
  std::string text = replaced(one_measurement("ONEDNN_MAX_CPU_ISA = \"ALL\""), "\"bench\"", "\"profile\"");
  text = replaced(text, "show = [\"ms\", \"planned_bytes\"]", "show = [\"gemm_ms\", \"onednn\"]");
  text += "[columns]\ngemm_ms = \"sum(ms, class=contraction)\"\n";
  RunResult r = folder.run(text);
  ASSERT_EQ(r.code, 0) << r.err;
  for (auto& row : r.json()[0]["rows"]) {
    EXPECT_GT(row["columns"]["gemm_ms"], 0.0) << row;
    EXPECT_TRUE(row["columns"]["onednn"].is_string()) << row;
  }
}

TEST(LabProcess, OutputThatIsNoJsonIsAnAbsentMeasurement) {
  ProcessFolder folder;
  RunResult r = folder.run(one_measurement("LD_DEBUG = \"help\""));  // the loader prints a text and ends well
  ASSERT_EQ(r.code, 0) << r.err;
  std::string why = absent(r.json()[0]["rows"][0]);
  EXPECT_NE(why.find("printed no JSON"), std::string::npos) << why;
}

TEST(LabProcess, AProcessThatIsKilledIsAnAbsentMeasurement) {
  ProcessFolder folder;
  RunOptions options;
  options.while_running = [](const RunningProcess& process) {
    std::vector<pid_t> children;
    if (process.wait("a process of the cell", [&] { return !(children = child_processes_of(process)).empty(); }))
      kill(children[0], SIGKILL);
  };
  RunResult r =
      folder.run(replaced(one_measurement("ONEDNN_MAX_CPU_ISA = \"ALL\""), "samples = 6", "samples = 100000"), options);
  ASSERT_EQ(r.code, 0) << r.err;
  std::string why = absent(r.json()[0]["rows"][0]);
  EXPECT_NE(why.find("signal 9"), std::string::npos) << why;
  auto runs = run_crest({"runs", "list", "--kind", "bench", "--json"}, folder.options).out;
  EXPECT_NE(runs.find("\"failed\""), std::string::npos) << runs;
}

TEST(LabProcess, APlaceWithoutLibrariesIsAnAbsentMeasurement) {
  ProcessFolder folder;
  RunResult r = folder.run(one_measurement("libraries = \"./\""));
  ASSERT_EQ(r.code, 0) << r.err;
  EXPECT_NE(absent(r.json()[0]["rows"][0]).find("no libcublasLt.so"), std::string::npos) << r.out;
}

TEST(LabProcess, BadSettingsAreToldWithTheirPlace) {
  ProcessFolder folder;
  folder.error(replaced(comm, "\"gloo\", \"nccl\"", "\"glo\""), {"mine.toml (line 6", "'gloo'"});
  folder.error(replaced(comm, "ranks = 2", "ranks = 0"), {"mine.toml (line 7", "ranks"});
  folder.error(replaced(comm, "\"10kB\"", "\"many\""), {"mine.toml (line 8", "many"});
  folder.error(replaced(comm, "samples = 6", "operation = \"all-reduse\""), {"mine.toml (line 9", "'all-reduce'"});
  folder.error(replaced(comm, "samples = 6", "batch = 6"), {"mine.toml (line 9", "no key 'batch'", "operation"});
  folder.error(one_measurement("libraries = \"tolkit\""), {"mine.toml (line 10", "'toolkit'"});
}

TEST(LabProcess, TheTileOfFlashAttention) {
  ProcessFolder folder;
  EXPECT_NE(absent(folder.run(one_measurement("tile = 64")).json()[0]["rows"][0]).find("one tile size on the CPU"),
            std::string::npos);
  std::vector<std::string> plan = {"program", "--model", "gpt2-124M", "--device", "h200", "--precision", "bf16"};
  auto pinned = [&](const std::string& tile) {
    auto words = plan;
    words.insert(words.end(), {"--kernel", "attention=*.flash.tile" + tile});
    return words;
  };
  EXPECT_NE(run_crest(pinned("128")).out.find("cuda.flash.tile128"), std::string::npos);
  EXPECT_EQ(run_crest(plan).out.find("cuda.flash.tile"), std::string::npos);  // nothing takes them by itself
  expect_error(pinned("256"), 1, {"cuda.flash.tile256", "registers"});
  expect_error(pinned("48"), 2, {"cuda.flash.tile64"});
}

}  // namespace crest::test
