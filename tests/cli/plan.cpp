// crest plan.
#include <algorithm>
#include <map>
#include <regex>
#include <set>

#include "contains.h"
#include "core/text.h"
#include "run.h"
#include "slowness.h"

using namespace crest;
using namespace crest::test;

namespace {

int64_t sum(const nlohmann::json& categories) {
  int64_t bytes = 0;
  for (auto& [name, value] : categories.items()) bytes += value.get<int64_t>();
  return bytes;
}

nlohmann::json plan(std::vector<std::string> flags, int code = 0) {
  flags.insert(flags.begin(), "plan");
  flags.push_back("--json");
  RunResult r = run_crest(flags);
  EXPECT_EQ(r.code, code) << r.err;
  return r.json();
}

}  // namespace

TEST(CliPlan, CountsOfGpt2) {
  auto j = plan({"--model", "gpt2-124M", "--batch", "4", "--seq", "1024", "--precision", "fp32"});
  // 12 layers of 12 d^2 + 13 d, two embeddings and a final norm: the published 124,439,808.
  EXPECT_EQ(j["parameters"]["total"], 124439808);
  EXPECT_EQ(j["parameters"]["embeddings"], (50257 + 1024) * 768);
  // Matrix products: 12 d^2 a layer and the head.
  int64_t matmul = 12 * 12 * 768 * 768 + 50257 * 768;
  EXPECT_EQ(j["parameters"]["matmul"], matmul);
  EXPECT_EQ(j["tokens_per_step"], 4096);
  double flops = 4096.0 * (6.0 * double(matmul) + 12.0 * 12 * 768 * 1024);
  EXPECT_DOUBLE_EQ(j["flops"]["model_per_step"].get<double>(), flops);
  // Causal attention halves 12 L d T in executed FLOPs; the padded vocabulary and pointwise work
  // add a little.
  EXPECT_NEAR(j["flops"]["executed_per_step"].get<double>() / flops, 1, 0.12);
  auto& m = j["memory"];
  EXPECT_EQ(m["planned_bytes"], m["persistent_bytes"].get<int64_t>() + m["transient_bytes"].get<int64_t>());
  EXPECT_EQ(m["planned_bytes"], sum(m["by_category"]));
  // fp32: 4 bytes of weights, 8 of moments a parameter; the padded vocabulary and alignment add at
  // most 1%.
  EXPECT_NEAR(m["by_category"]["weights"].get<double>() / (4.0 * 124439808), 1, 0.01);
  EXPECT_NEAR(m["by_category"]["optimizer_state"].get<double>() / (8.0 * 124439808), 1, 0.01);
  auto& peak = m["peak"];
  EXPECT_EQ(peak["live_bytes"], sum(peak["by_category"]));
  EXPECT_LE(peak["live_bytes"], m["transient_bytes"]);
  EXPECT_FALSE(peak["op"].get<std::string>().empty());
  EXPECT_FALSE(peak["origin"].get<std::string>().empty());
  ASSERT_FALSE(m["largest_blocks"].empty());
  EXPECT_LE(m["largest_blocks"][0]["bytes"], m["transient_bytes"]);
  std::set<std::string> names;
  for (auto& block : m["largest_blocks"]) EXPECT_TRUE(names.insert(block["name"]).second) << block;
}

// The whole process, start included; it runs on one thread, so its
// CPU time is a user's wait on an idle machine. With many programs on
// shared caches and cores, CPU time grows too: then repeat until they
// pause for a moment. 12 L d T with the keys of the window in place
// of T; of the executed FLOPs, the band below the diagonal is left.
TEST(CliPlan, CountsOfASlidingWindow) {
  std::vector<std::string> flags = {"--model", "gpt2-124M", "--batch", "4", "--seq", "1024", "--precision", "fp32"};
  auto with = [&](std::vector<std::string> more) {
    more.insert(more.begin(), flags.begin(), flags.end());
    return plan(more);
  };
  auto all = with({}), window = with({"--window", "256"}), wide = with({"--window", "1024"});
  EXPECT_EQ(all["flops"], wide["flops"]);
  EXPECT_EQ(all["model"].count("window"), 0u);
  EXPECT_EQ(window["model"]["window"], 256);
  EXPECT_DOUBLE_EQ(all["flops"]["model_per_step"].get<double>() - window["flops"]["model_per_step"].get<double>(),
                   4096.0 * 12 * 12 * 768 * (1024 - 256));
  // Two products forward and five backward: 14 FLOPs a pair of tokens and dimension.
  double hidden = 768.0 * 769 / 2;
  EXPECT_NEAR(all["flops"]["executed_per_step"].get<double>() - window["flops"]["executed_per_step"].get<double>(),
              14.0 * 4 * 12 * 768 * hidden, 1e6);
  EXPECT_NE(window["flops"]["flops_convention"].get<std::string>().find("T at most the window of 256"),
            std::string::npos);
  flags.insert(flags.begin(), "plan");
  flags.insert(flags.end(), {"--window", "256"});
  EXPECT_NE(run_crest(flags).out.find("context 1024, window 256"), std::string::npos);
  expect_error({"plan", "--window", "-1"}, 2, {"--window", "from 0 to"});
}

