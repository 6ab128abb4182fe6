// crest bench.
#include <algorithm>
#include <cmath>
#include <set>

#include "core/random.h"
#include "run.h"

using namespace crest::test;
using nlohmann::json;

namespace {

// A model with steps of milliseconds. No rate is measured for it.
class CliBench : public testing::Test {
 protected:
  TempFolder folder_;
  std::string model_ = folder_.write("tiny.toml", tiny_model);

  RunResult run(std::vector<std::string> flags,
                std::vector<std::string> common = {"--samples", "3", "--warmup", "1", "--no-mfu", "--json"}) {
    std::vector<std::string> all = {"bench", "--model", model_};
    all.insert(all.end(), flags.begin(), flags.end());
    all.insert(all.end(), common.begin(), common.end());
    return run_crest(all, {.folder = folder_.path().string()});
  }
  json rows(std::vector<std::string> flags) {
    RunResult r = run(std::move(flags));
    EXPECT_EQ(r.code, 0) << r.err;
    return r.json();
  }
};

std::set<std::string> keys(const json& object) {
  std::set<std::string> names;
  for (auto& [key, value] : object.items()) names.insert(key);
  return names;
}

}  // namespace

TEST_F(CliBench, RowsHaveTheKeysOfTheContract) {
  json all = rows({"--batch", "2", "--precision", "fp32", "--phase", "all"});
  ASSERT_EQ(all.size(), 3u);
  const char* phases[] = {"forward", "backward", "step"};
  for (size_t i = 0; i < 3; ++i) {
    json& row = all[i];
    EXPECT_EQ(row["phase"], phases[i]);
    EXPECT_EQ(keys(row), (std::set<std::string>{"recipe",
                                                "device",
                                                "phase",
                                                "step_ms_mean",
                                                "step_ms_std",
                                                "step_ms_median",
                                                "step_ms_min",
                                                "step_ms_max",
                                                "samples",
                                                "samples_ms",
                                                "rounds",
                                                "round_ms",
                                                "step_ms_p10",
                                                "step_ms_p90",
                                                "step_ms_median_low",
                                                "step_ms_median_high",
                                                "throttled",
                                                "throttle_reasons",
                                                "tokens_per_second",
                                                "model_tflops",
                                                "mfu",
                                                "hfu",
                                                "power_w",
                                                "other_load",
                                                "joules_per_token",
                                                "flops_convention",
                                                "memory"}));
    EXPECT_LE(row["step_ms_p10"], row["step_ms_median"]);
    EXPECT_LE(row["step_ms_median"], row["step_ms_p90"]);
    EXPECT_TRUE(row["step_ms_median_low"].is_null()) << "three samples have no 95% interval";
    EXPECT_EQ(keys(row["memory"]), (std::set<std::string>{"planned_bytes", "measured_peak_bytes", "device_peak_bytes",
                                                          "context_start_bytes", "context_bytes", "by_category"}));
    EXPECT_EQ(row["samples"], 3);
    EXPECT_LE(row["step_ms_min"], row["step_ms_median"]);
    EXPECT_LE(row["step_ms_median"], row["step_ms_max"]);
    double seconds = row["step_ms_median"].get<double>() / 1e3;
    EXPECT_GT(seconds, 0);
    EXPECT_NEAR(row["tokens_per_second"].get<double>() * seconds, 2 * 32, 1e-6);
    // 6N + 12 L d T per token by hand: 2 layers of 12 d^2, the head of 101 rows; a forward pass is
    // a third.
    double n = 2 * 12 * 32 * 32 + 101 * 32, flops = 64 * (6 * n + 12.0 * 2 * 32 * 32);
    if (i == 0) flops /= 3;
    EXPECT_NEAR(row["model_tflops"].get<double>() * 1e12 * seconds / flops, 1, 1e-6);
    EXPECT_TRUE(row["mfu"].is_null()) << "--no-mfu";
    auto& m = row["memory"];
    EXPECT_EQ(m["planned_bytes"], m["measured_peak_bytes"]) << "what is planned is what is held";
    EXPECT_GE(m["device_peak_bytes"], m["planned_bytes"].get<int64_t>() / 2);
    int64_t sum = 0;
    for (auto& [name, bytes] : m["by_category"].items()) sum += bytes.get<int64_t>();
    EXPECT_EQ(sum, m["planned_bytes"]);
    EXPECT_EQ(row["recipe"]["batch"], 2);
    EXPECT_EQ(row["recipe"]["seq"], 32);
    EXPECT_EQ(row["recipe"]["precision"], "fp32");
  }
  // Inference saves nothing, and only the step has optimizer state.
  EXPECT_EQ(all[0]["memory"]["by_category"]["gradients"], 0);
  EXPECT_LT(all[0]["memory"]["planned_bytes"], all[1]["memory"]["planned_bytes"]);
  EXPECT_GT(all[2]["memory"]["by_category"]["optimizer_state"].get<int64_t>(),
            all[1]["memory"]["by_category"]["optimizer_state"].get<int64_t>());
}

