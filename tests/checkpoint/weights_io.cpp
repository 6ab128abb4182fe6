#include "checkpoint/weights_io.h"

#include <nlohmann/json.hpp>

#include "checkpoint/parameter_reader.h"
#include "core/io.h"
#include "core/split_float.h"
#include "data/tokenizer.h"
#include "model/config_files.h"
#include "model/weights_map.h"
#include "run/small.h"

using namespace crest;
using namespace crest::test;

namespace {

SessionUse training() {
  SessionUse use;
  use.train = use.update = true;
  return use;
}

SessionUse inference() {
  SessionUse use;
  use.sampling = true;
  return use;
}

void lively_moments(const Executor& executor) {
  uint64_t stream = 0;
  for (auto& p : parameters(executor))
    for (auto& state : p.states) {
      ++stream;
      std::vector<float> values;
      for (int64_t i = 0; i < p.numel(); ++i) values.push_back(float(normal(11, stream, uint64_t(i))));
      state.tensor.set_floats(values.data(), p.numel());
    }
}

CheckpointContents contents_of(const Executor& executor, int64_t step = 5, bool copied = false) {
  TensorsToSave tensors = tensors_to_save(executor, copied);
  CheckpointContents c;
  c.step = step;
  c.weights = tensors.weights, c.optimizer = tensors.optimizer, c.memory = tensors.copy;
  Tokenizer tokenizer = Tokenizer::bytes();
  c.files = model_files(executor.session().recipe.model, &tokenizer);
  return c;
}

std::string save(const Executor& executor, const std::string& root, int64_t step = 5) {
  return save_checkpoint(contents_of(executor, step), root, 0).path;
}

// All bytes of a tensor, padding included, as numbers.
std::vector<float> numbers(const TensorRef& t) { return t.data ? t.floats() : std::vector<float>(); }

void expect_equal(const Executor& a, const Executor& b, bool moments = true) {
  auto p = parameters(a), q = parameters(b);
  ASSERT_EQ(p.size(), q.size());
  for (size_t i = 0; i < p.size(); ++i) {
    SCOPED_TRACE(p[i].name);
    EXPECT_EQ(numbers(p[i].weight), numbers(q[i].weight));
    EXPECT_EQ(numbers(p[i].master), numbers(q[i].master));
    if (!moments) continue;
    ASSERT_EQ(p[i].states.size(), q[i].states.size());
    for (size_t s = 0; s < p[i].states.size(); ++s) {
      EXPECT_EQ(p[i].states[s].name, q[i].states[s].name);
      EXPECT_EQ(numbers(p[i].states[s].tensor), numbers(q[i].states[s].tensor));
    }
  }
}

// Values everywhere, so the test sees all that a load leaves unchanged.
void poison(const Executor& executor) {
  for (auto& p : parameters(executor)) {
    std::vector<TensorRef> all = {p.weight, p.master};
    for (auto& state : p.states) all.push_back(state.tensor);
    for (auto& t : all)
      if (t.data) t.set_floats(std::vector<float>(size_t(t.shape.numel()), 123).data(), t.shape.numel());
  }
}

void flip_byte(const std::string& path, int64_t from_end) {
  std::fstream f(path, std::ios::in | std::ios::out | std::ios::binary);
  f.seekg(-from_end, std::ios::end);
  char c = char(f.get());
  f.seekp(-from_end, std::ios::end);
  f.put(char(c ^ 1));
}

}  // namespace

class WeightsTest : public ::testing::TestWithParam<std::tuple<std::string, std::string>> {};