TEST(CliPlan, TakesNoTime) {
  for (const char* precision : {"fp32", "bf16"}) {
    double best = 1e9;
    for (int i = 0; i < 40 && best >= 0.2 * slowness(); ++i)
      best = std::min(best, run_crest({"plan", "--model", "gpt2-124M", "--precision", precision}).cpu_seconds);
    EXPECT_LT(best, 0.2 * slowness()) << precision;
    EXPECT_GT(best, 0) << precision;
  }
}

TEST(CliPlan, OnlySamplingNeedsACacheOfKeysAndValues) {
  auto of = [](const char* use) { return plan({"--model", "nano", "--for", use}); };
  auto train = of("train"), step = of("step"), sample = of("sample");
  EXPECT_EQ(train["memory"]["by_category"]["kv_cache"], 0);
  EXPECT_EQ(step["memory"]["by_category"]["kv_cache"], 0);
  EXPECT_GT(sample["memory"]["by_category"]["kv_cache"], 0);
  EXPECT_EQ(train["programs"].size(), 3u);
  EXPECT_EQ(step["programs"].size(), 2u);
}

TEST(CliPlan, ForwardSavedIsAForwardPassAndWhatItKeeps) {
  auto step = plan({"--model", "nano", "--for", "step", "--loss-chunk", "off"}),
       saved = plan({"--model", "nano", "--for", "forward-saved", "--loss-chunk", "off"});
  EXPECT_EQ(saved["programs"].size(), 1u);
  EXPECT_EQ(saved["programs"][0]["name"], "train.forward");
  EXPECT_EQ(saved["memory"]["by_category"]["gradients"], 0);
  EXPECT_EQ(saved["memory"]["by_category"]["optimizer_state"], 256) << "the step's scalars alone";
  EXPECT_GT(saved["memory"]["kept_bytes"], 0);
  EXPECT_EQ(saved["memory"]["kept_bytes"].get<int64_t>() + 256, step["memory"]["kept_bytes"]) << "the loss";
  EXPECT_NEAR(saved["flops"]["model_per_step"].get<double>() * 3, step["flops"]["model_per_step"], 1);
  RunResult text = run_crest({"plan", "--model", "nano", "--for", "forward-saved"});
  EXPECT_NE(text.out.find("of activations are kept for the backward pass"), std::string::npos) << text.out;
  EXPECT_NE(text.out.find("per forward pass"), std::string::npos) << text.out;
  RunResult wrong = run_crest({"plan", "--for", "forward"});
  EXPECT_EQ(wrong.code, 2);
  EXPECT_NE(wrong.err.find("forward-saved"), std::string::npos) << wrong.err;
}

// Of gpt2-124M: 12 layers of 12 d^2 and the tied embedding are of 8 bits, with a scale for each
// output; norms, biases and positions are not.
TEST(CliPlan, Int8WeightsOfSamplingAndEvaluation) {
  constexpr int64_t d = 768, layers = 12, vocab = 50304;
  constexpr int64_t codes = layers * 12 * d * d + vocab * d, scales = layers * (3 + 1 + 4 + 1) * d + vocab;
  constexpr int64_t others = layers * 13 * d + 2 * d + 1024 * d;
  auto lines = [](int64_t bytes) { return (bytes + 255) / 256 * 256; };
  for (auto& [precision, element] : {std::pair{"bf16", 2}, {"fp32", 4}}) {
    SCOPED_TRACE(precision);
    std::map<std::string, int64_t> bytes;
    for (const char* weights : {"float", "int8"}) {
      auto j = plan({"--model", "gpt2-124M", "--precision", precision, "--for", "sample", "--weights", weights});
      EXPECT_EQ(j["recipe"]["weights"], weights);
      EXPECT_EQ(j["tokens_per_step"], 1);
      EXPECT_TRUE(j["fit"]["largest_batch"].is_null());
      ASSERT_EQ(j["programs"].size(), 2u);
      EXPECT_EQ(j["programs"][1]["name"], "decode");
      EXPECT_EQ(j["memory"]["planned_bytes"], sum(j["memory"]["by_category"]));
      bytes[weights] = j["memory"]["by_category"]["weights"];
    }
    EXPECT_EQ(bytes["float"], lines((codes)*element) + lines(others * element));
    // Each tensor of 8 bits is aligned to 256 bytes by itself; these all are multiples.
    EXPECT_EQ(bytes["int8"], codes + lines(scales * 4) + lines(others * element));
  }
  auto eval = [](const char* weights) {
    return plan({"--model", "gpt2-124M", "--precision", "bf16", "--batch", "4", "--for", "eval", "--weights", weights});
  };
  auto full = eval("float"), eight = eval("int8");
  EXPECT_EQ(eight["tokens_per_step"], 4096);
  EXPECT_EQ(eight["programs"].size(), 1u);
  EXPECT_GT(eight["fit"]["largest_batch"], 0);
  EXPECT_EQ(eight["flops"]["model_per_step"], full["flops"]["model_per_step"]);
  EXPECT_LT(eight["memory"]["persistent_bytes"].get<double>(), 0.52 * full["memory"]["persistent_bytes"].get<double>());
  RunResult text = run_crest({"plan", "--model", "nano", "--for", "sample", "--weights", "int8"});
  EXPECT_NE(text.out.find("17 matrices of 8 bits"), std::string::npos) << text.out;
  EXPECT_NE(text.out.find("1 token, with a cache for 256"), std::string::npos) << text.out;
  EXPECT_EQ(text.out.find("largest micro batch"), std::string::npos) << text.out;
}