// A forward pass with activations for a backward pass: more memory than inference, no gradients.
TEST_F(CliBench, ForwardSavedKeepsActivations) {
  std::vector<std::string> flags = {"--batch", "2", "--precision", "fp32", "--grad-accumulation", "2", "--phase"};
  auto row = [&](const char* phase) {
    auto with = flags;
    with.push_back(phase);
    return rows(with).at(0);
  };
  json inference = row("forward"), saved = row("forward-saved"), backward = row("backward");
  EXPECT_EQ(saved["phase"], "forward-saved");
  EXPECT_EQ(saved["flops_convention"], inference["flops_convention"]);
  auto bytes = [](const json& r, const char* category) { return r["memory"]["by_category"][category].get<int64_t>(); };
  EXPECT_EQ(saved["memory"]["planned_bytes"], saved["memory"]["measured_peak_bytes"]);
  EXPECT_EQ(bytes(inference, "activations"), 0);
  EXPECT_GT(bytes(saved, "activations"), 0);
  EXPECT_EQ(bytes(saved, "gradients"), 0);
  EXPECT_EQ(bytes(saved, "weights"), bytes(inference, "weights"));
  EXPECT_GT(saved["memory"]["planned_bytes"], inference["memory"]["planned_bytes"]);
  EXPECT_LT(saved["memory"]["planned_bytes"], backward["memory"]["planned_bytes"]);
  double seconds = saved["step_ms_median"].get<double>() / 1e3;
  EXPECT_NEAR(saved["tokens_per_second"].get<double>() * seconds, 2 * 32, 1e-6) << "one micro batch";
}

// A token of crest sample, with weights of both kinds.
TEST_F(CliBench, DecodingOfAToken) {
  json all = rows({"--phase", "decode", "--precision", "fp32", "--seq", "20", "--weights", "float,int8"});
  ASSERT_EQ(all.size(), 2u);
  for (auto& row : all) {
    EXPECT_EQ(row["phase"], "decode");
    EXPECT_EQ(row["recipe"]["batch"], 1);
    EXPECT_GT(row["memory"]["by_category"]["kv_cache"], 0);
    EXPECT_EQ(row["memory"]["planned_bytes"], row["memory"]["measured_peak_bytes"]);
    double seconds = row["step_ms_median"].get<double>() / 1e3;
    EXPECT_NEAR(row["tokens_per_second"].get<double>() * seconds, 1, 1e-6);
  }
  auto weights = [&](size_t i) { return all[i]["memory"]["by_category"]["weights"].get<double>(); };
  EXPECT_EQ(all[0]["recipe"]["weights"], "float");
  EXPECT_EQ(all[1]["recipe"]["weights"], "int8");
  EXPECT_LT(weights(1), 0.35 * weights(0)) << "a quarter, and what is not of 8 bits";
  expect_error({"bench", "--model", "nano", "--phase", "decode", "--batch", "4", "--no-store"}, 2,
               {"a single sequence", "--batch 4"});
  expect_error({"bench", "--model", "nano", "--phase", "decode", "--data-parallel", "2", "--no-store"}, 2,
               {"one rank decodes"});
}