TEST_P(WeightsTest, ACheckpointRestoresEveryNumber) {
  auto [shape, precision] = GetParam();
  TemporaryFolder folder;
  Runner a(small_recipe(shape, precision), training());
  lively_weights(*a.executor, 1);
  lively_moments(*a.executor);
  std::string path = save(*a.executor, folder / "checkpoints");

  Runner b(small_recipe(shape, precision), training());
  poison(*b.executor);
  Checkpoint checkpoint = Checkpoint::open(path);
  load_weights(*b.executor, checkpoint);
  load_optimizer(*b.executor, checkpoint);
  expect_equal(*a.executor, *b.executor);

  // The same folder read as weights of Hugging Face.
  Runner c(small_recipe(shape, precision), training());
  poison(*c.executor);
  load_weights(*c.executor, WeightsFolder::open(path));
  expect_equal(*a.executor, *c.executor, false);

  // Another precision without an update: no masters, rounded once.
  for (std::string other : {"fp32", "bf16", "fp16"}) {
    Runner d(small_recipe(shape, other), inference());
    poison(*d.executor);
    load_weights(*d.executor, checkpoint);
    auto p = parameters(*a.executor), q = parameters(*d.executor);
    for (size_t i = 0; i < p.size(); ++i) {
      std::vector<float> truth(size_t(p[i].numel()));
      p[i].get(truth.data());
      auto found = numbers(q[i].weight);
      for (size_t k = 0; k < found.size(); ++k) {
        double expected = k < truth.size() ? truth[k] : 0;  // padding
        if (other == "bf16") {                              // as a session with masters rounds
          expected = to_float(split(float(expected)).high);
        } else {
          char rounded[8];
          store_element(rounded, q[i].weight.dtype, 0, expected);
          expected = load_element(rounded, q[i].weight.dtype, 0);
        }
        ASSERT_EQ(found[k], expected) << q[i].name << " " << k;
      }
    }
  }
}

TEST_P(WeightsTest, ExportsAreUnpaddedAndCanonical) {
  auto [shape, precision] = GetParam();
  Runner a(small_recipe(shape, precision), training());
  lively_weights(*a.executor, 1);
  auto tensors = tensors_to_save(*a.executor);
  auto canonical = canonical_tensors(a.session.recipe.model);
  ASSERT_EQ(tensors.weights.size(), canonical.size());
  for (size_t i = 0; i < canonical.size(); ++i)
    EXPECT_EQ(tensors.weights[i].spec, (TensorSpec{canonical[i].name, DType::f32, canonical[i].shape}));
  auto list = parameters_of(a.session.recipe.model);
  ASSERT_EQ(tensors.optimizer.size(), 2 * list.size());
  for (size_t i = 0; i < list.size(); ++i) {
    EXPECT_EQ(tensors.optimizer[2 * i].spec, (TensorSpec{list[i].name + ".m", DType::f32, list[i].shape.dims()}));
    EXPECT_EQ(tensors.optimizer[2 * i + 1].spec, (TensorSpec{list[i].name + ".v", DType::f32, list[i].shape.dims()}));
  }
  Runner b(small_recipe(shape, precision), inference());
  EXPECT_TRUE(tensors_to_save(*b.executor).optimizer.empty());
  EXPECT_EQ(tensors_to_save(*b.executor).weights.size(), canonical.size());
}

// A background save's content while training changes the original.
TEST_P(WeightsTest, ACopyStaysAsItWas) {
  auto [shape, precision] = GetParam();
  TemporaryFolder folder;
  Runner a(small_recipe(shape, precision), training());
  lively_weights(*a.executor, 1);
  lively_moments(*a.executor);
  std::string path = save(*a.executor, folder / "own");
  CheckpointContents contents = contents_of(*a.executor, 5, true);
  poison(*a.executor);
  std::string copied = save_checkpoint(contents, folder / "copied", 0).path;
  // The manifest has the hash of every byte.
  EXPECT_EQ(read_file(path + "/manifest.json", 1 << 20), read_file(copied + "/manifest.json", 1 << 20));
  Checkpoint::open(copied).verify();
}

INSTANTIATE_TEST_SUITE_P(Shapes, WeightsTest,
                         ::testing::Combine(::testing::Values("gpt2", "llama", "mixed"),
                                            ::testing::Values("fp32", "bf16")),
                         [](auto& info) { return std::get<0>(info.param) + "_" + std::get<1>(info.param); });

