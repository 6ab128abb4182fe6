// crest train --init: text and data have the tokens of the model.
#include <memory>

#include "checkpoint/checkpoint.h"
#include "cli/train_harness.h"

using namespace crest::test;

namespace {

// One folder for all tests. Each writes different names.
class InitTokenizer : public testing::Test {
 protected:
  static void SetUpTestSuite() {
    folder_ = std::make_unique<TrainFolder>();
    TrainFolder& f = *folder_;
    // Two tokenizers of the same size, and a model of the first.
    f.write("other.txt", "zebra quartz fjord vex " + sample_text(300) + std::string(400, 'z'));
    prepare("text.txt", "bpe:280", "mine");
    prepare("other.txt", "bpe:280", "theirs");
    RunResult r = run_crest({"train", "--data", "mine", "--model", "tiny.toml", "--out", "base", "--steps", "30",
                             "--lr", "5e-3", "--batch", "2", "--threads", "1", "--quiet", "--sample-every", "0"},
                            f.options());
    ASSERT_EQ(r.code, 0) << r.err;
  }
  static void TearDownTestSuite() { folder_.reset(); }
  static void prepare(const std::string& text, const std::string& tokenizer, const std::string& out) {
    RunResult r = run_crest({"data", "prepare", text, "--tokenizer", tokenizer, "--out", out}, folder_->options());
    ASSERT_EQ(r.code, 0) << r.err;
  }
  static std::vector<std::string> init(std::vector<std::string> words) {
    for (const char* w : {"--init", "base", "--steps", "1", "--batch", "2", "--threads", "1", "--sample-every", "0"})
      words.push_back(w);
    words.insert(words.begin(), "train");
    return words;
  }
  double first_validation(const std::string& run) {
    for (auto& row : f.log(run))
      if (row.contains("val_loss")) return row["val_loss"];
    return -1;
  }
  std::string tokenizer(const std::string& run, int step) {
    return f.read(run + "/checkpoints/" + crest::checkpoint_name(step) + "/tokenizer.json");
  }
  static std::unique_ptr<TrainFolder> folder_;
  TrainFolder& f = *folder_;
};
std::unique_ptr<TrainFolder> InitTokenizer::folder_;

}  // namespace

TEST_F(InitTokenizer, TextGetsTheModelsTokenizer) {
  RunResult r = run_crest(init({"text.txt", "--out", "tuned"}), f.options());
  ASSERT_EQ(r.code, 0) << r.err;
  EXPECT_EQ(tokenizer("tuned", 1), tokenizer("base", 30));
  EXPECT_LT(first_validation("tuned"), first_validation("base") - 1) << "the model starts from what it knows";
  ASSERT_EQ(run_crest(init({"text.txt", "--out", "named", "--tokenizer", "mine"}), f.options()).code, 0);
  EXPECT_EQ(first_validation("named"), first_validation("tuned"));
}

// The run's config.toml has the flag, and the run goes on with it.
TEST_F(InitTokenizer, DocumentsOfATextBeginAsAskedFor) {
  auto json = nlohmann::json::parse(f.read("mine/tokenizer.json"));
  json["added_tokens"].push_back({{"id", 280}, {"content", "<s>"}, {"special", true}, {"normalized", false}});
  f.write("begun/tokenizer.json", json.dump());
  const std::vector<std::string> train = {"train",     "text.txt", "--tokenizer", "begun",   "--add-bos", "--model",
                                          "tiny.toml", "--out",    "begins",      "--steps", "1",         "--batch",
                                          "2"};
  RunResult r = run_crest(train, f.options());
  ASSERT_EQ(r.code, 0) << r.err;
  EXPECT_NE(r.err.find("<s> begins every document"), std::string::npos) << r.err;
  EXPECT_NE(f.read("begins/config.toml").find("add_bos = \"true\""), std::string::npos);
  r = run_crest({"train", "--resume", "begins", "--steps", "2"}, f.options());
  EXPECT_EQ(r.code, 0) << r.err;
  EXPECT_NE(f.read("begins/config.toml").find("add_bos = \"true\""), std::string::npos);
  expect_error(init({"--data", "mine", "--add-bos", "--out", "x"}), 2, {"--add-bos", "the data has its own"},
               f.options());
}

