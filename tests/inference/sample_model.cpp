#include "inference/sample_model.h"

#include <algorithm>
#include <cctype>
#include <filesystem>
#include <nlohmann/json.hpp>

#include "core/io.h"
#include "data/tokenizer.h"
#include "inference/saved_model.h"

using namespace crest;
using namespace crest::test;

namespace {

// A model with a context of 33 tokens.
class SampleModel : public ::testing::Test {
 protected:
  static void SetUpTestSuite() {
    shared_ = new TemporaryFolder;
    make_checkpoint(*shared_ / "run", 100, byte_recipe());
    make_checkpoint(*shared_ / "ids", 3, byte_recipe("llama"), false);
  }
  static void TearDownTestSuite() { delete shared_; }
  static SampleOptions options(const std::string& prompt = "a", int64_t max_tokens = 30) {
    SampleOptions o;
    o.prompt = prompt, o.max_tokens = max_tokens, o.ignore_end = true;
    o.precision = "fp32", o.device = test::test_device(2), o.memory_limit = int64_t(1) << 30;
    return o;
  }
  struct Texts {
    size_t given = 0, kept = 0;
    std::vector<SampledText> samples;
    std::vector<std::string> shown;
  };
  static Texts sample(const SampleOptions& o, const std::string& model = "run") {
    LoadedModel loaded = open_model(*shared_ / model);
    ModelSampler sampler(o, loaded);
    Texts t{sampler.prompt_given(), sampler.prompt_tokens(), {}, {}};
    for (int64_t i = 0; i < o.samples; ++i) {
      t.shown.emplace_back();
      t.samples.push_back(sampler.sample(0, i, [&](std::string_view piece) { t.shown.back() += piece; }));
    }
    return t;
  }
  // A letter or digit of the text after its third byte.
  static std::string some_letter(const std::string& text) {
    for (size_t i = 3; i < text.size(); ++i)
      if (std::isalnum(static_cast<unsigned char>(text[i]))) return text.substr(i, 1);
    ADD_FAILURE() << "no letter in " << text;
    return "?";
  }
  static inline TemporaryFolder* shared_ = nullptr;
};

}  // namespace

TEST_F(SampleModel, Fp8IsBf16) {
  SampleOptions o = options();
  o.precision = "fp8";
  LoadedModel model = open_model(*shared_ / "run");
  EXPECT_EQ(ModelSampler(o, model).recipe().precision, "bf16");
}

TEST_F(SampleModel, Int8Weights) {
  for (const char* model : {"run", "ids"}) {
    SampleOptions o = options("", 20);
    o.tokens = {1, 2, 3, 4, 5}, o.weights = "int8";
    Texts first = sample(o, model), again = sample(o, model);
    EXPECT_EQ(first.samples[0].generated.tokens.size(), 20u);
    EXPECT_EQ(first.shown, again.shown);
    LoadedModel loaded = open_model(*shared_ / model);
    EXPECT_EQ(ModelSampler(o, loaded).to_json(first.samples)["weights"], "int8");
  }
}

TEST_F(SampleModel, SeedAndNumberDecide) {
  SampleOptions o = options("Hello", 20);
  o.samples = 2, o.sampler.top_k = 0;
  Texts texts = sample(o), again = sample(o);
  EXPECT_EQ(texts.given, 5u);
  for (size_t i = 0; i < 2; ++i) {
    EXPECT_EQ(texts.samples[i].text, again.samples[i].text);
    EXPECT_EQ(texts.samples[i].text, texts.shown[i]);
    EXPECT_EQ(texts.samples[i].tokens, 20);
    EXPECT_EQ(texts.samples[i].generated.end, GenerateEnd::length);
  }
  EXPECT_NE(texts.samples[0].text, texts.samples[1].text);
  o.sampler.seed = 5;
  EXPECT_NE(sample(o).samples[0].text, texts.samples[0].text);
}

TEST_F(SampleModel, MoreTokensContinueTheSameTextEvenWhereTheContextIsFull) {
  SampleOptions o = options("Hello", 20);
  std::vector<int32_t> shorter = sample(o).samples[0].generated.tokens;
  o.max_tokens = 70;
  SampledText longer = sample(o).samples[0];
  EXPECT_GT(longer.slides, 0);
  longer.generated.tokens.resize(20);
  EXPECT_EQ(longer.generated.tokens, shorter);
}