TEST(Weights, OfAnotherModelAreRefusedAndNothingChanges) {
  TemporaryFolder folder;
  Runner a(small_recipe("gpt2"), training());
  lively_weights(*a.executor, 1);
  std::string path = save(*a.executor, folder / "checkpoints");
  Recipe wider = small_recipe("gpt2");
  wider.model.ff = 100;
  for (const Recipe& recipe : {wider, small_recipe("llama")}) {
    Runner b(recipe, training()), untouched(recipe, training());
    expect_error([&] { load_weights(*b.executor, Checkpoint::open(path)); }, {"do not fit model"});
    expect_error([&] { load_weights(*b.executor, WeightsFolder::open(path)); }, {"do not fit model"});
    expect_error([&] { load_optimizer(*b.executor, Checkpoint::open(path)); }, {"optimizer state"});
    expect_equal(*b.executor, *untouched.executor);
  }
}

TEST(Weights, DamageIsFound) {
  TemporaryFolder folder;
  Runner a(small_recipe("gpt2"), training());
  lively_weights(*a.executor, 1);
  std::string path = save(*a.executor, folder / "checkpoints");
  Checkpoint checkpoint = Checkpoint::open(path);
  flip_byte(path + "/optimizer.safetensors", 100);
  load_weights(*a.executor, checkpoint);
  expect_error([&] { load_optimizer(*a.executor, checkpoint); }, {"damaged", "optimizer.safetensors"});
  flip_byte(path + "/model.safetensors", 100);
  expect_error([&] { load_weights(*a.executor, checkpoint); }, {"damaged", "model.safetensors"});
}

TEST(Weights, TiedHeadAndLongerPositionTable) {
  TemporaryFolder folder;
  Runner a(small_recipe("gpt2"), training());
  lively_weights(*a.executor, 1);
  auto w = tensors_to_save(*a.executor);
  std::vector<float> head;
  for (auto& t : w.weights)
    if (t.spec.name == "transformer.wte.weight")
      head.assign(static_cast<const float*>(t.data), static_cast<const float*>(t.data) + 97 * 48);
  ASSERT_FALSE(head.empty());
  w.weights.push_back({{"lm_head.weight", DType::f32, {97, 48}}, head.data()});
  write_safetensors(folder / "equal.safetensors", w.weights);
  Recipe shorter = small_recipe("gpt2");
  shorter.model.context = 20;
  Runner b(shorter, training());
  load_weights(*b.executor, WeightsFolder::open(folder / "equal.safetensors"));
  for (auto& p : parameters(*a.executor))
    for (auto& q : parameters(*b.executor)) {
      if (p.name != q.name) continue;
      auto expected = numbers(p.weight), found = numbers(q.weight);
      expected.resize(found.size());  // of the position table the first rows
      EXPECT_EQ(found, expected) << p.name;
    }
  head[7] += 1;
  write_safetensors(folder / "other.safetensors", w.weights);
  expect_error([&] { load_weights(*a.executor, WeightsFolder::open(folder / "other.safetensors")); },
               {"lm_head.weight differs", "tied = false"});
}

TEST(Weights, OnlyFloatsAreWeights) {
  TemporaryFolder folder;
  Runner a(small_recipe("gpt2"), training());
  auto w = tensors_to_save(*a.executor);
  w.weights[3].spec.dtype = DType::i32;
  write_safetensors(folder / "ints.safetensors", w.weights);
  expect_error([&] { load_weights(*a.executor, WeightsFolder::open(folder / "ints.safetensors")); },
               {w.weights[3].spec.name, "I32", "not a float"});
}