TEST_F(CliBench, GridsAreProductsInOrder) {
  json all = rows({"--batch", "1,2", "--recompute", "none,full", "--precision", "fp32,bf16", "--seq", "16"});
  ASSERT_EQ(all.size(), 8u);
  size_t i = 0;
  for (const char* precision : {"fp32", "bf16"})
    for (const char* recompute : {"none", "full"})
      for (int batch : {1, 2}) {
        EXPECT_EQ(all[i]["recipe"]["precision"], precision) << i;
        EXPECT_EQ(all[i]["recipe"]["recompute"], recompute) << i;
        EXPECT_EQ(all[i]["recipe"]["batch"], batch) << i;
        EXPECT_EQ(all[i]["recipe"]["seq"], 16) << i;
        ++i;
      }
  // Every recipe flag accepts a list. The order of the grid is the order of the settings, with
  // batch and seq innermost.
  json more = rows({"--batch", "1,2", "--policy", "autocast,pure", "--grad-accumulation", "1,2", "--vocab", "101,128",
                    "--threads", "1", "--pad-vocab", "1"});
  ASSERT_EQ(more.size(), 16u);
  EXPECT_EQ(more[1]["recipe"]["batch"], 2);
  EXPECT_EQ(more[8]["recipe"]["vocab"], 128);
  EXPECT_EQ(more[4]["recipe"]["policy"], "pure");
  EXPECT_EQ(more[2]["recipe"]["grad_accumulation"], 2);
  EXPECT_EQ(more[15]["recipe"]["pad_vocab"], 1);
  json threads = rows({"--batch", "1", "--threads", "1,2"});
  ASSERT_EQ(threads.size(), 2u);
  EXPECT_NE(threads[0]["device"], threads[1]["device"]);
  folder_.write("c.toml", "batch = [1, 2]\nattention = [\"flash\", \"naive\"]\n");
  EXPECT_EQ(rows({"--config", "c.toml"}).size(), 4u);
  EXPECT_EQ(rows({"--config", "c.toml", "--batch", "1"}).size(), 2u) << "flags win";
}

TEST_F(CliBench, EverySettingRuns) {
  for (std::vector<std::string> flags :
       std::vector<std::vector<std::string>>{{"--precision", "fp16"},
                                             {"--precision", "bf16", "--policy", "autocast"},
                                             {"--fusion", "off", "--attention", "naive"},
                                             {"--recompute", "selective"},
                                             {"--grad-accumulation", "3"},
                                             {"--data-parallel", "2"},
                                             {"--data-parallel", "2", "--grad-accumulation", "2"},
                                             {"--dropout", "0.1"}})
    for (const char* phase : {"forward", "backward", "step"}) {
      auto with = flags;
      with.insert(with.end(), {"--batch", "2", "--phase", phase});
      json row = rows(with)[0];
      double micro_steps = row["recipe"]["grad_accumulation"], ranks = row["recipe"]["data_parallel"];
      double tokens = 64 * ranks * (std::string(phase) == "forward" ? 1 : micro_steps);
      EXPECT_NEAR(row["tokens_per_second"].get<double>() * row["step_ms_median"].get<double>() / 1e3, tokens, 1e-6);
      EXPECT_EQ(row["memory"]["planned_bytes"], row["memory"]["measured_peak_bytes"]) << flags[0] << flags[1] << phase;
    }
}

TEST_F(CliBench, MfuIsTheShareOfTheStatedPeak) {
  RunResult r = run({"--batch", "2", "--peak", "2e11"}, {"--samples", "3", "--json"});
  ASSERT_EQ(r.code, 0) << r.err;
  json row = r.json()[0];
  EXPECT_NEAR(row["mfu"].get<double>(), row["model_tflops"].get<double>() / 0.2, 1e-9);
  EXPECT_NE(row["flops_convention"].get<std::string>().find("given by --peak"), std::string::npos);
  EXPECT_NE(row["flops_convention"].get<std::string>().find("6N + 12 L d T"), std::string::npos);
  EXPECT_EQ(row["hfu"], row["mfu"]) << "nothing is recomputed";
  json full = run({"--batch", "2", "--peak", "2e11", "--recompute", "full"}, {"--samples", "3", "--json"}).json()[0];
  const double repeated = full["hfu"].get<double>() / full["mfu"].get<double>() - 1;
  EXPECT_GT(repeated, 0.1);
  EXPECT_LT(repeated, 1.0 / 3) << "at most one of three passes";
  // Measured, in a table for people: reports its comparison.
  RunResult text = run({"--batch", "2", "--precision", "fp32"}, {"--samples", "6"});
  ASSERT_EQ(text.code, 0) << text.err;
  for (const char* said : {"tokens/s", "MFU", "6N + 12 L d T", "measured fp32 matmul rate", "step"})
    EXPECT_NE(text.out.find(said), std::string::npos) << said << " in\n" << text.out;
  json executed = rows({"--batch", "2", "--flops-convention", "executed"})[0];
  EXPECT_NE(executed["flops_convention"].get<std::string>().find("executed"), std::string::npos);
  EXPECT_GT(executed["model_tflops"], 0);
}