TEST_F(SampleModel, PromptsThatAreEmptyOrLongerThanTheContext) {
  EXPECT_EQ(sample(options("", 3)).kept, 1u);
  Texts longer = sample(options(std::string(100, 'x'), 40));
  EXPECT_EQ(longer.given, 100u);
  EXPECT_EQ(longer.kept, 33u);
  EXPECT_EQ(longer.samples[0].tokens, 40);
}

TEST_F(SampleModel, StopsBeforeAText) {
  SampleOptions o = options();
  o.sampler.temperature = 0;
  std::string text = sample(o).samples[0].text, stop = some_letter(text);
  o.stops = {"nothere", stop};
  Texts cut = sample(o);
  EXPECT_EQ(cut.samples[0].generated.end, GenerateEnd::stopped);
  EXPECT_EQ(cut.samples[0].text, text.substr(0, text.find(stop)));
  EXPECT_EQ(cut.shown[0], cut.samples[0].text);
  o.stops = {"[" + stop + "," + stop + "]"};  // one text, not a list
  EXPECT_EQ(sample(o).samples[0].text, text);
}

namespace {

// A folder as transformers has it, with a model of 260 tokens.
class ForeignModel : public SampleModel {
 protected:
  void SetUp() override {
    Recipe recipe = byte_recipe();
    recipe.model.vocab = 260;
    const std::string saved = make_checkpoint(folder_ / "run", 1, recipe);
    std::filesystem::create_directory(folder_ / "model");
    for (const char* name : {"config.json", "model.safetensors"})
      std::filesystem::copy_file(saved + "/" + name, model(name));
    nlohmann::json tokenizer = nlohmann::json::parse(Tokenizer::bytes().to_json());
    for (auto [text, id] : {std::pair("<bos>", 257), std::pair("<|im_end|>", 258)})
      tokenizer["added_tokens"].push_back({{"id", id}, {"content", text}, {"special", true}, {"normalized", false}});
    write("tokenizer.json", tokenizer);
  }
  std::string model(const std::string& name) const { return (folder_ / "model") + "/" + name; }
  void write(const std::string& name, const nlohmann::json& json) const { write_text(model(name), json.dump()); }
  void state(const char* key, const nlohmann::json& value) const {  // in config.json
    auto config = nlohmann::json::parse(read_file(model("config.json"), 1 << 20));
    config[key] = value;
    write("config.json", config);
  }
  Generated generated(bool ignore_end = false) const {
    SampleOptions o = options("a", 60);
    o.ignore_end = ignore_end, o.sampler.top_k = 0;
    LoadedModel loaded = open_model(folder_ / "model");
    return ModelSampler(o, loaded).sample(0, 0, [](std::string_view) {}).generated;
  }
  TemporaryFolder folder_;
};

}  // namespace

// As generate() of transformers: generation_config.json, or config.json without it.
TEST_F(ForeignModel, EndsAtTheTokensThatItsFilesName) {
  const std::vector<int32_t> all = generated(true).tokens;
  ASSERT_EQ(all.size(), 60u);
  auto expect_end = [&](std::vector<int32_t> ids) {
    auto end = std::ranges::find_first_of(all, ids);
    Generated g = generated();
    EXPECT_EQ(g.tokens, std::vector<int32_t>(all.begin(), end));
    EXPECT_EQ(g.end, end == all.end() ? GenerateEnd::length : GenerateEnd::end_token);
  };
  state("eos_token_id", all[20]);  // an ordinary token
  expect_end({all[20]});
  state("eos_token_id", {all[40], all[30], 258});
  expect_end({all[30], all[40], 258});
  write("generation_config.json", {{"eos_token_id", {258, all[35]}}, {"bos_token_id", 257}});
  expect_end({258, all[35]});
  write("generation_config.json", {{"eos_token_id", all[10]}});
  expect_end({all[10]});
  // Neither names one: the tokenizer's end of text.
  write("generation_config.json", {{"eos_token_id", nullptr}});
  expect_end({256});
}

