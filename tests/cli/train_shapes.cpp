// crest train over odd sizes and kinds of models, and a run's output.
#include <cmath>

#include "cli/train_harness.h"

using namespace crest::test;

namespace {

struct TrainShape {
  const char* name;
  const char* model;  // a preset or TOML text
  std::vector<std::string> flags;
};

const std::vector<TrainShape> shapes = {
    {"Batch3Seq31", byte_model, {"--batch", "3", "--seq", "31"}},
    {"Seq65", "preset = \"nano\"\nlayers = 1\nheads = 2\nwidth = 32\ncontext = 65\n", {"--seq", "65", "--batch", "3"}},
    {"Vocabulary50257", "preset = \"nano\"\nlayers = 1\nheads = 2\nwidth = 32\ncontext = 16\n", {"--vocab", "50257"}},
    {"OneLayerOneHead", "preset = \"nano\"\nlayers = 1\nheads = 1\nwidth = 24\ncontext = 16\n", {}},
    {"MicroBatch1", byte_model, {"--batch", "1", "--grad-accumulation", "3"}},
    {"Context1", "preset = \"nano\"\nlayers = 1\nheads = 2\nwidth = 32\ncontext = 1\n", {}},
    {"Seq1", byte_model, {"--seq", "1", "--batch", "1"}},
    {"OddWidth", "preset = \"nano\"\nlayers = 2\nheads = 3\nwidth = 39\ncontext = 33\n", {"--pad-vocab", "1"}},
    {"LlamaNano", "llama-nano", {"--seq", "33", "--batch", "1"}},
    {"LlamaGrouped",
     "preset = \"llama-nano\"\nlayers = 2\nheads = 4\nkv_heads = 1\nwidth = 64\nff = 96\ncontext = 40\n",
     {"--dropout", "0.1"}},
    {"Window", byte_model, {"--window", "5", "--seq", "31"}},
    {"WindowInSomeLayers",
     "preset = \"llama-nano\"\nlayers = 2\nheads = 4\nkv_heads = 1\nwidth = 64\nff = 96\ncontext = 40\n"
     "window = 9\nfull_layers = 1\n",
     {"--packing", "documents"}},
    {"Dropout", byte_model, {"--dropout", "0.3"}},
    {"ThreeRanks", byte_model, {"--data-parallel", "3", "--batch", "1"}},
    {"Fp16Recompute", byte_model, {"--precision", "fp16", "--recompute", "full", "--loss-scale", "1024"}},
    {"NaiveUnfused", byte_model, {"--attention", "naive", "--fusion", "off", "--precision", "fp32"}},
    {"UntiedRope",
     "layers = 2\nheads = 2\nwidth = 32\ncontext = 24\nposition = \"rope\"\ntied = false\nbias = false\nvocab = 257\n",
     {}},
};

}  // namespace

class Shapes : public testing::TestWithParam<TrainShape> {};

TEST_P(Shapes, Trains) {
  TrainFolder f(1500);
  std::string model = GetParam().model;
  if (model.find('=') != std::string::npos) model = f.write("model.toml", model);
  std::vector<std::string> flags = {"train", "--data",    "data", "--model", model,  "--out",   "run", "--steps",
                                    "12",    "--threads", "1",    "--lr",    "3e-3", "--batch", "2"};
  flags.insert(flags.end(), GetParam().flags.begin(), GetParam().flags.end());
  RunResult r = run_crest(flags, f.options());
  ASSERT_EQ(r.code, 0) << r.err;
  std::vector<double> val;
  for (auto& row : f.log("run"))
    if (row.contains("val_loss")) val.push_back(row["val_loss"]);
  ASSERT_GE(val.size(), 2u);
  EXPECT_LT(val.back(), val.front() - 0.05) << "it learns";
  auto again = f.resume("run", {"--steps", "14"});
  EXPECT_EQ(again.code, 0) << again.err;
}

INSTANTIATE_TEST_SUITE_P(Train, Shapes, testing::ValuesIn(shapes), [](auto& i) { return i.param.name; });

TEST(ModelFolders, AFolderOfHuggingFaceTrains) {
  TrainFolder f;
  f.write("hf/config.json",
          R"({"model_type": "gpt2", "vocab_size": 257, "n_positions": 32, "n_embd": 32, "n_layer": 2, "n_head": 2,
              "resid_pdrop": 0.0, "embd_pdrop": 0.0, "attn_pdrop": 0.0, "activation_function": "gelu_new"})");
  RunResult r = run_crest({"train", "--data", "data", "--model", "hf", "--batch", "2", "--steps", "4", "--out", "run"},
                          f.options());
  ASSERT_EQ(r.code, 0) << r.err;
  EXPECT_TRUE(contains(r.err, "2 layers, width 32")) << r.err;
}