TEST_F(InitTokenizer, AnotherTokenizerIsOneClearError) {
  expect_error(init({"text.txt", "--out", "x", "--tokenizer", "bpe:280"}), 2,
               {"--tokenizer", "would be trained on the text", "Leave it out"}, f.options());
  expect_error(init({"text.txt", "--out", "x", "--tokenizer", "bytes"}), 2,
               {"'bytes' is not the tokenizer of the model", "257 tokens in this one, 280 tokens in the model"},
               f.options());
  expect_error(init({"text.txt", "--out", "x", "--tokenizer", "theirs/tokenizer.json"}), 2,
               {"theirs/tokenizer.json", "in this one", "in the model"}, f.options());
  expect_error(init({"--data", "theirs", "--out", "x"}), 1,
               {"not prepared with the model's tokenizer", "in the data", "in the model", "--tokenizer base/"},
               f.options());
  expect_error({"eval", "--run", "base", "--data", "theirs"}, 1, {"not prepared with the model's tokenizer"},
               f.options());
  expect_error({"train", "--resume", "base", "--steps", "31", "--data", "theirs"}, 1,
               {"not prepared with the model's tokenizer"}, f.options());
  EXPECT_FALSE(std::filesystem::exists(f.path() / "x"));
}

// As in transformers: the text of the files differs, the tokens are the same.
TEST_F(InitTokenizer, AnEqualTokenizerThatIsWrittenDifferentlyIsTheSame) {
  auto json = nlohmann::ordered_json::parse(f.read("mine/tokenizer.json"));
  for (auto& m : json["model"]["merges"]) {
    std::string text = m;
    m = {text.substr(0, text.find(' ')), text.substr(text.find(' ') + 1)};
  }
  f.write("again.json", json.dump());
  prepare("text.txt", "again.json", "again");
  f.write("again/tokenizer.json", json.dump());
  for (std::vector<std::string> words : {init({"--data", "again", "--out", "from-data"}),
                                         init({"text.txt", "--tokenizer", "again.json", "--out", "from-text"}),
                                         std::vector<std::string>{"eval", "--run", "base", "--data", "again"}}) {
    RunResult r = run_crest(words, f.options());
    EXPECT_EQ(r.code, 0) << r.err;
  }
}

// Shards of llm.c name no tokenizer, so the model's tokenizer goes into the checkpoints.
TEST_F(InitTokenizer, DataWithoutATokenizerKeepsTheModels) {
  std::filesystem::create_directories(f.path() / "shards");
  for (const char* name : {"train-000000.bin", "val-000000.bin"})
    std::filesystem::copy(f.path() / "mine" / name, f.path() / "shards" / name);
  ASSERT_EQ(run_crest(init({"--data", "shards", "--out", "bare"}), f.options()).code, 0);
  EXPECT_EQ(tokenizer("bare", 1), tokenizer("base", 30));
  RunResult r = run_crest({"train", "--resume", "bare", "--steps", "2"}, f.options());
  ASSERT_EQ(r.code, 0) << r.err;
  EXPECT_EQ(tokenizer("bare", 2), tokenizer("base", 30));
}

TEST_F(InitTokenizer, AModelWithoutATokenizerNeedsOne) {
  auto folder = f.path() / "base/checkpoints/step-000030";
  std::filesystem::create_directories(f.path() / "no-tokenizer");
  for (const char* name : {"model.safetensors", "config.json"})
    std::filesystem::copy(folder / name, f.path() / "no-tokenizer" / name);
  std::vector<std::string> words = {"train", "text.txt", "--init", "no-tokenizer", "--out",
                                    "given", "--steps",  "1",      "--threads",    "1"};
  expect_error(words, 1, {"no tokenizer.json", "--tokenizer FILE"}, f.options());
  words.insert(words.end(), {"--tokenizer", "bpe:280"});
  expect_error(words, 2, {"would be trained on the text"}, f.options());
  words.back() = "mine/tokenizer.json";
  RunResult r = run_crest(words, f.options());
  EXPECT_EQ(r.code, 0) << r.err;
}