TEST(CliPlan, Int8WeightsAreNotTrained) {
  for (const char* what : {"train", "step", "forward-saved"})
    expect_error({"plan", "--for", what, "--weights", "int8"}, 2, {"cannot be trained", "--weights", "crest eval"});
  expect_error({"bench", "--model", "nano", "--weights", "int8", "--no-store"}, 2, {"cannot be trained"});
  expect_error({"bench", "--phase", "forward", "--model", "nano", "--weights", "int8", "--data-parallel", "2",
                "--shard", "weights", "--no-store"},
               2, {"whole on every rank", "--shard"});
  for (const char* what : {"eval", "sample"})
    for (const char* ranks : {"--ranks=8", "--data-parallel=8"})
      expect_error({"plan", "--for", what, "--device=h100", ranks}, 2, {"runs on one rank", "--ranks"});
  expect_error({"plan", "--for", "sample", "--weights", "int4"}, 2, {"'int4'", "float, int8"});
}

TEST(CliPlan, AHugeBatchHasAtMost1024ChunksOfTheLoss) {
  auto huge = plan({"--model", "nano", "--batch", "1000000", "--loss-chunk", "256"});
  EXPECT_EQ(huge["fit"]["fits"], false);
  EXPECT_GT(huge["programs"][0]["instructions"], 1024);
  EXPECT_LT(huge["programs"][0]["instructions"], 10 * 1024);
}

// Bytes of one rank; the fit considers all of them.
TEST(CliPlan, RanksHoldEverythingOnceEach) {
  for (const char* kind : {"--data-parallel", "--ranks"}) {
    SCOPED_TRACE(kind);
    // One thread a rank: workspace is per thread.
    auto one = plan({"--model", "nano", "--threads", "1", "--memory", "600MiB"}),
         two = plan({"--model", "nano", "--threads", "2", kind, "2", "--memory", "600MiB"});
    EXPECT_EQ(two["memory"]["ranks"], 2);
    EXPECT_EQ(two["tokens_per_step"], 2 * one["tokens_per_step"].get<int64_t>());
    EXPECT_NEAR(two["memory"]["planned_bytes"], one["memory"]["planned_bytes"],
                0.05 * one["memory"]["planned_bytes"].get<double>());
    EXPECT_LT(2 * two["fit"]["largest_batch"].get<int64_t>(), one["fit"]["largest_batch"].get<int64_t>());
    int64_t planned = two["memory"]["planned_bytes"];
    for (auto& [limit, fits] : {std::pair{2 * planned, true}, {2 * planned - 1, false}}) {
      RunResult r = run_crest(
          {"plan", "--model", "nano", "--threads", "2", kind, "2", "--json", "--memory", std::to_string(limit) + "B"});
      EXPECT_EQ(r.code, fits ? 0 : 3) << r.err;
      EXPECT_EQ(r.json()["fit"]["fits"], fits);
    }
  }
}