TEST(OpenModel, RunCheckpointsCheckpoint) {
  TemporaryFolder folder;
  Runner a(small_recipe("llama"), training());
  lively_weights(*a.executor, 1);
  std::string run = folder / "run";
  create_directories(run);
  std::string old = save(*a.executor, run + "/checkpoints", 5), newest = save(*a.executor, run + "/checkpoints", 12);
  std::vector<std::string> reports;
  auto report = [&](const std::string& m) { reports.push_back(m); };
  for (auto& path : {run, run + "/", run + "/checkpoints", newest}) {
    LoadedModel m = open_model(path, report);
    EXPECT_EQ(m.step, 12);
    EXPECT_EQ(m.config, a.session.recipe.model);
    ASSERT_TRUE(m.tokenizer);
    EXPECT_EQ(m.tokenizer->vocab_size(), 257u);
    Runner b(small_recipe("llama"), training());
    load_weights(*b.executor, m);
    expect_equal(*a.executor, *b.executor, false);
  }
  EXPECT_TRUE(reports.empty());

  flip_byte(newest + "/model.safetensors", 10);
  EXPECT_EQ(open_model(run, report).step, 5);
  ASSERT_EQ(reports.size(), 1u);
  EXPECT_NE(reports[0].find("step-000012"), std::string::npos) << reports[0];
  EXPECT_NE(reports[0].find("step-000005"), std::string::npos) << reports[0];
  expect_error([&] { open_model(newest); }, {"damaged", "model.safetensors"});
  std::filesystem::remove(old + "/manifest.json");
  expect_error([&] { open_model(run, report); }, {"no valid checkpoint"});
  expect_error([&] { open_model(old); }, {"manifest.json"});
}

TEST(OpenModel, FoldersWithoutACheckpoint) {
  TemporaryFolder folder;
  expect_error([&] { open_model(folder / "nothing"); }, {"no such run or model", "nothing"});
  expect_error([&] { open_model(""); }, {"no such run"});
  create_directories(folder / "empty");
  expect_error([&] { open_model(folder / "empty"); }, {"neither model.toml nor config.json"});
  write_text(folder / "adapter/adapter_config.json", "{}");
  expect_error([&] { open_model(folder / "adapter"); }, {"peft_type = null", "reads LORA"});
  write_text(folder / "adapter/adapter_config.json",
             R"({"peft_type": "LORA", "r": 2, "lora_alpha": 4, "bias": "all"})");
  expect_error([&] { open_model(folder / "adapter"); }, {"bias", "merge_and_unload"});
  write_text(folder / "adapter/adapter_config.json",
             R"({"peft_type": "LORA", "r": 2, "lora_alpha": 4, "base_model_name_or_path": "Qwen/Qwen2.5-0.5B"})");
  expect_error([&] { open_model(folder / "adapter"); }, {"Qwen/Qwen2.5-0.5B", "--base DIR"});
  create_directories(folder / "fresh/checkpoints");
  expect_error([&] { open_model(folder / "fresh"); }, {"no checkpoint yet"});
  write_text(folder / "started/config.toml", "model = 'nano'\n");
  expect_error([&] { open_model(folder / "started"); }, {"no checkpoint yet"});

  std::string fixture = CREST_TEST_DIR "/parity/fixtures/gpt2-tiny";
  for (auto& path : {fixture, fixture + "/model.safetensors"}) {
    LoadedModel m = open_model(path);
    EXPECT_EQ(m.config.vocab, 97);
    EXPECT_EQ(m.step, -1);
    EXPECT_FALSE(m.checkpoint);
    EXPECT_FALSE(m.tokenizer);
    EXPECT_TRUE(m.tokenizer_problem.empty());
  }
  // With a byte order mark, as editors on Windows write it.
  std::filesystem::copy(fixture, folder / "marked");
  const std::string config = read_file(fixture + "/config.json", 1 << 20);
  write_text(folder / "marked/config.json", "\xef\xbb\xbf" + config);
  EXPECT_EQ(open_model(folder / "marked").config.vocab, 97);
  write_text(folder / "marked/config.json", "version https://git-lfs.github.com/spec/v1\n");
  expect_error([&] { open_model(folder / "marked"); }, {"pointer of Git LFS"});
  // An unreadable tokenizer is not the end: token ids still work.
  std::filesystem::copy(fixture, folder / "copy");
  write_text(folder / "copy/tokenizer.json", "{\"model\": {\"type\": \"WordPiece\"}}");
  LoadedModel m = open_model(folder / "copy");
  EXPECT_FALSE(m.tokenizer);
  EXPECT_FALSE(m.tokenizer_problem.empty());
  EXPECT_EQ(m.text_problem, "");
  // Neither are files only for transformers.
  for (std::string damaged : {"{\"chat_template\": \"x\"", "[]", "\xff"})
    for (std::string name : {"tokenizer_config.json", "generation_config.json"}) {
      std::filesystem::remove(folder / "copy/tokenizer_config.json");
      write_text(folder / ("copy/" + name), damaged);
      m = open_model(folder / "copy");
      EXPECT_EQ(m.config.vocab, 97);
      EXPECT_NE(m.text_problem.find(name), std::string::npos) << m.text_problem;
    }
}