// The file decides the tokens of a text, so Crest refuses text. Token shards need no tokenizer.
TEST_F(InitTokenizer, ADamagedFileNextToTheTokenizerIsAProblemOfTextsOnly) {
  std::filesystem::copy(f.path() / "base/checkpoints/step-000030", f.path() / "damaged");
  std::filesystem::remove(f.path() / "damaged/manifest.json");
  f.write("damaged/tokenizer_config.json", "{");
  std::vector<std::string> words = init({"text.txt", "--out", "x"});
  std::replace(words.begin(), words.end(), std::string("base"), std::string("damaged"));
  expect_error(words, 1, {"damaged/tokenizer_config.json (line 1", "Correct the file, or give", "--tokenizer FILE"},
               f.options());
  words[1] = "--data=mine", words[3] = "y";
  RunResult r = run_crest(words, f.options());
  EXPECT_EQ(r.code, 0) << r.err;
  EXPECT_NE(r.err.find("cannot be compared with the data's: damaged/tokenizer_config.json"), std::string::npos)
      << r.err;
}

// As after tokenizer.add_tokens without resize_token_embeddings.
TEST_F(InitTokenizer, ATokenizerLargerThanTheModelIsNamed) {
  auto base = f.path() / "base/checkpoints/step-000030";
  for (const char* out : {"larger", "unnamed"}) {
    std::filesystem::create_directories(f.path() / out);
    for (const char* name : {"model.safetensors", "config.json"})
      std::filesystem::copy(base / name, f.path() / out / name);
  }
  auto json = nlohmann::json::parse(f.read("base/checkpoints/step-000030/tokenizer.json"));
  auto added = json["added_tokens"][0];
  added["id"] = 280, added["content"] = "<pad>";
  json["added_tokens"].push_back(added);
  f.write("larger/tokenizer.json", json.dump());
  prepare("text.txt", "larger", "larger-data");
  const std::vector<std::string> said = {"larger/tokenizer.json: the tokenizer has 281 tokens, but the model has 280",
                                         "resize_token_embeddings(281)"};
  expect_error({"train", "text.txt", "--init", "larger", "--out", "x"}, 1, said, f.options());
  expect_error({"train", "text.txt", "--init", "unnamed", "--tokenizer", "larger/tokenizer.json", "--out", "x"}, 1,
               said, f.options());
  expect_error({"eval", "--run", "larger", "--data", "larger-data"}, 1, said, f.options());
  EXPECT_FALSE(std::filesystem::exists(f.path() / "x"));
}

// The template of the data goes into the
// checkpoints, and from a model into its successors.
TEST_F(InitTokenizer, TheChatTemplateGoesWithTheModel) {
  f.write("chat.jsonl",
          "{\"messages\": [{\"role\": \"user\", \"content\": \"the king\"}, {\"role\": \"assistant\", "
          "\"content\": \"said the king of the house of his day\"}]}\n");
  std::string lines = f.read("chat.jsonl");
  f.write("chat.jsonl", lines + lines + lines + lines);
  RunResult r = run_crest({"data", "prepare", "chat.jsonl", "--tokenizer", "mine/tokenizer.json", "--chat-template",
                           "chatml", "--out", "chat", "--val-fraction", "0"},
                          f.options());
  ASSERT_EQ(r.code, 0) << r.err;
  auto chat_template = [&](const std::string& run, int step) {
    auto json =
        nlohmann::json::parse(f.read(run + "/checkpoints/" + crest::checkpoint_name(step) + "/tokenizer_config.json"));
    return json.value("chat_template", "");
  };
  EXPECT_EQ(chat_template("base", 30), "");
  ASSERT_EQ(run_crest(init({"--data", "chat", "--out", "chatty"}), f.options()).code, 0);
  std::string jinja = chat_template("chatty", 1);
  EXPECT_NE(jinja.find("<|im_start|>"), std::string::npos) << jinja;
  r = run_crest({"train", "--init", "chatty", "--data", "mine", "--out", "later", "--steps", "1", "--batch", "2",
                 "--threads", "1", "--sample-every", "0"},
                f.options());
  ASSERT_EQ(r.code, 0) << r.err;
  EXPECT_EQ(chat_template("later", 1), jinja);
  ASSERT_EQ(run_crest({"train", "--resume", "later", "--steps", "2"}, f.options()).code, 0);
  EXPECT_EQ(chat_template("later", 2), jinja);
}

