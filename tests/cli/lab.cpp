// crest lab: its lists, texts and measurements; the user's files; budget, resume, Ctrl-C; bad
// input.
#include "cli/run.h"

namespace crest::test {

namespace {

// Two measurements of milliseconds.
const char* grid =
    "name = \"mine\"\ntitle = \"Fusion on my machine\"\nkind = \"bench\"\nshow = [\"ms\", \"planned_bytes\"]\n"
    "[recipe]\nmodel = \"tiny.toml\"\nbatch = 2\nsamples = 6\nfusion = [\"off\", \"on\"]\n"
    "[[claim]]\ntext = \"Fusion needs no more memory\"\nsubject = \"Crest\"\nsource = \"me\"\n"
    "check = \"ratio(planned_bytes, fusion=on, fusion=off) <= 1\"\n"
    "[[claim]]\ntext = \"It needs none\"\nsubject = \"Crest\"\nsource = \"me\"\n"
    "check = \"value(planned_bytes, fusion=on) == 0\"\n"
    "[[claim]]\ntext = \"It is a thousand times faster\"\nsubject = \"Crest\"\nsource = \"me\"\n"
    "check = \"ratio(ms, fusion=off, fusion=on) > 1000\"\n";

struct LabFolder : TempFolder {
  LabFolder() {
    write("tiny.toml", tiny_model);
    write("mine.toml", grid);
  }
  RunResult run(std::vector<std::string> words, RunOptions options = {}) const {
    options.folder = path().string();
    return run_crest(words, options);
  }
  void error(const std::vector<std::string>& words, int code, const std::vector<std::string>& said) const {
    RunOptions options;
    options.folder = path().string();
    expect_error(words, code, said, options);
  }
};

std::vector<std::string> verdicts(const nlohmann::json& result) {
  std::vector<std::string> list;
  for (auto& c : result["claims"]) list.push_back(c["verdict"]);
  return list;
}

}  // namespace

TEST(Lab, ListsWhatThereIsAndWhatIsNotYet) {
  auto rows = run_crest({"lab", "list", "--json"}).json();
  size_t missing = 0;
  for (auto& row : rows) missing += !row["available"].get<bool>();
  EXPECT_GE(rows.size(), 30u);
  EXPECT_LT(missing, rows.size());
  for (auto& row : rows) EXPECT_EQ(row["available"].get<bool>(), row["reason"].get<std::string>().empty()) << row;
  EXPECT_NE(run_crest({"lab"}).out.find("accumulate-precision"), std::string::npos);
}

TEST(Lab, EveryExperimentHasMeasurementsThatMakeSense) {
  auto rows = run_crest({"lab", "list", "--json"}).json();
  for (auto& row : rows)
    for (const char* scale : {"tiny", "small", "full"}) {
      if (!row["available"].get<bool>()) continue;
      RunResult r = run_crest({"lab", "show", row["name"], "--scale", scale});
      EXPECT_EQ(r.code, 0) << row["name"] << " " << scale << "\n" << r.err;
    }
}

TEST(Lab, AccumulatePrecisionReproducesTheFourSums) {
  auto result = run_crest({"lab", "run", "accumulate-precision", "--json"}).json()[0];
  for (auto& verdict : verdicts(result)) EXPECT_EQ(verdict, "upheld");
  std::vector<double> sums;
  for (auto& t : result["then"]) {
    EXPECT_EQ(t["here"], t["document"]) << t;
    sums.push_back(t["here"]);
  }
  EXPECT_EQ(sums, (std::vector<double>{10.0001, 9.9531, 10.0021, 10.0021}));
}

// The formulas of a step differ from those of its forward pass.
TEST(Lab, FlopsByFormulaAreThoseOfTheRowsPhase) {
  auto result = run_crest({"lab", "run", "flops", "--scale", "tiny", "--json"}).json()[0];
  std::map<std::string, nlohmann::json> of;
  for (auto& row : result["rows"])
    if (row["keys"]["variant"] == "plain") of[row["keys"]["phase"]] = row["columns"];
  ASSERT_EQ(of.size(), 2u);
  double simple = of["step"]["simple_flops"], megatron = of["step"]["megatron_flops"];
  EXPECT_DOUBLE_EQ(of["forward"]["simple_flops"].get<double>() * 3, simple);
  double layers = 24.0 * 4096 * 12 * 768 * 768 * (1 + 1024.0 / (6 * 768)), logits = 2.0 * 4096 * 768 * 50257;
  EXPECT_NEAR(of["forward"]["megatron_flops"].get<double>(), layers + logits, 1e-9 * megatron);
  EXPECT_NEAR(megatron, 4 * layers + 3 * logits, 1e-9 * megatron);
}

TEST(Lab, SelfConsistencyFindsTheWrongFigures) {
  auto result = run_crest({"lab", "run", "self-consistency", "--json"}).json()[0];
  auto& quantities = result["quantities"];
  EXPECT_NEAR(quantities["speedup_by_time"]["value"], 6.05, 0.005);
  EXPECT_NEAR(quantities["memory_saved"]["value"], 0.26, 0.005);
  EXPECT_NEAR(quantities["memory_saved"]["low"], 1 - 29.5 / 38.5, 1e-9);
  EXPECT_NEAR(quantities["memory_saved"]["high"], 1 - 28.5 / 39.5, 1e-9);
  EXPECT_EQ(quantities["scores_of_000"], 1610612736.0);
  size_t open = 0;
  for (auto& c : result["claims"]) {
    if (c["verdict"] == "upheld" || c["verdict"] == "refuted") continue;
    ++open;
    EXPECT_EQ(c["verdict"], "cannot tell here") << c;
    EXPECT_NE(c["reason"].get<std::string>().find("rounding of printed figures"), std::string::npos) << c;
  }
  EXPECT_EQ(open, 1u) << "77 GB that fit and 77 GB that do not";
}

// Training and the lab read the same table of matmul rates.
TEST(Lab, AutomaticPrecisionIsTheFasterOne) {
  if (best_isa() < Isa::avx512_bf16) GTEST_SKIP() << "this processor has no bf16";
  LabFolder folder;
  nlohmann::json rates;
  rates[matmul_rates_key(cpu_device(active_isa(), 1))] = {{"fp32", 2e11}, {"bf16", 1e11}};
  folder.write("cache/matmul-rates.json", nlohmann::json{{"format", 1}, {"rates", rates}}.dump());
  folder.write("auto.toml",
               "name = \"auto\"\ntitle = \"Precision\"\nkind = \"plan\"\nshow = [\"planned_bytes\"]\n"
               "[recipe]\nmodel = \"tiny.toml\"\nbatch = 2\nprecision = [\"auto\", \"fp32\"]\n"
               "[[claim]]\ntext = \"It is fp32\"\nsubject = \"Crest\"\nsource = \"me\"\n"
               "check = \"ratio(planned_bytes, precision=auto, precision=fp32) == 1\"\n");
  RunResult r = folder.run({"lab", "run", "auto.toml", "--json"});
  ASSERT_EQ(r.code, 0) << r.err;
  EXPECT_EQ(verdicts(r.json()[0]), std::vector<std::string>{"upheld"}) << r.out;
}

TEST(Lab, RunsAFileOfTheUsersAndRecordsIt) {
  LabFolder folder;
  RunResult r = folder.run({"lab", "run", "mine.toml", "--json"});
  ASSERT_EQ(r.code, 0) << r.err;
  auto result = r.json()[0];
  ASSERT_EQ(result["rows"].size(), 2u);
  auto all = verdicts(result);
  ASSERT_EQ(all.size(), 3u);
  EXPECT_EQ(all[0], "upheld");
  EXPECT_EQ(all[1], "refuted");
  // With two rounds of three samples on a busy machine, the noise may be as large as the
  // difference.
  EXPECT_NE(all[2], "upheld");
  EXPECT_GE(result["noise_floor"], 0.01);
  // Each row leads to its samples, half of them from each round.
  for (auto& row : result["rows"]) {
    EXPECT_EQ(row["columns"]["samples"], 6);
    EXPECT_EQ(row["round_ms"].size(), 2u);
    for (const char* record : {"run", "again"}) {
      auto shown = folder.run({"runs", "show", row[record], "--json"}).json();
      EXPECT_EQ(shown["kind"], "bench");
      EXPECT_EQ(shown["samples"].size(), 3u);
    }
  }
  EXPECT_NE(result["noise_floor_source"].get<std::string>().find("2 measurements between two rounds"),
            std::string::npos);
  EXPECT_LT(r.err.find("[2/2] fusion on ... (round 2)"), r.err.find("[1/2] fusion off ... (round 2)")) << r.err;
  auto experiments = folder.run({"runs", "list", "--kind", "experiment", "--json"}).json();
  EXPECT_EQ(experiments.size(), 1u);
}

TEST(Lab, ResumeTakesOverWhatWasMeasured) {
  LabFolder folder;
  RunResult none = folder.run({"lab", "run", "mine.toml", "--json", "--budget", "0.001s"});
  ASSERT_EQ(none.code, 0) << none.err;
  EXPECT_NE(none.err.find("--resume"), std::string::npos) << none.err;
  EXPECT_GE(none.json()[0]["cells_left"], 1);
  EXPECT_EQ(folder.run({"lab", "run", "mine.toml", "--resume", "--json"}).json()[0]["cells_left"], 0);
  RunResult again = folder.run({"lab", "run", "mine.toml", "--resume", "--json"});
  EXPECT_NE(again.err.find("2 measurements of run"), std::string::npos) << again.err;
  EXPECT_EQ(again.err.find("[1/2]"), std::string::npos) << again.err;
  EXPECT_EQ(again.json()[0]["rows"].size(), 2u);
}

// A changed claim about the same measurements: nothing is measured, and the record keeps its rows
// and its date.
TEST(Lab, JudgesRecordedMeasurementsAgain) {
  LabFolder folder;
  folder.error({"lab", "judge", "mine.toml"}, 1, {"no record", "lab run"});
  folder.error({"lab", "judge", "--all"}, 1, {"no experiment has a record at scale tiny", "lab run"});
  folder.error({"lab", "judge", "--all", "mine.toml"}, 2, {"both experiments and --all"});
  folder.error({"lab", "judge", "mine.toml", "--scale", "huge"}, 2, {"'huge' is not a value of --scale"});
  for (const char* flag : {"--rounds=1", "--budget=3s", "--seed=2"})
    folder.error({"lab", "judge", "mine.toml", flag}, 2, {"judge measures nothing", "lab run"});
  auto first = folder.run({"lab", "run", "mine.toml", "--rounds", "1", "--json"}).json()[0];
  for (auto& row : first["rows"]) {
    EXPECT_EQ(row["again"], "") << "one round";
    EXPECT_EQ(row["columns"]["samples"], 6);
  }
  EXPECT_NE(first["noise_floor_source"].get<std::string>().find("first measurement"), std::string::npos);
  auto records = [&] { return folder.run({"runs", "list", "--kind", "experiment", "--json"}).json(); };
  auto before = records();
  std::string text = grid;
  text.replace(text.find("fusion=on) == 0"), 15, "fusion=on) > 0");
  folder.write("mine.toml", text);
  RunResult r = folder.run({"lab", "judge", "mine.toml", "--json"});
  ASSERT_EQ(r.code, 0) << r.err;
  auto again = r.json()[0];
  EXPECT_EQ(verdicts(first)[1], "refuted");
  EXPECT_EQ(verdicts(again)[1], "upheld");
  EXPECT_EQ(again["rows"], first["rows"]) << "within the same noise floor";
  EXPECT_EQ(records().size(), 1u);
  auto shown = folder.run({"runs", "show", before[0]["uid"], "--json"}).json();
  EXPECT_EQ(shown["started"], before[0]["started"]);
  EXPECT_EQ(shown["result"]["claims"][1]["verdict"], "upheld");
  folder.error({"lab", "judge", "mine.toml", "--scale", "full"}, 1, {"no record at scale full"});
  folder.error({"lab", "judge", "--all", "--scale", "full"}, 1, {"no experiment has a record at scale full"});
  // Another CPU's measurements are judged here, too, by its properties.
  std::string name = shown["device"]["name"];
  ASSERT_EQ(folder.run({"runs", "export", "--all", "-o", "runs.jsonl"}).code, 0);
  std::string records_of_it = folder.read("runs.jsonl");
  for (size_t at = 0; (at = records_of_it.find(name, at)) != std::string::npos;)
    records_of_it.replace(at, name.size(), "Another CPU");
  folder.write("runs.jsonl", records_of_it);
  ASSERT_EQ(folder.run({"runs", "import", "runs.jsonl", "--store", "other.db"}).code, 0);
  RunResult there = folder.run({"lab", "judge", "mine.toml", "--store", "other.db", "--json"});
  ASSERT_EQ(there.code, 0) << there.err;
  EXPECT_EQ(there.json()[0]["device"], "Another CPU");
  EXPECT_EQ(verdicts(there.json()[0]), verdicts(again));
}

// Only the second round is missing, so the recipe is measured. --resume adds the round.
TEST(Lab, AMeasurementWithOneRoundIsEnoughAndGetsItsSecondWithResume) {
  for (int samples = 400;; samples *= 4) {
    LabFolder folder;
    RunOptions options;
    options.while_running = [](const RunningProcess& process) {
      process.wait_for_text("(round 2)");
      kill(process, SIGINT);
    };
    std::string text = grid;
    text.replace(text.find("samples = 6"), 11, "samples = " + std::to_string(samples));
    folder.write("long.toml", text);
    RunResult r = folder.run({"lab", "run", "long.toml", "--json"}, options);
    if (r.code == 0) continue;  // the round was over before the signal came: more samples
    ASSERT_EQ(r.code, 130) << r.err;
    auto result = r.json()[0];
    EXPECT_EQ(result["cells_left"], 0) << r.err;
    auto again = folder.run({"lab", "run", "long.toml", "--resume", "--json"});
    EXPECT_EQ(again.err.find("[1/2] fusion off ...\n"), std::string::npos) << again.err;
    EXPECT_NE(again.err.find("[1/2] fusion off ... (round 2)"), std::string::npos) << again.err;
    for (auto& row : again.json()[0]["rows"]) EXPECT_EQ(row["columns"]["samples"], samples);
    return;
  }
}

TEST(Lab, ProductsAreRecordedLikeRecipes) {
  LabFolder folder;
  folder.write(
      "gemm.toml",
      "name = \"products\"\ntitle = \"p\"\nkind = \"gemm\"\nshow = [\"ms\"]\n[recipe]\nm = 64\nk = 64\nsamples = 6\n"
      "n = [32, 64]\nprecision = [\"fp32\", \"bf16\"]\n");
  auto rows = folder.run({"lab", "run", "gemm.toml", "--json"}).json()[0]["rows"];
  ASSERT_EQ(rows.size(), 4u);
  for (auto& row : rows) {
    if (!row.contains("again")) continue;  // no fast bf16 kernel on this CPU
    auto shown = folder.run({"runs", "show", row["again"], "--json"}).json();
    EXPECT_EQ(shown["kind"], "gemm");
    // The record has the executed kernel and the product.
    auto& columns = row["columns"];
    EXPECT_EQ(columns["kernel"].get<std::string>().find("cpu.linear."), 0u) << row;
    EXPECT_EQ(shown["result"]["kernel"], columns["kernel"]);
    EXPECT_TRUE(columns["workspace_reserved_bytes"].is_number()) << row;
    EXPECT_EQ(shown["result"]["workspace_reserved_bytes"], columns["workspace_reserved_bytes"]);
    if (columns["kernel"] == "cpu.linear.onednn") {
      EXPECT_GT(columns["algorithm"].get<std::string>().size(), 3u) << row;
      EXPECT_EQ(shown["result"]["algorithm"], columns["algorithm"]);
    }
    EXPECT_TRUE(columns["tile"].contains("unknown")) << "a CPU has no tiles of thread blocks";
    EXPECT_EQ(shown["samples"].size(), 3u);
    EXPECT_EQ(shown["result"]["n"].dump(), row["keys"]["n"].get<std::string>());
  }
  folder.error({"report", "--all", "-o", "all.html"}, 1, {"nothing to report"});
}

TEST(Lab, ProductsOfTheLibraryRunNoKernelOfCrest) {
  LabFolder folder;
  std::string text =
      "name = \"products\"\ntitle = \"p\"\nkind = \"gemm\"\nshow = [\"ms\"]\n[recipe]\nm = 64\nk = 64\nn = 32\n"
      "samples = 6\nprecision = [\"fp32\", \"bf16\"]\nlibrary = true\n";
  folder.write("library.toml", text);
  size_t ran = 0;
  auto rows = folder.run({"lab", "run", "library.toml", "--json"}).json()[0]["rows"];
  for (auto& row : rows) {
    if (!row["columns"].contains("kernel")) continue;  // not in this library on this CPU
    EXPECT_EQ(row["columns"]["kernel"], "cpu.linear.onednn") << row;
    ++ran;
  }
  EXPECT_GE(ran, 1u) << "fp32 at the least";
  folder.write("library.toml", text.replace(text.find("library = true"), 14, "library = \"all\""));
  folder.error({"lab", "run", "library.toml"}, 2, {"library.toml", "'all' is not true or false"});
}

// Memory while kernels are chosen, and of the first runs. Neither exceeds the peak of the
// measurement.
TEST(Lab, PeaksOfTuningAndCapture) {
  LabFolder folder;
  folder.write("peaks.toml",
               "name = \"peaks\"\ntitle = \"p\"\nkind = \"bench\"\n"
               "show = [\"tuning_peak_bytes\", \"capture_transient_bytes\"]\n"
               "[recipe]\nmodel = \"nano\"\nbatch = 1\nseq = 16\nphase = \"forward-saved\"\nsamples = 6\n");
  auto rows = folder.run({"lab", "run", "peaks.toml", "--json"}).json()[0]["rows"];
  ASSERT_EQ(rows.size(), 1u);
  auto& columns = rows[0]["columns"];
  if (columns["tuning_peak_bytes"].is_object()) {
    EXPECT_NE(columns["tuning_peak_bytes"]["unknown"], "");
    return;
  }
  EXPECT_GT(columns["tuning_peak_bytes"], 0);
  EXPECT_GE(columns["capture_peak_bytes"], columns["planned_bytes"]);
  EXPECT_GE(columns["device_peak_bytes"], columns["tuning_peak_bytes"]);
  EXPECT_GE(columns["device_peak_bytes"], columns["capture_peak_bytes"]);
  EXPECT_GE(columns["tuning_transient_bytes"], 0);
  EXPECT_GT(columns["kept_bytes"], 0);
}

TEST(Lab, WhatDoesNotFitIsAMeasurement) {
  LabFolder folder;
  std::string text = grid;
  text.replace(text.find("batch = 2"), 9, "memory_limit = [\"1kB\", \"4GiB\"]\nbatch = 2");
  text +=
      "[[claim]]\ntext = \"1 kB is not enough\"\nsubject = \"Crest\"\nsource = \"me\"\n"
      "check = \"count(batch, memory_limit=1kB, status=out_of_memory) == 2\"\n"
      "[[claim]]\ntext = \"cannot be told\"\nsubject = \"Crest\"\nsource = \"me\"\n"
      "check = \"value(ms, memory_limit=1kB, fusion=on) > 0\"\n";
  size_t old = text.find("fusion=on, fusion=off)");
  text.replace(old, 22, "fusion=on, fusion=off, memory_limit=4GiB)");
  old = text.find("fusion=on) == 0");
  text.replace(old, 10, "fusion=on, memory_limit=4GiB)");
  folder.write("large.toml", text);
  auto result = folder.run({"lab", "run", "large.toml", "--json"}).json()[0];
  auto all = verdicts(result);
  EXPECT_EQ(all[0], "upheld");
  EXPECT_EQ(all[3], "upheld");
  EXPECT_EQ(all[4], "cannot tell here");
  EXPECT_NE(result["claims"][4]["reason"].get<std::string>().find("does not fit"), std::string::npos);
}

TEST(Lab, APeerIsAMeasurement) {
  LabFolder folder;
  std::string text = grid;
  text.replace(text.find("[[claim]]"), 0,
               "[[variant]]\nname = \"Crest\"\n[[variant]]\nname = \"peer\"\n"
               "peer = \"fake.py --batch {batch}\"\nfusion = \"on\"\nmodel = \"tiny.toml\"\n"
               "[conditions.peer]\nabout = \"the peer\"\nwhere = { variant = \"peer\" }\n");
  while (text.find("fusion=on, fusion=off)") != std::string::npos)
    text.replace(text.find("fusion=on, fusion=off)"), 22, "fusion=on, fusion=off, variant=Crest)");
  text.replace(text.find("fusion=on) == 0"), 15, "fusion=on, variant=Crest) == 0");
  text.replace(text.find("fusion=off, fusion=on) > 1000"), 29, "fusion=off, fusion=on, variant=Crest) > 1000");
  text +=
      "[[claim]]\ntext = \"It is measured\"\nsubject = \"the peer\"\nsource = \"me\"\nconditions = \"peer\"\n"
      "check = \"value(ms) > 0 and sum(held_bytes) == 1GiB\"\n";
  folder.write("peer.toml", text);
  folder.write("fake.py", "import json, sys\nprint(json.dumps({'ms': 6.0 * int(sys.argv[2]), 'peak_alloc_gib': 1}))\n");
  RunOptions options;
  options.environment = {{"CREST_PEERS", ""}, {"CREST_PYTHON", "python3"}};
  auto result = folder.run({"lab", "run", "peer.toml", "--json"}, options).json()[0];
  EXPECT_EQ(result["claims"][3]["verdict"], "not_comparable") << result["claims"][3];
  EXPECT_NE(result["claims"][3]["reason"].get<std::string>().find("CREST_PEERS"), std::string::npos);
  EXPECT_EQ(result["rows"][2]["keys"]["status"], "absent");
  options.environment[0].second = folder.path().string();
  result = folder.run({"lab", "run", "peer.toml", "--json"}, options).json()[0];
  EXPECT_EQ(result["claims"][3]["verdict"], "upheld") << result["claims"][3];
  EXPECT_EQ(result["rows"][2]["columns"]["ms"]["value"], 12.0) << result["rows"][2];
  EXPECT_EQ(result["rows"][2]["again"], "") << "a script runs once";
  EXPECT_NE(result["rows"][0]["again"], "");
  EXPECT_FALSE(result["rows"][2]["keys"].contains("peer"));
  EXPECT_EQ(folder.run({"runs", "show", result["rows"][2]["run"], "--json"}).json()["kind"], "peer");
  // A failed peer says nothing about comparability, and is tried again.
  folder.write("fake.py", "raise SystemExit(3)\n");
  result = folder.run({"lab", "run", "peer.toml", "--json"}, options).json()[0];
  EXPECT_EQ(result["rows"][2]["keys"]["status"], "failed");
  EXPECT_EQ(result["claims"][3]["verdict"], "cannot tell here");
  EXPECT_EQ(result["claims"][3]["reason"], "failed with exit code 3");
  folder.write("fake.py", "print('{\"ms\": 7}')\n");
  result = folder.run({"lab", "run", "peer.toml", "--resume", "--json"}, options).json()[0];
  EXPECT_EQ(result["rows"][2]["columns"]["ms"]["value"], 7.0) << result["rows"][2];
  EXPECT_EQ(result["rows"].size(), 3u);
  text.replace(text.find("{batch}"), 7, "{bacth}");
  folder.write("peer.toml", text);
  folder.error({"lab", "run", "peer.toml"}, 2, {"peer.toml (line", "no key 'bacth'"});
}

TEST(Lab, CtrlCKeepsWhatIsDone) {
  LabFolder folder;
  std::string text = grid;
  text.replace(text.find("batch = 2"), 9, "batch = 32");
  text.replace(text.find("samples = 6"), 11, "samples = [6, 100000]");  // the most there can be: minutes at the least
  folder.write("long.toml", text);
  RunOptions options;
  options.while_running = [&](const RunningProcess& process) {
    process.wait("a cell that is done", [&] {
      return folder.run({"runs", "list", "--kind", "bench", "--json"}).out.find("\"done\"") != std::string::npos;
    });
    kill(process, SIGINT);
  };
  RunResult r = folder.run({"lab", "run", "long.toml"}, options);
  EXPECT_EQ(r.code, 130) << r.err;
  EXPECT_NE(r.err.find("--resume"), std::string::npos) << r.err;
  EXPECT_NE(r.out.find("not measured yet"), std::string::npos) << r.out;
}

TEST(Lab, AReportOfAllVerdicts) {
  LabFolder folder;
  folder.error({"report", "--lab", "-o", "lab.html"}, 1, {"crest.db"});
  ASSERT_EQ(folder.run({"lab", "run", "accumulate-precision", "batch-arithmetic"}).code, 0);
  RunResult r = folder.run({"report", "--lab", "-o", "lab.html", "-o", "lab.md", "--json"});
  ASSERT_EQ(r.code, 0) << r.err;
  auto json = r.json();
  ASSERT_EQ(json["experiments"].size(), 2u);
  EXPECT_EQ(json["experiments"][0]["name"], "accumulate-precision");
  EXPECT_EQ(json["experiments"][0]["upheld"], 5);
  EXPECT_EQ(json["experiments"][0]["refuted"], 0);
  r = folder.run({"runs", "show", json["experiments"][0]["uid"]});
  EXPECT_EQ(r.code, 0) << r.err;
  // Records of the lab are no steps of a model.
  folder.error({"report", "--all", "-o", "all.html"}, 1, {"nothing to report"});
}

TEST(Lab, BadInput) {
  LabFolder folder;
  expect_error({"lab", "run", "precision-lader"}, 2, {"'precision-ladder'"});
  expect_error({"lab", "run"}, 2, {"--all"});
  expect_error({"lab", "shwo", "flops"}, 2, {"'show'"});
  expect_error({"lab", "run", "flops", "--scale", "tny"}, 2, {"'tiny'"});
  expect_error({"lab", "run", "flops", "--budget", "soon"}, 2, {"--budget", "10m"});
  expect_error({"lab", "run", "flops", "--bugdet", "10m"}, 2, {"--budget"});
  expect_error({"lab", "run", "nowhere.toml"}, 1, {"nowhere.toml"});
  expect_error({"lab", "run", "flops", "--resume", "--no-store"}, 2, {"--no-store"});
  folder.write("later.toml", "name = \"later\"\ntitle = \"Later\"\nkind = \"arithmetic\"\navailable = \"no: wait\"\n");
  folder.error({"lab", "run", "later.toml"}, 1, {"not available yet"});
  std::string text = grid;
  folder.write("flag.toml", std::string(text).replace(text.find("batch = 2"), 9, "bacth = 2"));
  folder.error({"lab", "run", "flag.toml"}, 2, {"flag.toml", "Did you mean 'batch'?"});
  folder.write("value.toml", std::string(text).replace(text.find("\"off\", \"on\""), 11, "\"of\", \"on\""));
  folder.error({"lab", "run", "value.toml"}, 2, {"value.toml", "fusion"});
  folder.write("claim.toml", std::string(text).replace(text.find("<= 1"), 4, "<= "));
  folder.error({"lab", "run", "claim.toml"}, 2, {"claim.toml (line 14, column 57)", "expected"});
  folder.write("type.toml", std::string(text).replace(text.find(" <= 1"), 5, ""));
  folder.error({"lab", "run", "type.toml"}, 2, {"must be a comparison"});
}

}  // namespace crest::test