TEST(CliPlan, AMeshOfDataRanksIsTheirNumber) {
  auto mesh = plan({"--model", "nano", "--mesh", "data=2"}), ranks = plan({"--model", "nano", "--ranks", "2"});
  EXPECT_EQ(mesh["recipe"], ranks["recipe"]);
  EXPECT_EQ(mesh["recipe"]["ranks"], 2);
  EXPECT_EQ(mesh["recipe"]["mesh"], "");
  EXPECT_EQ(mesh["memory"]["planned_bytes"], ranks["memory"]["planned_bytes"]);
  EXPECT_EQ(plan({"--model", "nano", "--mesh", "data=2", "--data-parallel", "2"})["recipe"]["ranks"], 1);
  auto bad = [](const std::vector<std::string>& flags, const std::vector<std::string>& said) {
    std::vector<std::string> all = {"plan", "--model", "nano"};
    all.insert(all.end(), flags.begin(), flags.end());
    expect_error(all, 2, said);
  };
  bad({"--mesh", "data=2", "--ranks", "3"}, {"--mesh", "data=2 has 2 ranks", "--ranks 3"});
  bad({"--mesh", "data=2", "--ranks", "1"}, {"--mesh", "--ranks 1 and --mesh data=2"});
  bad({"--mesh", "data=4", "--data-parallel", "2"}, {"--mesh", "data=4 has 4 ranks", "--data-parallel 2"});
  bad({"--mesh", "data=20000"}, {"--ranks", "20000"});
  bad({"--mesh", "data=2,context=3", "--dropout", "0.1"},
      {"--mesh", "context=3 pads sequences of 256 tokens to 258", "--dropout 0, or --seq 252"});
  bad({"--mesh", "pipeline=8"}, {"--mesh", "8 stages need as many layers", "Use pipeline="});
  bad({"--mesh", "pipeline=2", "--stages", "1"}, {"--stages", "1 has 1 stage"});
  bad({"--mesh", "pipeline=2", "--schedule-pipeline", "interleaved:1"}, {"--schedule-pipeline", "2 to 64 chunks"});
}

TEST(CliPlan, PipelineStagesHaveMemoryAndABubble) {
  auto j = plan({"--model", "llama-nano", "--vocab", "256", "--device", "cpu", "--seq", "16", "--batch", "2", "--mesh",
                 "pipeline=2", "--grad-accumulation", "8", "--stages", "3,1"});
  const auto& pipeline = j["pipeline"];
  ASSERT_EQ(pipeline["stages"].size(), 2u);
  EXPECT_EQ(pipeline["stages"][0]["layers"], "3");
  EXPECT_EQ(pipeline["stages"][0]["micro_steps"], 2);
  EXPECT_EQ(pipeline["stages"][1]["micro_steps"], 1);
  EXPECT_EQ(pipeline["stage"], 0);
  EXPECT_EQ(j["memory"]["planned_bytes"], pipeline["stages"][0]["planned_bytes"]);
  EXPECT_GT(pipeline["bubble"]["fraction"], 1.0 / 8);  // unequal stages
  EXPECT_GT(pipeline["bubble"]["imbalance"], 0.1);
  EXPECT_EQ(j["recipe"]["stages"], "3,1");
  EXPECT_EQ(pipeline["stages"][0]["fits"], true);
  EXPECT_TRUE(pipeline["stages_that_fit"].is_null());
  EXPECT_FALSE(plan({"--model", "nano"}).contains("pipeline"));
}

// By the data sheet: the step is that of all stages, and layers are cut by time.
TEST(CliPlan, PipelineStagesHaveATime) {
  const std::vector<std::string> flags = {"--model",
                                          "llama-1B",
                                          "--device",
                                          "h100",
                                          "--seq",
                                          "1024",
                                          "--batch",
                                          "1",
                                          "--for",
                                          "step",
                                          "--grad-accumulation",
                                          "8",
                                          "--mesh",
                                          "pipeline=2"};
  auto with = [&](std::vector<std::string> more) {
    more.insert(more.begin(), flags.begin(), flags.end());
    return more;
  };
  auto cut = plan(with({})), given = plan(with({"--stages", "8,8"}));
  for (auto* j : {&cut, &given}) {
    const auto& p = (*j)["time"]["pipeline"];
    double sum = 0;
    for (const char* part : {"ideal_ms", "warm_up_ms", "drain_ms", "imbalance_ms", "transfers_ms", "rest_ms"})
      sum += p[part].get<double>();
    sum += (*j)["time"]["waiting_ms"].get<double>();
    EXPECT_NEAR(sum, (*j)["time"]["step_ms"].get<double>(), 1e-6) << p.dump();
    EXPECT_GT(p["transfer_ms"], 0);
    EXPECT_EQ(p["stages"].size(), 2u);
  }
  EXPECT_NE(cut["recipe"]["stages"], "8,8") << "the head takes as long as some layers";
  EXPECT_LT(cut["time"]["pipeline"]["imbalance_ms"], given["time"]["pipeline"]["imbalance_ms"]);
  EXPECT_LT(cut["time"]["step_ms"], given["time"]["step_ms"]);
}