// The model's other text settings go with it, too. The data's template adds the end token of its
// answers.
TEST_F(InitTokenizer, TheTextSettingsGoWithTheModel) {
  auto from = f.path() / "base/checkpoints/step-000030";
  std::filesystem::create_directories(f.path() / "settings");
  for (const char* name : {"model.safetensors", "config.json", "tokenizer.json"})
    std::filesystem::copy(from / name, f.path() / "settings" / name);
  // The last two tokens become ChatML's.
  auto json = nlohmann::ordered_json::parse(f.read("settings/tokenizer.json"));
  uint32_t end = json["added_tokens"][0]["id"];
  auto& vocab = json["model"]["vocab"];
  auto& merges = json["model"]["merges"];
  std::vector<std::string> freed;
  for (auto& [token, id] : vocab.items())
    if (id == end - 1 || id == end - 2) freed.push_back(token);
  for (auto& token : freed) vocab.erase(token);
  merges.erase(merges.size() - 1), merges.erase(merges.size() - 1);
  for (uint32_t id : {end - 2, end - 1}) {
    auto added = json["added_tokens"][0];
    added["id"] = id, added["content"] = id == end - 1 ? "<|im_end|>" : "<|im_start|>";
    json["added_tokens"].push_back(added);
  }
  f.write("settings/tokenizer.json", json.dump());
  f.write("settings/tokenizer_config.json", R"({"pad_token": "<|im_start|>", "eos_token": "<|im_end|>"})");
  f.write("settings/generation_config.json", R"({"eos_token_id": [7], "top_p": 0.5})");
  nlohmann::json line = {
      {"messages",
       {{{"role", "user"}, {"content", "the king"}}, {{"role", "assistant"}, {"content", sample_text(100)}}}}};
  std::string text = line.dump() + "\n";
  f.write("settings.jsonl", text + text + text + text);
  auto train = [&](std::vector<std::string> words) {
    RunResult r = run_crest(words, f.options());
    EXPECT_EQ(r.code, 0) << r.err;
    return r.err;
  };
  auto read = [&](const std::string& run, int step, const char* name) {
    return nlohmann::json::parse(f.read(run + "/checkpoints/" + crest::checkpoint_name(step) + "/" + name));
  };
  auto start = [&](const char* data, const char* out) {
    return std::vector<std::string>{"train",   data, "--init",    "settings", "--out",          out, "--steps", "1",
                                    "--batch", "2",  "--threads", "1",        "--sample-every", "0"};
  };
  train(start("text.txt", "kept"));
  EXPECT_EQ(read("kept", 1, "generation_config.json"),
            nlohmann::json({{"bos_token_id", end - 1}, {"eos_token_id", {end - 1, 7}}, {"top_p", 0.5}}))
      << "tokenizer_config.json names the token that ends documents";
  EXPECT_EQ(read("kept", 1, "tokenizer_config.json")["pad_token"], "<|im_start|>");
  EXPECT_EQ(read("kept", 1, "tokenizer_config.json")["eos_token"], "<|im_end|>");
  train({"train", "--resume", "kept", "--steps", "2"});
  EXPECT_EQ(read("kept", 2, "tokenizer_config.json"), read("kept", 1, "tokenizer_config.json"));
  EXPECT_EQ(read("kept", 2, "generation_config.json"), read("kept", 1, "generation_config.json"));
  std::vector<std::string> words = start("settings.jsonl", "told");
  train(words);
  EXPECT_EQ(read("told", 1, "generation_config.json")["eos_token_id"], nlohmann::json({end - 1, 7}));
  EXPECT_EQ(read("told", 1, "tokenizer_config.json")["eos_token"], "<|im_end|>") << "of the data's template";
}