TEST_F(ForeignModel, SaysWhetherATokenBeginsTheText) {
  auto sampler_of = [&](SampleOptions o) {
    LoadedModel loaded = open_model(folder_ / "model");
    ModelSampler sampler(o, loaded);
    return std::pair(sampler.prompt_tokens(), sampler.begin_note());
  };
  SampleOptions plain = options("ab"), add = plain, empty = options(""), spelled = options("<bos>ab");
  add.add_bos = spelled.add_bos = true;
  using Said = std::pair<size_t, std::string>;
  // config.json names tokens the tokenizer does not.
  state("bos_token_id", 256);
  EXPECT_EQ(sampler_of(plain), Said(2, ""));
  EXPECT_EQ(sampler_of(add), Said(3, "<|endoftext|> before the prompt"));
  write("tokenizer_config.json", {{"bos_token", "<bos>"}});
  EXPECT_EQ(sampler_of(plain), Said(2, "no <bos> before the prompt (--add-bos puts it there)"));
  EXPECT_EQ(sampler_of(add), Said(3, "<bos> before the prompt"));
  EXPECT_EQ(sampler_of(empty), Said(1, "<bos> begins the text"));
  EXPECT_EQ(sampler_of(spelled).first, 3u) << "once";
  LoadedModel loaded = open_model(folder_ / "model");
  EXPECT_EQ(text_ends(loaded).begin, 257u);
  add.tokens = {1};
  add.run = folder_ / "model";
  expect_error([&] { validate(add); }, {"--add-bos works on text"}, Exit::usage);
}

// crest sample --run and crest data prepare --tokenizer read the same files.
TEST_F(ForeignModel, ItsTokenizerIsTheOneThatPreparationFinds) {
  std::filesystem::remove(model("tokenizer.json"));
  auto json = nlohmann::json::parse(Tokenizer::bytes().to_json());
  write("vocab.json", json["model"]["vocab"]);
  write_text(model("merges.txt"), "");
  write("added_tokens.json", {{"<|im_end|>", 257}});
  LoadedModel loaded = open_model(folder_ / "model");
  ASSERT_TRUE(loaded.tokenizer) << loaded.tokenizer_problem;
  EXPECT_EQ(loaded.tokenizer_path, model("vocab.json"));
  EXPECT_EQ(loaded.tokenizer->encode("a<|im_end|>"), (std::vector<uint32_t>{'a', 257}));
  EXPECT_EQ(loaded.tokenizer->difference(Tokenizer::load(folder_ / "model"), "one", "other"), "");
  std::filesystem::rename(model("vocab.json"), model("encoder.json"));
  EXPECT_NE(open_model(folder_ / "model").tokenizer_problem.find("vocab.bpe is missing"), std::string::npos);
}

TEST_F(SampleModel, TokenIdsInTokenIdsOut) {
  SampleOptions o = options("", 4);
  o.tokens = {1, 2, 3};
  o.sampler.temperature = 0;
  Texts ids = sample(o, "ids");
  EXPECT_EQ(ids.given, 3u);
  std::string expected;
  for (int32_t id : ids.samples[0].generated.tokens) {
    EXPECT_TRUE(id >= 0 && id < 257) << id;
    expected += (expected.empty() ? "" : ",") + std::to_string(id);
  }
  EXPECT_EQ(ids.shown[0], expected);
  for (int64_t bad : {int64_t(-1), int64_t(257), INT64_MAX}) {
    o.tokens = {1, bad};
    expect_error([&] { sample(o, "ids"); }, {"--prompt-tokens", std::to_string(bad)}, Exit::usage);
  }
  expect_error([&] { sample(options("hello"), "ids"); },
               {"the checkpoint has no tokenizer", "Give token ids: --prompt-tokens"});
}

TEST_F(SampleModel, AModelThatDoesNotFit) {
  SampleOptions o = options();
  o.memory_limit = 1024;
  expect_error([&] { sample(o); }, {"only 1.00 KiB"}, Exit::does_not_fit);
}

TEST_F(SampleModel, RefusesOptions) {
  auto refuses = [](auto change, const std::string& part) {
    SampleOptions o;
    o.run = "run";
    change(o);
    expect_error([&] { validate(o); }, {part}, Exit::usage);
  };
  refuses([](auto& o) { o.run = ""; }, "--run");
  refuses([](auto& o) { o.max_tokens = 0; }, "--max-tokens");
  refuses([](auto& o) { o.samples = 0; }, "--num-samples");
  refuses([](auto& o) { o.sampler.temperature = std::nan(""); }, "--temperature");
  refuses([](auto& o) { o.tokens = std::vector<int64_t>{1}, o.stops = {"x"}; }, "--stop");
}
