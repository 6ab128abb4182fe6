#include <nlohmann/json.hpp>

#include "cli/trained_run.h"
#include "data/prepare.h"
#include "data/shards.h"

using namespace crest;
using namespace crest::testing;
using Json = nlohmann::json;

namespace {

class EvalCommand : public ::testing::Test {
 protected:
  static void SetUpTestSuite() {
    shared_ = new TemporaryFolder;
    make_checkpoint(*shared_ / "run", 100, byte_recipe());
    std::string text;
    for (int i = 0; i < 400; ++i) text += "line " + std::to_string(i * 7919) + "\n";
    write_text(*shared_ / "text.txt", text);
    prepare_data("bytes", "data");
  }
  static void TearDownTestSuite() { delete shared_; }
  static void prepare_data(const std::string& tokenizer, const std::string& name) {
    PrepareOptions p;
    p.inputs = {*shared_ / "text.txt"};
    p.tokenizer = tokenizer;
    p.out = *shared_ / name;
    prepare(p);
  }
  CommandResult eval(const std::string& arguments, const std::string& run = *shared_ / "run") {
    return run_crest("eval --device cpu --precision fp32 --run '" + run + "' " + arguments, folder_);
  }
  static std::string data() { return "--data '" + *shared_ / "data" + "' "; }

  TemporaryFolder folder_;
  static inline TemporaryFolder* shared_ = nullptr;
};

}  // namespace

TEST_F(EvalCommand, AModelOfZerosKnowsNothing) {
  make_checkpoint(folder_ / "zero", 1, byte_recipe(), true, true);
  CommandResult r = eval(data() + "--json", folder_ / "zero");
  ASSERT_EQ(r.code, 0) << r.err;
  Json j = Json::parse(r.out);
  EXPECT_NEAR(j["loss"].get<double>(), std::log(257.0), 1e-5);
  EXPECT_NEAR(j["perplexity"].get<double>(), 257, 1e-2);
  EXPECT_EQ(j["tokens"].get<int64_t>() + 1, j["split_tokens"].get<int64_t>());
  EXPECT_EQ(j["split"], "val");
  EXPECT_EQ(j["step"], 1);
  // Every byte is a token; only <|endoftext|> stands for no text.
  EXPECT_NEAR(j["bits_per_byte"].get<double>(), std::log2(257.0), 0.05);
}

TEST_F(EvalCommand, TheLossDoesNotDependOnTheBatch) {
  Json a = Json::parse(eval(data() + "--json").out);
  Json b = Json::parse(eval(data() + "--batch 3 --json").out);
  EXPECT_NEAR(a["loss"].get<double>(), b["loss"].get<double>(), 1e-5 * a["loss"].get<double>());
  EXPECT_EQ(a["tokens"], b["tokens"]);
  EXPECT_EQ(a["seq"], 33);
  Json c = Json::parse(eval(data() + "--batch 2 --seq 16 --batches 3 --split train --json").out);
  EXPECT_EQ(c["tokens"], 96);
  EXPECT_EQ(c["split"], "train");
  CommandResult text = eval(data());
  for (auto part : {"loss", "perplexity", "bits/byte", "of split val"}) EXPECT_TRUE(contains(text.out, part)) << part;
}

TEST_F(EvalCommand, DataOfAnotherVocabularyOrTokenizer) {
  prepare_data("bpe:300", "bpe");
  CommandResult r = eval("--data '" + *shared_ / "bpe'");
  EXPECT_EQ(r.code, 1);
  EXPECT_TRUE(contains(r.err, "vocabulary of")) << r.err;
  Recipe larger = byte_recipe();
  larger.model.vocab = 400;
  make_checkpoint(folder_ / "larger", 1, larger);
  r = eval("--data '" + *shared_ / "bpe'", folder_ / "larger");
  EXPECT_EQ(r.code, 1);
  EXPECT_TRUE(contains(r.err, "not prepared with the model's tokenizer")) << r.err;
  // Shards that say nothing: every token is checked.
  std::filesystem::create_directories(folder_ / "plain");
  ShardWriter writer(folder_ / "plain", "val", 1000);
  std::vector<uint32_t> ids(100, 5);
  ids[70] = 300;
  writer.append(ids);
  writer.finish();
  r = eval("--data '" + folder_ / "plain'");
  EXPECT_EQ(r.code, 1);
  EXPECT_TRUE(contains(r.err, "300")) << r.err;
  EXPECT_EQ(eval("--seq 16 --batch 4 --batches 1 --data '" + folder_ / "plain'").code, 0);
  // There is no training split.
  r = eval("--split train --data '" + folder_ / "plain'");
  EXPECT_EQ(r.code, 1);
  EXPECT_TRUE(contains(r.err, "no tokens in split 'train'")) << r.err;
}

TEST_F(EvalCommand, WrongUsage) {
  for (auto [arguments, part] : std::vector<std::pair<std::string, std::string>>{{data() + "--split test", "--split"},
                                                                                 {data() + "--seq 34", "context of 33"},
                                                                                 {data() + "--batch 0", "--batch"},
                                                                                 {data() + "--batches=-1", "--batches"},
                                                                                 {data() + "--bach 2", "--batch"},
                                                                                 {"", "--data"}}) {
    CommandResult r = eval(arguments);
    EXPECT_EQ(r.code, 2) << arguments << r.err;
    EXPECT_TRUE(contains(r.err, part)) << arguments << ": " << r.err;
  }
  EXPECT_EQ(run_crest("eval " + data(), folder_).code, 2);
  EXPECT_EQ(eval("--data '" + folder_ / "nothing'").code, 1);
  EXPECT_EQ(eval(data(), folder_ / "nothing").code, 1);
}

// Told before anything is loaded: the model is not even there.
TEST_F(EvalCommand, LogitsThatCannotBeWrittenAreToldFirst) {
  for (const std::string& file : {folder_ / "no/such/folder/logits.safetensors", folder_ / "."}) {
    CommandResult r = eval(data() + "--logits '" + file + "'", folder_ / "nothing");
    EXPECT_EQ(r.code, 1);
    EXPECT_TRUE(contains(r.err, file)) << r.err;
  }
}