TEST(OneTextFile, IsEnough) {
  TrainFolder f;
  std::vector<std::string> a = {"train", "text.txt", "--model", "tiny.toml", "--steps", "3", "--batch", "2"};
  RunResult r = run_crest(a, f.options());
  ASSERT_EQ(r.code, 0) << r.err;
  EXPECT_TRUE(contains(r.err, "text     prepared with tokenizer bytes")) << r.err;
  EXPECT_TRUE(f.exists("runs/text/checkpoints/step-000003/tokenizer.json"));
  r = run_crest(a, f.options());
  ASSERT_EQ(r.code, 0) << r.err;
  EXPECT_TRUE(contains(r.err, "text     cached")) << r.err;
  EXPECT_TRUE(f.exists("runs/text-2/log.jsonl"));
}

TEST(RunFolder, HoldsWhatTheContractNames) {
  TrainFolder f;
  RunResult r = f.train("run", 12, {"--sample-every", "6", "--sample-tokens", "8", "--val-every", "4"});
  ASSERT_EQ(r.code, 0) << r.err;
  for (const char* name : {"config.toml", "model.toml", "environment.json", "log.jsonl", "tensorboard", "loss.svg",
                           "samples.txt", "checkpoints/latest"})
    EXPECT_TRUE(f.exists(std::string("run/") + name)) << name;
  using Keys = std::vector<std::string>;
  size_t steps = 0, validations = 0;
  std::istringstream in(f.read("run/log.jsonl"));
  for (std::string line; std::getline(in, line);) {
    Keys keys;
    auto row = nlohmann::ordered_json::parse(line);
    for (auto& [key, value] : row.items()) keys.push_back(key);
    if (keys == Keys{"step", "val_loss"}) {
      ++validations;
    } else {
      // Then the state of the device, as far as this machine reports it.
      std::erase_if(keys, [](auto& k) { return k == "watts" || k == "clock_mhz" || k == "memory_bytes"; });
      EXPECT_EQ(keys, (Keys{"step", "loss", "lr", "grad_norm", "step_ms", "tokens_per_second", "skipped", "wait_ms",
                            "update_ms"}));
      EXPECT_GT(row["update_ms"], 0);
      EXPECT_LT(row["update_ms"], row["step_ms"]);
      ++steps;
    }
  }
  EXPECT_EQ(steps, 12u);
  EXPECT_EQ(validations, 4u);  // at 0, 4, 8, 12
  std::string samples = f.read("run/samples.txt");
  EXPECT_TRUE(contains(samples, "--- step 6\n") && contains(samples, "--- step 12\n")) << samples;
}

TEST(Messages, SayWhatIsUsedAndNothingThatIsNot) {
  TrainFolder f;
  RunResult r = f.train("run", 12);
  EXPECT_TRUE(contains(r.err, "step     2 sequences x 32 tokens = 64 tokens\n")) << r.err;
  EXPECT_TRUE(contains(r.err, "schedule 12 steps, lr 0.000735 cosine to 7.35e-05, warm-up 2, seed 1337")) << r.err;
  EXPECT_TRUE(
      contains(r.err, "run      run; validation every step (3 batches of 2 sequences), checkpoint every 3 steps"))
      << r.err;
  size_t last = r.err.find("step 12/12");
  ASSERT_NE(last, std::string::npos) << r.err;
  EXPECT_FALSE(contains(r.err.substr(last, r.err.find('\n', last) - last), "ETA")) << r.err;
  EXPECT_EQ(r.err.find('\r'), std::string::npos) << "plain lines where there is no terminal";
  EXPECT_TRUE(r.out.empty()) << r.out;

  RunResult quiet = f.train("quiet", 3, {"--quiet", "--json"});
  EXPECT_EQ(quiet.err, "");
  auto json = quiet.json();
  EXPECT_EQ(json["step"], 3);
  EXPECT_EQ(json["run"], "quiet");
  EXPECT_EQ(json["interrupted"], false);
  EXPECT_TRUE(json["val_loss"].is_number());

  RunResult help = run_crest({"train", "--help-all"}, f.options());
  for (const char* text :
       {"default: of --epochs, or 1000", "6e-4 sqrt(768 / width)", "from 40 to 2000", "1337", "cosine"})
    EXPECT_TRUE(contains(help.out, text)) << text;
}

TEST(Overwrite, ReplacesARun) {
  TrainFolder f;
  ASSERT_EQ(f.train("run", 6).code, 0);
  RunResult r = f.train("run", 2, {"--overwrite"});
  ASSERT_EQ(r.code, 0) << r.err;
  EXPECT_EQ(f.checkpoints("run").back(), "step-000002");
}

TEST(Keep, AsManyAsAskedFor) {
  TrainFolder f;
  ASSERT_EQ(f.train("two", 12, {"--save-every", "2", "--keep", "2"}).code, 0);
  EXPECT_EQ(f.checkpoints("two"), (std::vector<std::string>{"step-000010", "step-000012"}));
  ASSERT_EQ(f.train("all", 12, {"--save-every", "2", "--keep", "0"}).code, 0);
  EXPECT_EQ(f.checkpoints("all").size(), 6u);
}