// The method is in config.json, or visible from tensors next to the matrices or in place of them.
TEST(OpenModel, QuantizedWeightsAreRefusedByTheirMethod) {
  using nlohmann::json;
  const std::string fixture = CREST_TEST_DIR "/parity/fixtures/gpt2-tiny";
  TemporaryFolder folder;
  std::filesystem::copy(fixture, folder / "model");
  const json plain = json::parse(read_file(fixture + "/config.json", 1 << 20));
  auto with = [&](const char* key, const char* value) {
    json config = plain;
    config[key] = json::parse(value);
    write_text(folder / "model/config.json", config.dump());
  };
  struct Case {
    const char *key, *value, *said;
  };
  for (auto& c : std::vector<Case>{
           {"quantization_config", R"({"quant_method": "gptq", "bits": 4})", "quantization_config: gptq, 4 bits"},
           {"quantization_config", R"({"quant_method": "awq", "bits": 4})", "awq, 4 bits"},
           {"quantization_config", R"({"quant_method": "bitsandbytes", "load_in_4bit": true})", "bitsandbytes, 4 bits"},
           {"quantization_config", R"({"load_in_8bit": true, "load_in_4bit": false})", "quantization_config, 8 bits"},
           {"quantization_config", R"({"quant_method": "fp8", "weight_block_size": [128, 128]})", "fp8"},
           {"quantization_config", R"({"bits": 4, "quant_method": 3})", "quantization_config, 4 bits"},
           {"quantization", R"({"group_size": 64, "bits": 4})", "quantization, 4 bits"},
           {"compression_config", R"({"quant_method": "compressed-tensors"})", "compressed-tensors"}}) {
    with(c.key, c.value);
    expect_error([&] { open_model(folder / "model"); }, {"config.json", "the weights are quantized", c.said});
    expect_error([&] { open_model(folder / "model/model.safetensors"); }, {c.said});
  }
  for (const char* none : {"null", "{}"}) {
    with("quantization_config", none);
    EXPECT_EQ(open_model(folder / "model").config.vocab, 97);
  }
  const float zero = 0;
  for (const char* name :
       {"model.layers.0.mlp.up_proj.qweight", "model.layers.0.mlp.up_proj.weight_scale_inv",
        "model.layers.0.mlp.up_proj.weight.absmax", "model.layers.0.mlp.up_proj.weight.quant_state.bitsandbytes__nf4",
        "model.layers.0.mlp.up_proj.SCB", "model.layers.0.mlp.up_proj.weight_packed"}) {
    write_safetensors(folder / "model/model.safetensors", {{{name, DType::f32, {1}}, &zero}});
    expect_error([&] { open_model(folder / "model"); }, {"the weights are quantized", name});
  }
}

TEST(OpenModel, WrappersInNamesAreLeftOutWithANote) {
  TemporaryFolder folder;
  Runner a(small_recipe("llama"), training());
  lively_weights(*a.executor, 1);
  auto w = tensors_to_save(*a.executor);
  write_text(folder / "model/config.json", to_huggingface_config(a.session.recipe.model));
  for (std::string wrapper : {"", "_orig_mod.", "module.", "module._orig_mod."}) {
    auto wrapped = w.weights;
    for (auto& t : wrapped) t.spec.name.insert(0, wrapper);
    write_safetensors(folder / "model/model.safetensors", wrapped);
    std::vector<std::string> reports;
    LoadedModel m = open_model(folder / "model", [&](const std::string& text) { reports.push_back(text); });
    Runner b(small_recipe("llama"), training());
    load_weights(*b.executor, m);
    expect_equal(*a.executor, *b.executor, false);
    ASSERT_EQ(reports.size(), wrapper.empty() ? 0u : 1u);
    if (!wrapper.empty()) {
      EXPECT_NE(reports[0].find(wrapper + "lm_head.weight is read as lm_head.weight"), std::string::npos) << reports[0];
    }
  }
}