// The stage is named, and so is the cut with room for all.
TEST(CliPlan, AStageThatDoesNotFitIsNamedWithTheCutThatDoes) {
  const std::vector<std::string> flags = {
      "--model",    "llama-nano",          "--vocab", "256", "--device", "cpu", "--seq", "16", "--batch", "2", "--mesh",
      "pipeline=2", "--grad-accumulation", "2"};
  auto with = [&](std::vector<std::string> more) {
    more.insert(more.begin(), flags.begin(), flags.end());
    return more;
  };
  auto bytes = [&](const char* stages, size_t stage) {
    return plan(with({"--stages", stages}))["pipeline"]["stages"][stage]["planned_bytes"].get<int64_t>();
  };
  const int64_t limit = 2 * std::max(bytes("2,2", 0), bytes("2,2", 1)), large = bytes("3,1", 0);  // of both ranks
  ASSERT_GT(large, limit / 2);
  auto j = plan(with({"--stages", "3,1", "--memory", std::to_string(limit)}), 3);
  EXPECT_EQ(j["pipeline"]["stages"][0]["fits"], false);
  EXPECT_EQ(j["pipeline"]["stages"][1]["fits"], true);
  EXPECT_EQ(j["pipeline"]["stages_that_fit"], "2,2");
}

TEST(CliPlan, TensorRanksShareTheLayers) {
  const std::vector<std::string> flags = {"--model", "llama-nano", "--vocab", "256",     "--device",
                                          "cpu",     "--seq",      "16",      "--batch", "2"};
  auto with = [&](std::vector<std::string> more) {
    more.insert(more.begin(), flags.begin(), flags.end());
    return more;
  };
  auto one = plan(with({})), two = plan(with({"--mesh", "tensor=2"}));
  EXPECT_EQ(two["recipe"]["ranks"], 2);
  EXPECT_EQ(two["tokens_per_step"], one["tokens_per_step"]);
  auto weights = [](const nlohmann::json& j) { return j["memory"]["persistent_bytes"].get<double>(); };
  EXPECT_LT(weights(two), 0.6 * weights(one));
  auto bad = [&](const std::vector<std::string>& more, const std::vector<std::string>& said) {
    std::vector<std::string> all = with(more);
    all.insert(all.begin(), "plan");
    expect_error(all, 2, said);
  };
  bad({"--mesh", "tensor=3"},
      {"--mesh", "tensor=3", "4 heads", "2 key/value heads", "Use tensor=2, or --pad-heads: 2 of 6"});
  bad({"--mesh", "tensor=2", "--seq", "15", "--batch", "1"}, {"--mesh", "15 tokens", "a multiple of 2 for --batch"});
  // Two sequences can be shared, one cannot: the search for the largest batch passes by odd ones.
  const int64_t largest =
      plan(with({"--mesh", "tensor=2", "--seq", "15", "--memory", "64MiB"}))["fit"]["largest_batch"];
  EXPECT_GT(largest, 2);
  EXPECT_EQ(largest % 2, 0);
  bad({"--mesh", "tensor=2", "--vocab", "257", "--disable-pass", "vocabulary_padding"},
      {"--mesh", "257 rows of wte.weight", "vocabulary_padding"});
  bad({"--mesh", "tensor=2", "--precision", "fp8"}, {"--mesh", "--precision fp8", "Use bf16."});
  bad({"--mesh", "tensor=2", "--optimizer", "muon"}, {"--mesh", "--optimizer muon", "adamw"});
}

TEST(CliPlan, LargestBatchFitsAndOneMoreDoesNot) {
  auto j = plan({"--model", "nano", "--memory", "300MiB", "--batch", "1"});
  int64_t batch = j["fit"]["largest_batch"];
  ASSERT_GT(batch, 1);
  for (int64_t more : {0, 1}) {
    RunResult r = run_crest({"plan", "--model", "nano", "--memory", "300MiB", "--batch", std::to_string(batch + more)});
    EXPECT_EQ(r.code, more ? 3 : 0) << r.out;
    EXPECT_EQ(r.out.find("does not fit") != std::string::npos, more == 1) << "the plan is printed all the same";
    EXPECT_NE(r.out.find("largest micro batch in 300.00 MiB (given): " + std::to_string(batch)), std::string::npos)
        << r.out;
  }
  // --memory-limit is the same limit where no --memory is given.
  EXPECT_EQ(
      run_crest({"plan", "--model", "nano", "--memory-limit", "300MiB", "--batch", std::to_string(batch + 1)}).code, 3);
}

// Next to the gradients of a rank with a shard, the memory of a sequence looks small. The search
// must not try batches too large for every kernel.
TEST(CliPlan, LargestBatchOfARankThatKeepsAShard) {
  for (std::string ranks : {"2", "4"}) {
    auto j = plan({"--model", "gpt2-1558M", "--batch", "4", "--device", "h100", "--precision", "bf16", "--for", "step",
                   "--ranks", ranks});
    EXPECT_GE(j["fit"]["largest_batch"], 16);
    EXPECT_LE(j["fit"]["largest_batch"], 256);
  }
}

TEST(CliPlan, StateIsNotCutIntoCountlessPieces) {
  for (std::string piece : {"0", "1kB"}) {
    RunResult r = run_crest({"plan", "--model", "gpt2", "--offload", "optimizer", "--offload-piece", piece});
    EXPECT_EQ(r.code, 2);
    EXPECT_NE(r.err.find("--offload-piece " + piece + ": "), std::string::npos) << r.err;
    EXPECT_NE(r.err.find("more than 16384 pieces"), std::string::npos) << r.err;
  }
}

