#include "inference/evaluate_model.h"

#include <cmath>
#include <map>
#include <nlohmann/json.hpp>

#include "checkpoint/safetensors.h"
#include "core/io.h"
#include "data/dataset.h"
#include "data/shards.h"
#include "inference/saved_model.h"

using namespace crest;
using namespace crest::test;

namespace {

class EvaluateModel : public SavedModelTest {
 protected:
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

namespace {

// Tokenizers with changes to texts, with at most the model's 257 tokens.
std::map<std::string, nlohmann::json> changing_tokenizers() {
  std::map<std::string, nlohmann::json> made;
  for (const char* name : {"prefix", "NFC", "NFKC"}) made[name] = nlohmann::json::parse(Tokenizer::bytes().to_json());
  made["prefix"]["pre_tokenizer"]["add_prefix_space"] = true;
  for (const char* form : {"NFC", "NFKC"}) made[form]["normalizer"] = {{"type", form}};
  // Of characters, few of them known.
  const char* mark = "\u2581";
  auto added = [](int id, const char* text) {
    return nlohmann::json{{"id", id}, {"content", text}, {"special", true}, {"normalized", false}};
  };
  made["unknown"] = {{"added_tokens", {added(0, "<unk>"), added(1, "</s>")}},
                     {"normalizer", {{"type", "Replace"}, {"pattern", {{"String", " "}}}, {"content", mark}}},
                     {"decoder", {{"type", "Replace"}, {"pattern", {{"String", mark}}}, {"content", " "}}},
                     {"model",
                      {{"type", "BPE"},
                       {"unk_token", "<unk>"},
                       {"vocab", {{"<unk>", 0}, {"</s>", 1}, {mark, 2}, {"a", 3}, {"e", 4}, {"t", 5}}},
                       {"merges", nlohmann::json::array()}}}};
  made["prepend"] = made["unknown"];
  made["prepend"]["normalizer"] = {
      {"type", "Sequence"}, {"normalizers", {{{"type", "Prepend"}, {"prepend", mark}}, made["unknown"]["normalizer"]}}};
  return made;
}

}  // namespace

TEST_F(EvaluateModel, BitsPerByteAreThoseOfTheTextItself) {
  make_checkpoint(folder_ / "model", 1, byte_recipe(), false);
  std::string lines;
  size_t bytes = 0;
  const int documents = 150;
  for (int i = 0; i < documents; ++i) {
    std::string text = "ae\u0301te\u0301 \ufb01t " + std::to_string(i * 17);
    lines += "{\"text\": \"" + text + "\"}\n";
    bytes += text.size();
  }
  write_text(folder_ / "text.jsonl", lines);
  for (auto& [name, json] : changing_tokenizers()) {
    SCOPED_TRACE(name);
    write_text(folder_ / (name + ".json"), json.dump());
    PrepareOptions p;
    p.inputs = {folder_ / "text.jsonl"}, p.tokenizer = folder_ / (name + ".json"), p.out = folder_ / name;
    p.val_fraction = 0.3;
    DatasetInfo info = prepare(p).info;
    EXPECT_EQ(*info.train_text.bytes + *info.val_text.bytes, bytes);
    int32_t first = 0;
    Dataset::open(folder_ / name).val().read(0, 1, &first);
    if (name == "NFC") {
      ASSERT_EQ(first, ' ') << "the split begins inside a document";
    }
    EvaluateOptions o = options();
    o.data = folder_ / name, o.batch = 32, o.packing = "stream";
    auto counted = [&] {
      size_t sum = 0;
      for (const char* split : {"train", "val"}) {
        o.split = split;
        ModelEvaluation m = evaluate_it(o, folder_ / "model");
        sum += m.evaluation.bytes;
        double bits = m.evaluation.loss * double(m.evaluation.tokens) / std::log(2.0) / double(m.evaluation.bytes);
        EXPECT_DOUBLE_EQ(to_json(m)["bits_per_byte"].get<double>(), bits);
      }
      return double(sum);
    };
    const bool puts_a_space = name == "prefix" || name == "prepend";
    // Nothing predicts the first token of a split, and of a packed document. A prefix is no text.
    EXPECT_EQ(counted(), double(bytes) - (puts_a_space ? 1 : 2));
    o.packing = "documents";
    EXPECT_EQ(counted(), double(bytes) - (puts_a_space ? 1 : documents + 1));
  }
  // No figure where it is not known.
  auto unknown = [&](EvaluateOptions o, const std::string& why) {
    o.data = folder_ / "NFC";
    std::string said;
    o.run = folder_ / "model";
    ModelEvaluation m = evaluate_model(o, open_model(o.run), [&](const std::string& line) { said += line; });
    EXPECT_TRUE(to_json(m)["bits_per_byte"].is_null());
    EXPECT_NE(said.find(why), std::string::npos) << said;
  };
  EvaluateOptions few = options();
  few.batches = 1, few.seq = 16;
  unknown(few, "Leave out --batches");
  auto meta = nlohmann::json::parse(read_file((folder_ / "NFC") + "/meta.json", 1 << 20));
  meta.erase("val_text_bytes"), meta.erase("train_text_bytes");
  write_text((folder_ / "NFC") + "/meta.json", meta.dump());
  unknown(options(), "Prepare it again");
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

// The result names the computation.
TEST_F(EvaluateModel, Fp8IsBf16) {
  EvaluateOptions o = options();
  o.precision = "bf16";
  ModelEvaluation half = evaluate_it(o);
  o.precision = "fp8";
  ModelEvaluation m = evaluate_it(o);
  EXPECT_EQ(m.recipe.precision, "bf16");
  EXPECT_EQ(m.evaluation.loss, half.evaluation.loss);
}

// Decoding multiplies the 8-bit codes directly and gives logits. A batch converts them to floats
// and gives the loss. Both agree, for a tied head (gpt2) and an untied one (llama).
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
  o.split = "val", o.seq = 16, o.batch = 4, o.batches = 1;  // ends before this token
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
