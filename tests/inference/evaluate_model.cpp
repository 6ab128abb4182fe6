#include "inference/evaluate_model.h"

#include <nlohmann/json.hpp>

#include "checkpoint/safetensors.h"
#include "data/dataset.h"
#include "data/shards.h"
#include "inference/saved_model.h"

using namespace crest;
using namespace crest::test;

namespace {

class EvaluateModel : public ::testing::Test {
 protected:
  static void SetUpTestSuite() {
    shared_ = new TemporaryFolder;
    make_model_and_text(*shared_);
    prepare_text(*shared_, "bytes", "data");
  }
  static void TearDownTestSuite() { delete shared_; }
  static EvaluateOptions options() {
    EvaluateOptions o;
    o.data = *shared_ / "data", o.precision = "fp32";
    o.device = test::test_device(2), o.memory_limit = int64_t(1) << 30;
    return o;
  }
  static ModelEvaluation evaluate_it(EvaluateOptions o, const std::string& run = *shared_ / "run") {
    o.run = run;
    return evaluate_model(o, open_model(run), [](const std::string&) {});
  }

  TemporaryFolder folder_;
  static inline TemporaryFolder* shared_ = nullptr;
};

}  // namespace

TEST_F(EvaluateModel, AModelOfZerosKnowsNothing) {
  make_checkpoint(folder_ / "zero", 1, byte_recipe(), true, true);
  ModelEvaluation m = evaluate_it(options(), folder_ / "zero");
  EXPECT_NEAR(m.evaluation.loss, std::log(257.0), 1e-5);
  EXPECT_NEAR(m.evaluation.perplexity(), 257, 1e-2);
  EXPECT_EQ(m.evaluation.tokens + 1, m.split_tokens);
  EXPECT_EQ(m.split, "val");
  EXPECT_EQ(m.step, 1);
  // Every byte is a token; only <|endoftext|> stands for no text.
  EXPECT_NEAR(m.evaluation.bits_per_byte(), std::log2(257.0), 0.05);
}

TEST_F(EvaluateModel, TheLossDoesNotDependOnTheBatch) {
  EvaluateOptions o = options();
  ModelEvaluation a = evaluate_it(o);
  o.batch = 3;
  ModelEvaluation b = evaluate_it(o);
  EXPECT_NEAR(a.evaluation.loss, b.evaluation.loss, 1e-5 * a.evaluation.loss);
  EXPECT_EQ(a.evaluation.tokens, b.evaluation.tokens);
  EXPECT_EQ(a.recipe.seq_length(), 33);
  o.batch = 2, o.seq = 16, o.batches = 3, o.split = "train";
  EXPECT_EQ(evaluate_it(o).evaluation.tokens, 96u);
}

// The result names what was computed.
TEST_F(EvaluateModel, Fp8IsBf16) {
  EvaluateOptions o = options();
  o.precision = "bf16";
  ModelEvaluation half = evaluate_it(o);
  o.precision = "fp8";
  ModelEvaluation m = evaluate_it(o);
  EXPECT_EQ(m.recipe.precision, "bf16");
  EXPECT_EQ(m.evaluation.loss, half.evaluation.loss);
}

// Tied (gpt2) and untied (llama); the logits come from decoding, which multiplies the codes as they
// are, and the loss from a batch, for which they become floats: one model.
TEST_F(EvaluateModel, Int8WeightsAreOneModelInBatchesAndOneByOne) {
  for (const char* shape : {"gpt2", "llama"})
    for (const char* precision : {"fp32", "bf16"}) {
      SCOPED_TRACE(std::string(shape) + " " + precision);
      const std::string run = folder_ / shape;
      make_checkpoint(run, 1, byte_recipe(shape));
      EvaluateOptions o = options();
      o.precision = precision, o.batch = 1, o.batches = 1;
      ModelEvaluation whole = evaluate_it(o, run);
      o.weights = "int8", o.logits = folder_ / "logits.safetensors";
      ModelEvaluation m = evaluate_it(o, run);
      EXPECT_EQ(to_json(m)["weights"], "int8");
      EXPECT_EQ(m.recipe.precision, precision);
      EXPECT_NE(m.evaluation.loss, whole.evaluation.loss);
      EXPECT_NEAR(m.evaluation.loss, whole.evaluation.loss, 0.01 * whole.evaluation.loss);
      SafetensorsFile written = SafetensorsFile::open(o.logits);
      std::vector<float> logits(33 * 257);
      written.read(size_t(written.find("logits")), logits.data(), 4 * logits.size());
      std::vector<int32_t> text(34);
      Dataset::open(o.data).val().read(0, text.size(), text.data());
      double sum = 0;
      for (size_t t = 0; t < 33; ++t)
        sum += negative_log_probabilities(std::span(logits).subspan(257 * t, 257))[size_t(text[t + 1])];
      bool half = std::string(precision) == "bf16";
      EXPECT_NEAR(sum / 33, m.evaluation.loss, (half ? 1e-2 : 1e-5) * m.evaluation.loss);
    }
}