TEST(CliPlan, NotEvenOneSequence) {
  RunResult r = run_crest({"plan", "--model", "nano", "--memory", "1MiB", "--json"});
  EXPECT_EQ(r.code, 3);
  EXPECT_EQ(r.json()["fit"]["largest_batch"], 0);
  EXPECT_EQ(r.json()["fit"]["fits"], false);
}

TEST(CliPlan, BadInputIsOneClearError) {
  TempFolder folder;
  std::string bad_heads = folder.write("heads.toml", std::string(tiny_model) + "[x]\n");
  std::string heads = folder.write("h.toml", "preset = \"nano\"\nheads = 3\nkv_heads = 2\n");
  std::string config = folder.write("c.toml", "batsh = 4\n");
  expect_error({"plan", "--model", "gpt2-124"}, 2, {"gpt2-124M"});
  expect_error({"plan", "--model", heads}, 2, {"heads"});
  expect_error({"plan", "--seq", "100000"}, 2, {"context", "--seq"});
  expect_error({"plan", "--batch", "1e18"}, 2, {"--batch"});
  expect_error({"plan", "--batch", "1000000000000"}, 2, {"--batch"});
  expect_error({"plan", "--batch", "0"}, 2, {"--batch"});
  expect_error({"plan", "--memory", "abc"}, 2, {"--memory", "abc", "40GiB"});
  expect_error({"plan", "--memory-limit", "-1GiB"}, 2, {"--memory-limit"});
  expect_error({"plan", "--for", "fun"}, 2, {"--for"});
  expect_error({"plan", "--blocks", "-1"}, 2, {"--blocks"});
  expect_error({"plan", "--blocks", "99999999999"}, 2, {"--blocks: '99999999999' is out of range"});
  expect_error({"plan", "--model", "nano", "--offload", "activations=5"}, 2, {"5 layers", "the model has 4"});
  expect_error({"plan", "--precision", "bf61"}, 2, {"bf61", "bf16"});
  expect_error({"plan", "--atention", "flash"}, 2, {"--atention", "--attention"});
  expect_error({"plan", "--config", config}, 2, {"batsh", "batch"});
  expect_error({"plan", "--config", folder / "none.toml"}, 1, {"none.toml"});
  expect_error({"plan", "--device", "cuda"}, 4, {"CUDA"});
  expect_error({"plan", "surplus"}, 2, {"surplus"});
}

// Factors of one are left out; the planned use is named.
TEST(CliPlan, TextNamesFactorsAndDevice) {
  auto text = [](std::vector<std::string> flags) {
    for (const char* flag : {"nano", "--model", "plan"}) flags.insert(flags.begin(), flag);
    return run_crest(flags).out;
  };
  std::string one = text({"--batch", "8", "--seq", "64"});
  EXPECT_NE(one.find("512 tokens = batch 8 x seq 64\n"), std::string::npos) << one;
  EXPECT_NE(one.find("(free on this machine): "), std::string::npos) << one;
  std::string four =
      text({"--batch", "8", "--seq", "64", "--grad-accumulation", "4", "--data-parallel", "2", "--device", "cpu"});
  EXPECT_NE(four.find("4096 tokens = batch 8 x seq 64 x 4 micro steps x 2 ranks\n"), std::string::npos) << four;
  std::string h200 = text({"--device", "h200"});
  EXPECT_NE(h200.find("largest micro batch on the NVIDIA H200 SXM 141GB (139.65 GiB): "), std::string::npos) << h200;
  std::string small = text({"--device", "h200", "--memory", "1MiB"});
  EXPECT_NE(small.find("does not fit in 1.00 MiB (given): "), std::string::npos) << small;
  EXPECT_NE(small.find("not even batch 1 fits in 1.00 MiB (given): use a smaller model"), std::string::npos) << small;
}

// Where --recompute full cannot help, it is not suggested.
TEST(CliPlan, OffersWhatHelps) {
  auto text = [](const char* memory) {
    return run_crest({"plan", "--model=gpt2-124M", "--seq=64", "--batch=1", "--recompute=full", "--device=h100",
                      std::string("--memory=") + memory})
        .out;
  };
  std::string out = text("1GiB");
  EXPECT_NE(out.find("not even batch 1 fits in 1.00 GiB (given); what would fit:\n  --offload optimizer --batch 1\n"),
            std::string::npos)
      << out;
}

