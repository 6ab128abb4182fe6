// crest calibrate, crest tune, and times in crest plan.
#include <sys/stat.h>

#include <filesystem>
#include <set>
#include <sstream>

#include "bench/phase_runner.h"
#include "cli/run.h"
#include "core/io.h"
#include "device/find.h"
#include "plan/compile.h"
#include "plan/recipe_settings.h"
#include "predict/planned_time.h"
#include "tune/tiny_calibration.h"

namespace crest::test {

namespace {

const std::vector<std::string> tiny_flags = {"--model=nano", "--vocab=256", "--seq=16", "--precision=fp32",
                                             "--threads=1"};

std::vector<std::string> tune_with(std::vector<std::string> words, const std::vector<std::string>& more) {
  words.insert(words.end(), more.begin(), more.end());
  return words;
}

const std::string& calibration() {
  static TempFolder folder;
  static const std::string file = [] {
    std::string path = (folder.path() / "calibration" / "here.json").string();
    save(tiny_calibration(), path);
    return path;
  }();
  return file;
}

nlohmann::json tuned(const std::vector<std::string>& flags) {
  RunResult r = run_crest(tune_with(
      tune_with({"tune", "--json", "--max-seconds=0.02", "--calibration=" + calibration()}, tiny_flags), flags));
  EXPECT_EQ(r.code, 0) << r.err;
  return r.json();
}

}  // namespace

TEST(CliTune, MeasuresAFewOfManyAndPrintsACommandThatRuns) {
  auto json = tuned({"--measure=4", "--batch=2"});
  EXPECT_GE(json["combinations"], 20);
  EXPECT_LE(json["measured"], 4);
  EXPECT_GT(json["best"]["measured_ms"], 0);
  EXPECT_TRUE(json["start"].is_object());
  // Its command plans the memory promised by the search.
  std::vector<std::string> words = {"plan", "--json"};
  std::string command = json["command"];
  ASSERT_EQ(command.rfind("crest train TEXT ", 0), 0u);
  std::istringstream flags(command.substr(17));
  for (std::string flag; flags >> flag;) words.push_back(flag);
  RunResult plan = run_crest(words);
  ASSERT_EQ(plan.code, 0) << plan.err;
  EXPECT_EQ(plan.json()["memory"]["planned_bytes"], json["best"]["planned_bytes"]);
}

TEST(CliTune, ATimeLimitEndsTheSearchWithAnAnswer) {
  auto json = tuned({"--search-seconds=0.001"});
  EXPECT_EQ(json["out_of_time"], true);
  EXPECT_EQ(json["measured"], 2);
  EXPECT_GT(json["best"]["measured_ms"], 0);
}

// Where a calibration covers both steps, crest advise predicts with it.
TEST(CliAdviseCalibrated, PredictsWithIt) {
  RunResult r = run_crest(
      tune_with({"advise", "--json", "--recompute=full", "--batch=2", "--calibration=" + calibration()}, tiny_flags));
  ASSERT_EQ(r.code, 0) << r.err;
  auto report = r.json();
  EXPECT_TRUE(report["calibration"].is_string());
  int predicted = 0;
  for (auto& rule : report["rules"]) {
    for (auto& a : rule["advice"]) {
      if (a["basis"] != "calibration") continue;
      ++predicted;
      EXPECT_LT(a["time_ratio"].get<double>(), 0.99) << a;
    }
    // A larger batch is judged by its predicted time.
    EXPECT_TRUE(rule["rule"] != "micro-batch" || rule["status"] != "not_applicable") << rule;
  }
  EXPECT_GT(predicted, 0) << r.out;
}

TEST(CliTune, RefusesWhatItCannotSearch) {
  expect_error(tune_with({"tune"}, {"--vary=batsch"}), 2, {"batsch", "--vary", "batch"});
  expect_error(tune_with({"tune"}, {"--vary=batch"}), 2, {"--global-batch"});
  expect_error(tune_with({"tune"}, {"--vary=precision=fp31"}), 2, {"fp31", "--vary"});
  expect_error(tune_with({"tune"}, {"--global-batch=4", "--batch=2"}), 2, {"--global-batch"});
  expect_error(tune_with({"tune"}, {"--within=-1"}), 2, {"--within"});
  expect_error({"tune", "--stop-below=-1"}, 2, {"--stop-below"});
  expect_error({"tune", "--longest-context", "--seq=16"}, 2, {"--seq"});
  expect_error({"tune", "--longest-context", "--within=5"}, 2, {"--within"});
  expect_error(tune_with({"tune"}, {"--measure=1"}), 2, {"--measure", "at least 2"});
  for (const char* flag : {"--measure=5", "--within=2", "--search-seconds=5", "--top=3"})
    expect_error(tune_with({"tune"}, {"--longest-context", flag}), 2,
                 {std::string(flag).substr(0, std::string(flag).find('=')), "planned, not measured"});
  expect_error(tune_with({"tune"}, {"--recompute=budget=1GiB"}), 2, {"--recompute", "--memory-limit"});
  expect_error(tune_with({"tune"}, {"--vary=recompute=none,budget=1GiB"}), 2, {"--vary", "--memory-limit"});
  expect_error(tune_with({"tune"}, {"--headroom=500TB"}), 3, {"--headroom", "leaves nothing"});
  expect_error(tune_with({"tune"}, {"--device=h200", "--max-seconds=1"}), 2,
               {"--max-seconds", "predicted, not measured"});
  expect_error(tune_with({"tune", "--memory-limit=1MB", "--calibration=" + calibration()}, tiny_flags), 3,
               {"none of the combinations fits", "closest"});
}

TEST(CliCalibrate, OneOfAnH200ComesWithCrest) {
  RunResult plan = run_crest({"plan", "--device=h200", "--model=gpt2-124M", "--batch=16", "--json"});
  ASSERT_EQ(plan.code, 0) << plan.err;
  auto time = plan.json()["time"];
  ASSERT_FALSE(time.is_null()) << plan.out;
  EXPECT_TRUE(time["calibration"]["built_in"]);
  int64_t steps = 0;
  for (auto& source : time["calibration"]["sources"]) steps += source["steps"].get<int64_t>();
  EXPECT_EQ(time["calibration"]["steps"], steps);
  RunResult text = run_crest({"plan", "--device=h200", "--model=gpt2-124M", "--batch=16"});
  for (auto& source : time["calibration"]["sources"]) {
    const std::string where =
        source["device"].get<std::string>() + ", " + source["date"].get<std::string>().substr(0, 10);
    EXPECT_NE(text.out.find("on another " + where), std::string::npos) << text.out;
  }
  EXPECT_EQ(time["measured_share"], 1.0);  // kernels chosen here ran there
  // Measured by crest bench on an H200 (docs/concepts/predictions.md): 26.9 ms.
  EXPECT_NEAR(time["step_ms"].get<double>() / 26.9, 1, 0.1);
  // A user's device file never counts as an H200, whatever its name.
  TempFolder folder;
  std::string sheet = read_file(std::string(CREST_TEST_DIR) + "/../devices/h200.toml", 1 << 16);
  sheet.replace(sheet.find("SXM 141GB"), 9, "of mine");
  RunResult mine =
      run_crest({"plan", "--device=" + folder.write("mine.toml", sheet), "--model=gpt2-124M", "--batch=16", "--json"});
  EXPECT_EQ(mine.json()["time"]["source"], "data sheet") << mine.out << mine.err;
  // No calibration covers this device: the time comes from the data sheet.
  RunResult other = run_crest({"plan", "--device=v100", "--model=gpt2-124M", "--batch=16", "--json"});
  EXPECT_EQ(other.json()["time"]["source"], "data sheet") << other.out;
  expect_error({"plan", "--device=v100", "--model=gpt2-124M", "--as-profile=x.json"}, 2,
               {"--as-profile", "from the data sheet alone", "calibrate"});
  std::string pipe = (folder.path() / "pipe").string();
  ASSERT_EQ(mkfifo(pipe.c_str(), 0600), 0);
  expect_error({"plan", "--device=h200", "--as-profile=" + pipe}, 1, {pipe, "pipe, not a file"});
  EXPECT_TRUE(std::filesystem::is_fifo(pipe));
  expect_error({"plan", "--device=h200", "--as-profile=" + folder.path().string()}, 1, {"is a folder, not a file"});
  expect_error({"plan", "--device=h200", "--ranks=2", "--as-profile=x.json"}, 2, {"--as-profile", "one rank"});
  for (const char* flag : {"--as-profile=x.json", "--price=2", "--tokens=1e9"})
    expect_error({"plan", "--device=cpu", "--ranks=2", flag}, 2, {std::string(flag).substr(0, 7), "several ranks"});
  expect_error({"plan", "--device=h200", "--explain=memory", "--as-profile=x.json"}, 2, {"--explain predicts no time"});
}

// The error of the common part is the same in two predictions: only the range of the rest counts.
TEST(CliCalibrate, TwoPredictionsDifferByWhatTheyDoNotShare) {
  TempFolder folder;
  auto planned = [&](const std::string& name, const std::vector<std::string>& flags) {
    std::string file = (folder.path() / name).string();
    RunResult r = run_crest(tune_with(
        {"plan", "--device=h200", "--model=gpt2-124M", "--for=step", "--seq=1024", "--json", "--as-profile=" + file},
        flags));
    EXPECT_EQ(r.code, 0) << r.err;
    return std::pair(file, r.json()["time"]);
  };
  const auto first = planned("a.json", {"--batch=4"});
  const std::string& a = first.first;
  const auto& time_a = first.second;
  auto claimed = [&](const std::vector<std::string>& flags, double& relative) {
    auto [b, time_b] = planned("b.json", flags);
    relative = std::abs(time_b["step_ms"].get<double>() / time_a["step_ms"].get<double>() - 1);
    std::string one = run_crest({"compare", a, b}).out, other = run_crest({"compare", b, a}).out;
    for (auto& text : {one, other}) EXPECT_EQ(text.find("step samples"), std::string::npos) << text;
    bool is = one.find(" is predicted ") != std::string::npos;
    EXPECT_EQ(other.find(" is predicted ") != std::string::npos, is) << one << other;
    return is;
  };
  double relative = 0;
  EXPECT_TRUE(claimed({"--batch=4", "--recompute=full"}, relative));
  EXPECT_TRUE(claimed({"--batch=4", "--recompute=layers=full:3+pointwise"}, relative));
  EXPECT_LT(relative, 0.1) << "less than the range of either";
  // Without padding the output head is another matmul, and nearly as fast. Each prediction may be
  // off by more than the difference.
  EXPECT_FALSE(claimed({"--batch=4", "--pad-vocab=1"}, relative)) << relative;
  auto [b, time_b] = planned("b.json", {"--batch=16"});
  EXPECT_NE(run_crest({"compare", a, b}).out.find("Both are predictions with a range"), std::string::npos);
}

TEST(CliCalibrate, PlanPredictsTheStep) {
  TempFolder folder;
  const std::string& file = calibration();
  std::vector<std::string> recipe = {"--model=nano", "--vocab=256",      "--batch=3",
                                     "--seq=65",     "--precision=fp32", "--threads=1"};
  RunResult plan = run_crest(tune_with({"plan", "--json", "--for=step", "--calibration=" + file}, recipe));
  ASSERT_EQ(plan.code, 0) << plan.err;
  auto time = plan.json()["time"];
  double sum = 0;
  for (auto& [phase, ms] : time["by_phase"].items()) sum += ms.get<double>();
  EXPECT_NEAR(sum / time["step_ms"].get<double>(), 1, 1e-6);
  // The distance from a measurement depends on the machine (docs/concepts/predictions.md). Here the
  // test checks that the figure is the calibration's prediction for this Program.
  Recipe r;
  settings_of(r).apply(
      {{"model", {"nano"}}, {"vocab", {"256"}}, {"batch", {"3"}}, {"seq", {"65"}}, {"precision", {"fp32"}}});
  Device device = find_device("cpu", 1);
  CompiledSession session = compile_phase(resolve(r, device), device, BenchPhase::step);
  EXPECT_NEAR(time["step_ms"].get<double>() / load_calibration(file).times.predict(step_rows(session)).ms, 1, 1e-9);
  std::set<std::string> keys;
  for (auto& [key, value] : time.items()) keys.insert(key);
  EXPECT_EQ(keys, (std::set<std::string>{"step_ms",
                                         "step_ms_low",
                                         "step_ms_high",
                                         "measured_share",
                                         "tokens_per_second",
                                         "model_flops_per_second",
                                         "mfu",
                                         "hfu",
                                         "peak_flops_per_second",
                                         "collectives_by_axes",
                                         "traffic_by_axes",
                                         "hidden_collectives_ms",
                                         "collectives_ms",
                                         "collectives",
                                         "waiting_ms",
                                         "step_spread",
                                         "transfers_ms",
                                         "by_phase",
                                         "by_class",
                                         "by_layer",
                                         "calibration",
                                         "source",
                                         "joules_per_token_at_limit",
                                         "price_per_token"}));
  // As a profile it can be compared with a measured one.
  std::string planned = (folder.path() / "planned.json").string();
  RunResult written =
      run_crest(tune_with({"plan", "--for=step", "--calibration=" + file, "--as-profile=" + planned}, recipe));
  ASSERT_EQ(written.code, 0) << written.err;
  std::string measured = folder.write(
      "measured.json", run_crest(tune_with({"profile", "--json", "--no-store", "--samples=3"}, recipe)).out);
  RunResult compared = run_crest({"compare", planned, measured, "--json"});
  ASSERT_EQ(compared.code, 0) << compared.err;
  EXPECT_NEAR(compared.json()["a"]["step_ms"].get<double>(), time["step_ms"].get<double>(), 1e-9);
  EXPECT_NE(compared.out.find("are predicted, not measured"), std::string::npos) << compared.out;
  EXPECT_EQ(compared.out.find("measured only with the profiler"), std::string::npos) << compared.out;
  EXPECT_EQ(compared.json()["differences"].dump().find("\"kernels\""), std::string::npos) << compared.out;

  // Kernels of another precision were not measured.
  recipe[4] = "--precision=bf16";
  RunResult other = run_crest(tune_with({"plan", "--json", "--for=step", "--calibration=" + file}, recipe));
  EXPECT_TRUE(other.json()["time"].is_null()) << other.out;
  RunResult why = run_crest(tune_with({"plan", "--for=step", "--calibration=" + file}, recipe));
  EXPECT_NE(why.out.find("crest calibrate --precision bf16"), std::string::npos) << why.out;
  recipe[4] = "--precision=fp32";
  RunResult text = run_crest(tune_with({"plan", "--calibration=" + file, "--tokens=1e6"}, recipe));
  EXPECT_NE(text.out.find("predicted from 4 steps"), std::string::npos) << text.out;
  EXPECT_NE(text.out.find("1.00M tokens"), std::string::npos) << text.out;

  expect_error({"plan", "--model=nano", "--threads=2", "--calibration=" + file}, 1, {file, "crest calibrate"});
  expect_error({"plan", "--model=nano", "--calibration=" + folder.write("bad.json", "{}")}, 1, {"not a calibration"});
  expect_error({"plan", "--model=nano", "--calibration=" + (folder.path() / "absent.json").string()}, 1,
               {"absent.json"});
  expect_error({"plan", "--model=nano", "--ranks=2", "--threads=2", "--calibration=" + file}, 2, {"--calibration"});
  expect_error({"plan", "--model=nano", "--tokens=-1"}, 2, {"--tokens"});
}

TEST(CliCalibrate, RefusesWhatItCannotMeasure) {
  expect_error({"calibrate", "--memory-limit=1MB"}, 3, {"fit", "precision"});
  expect_error({"calibrate", "--device=h200"}, 2, {"--device"});
  expect_error({"calibrate", "--device=h200", "--ranks=2"}, 2, {"--device"});
  expect_error({"calibrate", "--precision=fp31", "--memory-limit=1MB"}, 2, {"fp31"});
  // Before minutes of measuring.
  expect_error({"calibrate", "--out=/dev/null"}, 1, {"--out", "not a file"});
  expect_error({"calibrate", "--out=/sys/x.json"}, 1, {"/sys/x.json", "cannot create"});
}

}  // namespace crest::test