TEST(OpenModel, SmallFilesOfACheckpoint) {
  Tokenizer tokenizer = Tokenizer::bytes();
  auto names = [](const std::map<std::string, std::string>& files) {
    std::vector<std::string> out;
    for (auto& [name, bytes] : files) out.push_back(name);
    return out;
  };
  using Names = std::vector<std::string>;
  EXPECT_EQ(names(model_files(small_model("gpt2"), &tokenizer)),
            (Names{"config.json", "generation_config.json", "model.toml", "tokenizer.json", "tokenizer_config.json"}));
  ModelConfig of_no_class = small_model("mixed");
  of_no_class.activation = ActivationKind::relu2;
  EXPECT_EQ(names(model_files(of_no_class, &tokenizer)),
            (Names{"generation_config.json", "model.toml", "tokenizer.json", "tokenizer_config.json"}));
  EXPECT_EQ(names(model_files(small_model("llama"), nullptr)), (Names{"config.json", "model.toml"}));
  EXPECT_EQ(names(model_files(of_no_class, nullptr)), (Names{"model.toml"}));
}

TEST(OpenModel, AnUnknownParameterIsAnInternalError) {
  LoadedModel model = open_model(CREST_TEST_DIR "/parity/fixtures/gpt2-tiny");
  WeightsFolder folder = WeightsFolder::open(model.weights_path);
  std::vector<float> values;
  expect_error([&] { ParameterReader(model.config, folder).read("none", values); }, {"no parameter none"});
}

// Fine-tuning keeps a model's text settings, except the data's own.
TEST(OpenModel, AModelsOwnTextSettingsAreKept) {
  TemporaryFolder folder;
  std::filesystem::copy(CREST_TEST_DIR "/parity/fixtures/gpt2-tiny", folder / "model");
  write_text(folder / "model/generation_config.json",
             R"({"eos_token_id": [9, 256, 8, 9, 4000000], "temperature": 0.6, "bos_token_id": 3})");
  write_text(folder / "model/tokenizer_config.json",
             R"({"pad_token": "<|pad|>", "eos_token": {"content": "<|im_end|>"}, "tokenizer_class": "GPT2Tokenizer",
                 "auto_map": {"AutoTokenizer": ["x.py", null]}, "bos_token": null,
                 "chat_template": [{"name": "tool_use", "template": "T"}, {"name": "default", "template": "D"}]})");
  LoadedModel model = open_model(folder / "model");
  EXPECT_EQ(model.text_problem, "");
  EXPECT_EQ(model.text.chat_template, "D");
  Tokenizer tokenizer = Tokenizer::bytes();
  std::map<std::string, std::string> files;
  auto read = [&](const char* name) { return nlohmann::json::parse(files.at(name)); };
  files = model_files(small_model("gpt2"), {&tokenizer, "", model.text});
  EXPECT_EQ(read("generation_config.json"),
            nlohmann::json({{"bos_token_id", 3}, {"eos_token_id", {256, 9, 8}}, {"temperature", 0.6}}));
  EXPECT_EQ(read("config.json")["eos_token_id"], nlohmann::json({256, 9, 8}));
  auto names = read("tokenizer_config.json");
  EXPECT_EQ(names["pad_token"], "<|pad|>");
  EXPECT_EQ(names["tokenizer_class"], "PreTrainedTokenizerFast");
  EXPECT_EQ(names["eos_token"]["content"], "<|im_end|>") << "as the model's own template has it";
  EXPECT_EQ(names["chat_template"].size(), 2u);
  EXPECT_FALSE(names.contains("auto_map"));
  // Written files are read again.
  std::filesystem::create_directories(folder / "again");
  for (auto& [name, text] : files) write_text(folder / ("again/" + name), text);
  std::filesystem::copy(folder / "model/model.safetensors", folder / "again/model.safetensors");
  LoadedModel again = open_model(folder / "again");
  EXPECT_EQ(model_files(small_model("gpt2"), {&tokenizer, "", again.text}), files);
  // Conversations in the data have another template and another end of an answer.
  ModelText text(&tokenizer, "{{ messages }}", model.text);
  text.turn_end = 7;
  files = model_files(small_model("gpt2"), text);
  EXPECT_EQ(read("generation_config.json")["eos_token_id"], nlohmann::json({256, 9, 8, 7}));
  EXPECT_EQ(read("tokenizer_config.json")["chat_template"], "{{ messages }}");
  EXPECT_EQ(read("tokenizer_config.json")["eos_token"], "<|endoftext|>");
  EXPECT_EQ(read("tokenizer_config.json")["pad_token"], "<|pad|>");
  // Without generation_config.json, config.json names the ends.
  std::filesystem::remove(folder / "model/generation_config.json");
  auto config = nlohmann::json::parse(read_file((folder / "model/config.json"), 1 << 20));
  config["eos_token_id"] = 5;
  write_text(folder / "model/config.json", config.dump());
  EXPECT_EQ(open_model(folder / "model").text.ends, std::vector<uint32_t>{5});
}