TEST_F(CliBench, WhatDoesNotFitIsARowOfAGridAndAnErrorAlone) {
  // Between the plans of batch 1 and batch 4096.
  json grid = rows({"--batch", "1,4096", "--memory-limit", "64MiB"});
  ASSERT_EQ(grid.size(), 2u);
  EXPECT_FALSE(grid[0].contains("error"));
  EXPECT_EQ(grid[1]["error"], "out_of_memory");
  EXPECT_GT(grid[1]["memory"]["planned_bytes"], 64 << 20);
  EXPECT_FALSE(grid[1].contains("step_ms_median"));
  RunResult alone = run({"--batch", "4096", "--memory-limit", "64MiB"});
  EXPECT_EQ(alone.code, 3);
  EXPECT_EQ(alone.json()[0]["error"], "out_of_memory");
  EXPECT_NE(alone.err.find("What would fit"), std::string::npos) << alone.err;
  EXPECT_NE(alone.err.find("activations"), std::string::npos) << alone.err;
}

TEST_F(CliBench, SecondRecipeIsMeasuredInTurns) {
  // B does five hundred times the work of A, so the verdict is certain unless other work keeps this
  // machine busy. Then the test measures again.
  RunResult r;
  for (int attempt = 0; attempt < 5; ++attempt) {
    r = run({"--batch", "1", "--recompute", "full", "--ab", "--batch 512"}, {"--samples", "12", "--no-mfu", "--json"});
    ASSERT_EQ(r.code, 0) << r.err;
    if (r.json()["comparison"]["verdict"] != "cannot_tell") break;
  }
  json j = r.json(), c = j["comparison"];
  ASSERT_EQ(j["rows"].size(), 2u);
  EXPECT_EQ(j["rows"][0]["recipe"]["batch"], 1);
  EXPECT_EQ(j["rows"][1]["recipe"]["batch"], 512);
  EXPECT_EQ(j["rows"][1]["recipe"]["model"], j["rows"][0]["recipe"]["model"]) << "what --ab leaves out stays";
  EXPECT_EQ(j["rows"][1]["recipe"]["recompute"], "full");
  EXPECT_EQ(c["rounds"], 12);
  EXPECT_EQ(j["rows"][1]["samples"], 12);
  EXPECT_GT(c["ratio"], 1);
  EXPECT_EQ(c["verdict"], "a_faster") << c["sentence"];
  EXPECT_NE(c["sentence"].get<std::string>().find("faster"), std::string::npos);
  EXPECT_GE(c["noise_floor"], 0);
}

// The verdict follows from the interval and the noise floor. A verdict between equal recipes is
// chance, and chance does not repeat five times, also on a busy machine.
TEST_F(CliBench, ItselfCannotBeToldFromItself) {
  bool cannot_tell = false;
  for (int i = 0; i < 5 && !cannot_tell; ++i) {
    RunResult r = run({"--batch", "4", "--noise"}, {"--samples", "30", "--no-mfu", "--json"});
    ASSERT_EQ(r.code, 0) << r.err;
    json c = r.json()["comparison"];
    EXPECT_EQ(c["rounds"], 30);
    double ratio = c["ratio"], low = c["ratio_low"], high = c["ratio_high"], floor = c["noise_floor"];
    EXPECT_GT(floor, 0);
    EXPECT_LE(low, ratio);
    EXPECT_GE(high, ratio);
    bool beyond = std::abs(ratio - 1) > floor;
    EXPECT_EQ(c["verdict"], beyond && low > 1 ? "a_faster" : beyond && high < 1 ? "b_faster" : "cannot_tell") << c;
    cannot_tell = c["verdict"] == "cannot_tell";
  }
  EXPECT_TRUE(cannot_tell);
}

