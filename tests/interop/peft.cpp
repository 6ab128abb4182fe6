// Adapters by the program: trained, continued, exported and opened again. Agreement with peft
// itself: tests/parity/peft.cpp.
#include <chrono>
#include <filesystem>
#include <iterator>

#include "checkpoint/safetensors_folder.h"
#include "checkpoint/weights_io.h"
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
  EXPECT_FALSE(weights("cut", 2) == weights("whole", 4));
  std::filesystem::rename(f / "base", f / "moved");
  fails(run({"train", "--resume", "cut"}), 1, "is not there");
  RunResult r = run({"train", "--resume", "cut", "--base", "moved"});
  ASSERT_EQ(r.code, 0) << r.err;
  EXPECT_TRUE(weights("cut", 4) == weights("whole", 4));
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
  EXPECT_TRUE(weights("back", 4) == weights("own", 4));
}

TEST_F(Adapters, NoticeAChangedBaseOfAnotherProgram) {
  ASSERT_EQ(tune("first", {"--init", "base", "--lora", "3", "--stop-after", "1"}).code, 0);
  ASSERT_EQ(run({"export", "first", "--to", "merged", "--out", "merged"}).code, 0);
  const std::string file = "merged/model.safetensors";
  // Hashes of files that have just changed are not kept.
  std::filesystem::last_write_time(f / file, std::filesystem::last_write_time(f / file) - std::chrono::seconds(10));
  ASSERT_EQ(tune("second", {"--init", "merged", "--lora", "3", "--stop-after", "1"}).code, 0);
  const std::filesystem::path cached = f.path() / "cache/weights-hash";
  ASSERT_TRUE(std::filesystem::exists(cached));
  EXPECT_EQ(std::distance(std::filesystem::directory_iterator(cached), {}), 1);
  loss({"--run", "second"});
  std::string bytes = f.read(file);
  bytes.back() = char(bytes.back() ^ 1);
  f.write(file, bytes);
  fails(run({"eval", "--run", "second", "--data", "data"}), 1, "not the weights that the adapter");
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
}

// Every setting of peft is applied or refused, and none can hang or crash the reader.
TEST_F(Adapters, SettingsOfPeftCount) {
  ASSERT_EQ(tune("tuned", {"--init", "base", "--lora", "3", "--lora-dropout", "0.25"}).code, 0);
  ASSERT_EQ(run({"export", "tuned", "--to", "peft", "--out", "peft"}).code, 0);
  const nlohmann::json plain = nlohmann::json::parse(f.read("peft/adapter_config.json"));
  auto open = [&](const nlohmann::json& changes) {
    nlohmann::json config = plain;
    config.update(changes);
    f.write("peft/adapter_config.json", config.dump());
    return open_model(f / "peft", {}, config["base_model_name_or_path"] == "self" ? "" : f / "base");
  };
  auto refused = [&](const nlohmann::json& changes, const std::string& words) {
    try {
      open(changes);
      ADD_FAILURE() << changes << " was accepted";
    } catch (const Error& e) {
      EXPECT_TRUE(contains(e.what(), words)) << e.what();
    }
  };
  const LoadedModel whole = open(nlohmann::json::object());
  EXPECT_EQ(whole.config.lora.dropout, 0.25);
  const auto same = [&](const nlohmann::json& changes) {
    EXPECT_TRUE(*open(changes).adapter == *whole.adapter) << changes;
  };
  for (const char* key : {"use_dora", "lora_bias", "use_qalora"})
    refused({{key, true}}, std::string(key) + " = true is not supported");
  for (const char* key : {"velora_config", "monteclora_config", "kasa_config", "arrow_config", "use_bdlora"})
    refused({{key, {{"num_samples", 8}}}}, std::string(key) + " = ");
  for (const char* key : {"modules_to_save", "target_parameters", "alora_invocation_tokens", "layer_replication"})
    refused({{key, {1}}}, std::string(key) + " = [1] is not supported");
  refused({{"bias", "all"}}, "bias = ");
  refused({{"init_lora_weights", "pissa_niter_4"}}, "init_lora_weights = ");
  for (const char* init : {"gaussian", "eva"}) same({{"init_lora_weights", init}});
  same({{"corda_config", {{"corda_method", "ipm"}}}, {"megatron_core", "megatron.core"}, {"peft_version", "0.21.0"}});
  // Which layers have adapters.
  const std::string targets = ".*h\\.\\d+\\.(attn|mlp)\\.c_(attn|fc|proj)";
  same({{"target_modules", targets}});
  same({{"target_modules", "all-linear"}});
  same({{"layers_to_transform", {0, 1}}, {"layers_pattern", "h"}});
  refused({{"target_modules", {"c_attn", "c_fc"}}}, "belongs to a layer without an adapter");
  refused({{"exclude_modules", "transformer.h.1.*"}}, "belongs to a layer without an adapter");
  refused({{"layers_to_transform", 0}}, "belongs to a layer without an adapter");
  refused({{"layers_to_transform", 0}, {"target_modules", targets}}, "layers_to_transform = 0");
  refused({{"target_modules", std::string(3000, '(') + "a"}}, "too many nested groups");
  refused({{"target_modules", "((a{1000}){1000}){1000}"}}, "too many parts");
  refused({{"target_modules", "(?!a).*"}}, "look-around");
  refused({{"target_modules", "(.*)*(.*)*(.*)*(.*)*!"}}, "belongs to a layer without an adapter");
  // Ranks and factors.
  refused({{"r", 3.5}}, "It must be a whole number");
  refused({{"r", 2}}, "has rank 3, but adapter_config.json says 2");
  same({{"r", 2},
        {"lora_alpha", 4},
        {"rank_pattern", {{"c_.*", 3}}},
        {"alpha_pattern", {{"(c_attn|c_proj|c_fc)", 6.0}}}});
  EXPECT_FALSE(*open({{"alpha_pattern", {{"h.0.attn.c_attn", 12.0}}}}).adapter == *whole.adapter);
  refused({{"rank_pattern", {{"c_(", 3}}}}, "'(' without ')'");
  // The base.
  refused({{"base_model_name_or_path", "self"}}, "is not a folder here");
  std::filesystem::create_directory_symlink(f / "peft", f / "again");
  try {
    open_model(f / "peft", {}, f / "again");
    ADD_FAILURE() << "an adapter was its own base";
  } catch (const Error& e) {
    EXPECT_TRUE(contains(e.what(), "the base of an adapter is an adapter itself")) << e.what();
  }
  // Its dropout stays in training, unless another one is given.
  f.write("peft/adapter_config.json", plain.dump());
  for (const char* given : {"", "0.5"}) {
    std::vector<std::string> more = {"--init", "peft", "--stop-after", "1"};
    if (*given) more.insert(more.end(), {"--lora-dropout", given});
    const std::string out = std::string("more") + given;
    ASSERT_EQ(tune(out, more).code, 0);
    const std::string config = f.read(out + "/config.toml");
    EXPECT_TRUE(contains(config, std::string("lora_dropout = ") + (*given ? given : "0.25"))) << config;
  }
}