// The end tokens of generate(), and the tokenizer class for an unchanged tokenizer.json.
TEST(OpenModel, FilesThatNameTheEndOfATextAndTheChatTemplate) {
  Tokenizer tokenizer = Tokenizer::bytes();
  auto files = model_files(small_model("gpt2"), {&tokenizer, "{{ messages }}"});
  auto read = [&](const char* name) { return nlohmann::json::parse(files.at(name)); };
  for (const char* name : {"config.json", "generation_config.json"}) {
    EXPECT_EQ(read(name)["eos_token_id"], 256) << name;
    EXPECT_EQ(read(name)["bos_token_id"], 256) << name;
  }
  auto names = read("tokenizer_config.json");
  EXPECT_EQ(names["tokenizer_class"], "PreTrainedTokenizerFast");
  EXPECT_EQ(names["eos_token"], "<|endoftext|>");
  EXPECT_EQ(names["chat_template"], "{{ messages }}");
  EXPECT_EQ(nlohmann::json::parse(model_files(small_model("gpt2"), nullptr).at("config.json"))["eos_token_id"],
            nullptr);
  // Llama 3's tokens for both ends.
  auto json = nlohmann::json::parse(tokenizer.to_json());
  json["added_tokens"][0]["content"] = "<|end_of_text|>";
  json["model"]["vocab"].erase("<|endoftext|>");
  auto begin = json["added_tokens"][0];
  begin["content"] = "<|begin_of_text|>", begin["id"] = 257;
  json["added_tokens"].push_back(begin);
  Tokenizer llama = Tokenizer::parse(json.dump(), "tokenizer.json");
  files = model_files(small_model("llama"), &llama);
  EXPECT_EQ(read("generation_config.json"), nlohmann::json({{"bos_token_id", 257}, {"eos_token_id", 256}}));
  EXPECT_EQ(read("tokenizer_config.json")["bos_token"], "<|begin_of_text|>");
  EXPECT_FALSE(read("tokenizer_config.json").contains("chat_template"));
}

// Both kinds of 8-bit moments have the same shapes and types. Their names differ.
TEST(Weights, CodesOfOneKindAreNotReadAsTheOther) {
  TemporaryFolder folder;
  Recipe floats_8bit = small_recipe("gpt2"), fp8 = floats_8bit;
  floats_8bit.optimizer = "adamw-8bit", fp8.optimizer = "adamw-fp8";
  Runner a(floats_8bit, training()), b(fp8, training());
  Checkpoint checkpoint = Checkpoint::open(save(*a.executor, folder / "checkpoints"));
  try {
    load_optimizer(*b.executor, checkpoint);
    ADD_FAILURE() << "read";
  } catch (const Error& e) {
    EXPECT_NE(e.problem().find("m_e4m3"), std::string::npos) << e.problem();
  }
}
