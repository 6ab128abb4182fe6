// crest advise, and crest plan --explain.
#include <map>

#include "cli/run.h"

namespace crest::test {

namespace {

class CliAdvise : public testing::Test {
 protected:
  TempFolder folder_;
  std::string model_ = folder_.write("tiny.toml", tiny_model);

  nlohmann::json advice(std::vector<std::string> flags) {
    std::vector<std::string> words = {"advise", "--model", model_, "--json", "--threads", "1"};
    words.insert(words.end(), flags.begin(), flags.end());
    RunResult r = run_crest(words, {.folder = folder_.path().string()});
    EXPECT_EQ(r.code, 0) << r.err;
    return r.json();
  }
  static nlohmann::json rule(const nlohmann::json& report, const std::string& id) {
    for (auto& r : report["rules"])
      if (r["rule"] == id) return r;
    ADD_FAILURE() << id;
    return {};
  }
};

}  // namespace

TEST_F(CliAdvise, MeasuresWhatItAdvises) {
  auto report = advice({"--device", "cpu", "--precision", "fp32", "--attention", "naive", "--seq", "32", "--recompute",
                        "full", "--measure", "--max-seconds", "0.05"});
  auto recompute = rule(report, "recompute");
  ASSERT_EQ(recompute["status"], "advice");
  const auto& a = recompute["advice"][0];
  // Without a calibration only FLOPs are known, including the repeated ones of full recompute.
  EXPECT_LT(a["time_ratio"].get<double>(), 0.99);
  EXPECT_EQ(a["basis"], "flops");
  ASSERT_TRUE(a["measured"].is_object()) << a;
  EXPECT_GE(a["measured"]["rounds"], 4);
  EXPECT_GT(a["measured"]["time_ratio"].get<double>(), 0);
  EXPECT_LE(a["measured"]["time_ratio_low"], a["measured"]["time_ratio_high"]);
  // The gain of another attention depends on bandwidth. Without a data sheet it is unknown.
  auto flash = rule(report, "flash-attention");
  EXPECT_TRUE(flash["advice"][0]["time_ratio"].is_null());
  EXPECT_NE(flash["advice"][0]["not_predicted"].get<std::string>().find("crest calibrate"), std::string::npos);
}

TEST_F(CliAdvise, PredictsByTheSheetOfADeviceThatIsNotHere) {
  auto report = advice({"--device", "h800", "--precision", "fp32", "--batch", "64"});
  auto half = rule(report, "mixed-precision");
  ASSERT_EQ(half["status"], "advice");
  EXPECT_EQ(half["advice"][0]["basis"], "floors");
  EXPECT_LT(half["advice"][0]["time_ratio"].get<double>(), 0.8);
  EXPECT_EQ(report["data_sheet"], "h800");
  RunResult text = run_crest({"advise", "--model", model_, "--device", "h800", "--precision", "fp32"});
  EXPECT_EQ(text.code, 0) << text.err;
  for (const char* part : {"mixed-precision", "--precision bf16", "data sheet", "does not apply", "Stas Bekman"})
    EXPECT_NE(text.out.find(part), std::string::npos) << part << text.out;
}

TEST_F(CliAdvise, ReadsARun) {
  std::string text;
  for (int i = 0; i < 400; ++i) text += "a line of text to train on, number " + std::to_string(i) + "\n";
  folder_.write("text.txt", text);
  RunOptions in{.folder = folder_.path().string()};
  RunResult trained =
      run_crest({"train", "text.txt", "--model", model_, "--batch", "3", "--seq", "16", "--steps", "4", "--threads",
                 "1", "--precision", "fp32", "--quiet", "--sample-every", "0", "--out", "run"},
                in);
  ASSERT_EQ(trained.code, 0) << trained.err;
  RunResult r = run_crest({"advise", "--run", "run", "--seq", "8", "--json", "--threads", "1"}, in);
  ASSERT_EQ(r.code, 0) << r.err;
  auto report = r.json();
  EXPECT_EQ(report["recipe"]["batch"], 3);
  EXPECT_EQ(report["recipe"]["seq"], 8);  // given here
  EXPECT_EQ(report["model"]["width"], 32);
  EXPECT_NE(rule(report, "data-loading")["status"], "not_applicable");
}

TEST_F(CliAdvise, RefusesWhatIsWrong) {
  expect_error({"advise", "--device", "h100", "--measure"}, 2, {"--measure", "does not have the device"});
  expect_error({"advise", "--mesh", "tensor"}, 2, {"tensor", "--mesh", "data=2"});
  expect_error({"advise", "--mesh", "tenor=2"}, 2, {"tenor", "tensor"});
  expect_error({"advise", "--mesh", "tensor=2,tensor=4"}, 2, {"twice"});
  expect_error({"advise", "--mesh", "tensor=0"}, 2, {"'0'", "from 1"});
  expect_error({"advise", "--run", "nowhere"}, 1, {"nowhere", "--out"});
  expect_error({"advise", "--device", "h1000"}, 2, {"h1000", "advise"});
  expect_error({"advise", "--max-seconds", "0"}, 2, {"--max-seconds"});
}

namespace {

// Terms of an explanation by name.
std::map<std::string, nlohmann::json> terms(const std::string& topic, std::vector<std::string> flags) {
  std::vector<std::string> words = {"plan", "--explain", topic, "--json"};
  words.insert(words.end(), flags.begin(), flags.end());
  RunResult r = run_crest(words);
  EXPECT_EQ(r.code, 0) << r.err;
  std::map<std::string, nlohmann::json> all;
  auto json = r.json();
  EXPECT_EQ(json["topic"], topic);
  for (auto& section : json["sections"])
    for (auto& term : section["terms"]) {
      EXPECT_NE(term["source"], "") << term;
      EXPECT_NE(term["formula"], "") << term;
      all[term["name"]] = term;
    }
  return all;
}

double value(const std::map<std::string, nlohmann::json>& all, const std::string& name) {
  auto it = all.find(name);
  EXPECT_NE(it, all.end()) << name;
  return it == all.end() ? 0 : it->second["value"].get<double>();
}

double program(const std::map<std::string, nlohmann::json>& all, const std::string& name) {
  return all.at(name)["program"].get<double>();
}

}  // namespace

TEST(PlanExplain, MemoryIsThatOfTheDocument) {
  auto t = terms("memory", {"--model", "gpt2-124M", "--batch", "2", "--seq", "256", "--device", "h100", "--recompute",
                            "none", "--beams", "5"});
  double n = 124439808;
  EXPECT_EQ(value(t, "mixed precision AdamW"), 18 * n);
  EXPECT_EQ(value(t, "pure bf16 AdamW"), 8 * n);
  // Two moments and the 16 bits of the master missing in the weight.
  EXPECT_EQ(value(t, "optimizer state"), 10 * n);
  EXPECT_EQ(value(t, "sum"), 16 * n);
  // s b h L (34 + 5 a s / h) of Korthikanti et al.
  EXPECT_EQ(value(t, "no recompute"), 256.0 * 2 * 768 * 12 * (34 + 5.0 * 12 * 256 / 768));
  EXPECT_EQ(value(t, "full recompute"), 2.0 * 256 * 2 * 768 * 12);
  EXPECT_EQ(value(t, "key/value cache of a sequence"), 2.0 * 12 * 768 * 1024 * 2);
  EXPECT_EQ(value(t, "cache of a beam search with 5 beams"), 5 * value(t, "key/value cache of a sequence"));
  EXPECT_NEAR(program(t, "key/value cache of a sequence") / value(t, "key/value cache of a sequence"), 1, 0.01);
  // 16-bit weights, 16 bits of masters and two moments, fp32 gradients: 16 bytes, and the padding.
  EXPECT_NEAR(program(t, "sum") / (16 * n), 1, 0.01);
  // fp8 has 16-bit weights, and caches of bf16.
  auto fp8 = terms("memory", {"--model", "gpt2-124M", "--batch", "2", "--device", "h100", "--precision", "fp8"});
  EXPECT_EQ(value(fp8, "sum"), 16 * n);
  EXPECT_NEAR(program(fp8, "key/value cache of a sequence") / value(fp8, "key/value cache of a sequence"), 1, 0.01);
}

// Ranks of a CPU share its threads, and workspace depends on the threads.
TEST(PlanExplain, MemoryOfARankIsThatOfItsPlan) {
  std::vector<std::string> flags = {"--model", "nano",      "--precision", "fp32",    "--device",
                                    "cpu",     "--threads", "4",           "--ranks", "2"};
  auto t = terms("memory", flags);
  flags.insert(flags.begin(), {"plan", "--for", "step", "--json"});
  EXPECT_EQ(program(t, "training"), run_crest(flags).json()["memory"]["planned_bytes"].get<double>());
}

// The ranks of a CPU share its memory.
TEST_F(CliAdvise, ARankHasItsShareOfAHost) {
  auto report = advice({"--device", "cpu", "--data-parallel", "2", "--memory-limit", "1GiB"});
  EXPECT_EQ(report["available_bytes"], int64_t(1) << 29);
}

TEST(PlanExplain, FlopsByEachConvention) {
  auto t = terms("flops",
                 {"--model", "gpt2-124M", "--batch", "2", "--seq", "1024", "--device", "h100", "--recompute", "none"});
  double matmul = 12 * 12 * 768.0 * 768 + 50257 * 768.0, tokens = 2048;
  EXPECT_EQ(value(t, "6 N"), 6 * matmul * tokens);
  EXPECT_EQ(value(t, "PaLM: MFU refers to it"), (6 * matmul + 12.0 * 12 * 768 * 1024) * tokens);
  EXPECT_EQ(value(t, "4 x 2 P, with full recompute") / value(t, "3 x 2 P"), 4.0 / 3);
  // For this shape, equation 3 is PaLM's convention without biases and embeddings.
  EXPECT_NEAR(value(t, "Megatron") / value(t, "PaLM: MFU refers to it"), 1, 0.001);
  EXPECT_NEAR(program(t, "forward pass") / value(t, "forward pass"), 1, 0.2);
  EXPECT_EQ(t.count("of these, recomputed"), 0u);
  auto full = terms("flops", {"--model", "gpt2-124M", "--batch", "2", "--device", "h100", "--recompute", "full"});
  EXPECT_GT(value(full, "of these, recomputed"), 0.2 * value(full, "forward pass"));
}

// The examples of the document: 4 x 8, 4 x 2, 4 x 8 x 4.
TEST(PlanExplain, GlobalBatches) {
  auto gbs = [](std::vector<std::string> flags) {
    flags.insert(flags.end(), {"--model", "nano", "--batch", "4", "--device", "h100"});
    return value(terms("batch", flags), "GBS");
  };
  EXPECT_EQ(gbs({"--mesh", "data=8"}), 32);
  EXPECT_EQ(gbs({"--mesh", "data=2,tensor=2,pipeline=2"}), 8);
  EXPECT_EQ(gbs({"--mesh", "data=2,context=4"}), 8);
  EXPECT_EQ(gbs({"--mesh", "data=8", "--grad-accumulation", "4"}), 128);
  auto t = terms("batch", {"--model", "nano", "--batch", "4", "--grad-accumulation", "8", "--mesh", "pipeline=5",
                           "--device", "h100"});
  EXPECT_DOUBLE_EQ(value(t, "over the ideal time"), 4.0 / 8);
  EXPECT_DOUBLE_EQ(value(t, "of the step"), 4.0 / 12);
}

TEST(PlanExplain, TrafficIsThatOfTheProgram) {
  std::vector<std::string> flags = {"--model",  "nano", "--vocab",     "512",  "--seq",           "16", "--batch", "1",
                                    "--device", "cpu",  "--precision", "fp32", "--data-parallel", "4"};
  auto t = terms("traffic", flags);
  const std::string reduce = "data parallel: all-reduce of gradients";
  EXPECT_NEAR(program(t, reduce) / value(t, reduce), 1, 0.01);
  flags.insert(flags.end(), {"--mesh", "tensor=2"});
  double bytes = 1.0 * 16 * 128 * 4;
  EXPECT_EQ(value(terms("traffic", flags), "all-reduces: two forward and two backward a layer"),
            4 * 4 * 2 * 0.5 * bytes);
  flags.insert(flags.end(), {"--mesh", "context=2"});
  const std::string keys = "keys and values of all tokens, and the sums of their gradients";
  t = terms("traffic", flags);
  EXPECT_EQ(value(t, keys), 4 * 2 * 0.5 * 2 * bytes);  // as wide as the model, twice
  EXPECT_EQ(program(t, keys), value(t, keys));
  expect_error({"plan", "--explain", "memroy"}, 2, {"memroy", "memory", "traffic"});
  expect_error({"plan", "--explain", "memory", "--beams", "0"}, 2, {"--beams"});
  expect_error({"plan", "--explain", "flops", "--beams", "5"}, 2, {"--beams", "--explain memory"});
  expect_error({"plan", "--beams", "5"}, 2, {"--beams", "--explain memory"});
}

}  // namespace crest::test