TEST_F(EvaluateModel, DataOfAnotherVocabularyOrTokenizer) {
  EvaluateOptions o = options();
  o.data = prepare_text(*shared_, "bpe:300", "bpe");
  expect_error([&] { evaluate_it(o); }, {"vocabulary of"});
  Recipe larger = byte_recipe();
  larger.model.vocab = 400;
  make_checkpoint(folder_ / "larger", 1, larger);
  expect_error([&] { evaluate_it(o, folder_ / "larger"); }, {"not prepared with the model's tokenizer"});
}

TEST_F(EvaluateModel, EveryTokenOfShardsThatStateNoVocabularyIsChecked) {
  std::filesystem::create_directories(folder_ / "plain");
  ShardWriter writer(folder_ / "plain", "val", 1000);
  std::vector<uint32_t> ids(100, 5);
  ids[70] = 300;
  writer.append(ids);
  writer.finish();
  EvaluateOptions o = options();
  o.data = folder_ / "plain";
  expect_error([&] { evaluate_it(o); }, {"300"});
  o.split = "train";
  expect_error([&] { evaluate_it(o); }, {"no tokens in split 'train'"});
  o.split = "val", o.seq = 16, o.batch = 4, o.batches = 1;  // ends before that token
  EXPECT_EQ(evaluate_it(o).evaluation.tokens, 64u);
}

TEST_F(EvaluateModel, AModelThatDoesNotFit) {
  EvaluateOptions o = options();
  o.memory_limit = 1024;
  expect_error([&] { evaluate_it(o); }, {"only 1.00 KiB"}, Exit::does_not_fit);
}

TEST_F(EvaluateModel, RefusesOptions) {
  auto refuses = [](auto change, const std::string& part) {
    EvaluateOptions o;
    o.run = "run";
    change(o);
    expect_error([&] { validate(o); }, {part}, Exit::usage);
  };
  refuses([](auto& o) { o.run = ""; }, "--run");
  refuses([](auto& o) { o.split = "test"; }, "'test' is not a split");
  refuses([](auto& o) { o.batches = -1; }, "--batches");
  EvaluateOptions o = options();
  o.weights = "int4";
  expect_error([&] { evaluate_it(o); }, {"--weights", "'int4'", "float, int8"}, Exit::usage);
}

TEST_F(EvaluateModel, LogitsReplaceNoFileOfARunOrAModel) {
  EvaluateOptions o = options();
  o.run = *shared_ / "run";
  o.logits = o.run + "/checkpoints/step-000100/manifest.json";
  expect_error([&] { validate(o); }, {"manifest.json", "overwrite a file of a checkpoint"});
  // A model without the marks of a run.
  std::filesystem::create_directory(folder_ / "model");
  for (const char* name : {"model.toml", "model.safetensors"})
    std::filesystem::copy(o.run + "/checkpoints/step-000100/" + name, folder_ / "model");
  o.logits = folder_ / "model/model.safetensors";
  const auto before = std::filesystem::file_size(o.logits);
  expect_error([&] { evaluate_it(o, folder_ / "model"); }, {"model.safetensors", "overwrite a file of the model"});
  EXPECT_EQ(std::filesystem::file_size(o.logits), before);
}

TEST_F(EvaluateModel, WritesTheLogitsOfTheFirstWindow) {
  EvaluateOptions o = options();
  o.logits = folder_ / "logits.safetensors";
  o.batch = 1, o.batches = 1;
  ModelEvaluation m = evaluate_it(o);
  SafetensorsFile written = SafetensorsFile::open(o.logits);
  std::vector<int32_t> tokens(33), text(34);
  std::vector<float> logits(33 * 257);
  written.read(size_t(written.find("tokens")), tokens.data(), 4 * tokens.size());
  written.read(size_t(written.find("logits")), logits.data(), 4 * logits.size());
  Dataset::open(o.data).val().read(0, text.size(), text.data());
  double sum = 0;
  for (size_t t = 0; t < tokens.size(); ++t) {
    EXPECT_EQ(tokens[t], text[t]);
    sum += negative_log_probabilities(std::span(logits).subspan(257 * t, 257))[size_t(text[t + 1])];
  }
  EXPECT_EQ(m.evaluation.tokens, 33u);
  EXPECT_NEAR(sum / 33, m.evaluation.loss, 1e-5 * m.evaluation.loss);
}