TEST_F(CliBench, PeersStandBeside) {
  // A peer that reports a step slower than any step of this model.
  RunResult r = run({"--batch", "1", "--peer", "echo '{\"ms\": 100000}'"}, {"--samples", "4", "--no-mfu", "--json"});
  ASSERT_EQ(r.code, 0) << r.err;
  json j = r.json();
  ASSERT_EQ(j["rows"].size(), 2u);
  EXPECT_EQ(j["rows"][1]["peer"], "echo '{\"ms\": 100000}'");
  EXPECT_DOUBLE_EQ(j["rows"][1]["step_ms_median"].get<double>(), 100000);
  EXPECT_EQ(j["comparison"]["verdict"], "a_faster");
  // Crest as its own peer reads its own JSON.
  std::string self =
      "'" + std::string(crest_binary()) + "' bench --model tiny.toml --batch 1 --samples 3 --no-mfu --json";
  RunResult twice = run({"--batch", "1", "--peer", self}, {"--samples", "4", "--no-mfu", "--json"});
  EXPECT_EQ(twice.code, 0) << twice.err;
}

TEST_F(CliBench, BadInputIsOneClearError) {
  auto bad = [&](std::vector<std::string> flags, int code, std::vector<std::string> said) {
    flags.insert(flags.begin(), {"bench", "--model", model_});
    expect_error(flags, code, said);
  };
  bad({"--ab", "--batch 2", "--ab", "--batch 4"}, 2, {"--ab", "2 times"});
  bad({"--peer", "true", "--peer", "false"}, 2, {"--peer", "2 times"});
  bad({"--batch", "1e18"}, 2, {"--batch", "1e18"});
  bad({"--batch", "4,"}, 2, {"--batch", "empty"});
  bad({"--batch", ","}, 2, {"--batch", "empty"});
  bad({"--batch", "4,x"}, 2, {"--batch", "'x'"});
  bad({"--batch", "0"}, 2, {"--batch"});
  bad({"--batch", "2,99999999999"}, 2, {"--batch"});
  bad({"--seq", "33"}, 2, {"--seq", "context"});
  bad({"--grad-accumulation", "1,two"}, 2, {"--grad-accumulation", "'two'"});
  bad({"--data-parallel", "1,65"}, 2, {"--data-parallel", "'65'"});
  bad({"--threads", "1,x"}, 2, {"--threads", "'x'"});
  bad({"--model", "nano,nono"}, 2, {"nono"});
  bad({"--precision", "fp32,bf61"}, 2, {"bf61", "bf16"});
  bad({"--phase", "sideways"}, 2, {"--phase", "step"});
  bad({"--samples", "-1"}, 2, {"--samples"});
  bad({"--warmup", "-1"}, 2, {"--warmup"});
  bad({"--max-seconds", "-1"}, 2, {"--max-seconds"});
  bad({"--peak", "-5"}, 2, {"--peak"});
  bad({"--flops-convention", "pam"}, 2, {"palm"});
  bad({"--sampels", "3"}, 2, {"--sampels", "--samples"});
  bad({"--device", "cuda:1"}, 4, {"CUDA"});
  bad({"--memory-limit", "abc"}, 2, {"abc", "--memory-limit"});
  bad({"--kernel", "attention"}, 2, {"OP=PATTERN"});
  bad({"--kernel", "attention=cuda.*"}, 2, {"cuda.*"});
  bad({"--ab", ""}, 2, {"--ab"});
  bad({"--ab", "--fusoin off"}, 2, {"--fusoin", "--fusion"});
  bad({"--ab", "--batch many"}, 2, {"--ab"});
  bad({"--ab", "--batch '4"}, 2, {"--ab"});
  bad({"--ab", "--fusion off", "--batch", "1,2"}, 2, {"--ab", "one recipe"});
  bad({"--noise", "--phase", "all"}, 2, {"one recipe"});
  bad({"--noise", "--samples", "3"}, 2, {"--samples", "4 or more"});
  bad({"--noise", "--ab", "--fusion off"}, 2, {"exclude"});
  bad({"--batch", "1", "--peer", "exit 3"}, 1, {"exit code 3"});
  bad({"--batch", "1", "--peer", "echo no time"}, 1, {"no step time", "no time"});
  bad({"--batch", "1", "--peer", "no-such-command-anywhere"}, 1, {"not found"});
  bad({"--batch", "1", "--peer", "sleep 60", "--timeout", "0.3"}, 1, {"no result within"});
  expect_error({"bench", "--model", folder_ / "none.toml"}, 2, {"none.toml"});
}