TEST(CliPlan, TokensOfATrainingHaveALimit) {
  auto run = [](const char* tokens) {
    return run_crest({"plan", "--model=nano", "--device=h100", std::string("--tokens=") + tokens});
  };
  EXPECT_NE(run("1").out.find("1 token: 1 step, "), std::string::npos);
  std::string long_one = run("1e18").out;
  EXPECT_NE(long_one.find(" years ("), std::string::npos) << long_one;
  EXPECT_EQ(long_one.find('?'), std::string::npos) << long_one;
  for (const char* wrong : {"0.5", "1e300", "nan"}) EXPECT_EQ(run(wrong).code, 2) << wrong;
  // Tensor ranks send as many bytes as in the formula, also in pieces.
  for (const char* mesh : {"tensor=2", "data=2,tensor=4"})
    for (const char* model : {"nano", "llama-nano"}) {
      if (std::string(mesh) != "tensor=2" && std::string(model) != "nano") continue;  // two heads of keys
      auto j = plan({"--model", model, "--seq=64", "--batch=2", "--explain=traffic", "--mesh", mesh,
                     std::string("--tensor-overlap=") + (std::string(mesh) == "tensor=2" ? "off" : "rows")});
      for (auto& term : j["sections"][1]["terms"]) EXPECT_EQ(term["value"], term["program"]) << model << " " << term;
      EXPECT_EQ(j["sections"][1]["terms"].size(), 2u);
    }
  RunResult one = run_crest({"plan", "--model=nano", "--explain=traffic"});
  EXPECT_NE(one.out.find("bytes that one rank sends in a step"), std::string::npos) << one.out;
}

// An absent device: floors, joules by its file, and a price.
TEST(CliPlan, PredictsForADeviceThatIsNotHere) {
  auto j = plan({"--model", "gpt2-124M", "--batch", "4", "--device", "a100", "--for", "step", "--price", "3.6"});
  const auto& t = j["time"];
  EXPECT_EQ(t["source"], "data sheet");
  EXPECT_TRUE(t["calibration"].is_null());
  double ms = t["step_ms"], tokens = 4 * 1024;
  EXPECT_DOUBLE_EQ(t["joules_per_token_at_limit"].get<double>(), 400 * ms / 1e3 / tokens);
  EXPECT_DOUBLE_EQ(t["price_per_token"].get<double>(), ms / 1e6 / tokens);
  TempFolder folder;
  std::string file = folder.write(
      "mine.toml",
      "title = \"mine\"\ndriver_name = \"mine\"\nkind = \"cuda\"\ncapability = \"9.0\"\nmultiprocessors = 100\n"
      "shared_per_block = 232448\nmemory_bytes = 80e9\nbandwidth = 3e12\nl2_bytes = 5e7\n"
      "link = { name = \"x\", bandwidth = 1e9 }\npeaks = { fp32 = 6e13, bf16 = 9e14 }\nsource = \"me\"\n");
  RunResult r = run_crest({"plan", "--model", "nano", "--device", file, "--tokens", "1e9", "--price", "2"});
  EXPECT_EQ(r.code, 0) << r.err;
  for (const char* part : {"predicted from the data sheet alone", "for a million tokens at 2 an hour", "1.00B tokens"})
    EXPECT_NE(r.out.find(part), std::string::npos) << part << r.out;
  EXPECT_EQ(r.out.find("J a token"), std::string::npos) << "the file names no power\n" << r.out;
  expect_error({"plan", "--price", "-1"}, 2, {"--price"});
}

// One table: the plan of each device with its largest batch.
TEST(CliPlan, SeveralDevicesAreOneTable) {
  std::vector<std::string> flags = {"--model", "llama-1B", "--seq", "256", "--pad-vocab", "1"};
  auto with = [&](std::vector<std::string> more) {
    more.insert(more.begin(), flags.begin(), flags.end());
    return more;
  };
  auto j = plan(with({"--device", "rtx4090,h100", "--tokens", "1e9"}));
  ASSERT_EQ(j["devices"].size(), 2u);
  EXPECT_EQ(j["model"]["name"], "llama-1B");
  for (auto& row : j["devices"]) {
    SCOPED_TRACE(row.dump());
    const std::string batch = row["batch"].dump();
    auto one = plan(with({"--device", row["device"], "--batch", batch}));
    EXPECT_TRUE(row["fits"]);
    EXPECT_EQ(row["largest_batch"], row["batch"]);
    EXPECT_EQ(row["recompute"], one["recipe"]["recompute"]);
    EXPECT_EQ(row["planned_bytes"], one["memory"]["planned_bytes"]);
    EXPECT_EQ(row["tokens_per_second"], one["time"]["tokens_per_second"]);
    const double rate = row["tokens_per_second"], hours = row["hours"];
    EXPECT_DOUBLE_EQ(hours, 1e9 / rate / 3600);
    EXPECT_LT(row["tokens_per_second_range"][0], rate);
    EXPECT_LT(rate, row["tokens_per_second_range"][1]);
    EXPECT_LT(row["hours_range"][0], hours);
    EXPECT_LT(hours, row["hours_range"][1]);
  }
  auto small = plan(with({"--device", "rtx4090,h100", "--memory", "2GiB"}))["devices"][0];
  EXPECT_FALSE(small["fits"]);
  EXPECT_EQ(small["largest_batch"], 0);
  EXPECT_TRUE(small["tokens_per_second"].is_null());
  EXPECT_TRUE(small["hours"].is_null());
  std::vector<std::string> text = with({"--device", "rtx4090,h100", "--batch", "1"});
  text.insert(text.begin(), "plan");
  RunResult r = run_crest(text);
  EXPECT_EQ(r.code, 0) << r.err;
  for (const char* part : {"rtx4090", "h100", "largest batch", "tokens/s", "1 x 256"})
    EXPECT_NE(r.out.find(part), std::string::npos) << part << r.out;
  expect_error({"plan", "--device", "h100,"}, 2, {"an empty name", "--device"});
  expect_error({"plan", "--device", "h100,h100"}, 2, {"a device twice"});
  expect_error({"plan", "--device", "h100,h1000"}, 2, {"h1000", "h100"});
  expect_error({"plan", "--device", "h100,a100", "--explain", "memory"}, 2, {"--explain", "one device"});
}

