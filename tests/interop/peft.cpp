// Adapters by the program: trained, continued, exported and opened again. Agreement with peft
// itself: tests/parity/peft.cpp.
#include <filesystem>

#include "checkpoint/safetensors_folder.h"
#include "cli/train_harness.h"

using namespace crest;
using namespace crest::test;

namespace {

class Adapters : public testing::Test {
 protected:
  void SetUp() override {
    ASSERT_EQ(f.train("base", 2, {"--precision", "fp32", "--val-every", "0", "--sample-every", "0"}).code, 0);
  }
  RunResult run(const std::vector<std::string>& words) { return run_crest(words, f.options()); }
  RunResult tune(const std::string& out, const std::vector<std::string>& more) {
    std::vector<std::string> words = {
        "train", "--data",    "data", "--out",       out,    "--batch",     "2", "--steps",      "4", "--lr",
        "1e-2",  "--threads", "1",    "--precision", "fp32", "--val-every", "0", "--save-every", "2"};
    words.insert(words.end(), more.begin(), more.end());
    return run(words);
  }
  double loss(const std::vector<std::string>& model) {
    std::vector<std::string> words = {"eval", "--data", "data", "--precision", "fp32", "--threads", "1", "--json"};
    words.insert(words.end(), model.begin(), model.end());
    RunResult r = run(words);
    EXPECT_EQ(r.code, 0) << r.err;
    return r.code ? 0 : r.json()["loss"].get<double>();
  }
  std::string weights(const std::string& run, int step) {
    return f.read(run + "/checkpoints/step-00000" + std::to_string(step) + "/model.safetensors");
  }
  void fails(const RunResult& r, int code, const std::string& words) {
    EXPECT_EQ(r.code, code) << r.err;
    EXPECT_TRUE(contains(r.err, words)) << r.err;
  }
  TrainFolder f;
};

}  // namespace

TEST_F(Adapters, ContinueBitForBitOnTheirOwnBaseOnly) {
  ASSERT_EQ(tune("whole", {"--init", "base", "--lora", "3"}).code, 0);
  ASSERT_EQ(tune("cut", {"--init", "base", "--lora", "3", "--stop-after", "2"}).code, 0);
  EXPECT_NE(weights("cut", 2), weights("whole", 4));
  std::filesystem::rename(f / "base", f / "moved");
  fails(run({"train", "--resume", "cut"}), 1, "is not there");
  RunResult r = run({"train", "--resume", "cut", "--base", "moved"});
  ASSERT_EQ(r.code, 0) << r.err;
  EXPECT_EQ(weights("cut", 4), weights("whole", 4));
  const WeightsFolder saved = WeightsFolder::open(f / "cut/checkpoints/step-000004");
  for (auto& item : saved.tensors())
    EXPECT_TRUE(contains(item.spec.name, ".lora_")) << "the adapters alone: " << item.spec.name;
  ASSERT_EQ(f.train("other", 1, {"--precision", "fp32", "--val-every", "0", "--seed", "7"}).code, 0);
  fails(run({"eval", "--run", "cut", "--data", "data", "--base", "other"}), 1, "not the weights that the adapter");
}

TEST_F(Adapters, ExportsComputeTheSame) {
  ASSERT_EQ(tune("tuned", {"--init", "base", "--lora", "3", "--lora-alpha", "12"}).code, 0);
  const double tuned = loss({"--run", "tuned"});
  EXPECT_LT(tuned, loss({"--run", "base"}) - 1e-3);
  for (const char* to : {"merged", "peft"}) {
    RunResult r = run({"export", "tuned", "--to", to, "--out", to});
    ASSERT_EQ(r.code, 0) << r.err;
    EXPECT_NEAR(loss({"--run", to}), tuned, 1e-5) << to;
  }
  for (const char* from : {"tuned", "merged"})
    ASSERT_EQ(run({"export", from, "--to", "gguf", "--out", std::string(from) + ".gguf"}).code, 0);
  EXPECT_EQ(f.read("tuned.gguf"), f.read("merged.gguf")) << "adapters are merged";
  // The adapter trains on from peft's files as from its own.
  RunResult own = tune("own", {"--init", "tuned"}), back = tune("back", {"--init", "peft"});
  ASSERT_EQ(own.code, 0) << own.err;
  ASSERT_EQ(back.code, 0) << back.err;
  EXPECT_EQ(weights("back", 4), weights("own", 4));
}

TEST_F(Adapters, WrongUseHasOneSentence) {
  fails(tune("x", {"--lora", "3"}), 2, "adapters need a model with weights");
  fails(tune("x", {"--init", "base", "--lora-alpha", "3"}), 2, "but no rank");
  fails(tune("x", {"--init", "base", "--lora", "3", "--lora-targets", "head"}), 2, "token embedding");
  fails(tune("x", {"--init", "base", "--lora", "3", "--lora-targets", "mlp.gate"}), 2, "no linear layer");
  fails(tune("x", {"--init", "base", "--lora", "3", "--lora-targets", "mpl"}), 2, "Did you mean 'mlp'");
  fails(tune("x", {"--init", "base", "--base-weights", "int8"}), 2, "frozen weights");
  fails(tune("x", {"--init", "base", "--lora", "3", "--ranks", "2", "--mesh", "tensor=2"}), 2, "adapters");
  fails(run({"export", "base", "--to", "peft", "--out", "x"}), 1, "no adapters");
  fails(run({"eval", "--run", "base", "--data", "data", "--base", "base"}), 2, "is not an adapter");
  f.write("odd/adapter_config.json", R"({"peft_type": "LORA", "r": 2, "lora_alpha": 4, "use_dora": true})");
  fails(run({"eval", "--run", "odd", "--data", "data", "--base", "base"}), 1, "use_dora = true is not supported");
}