TEST_F(CliBench, ATimeLimitKeepsWhatWasMeasured) {
  RunResult r = run({"--batch", "1,2", "--precision", "fp32", "--max-seconds", "0"}, {"--no-mfu", "--json"});
  ASSERT_EQ(r.code, 0) << r.err;
  for (auto& row : r.json()) {
    EXPECT_EQ(row["samples"], 2) << "one in each round";
    EXPECT_TRUE(row["step_ms_median_low"].is_null());
  }
  EXPECT_NE(r.err.find("2 samples within --max-seconds 0"), std::string::npos) << r.err;
  r = run({"--precision", "fp32", "--max-seconds", "0", "--ab", "--fusion off"}, {"--no-mfu", "--json"});
  ASSERT_EQ(r.code, 0) << r.err;
  EXPECT_EQ(r.json()["comparison"]["rounds"], 1);
  EXPECT_EQ(r.json()["comparison"]["verdict"], "cannot_tell");
  EXPECT_TRUE(r.json()["comparison"]["noise_floor"].is_null());
}

TEST_F(CliBench, CtrlCEndsIt) {
  RunResult r =
      run_crest({"bench", "--model", model_, "--samples", "1000000", "--no-mfu"}, {.while_running = [](auto& process) {
                  process.wait_for_text("[1/1]");
                  kill(process, SIGINT);
                }});
  EXPECT_EQ(r.code, 130) << r.err;
  EXPECT_NE(r.err.find("interrupted"), std::string::npos) << "the signal alone would end it with that code, too";
}

TEST(BenchProduct, MeasuresEachSizeInEachPrecision) {
  TempFolder folder;
  RunOptions in{.folder = folder.path().string()};
  RunResult r = run_crest({"bench", "--product", "48x32x64,24x512x16", "--precision", "fp32,fp8", "--threads", "1",
                           "--max-seconds", "0.05", "--json"},
                          in);
  ASSERT_EQ(r.code, 0) << r.err;
  json products = r.json()["products"];
  ASSERT_EQ(products.size(), 4u);
  EXPECT_EQ(products[2]["n"], 512);
  for (size_t i : {0, 2}) {
    const json& p = products[i];
    EXPECT_GE(p["samples"], 12);
    double flops = 2.0 * p["m"].get<double>() * p["n"].get<double>() * p["k"].get<double>();
    EXPECT_NEAR(p["flops_per_second"].get<double>() * p["ms_median"].get<double>() / 1e3 / flops, 1, 1e-6);
    EXPECT_LE(p["flops_per_second_low"], p["flops_per_second"]);
    EXPECT_GE(p["flops_per_second_high"], p["flops_per_second"]);
    EXPECT_GE(p["noise_floor"].get<double>(), 0);
    EXPECT_NE(products[i + 1]["error"].get<std::string>().find("fp8"), std::string::npos);
  }
  json records = run_crest({"runs", "list", "--json"}, in).json();
  EXPECT_EQ(std::count_if(records.begin(), records.end(),
                          [](auto& run) { return run["kind"] == "gemm" && run["status"] == "done"; }),
            2);
  std::string text = run_crest({"bench", "--product", "48x32x64", "--precision", "fp32", "--samples", "2"}, in).out;
  EXPECT_NE(text.find("48x32x64"), std::string::npos);
  EXPECT_NE(text.find("TFLOP/s"), std::string::npos);
}

TEST(BenchProduct, RefusesWhatIsNoProduct) {
  auto bad = [](std::vector<std::string> flags, int code, const std::vector<std::string>& said) {
    flags.insert(flags.begin(), "bench");
    expect_error(flags, code, said);
  };
  bad({"--product", "512x10"}, 2, {"512x10", "--product", "4096x4096x4096"});
  bad({"--product", "0x10x10"}, 2, {"0x10x10"});
  bad({"--product", "10x10x10,"}, 2, {"''"});
  bad({"--product", ""}, 2, {"--product", "empty"});
  bad({"--product", "8x8x8", "--batch", "4"}, 2, {"--batch", "--product"});
  bad({"--product", "8x8x8", "--noise"}, 2, {"--noise"});
  bad({"--product", "8x8x8", "--threads", "1,2"}, 2, {"--threads", "one number"});
  bad({"--product", "8x8x8", "--precision", "bf61"}, 2, {"bf61", "bf16"});
  bad({"--product", "8x8x8", "--precision", "fp8", "--device", "cpu"}, 1, {"fp8", "Precisions"});
  bad({"--product", "1000000x1000000x8"}, 3, {"1000000x1000000x8", "--product"});
}
