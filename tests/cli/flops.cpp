// crest flops.
#include "cli/run.h"
#include "contains.h"

namespace crest::test {

namespace {

nlohmann::json flops(std::vector<std::string> words) {
  words.insert(words.begin(), "flops");
  words.push_back("--json");
  RunResult r = run_crest(words);
  EXPECT_EQ(r.code, 0) << r.err;
  return r.json();
}

}  // namespace

// The published line of BLOOM: 52 * 4 * 2 * 2048 * 1024 / (127 * 64 * 1e3).
TEST(CliFlops, PublishedFigureOfBloom) {
  auto j = flops({"--parameters=52e9", "--step-ms=127000", "--ranks=64", "--batch=1024", "--seq=2048",
                  "--recompute=full", "--device=a100"});
  ASSERT_EQ(j["conventions"].size(), 1U);
  auto& row = j["conventions"][0];
  EXPECT_EQ(row["convention"], "4 x 2 P");
  EXPECT_NEAR(row["hardware_flops_per_second"].get<double>(), 107.33e12, 0.01e12);
  EXPECT_DOUBLE_EQ(row["model_flops"].get<double>(), 0.75 * row["hardware_flops"].get<double>());
  EXPECT_NEAR(row["hfu"].get<double>(), 107.33 / 312, 1e-4);
  EXPECT_DOUBLE_EQ(j["tokens_per_second"].get<double>(), 1024 * 2048 / 127.0);
}

// A GPT of 145.6 billion parameters took 148 TFLOP/s by equation 3 of Narayanan et al. 2021.
TEST(CliFlops, ConventionsOfAModel) {
  TempFolder f;
  const std::string model = f.write("gpt.toml",
                                    "layers = 80\nwidth = 12288\nheads = 96\nkv_heads = 96\nff = 49152\n"
                                    "vocab = 51200\ncontext = 2048\n");
  const double tokens = 2304 * 2048, l = 80, h = 12288, v = 51200, s = 2048;
  const double equation = 96 * tokens * l * h * h * (1 + s / (6 * h) + v / (16 * l * h));
  const double seconds = equation / 148e12 / 1536;
  auto j = flops({"--model", model, "--step-ms", std::to_string(1e3 * seconds), "--ranks=1536", "--batch=2304",
                  "--recompute=full"});
  EXPECT_NEAR(j["parameters"].get<double>(), 145.6e9, 0.1e9);
  ASSERT_EQ(j["conventions"].size(), 3U);
  auto &palm = j["conventions"][0], &megatron = j["conventions"][1];
  EXPECT_NEAR(megatron["hardware_flops_per_second"].get<double>(), 148e12, 1e6);
  // Both count the same products: N without embeddings, and scores without a causal discount.
  EXPECT_NEAR(palm["model_flops"].get<double>() / megatron["model_flops"].get<double>(), 1, 1e-3);
  EXPECT_NEAR(palm["hardware_flops"].get<double>() / megatron["hardware_flops"].get<double>(), 1, 1e-3);
  EXPECT_TRUE(palm["mfu"].is_null());
  auto selective = flops({"--model", model, "--step-ms=1000", "--batch=1", "--recompute=selective"});
  ASSERT_EQ(selective["conventions"].size(), 1U);
  EXPECT_DOUBLE_EQ(selective["conventions"][0]["hardware_flops"].get<double>() -
                       selective["conventions"][0]["model_flops"].get<double>(),
                   4 * l * h * s * s);
}

TEST(CliFlops, Text) {
  RunResult r = run_crest(
      {"flops", "--model=llama-8B", "--step-ms=9830", "--ranks=8", "--global-batch=64", "--seq=8192", "--device=h100"});
  EXPECT_EQ(r.code, 0) << r.err;
  for (const char* part : {"PaLM", "3 x 2 P", "MFU", "989.4 TFLOP/s", "8 GPUs"})
    EXPECT_TRUE(contains(r.out, part)) << part;
  EXPECT_FALSE(contains(r.out, "Megatron")) << "SwiGLU and shared keys are not GPT's";
  EXPECT_FALSE(contains(r.out, "above the peak"));
  r = run_crest(
      {"flops", "--model=llama-8B", "--step-ms=500", "--ranks=8", "--batch=64", "--seq=8192", "--device=h100"});
  EXPECT_TRUE(contains(r.out, "above the peak of h100: check --step-ms")) << r.out;
}

TEST(CliFlops, RefusesIncompleteSteps) {
  expect_error({"flops", "--step-ms=1", "--batch=1"}, 2, {"--model", "--parameters"});
  expect_error({"flops", "--model=nano", "--parameters=1e9", "--step-ms=1", "--batch=1"}, 2, {"--parameters"});
  expect_error({"flops", "--model=nano", "--batch=1"}, 2, {"--step-ms"});
  expect_error({"flops", "--model=nano", "--step-ms=1"}, 2, {"--global-batch"});
  expect_error({"flops", "--parameters=1e9", "--step-ms=1", "--batch=1"}, 2, {"--seq"});
  expect_error({"flops", "--model=nano", "--step-ms=1", "--batch=1", "--recompute=ful"}, 2, {"ful", "full"});
  expect_error({"flops", "--model=nano", "--step-ms=1", "--batch=1", "--device=a100", "--precision=fp8"}, 2,
               {"a100", "fp8", "bf16"});
}

}  // namespace crest::test