// A cluster on paper: any mesh of data, tensor and pipeline.
TEST(CliPlan, PredictsThousandsOfRanks) {
  auto thousand = [](const char* mesh, const char* micro_steps) {
    return plan({"--model", "llama-8B", "--device", "h100", "--batch=1", "--seq=4096", "--mesh", mesh, "--link",
                 "nvlink,400Gb", "--grad-accumulation", micro_steps});
  };
  auto j = thousand("data=64,tensor=8,pipeline=2", "16");
  auto& time = j["time"];
  ASSERT_FALSE(time.is_null());
  EXPECT_EQ(time["collectives"]["nodes"], 128);
  EXPECT_EQ(time["collectives"]["node_gpus"], 8);
  EXPECT_EQ(time["collectives"]["network_bytes_per_second"], 50e9);
  for (const char* axes : {"data", "tensor"}) EXPECT_GT(time["collectives_by_axes"][axes].get<double>(), 0) << axes;
  EXPECT_EQ(time["traffic_by_axes"]["tensor"]["between_nodes_bytes"], 0);
  EXPECT_GT(time["traffic_by_axes"]["data"]["between_nodes_bytes"], 0);
  for (auto& c : j["memory"]["communicators"]) EXPECT_EQ(c["source"], "estimate");
  EXPECT_GT(time["pipeline"]["bubble"].get<double>(), 0);
  EXPECT_EQ(j["tokens_per_step"], 64 * 16 * 4096);
  // The same with a tenth of the network.
  auto slow = plan({"--model", "llama-8B", "--device", "h100", "--batch=1", "--seq=4096", "--mesh",
                    "data=64,tensor=8,pipeline=2", "--link", "nvlink,40Gb", "--grad-accumulation=16"});
  EXPECT_GT(slow["time"]["step_ms"], time["step_ms"]);
  auto largest = thousand("data=2048,tensor=8", "1");
  EXPECT_EQ(largest["time"]["collectives"]["nodes"], 2048);
  expect_error({"plan", "--model=nano", "--device=h100", "--ranks=16", "--link=fast"}, 2, {"fast", "--link"});
  expect_error({"plan", "--model=nano", "--device=h100", "--ranks=16", "--node-gpus=0"}, 2, {"--node-gpus"});
  expect_error({"plan", "--model=nano", "--explain=flops", "--link=400Gb"}, 2, {"--explain", "--link"});
  expect_error({"plan", "--model=nano", "--device=l40s", "--ranks=16", "--price=1"}, 2, {"--link"});
}

TEST(CliPlan, RefusesSettingsWithoutEffectOrKernel) {
  // The copy engines move shards on the communication stream only.
  expect_error({"plan", "--model=nano", "--device=h100", "--ranks=2", "--kernel", "all_gather=*.copy_engine"}, 1,
               {"no cuda kernel supports all_gather", "--kernel all_gather=*.copy_engine excludes"});
  expect_error({"plan", "--model=nano", "--kernel=attention=*.flash", "--kernel=attention=*.reference"}, 2,
               {"no kernel of attention matches '*.flash' and '*.reference'", "cpu.attention.reference"});
  expect_error({"plan", "--model=nano", "--kernel", "gather_all=*"}, 2, {"'gather_all'", "crest program prints"});
  // --reduce leaves the state of the optimizer whole.
  expect_error({"plan", "--model=nano", "--device=h100", "--ranks=2", "--reduce=bucket", "--gather=forward"}, 2,
               {"--gather", "nothing to gather", "--shard optimizer"});
  expect_error({"plan", "--model=nano", "--device=h100", "--ranks=2", "--shard=gradients", "--reduce=each"}, 2,
               {"--shard", "Use --reduce bucket, and"});
}
