// crest data prepare and crest data info.
#include "run.h"

using namespace crest::test;
namespace fs = std::filesystem;

namespace {
std::string some_text(int lines) {
  std::string text;
  for (int i = 0; i < lines; ++i) text += "line " + std::to_string(i * 7919 % 1000) + " of a small text\n";
  return text;
}
}  // namespace

TEST(CliData, PrepareThenInfoTellTheSame) {
  TempFolder folder;
  folder.write("a.txt", some_text(400));
  RunResult r =
      run_crest({"data", "prepare", "a.txt", "--tokenizer", "bytes", "--out", "d", "--val-fraction", "0.25", "--json"},
                {.folder = folder.path().string()});
  ASSERT_EQ(r.code, 0) << r.err;
  auto prepared = r.json();
  for (const char* file : {"d/train-000000.bin", "d/val-000000.bin", "d/tokenizer.json", "d/meta.json"})
    EXPECT_TRUE(fs::exists(folder / file)) << file;
  uint64_t bytes = some_text(400).size();
  EXPECT_EQ(prepared["text_bytes"], bytes);
  EXPECT_EQ(prepared["tokenizer"], "bytes");
  EXPECT_EQ(prepared["vocab_size"], 257);
  // Tokens are bytes: both splits together are the text, the held-out part a quarter up to the next word's end.
  uint64_t train = prepared["train_tokens"], val = prepared["val_tokens"];
  EXPECT_EQ(train + val, bytes);
  EXPECT_NEAR(double(val) / double(bytes), 0.25, 0.01);
  EXPECT_NE(r.err.find("prepared in"), std::string::npos) << "progress is on standard error";

  RunResult info = run_crest({"data", "info", "d", "--json"}, {.folder = folder.path().string()});
  ASSERT_EQ(info.code, 0) << info.err;
  auto told = info.json();
  for (const char* key : {"vocab_size", "train_tokens", "val_tokens", "train_shards", "val_shards", "documents",
                          "text_bytes", "token_dtype", "sources"})
    EXPECT_EQ(told[key], prepared[key]) << key;
  RunResult text = run_crest({"data", "info", "d"}, {.folder = folder.path().string()});
  EXPECT_EQ(text.code, 0);
  EXPECT_NE(text.out.find(std::to_string(train)), std::string::npos) << text.out;
}

TEST(CliData, StandardInputSeparatorAndTrainedVocabulary) {
  TempFolder folder;
  std::string text;
  for (int i = 0; i < 3; ++i) text += some_text(200) + "<|endoftext|>\n";
  RunResult r = run_crest({"data", "prepare", "-", "--tokenizer=bpe:300", "--separator", "<|endoftext|>", "--out", "d",
                           "--shard-tokens", "1000", "--json"},
                          {.folder = folder.path().string(), .input = text});
  ASSERT_EQ(r.code, 0) << r.err;
  auto j = r.json();
  EXPECT_EQ(j["documents"], 3);
  EXPECT_EQ(j["vocab_size"], 300);
  EXPECT_GT(j["train_shards"], 1);
  EXPECT_LT(j["train_tokens"].get<double>(), double(text.size()) / 1.5) << "merges shorten the text";
}

TEST(CliData, ConfigKeysAreFlags) {
  TempFolder folder;
  folder.write("a.txt", some_text(300));
  folder.write("c.toml", "tokenizer = \"bytes\"\nout = \"from-config\"\nval_fraction = 0.5\n");
  RunResult r = run_crest({"data", "prepare", "a.txt", "--config", "c.toml", "--out", "from-flag", "--json"},
                          {.folder = folder.path().string()});
  ASSERT_EQ(r.code, 0) << r.err;
  EXPECT_TRUE(fs::exists(folder / "from-flag/meta.json")) << "flags win";
  EXPECT_FALSE(fs::exists(folder / "from-config"));
  EXPECT_NEAR(r.json()["val_tokens"].get<double>() / double(some_text(300).size()), 0.5, 0.01);
}

TEST(CliData, BadInputIsOneClearError) {
  TempFolder folder;
  RunOptions in{.folder = folder.path().string()};
  folder.write("a.txt", some_text(300));
  folder.write("empty.txt", "");
  folder.write("c.toml", "tokeniser = \"bytes\"\n");
  folder.write("other/file", "not prepared data");
  ASSERT_EQ(run_crest({"data", "prepare", "a.txt", "--out", "d"}, in).code, 0);

  expect_error({"data"}, 2, {"prepare"}, in);
  expect_error({"data", "prepair"}, 2, {"prepair", "prepare"}, in);
  expect_error({"data", "prepare", "--out", "x"}, 2, {"no text"}, in);
  expect_error({"data", "prepare", "a.txt"}, 2, {"--out"}, in);
  expect_error({"data", "prepare", "missing.txt", "--out", "x"}, 1, {"missing.txt"}, in);
  expect_error({"data", "prepare", "empty.txt", "--out", "x"}, 1, {"empty"}, in);
  expect_error({"data", "prepare", "a.txt", "--out", "d"}, 1, {"exists", "--overwrite"}, in);
  expect_error({"data", "prepare", "a.txt", "--out", "other", "--overwrite"}, 1, {"prepared data only"}, in);
  expect_error({"data", "prepare", "a.txt", "--out", "x", "--tokenizer", "bpe:many"}, 2, {"--tokenizer", "'many'"}, in);
  expect_error({"data", "prepare", "a.txt", "--out", "x", "--tokenizer", "bpe:12"}, 2, {"257"}, in);
  expect_error({"data", "prepare", "a.txt", "--out", "x", "--val-fraction", "1.5"}, 2, {"--val-fraction"}, in);
  expect_error({"data", "prepare", "a.txt", "--out", "x", "--val-fraction", "-0.5"}, 2, {"--val-fraction"}, in);
  expect_error({"data", "prepare", "a.txt", "--out", "x", "--shard-tokens", "0"}, 2, {"shard"}, in);
  expect_error({"data", "prepare", "a.txt", "--out", "x", "--tokenzer", "bytes"}, 2, {"--tokenzer", "--tokenizer"}, in);
  expect_error({"data", "prepare", "a.txt", "--out", "x", "--config", "c.toml"}, 2, {"tokeniser", "tokenizer"}, in);
  EXPECT_FALSE(fs::exists(folder / "x")) << "a failed preparation leaves no folder";

  expect_error({"data", "info"}, 2, {"DIR"}, in);
  expect_error({"data", "info", "nowhere"}, 1, {"nowhere"}, in);
  expect_error({"data", "info", "other"}, 1, {"other"}, in);
  expect_error({"data", "info", "d", "--separator", "x"}, 2, {"--separator", "prepare"}, in);
  // A shard that lost its end, and one that is something else.
  fs::resize_file(folder / "d/train-000000.bin", 3000);
  expect_error({"data", "info", "d"}, 1, {"train-000000.bin"}, in);
}

TEST(CliData, OverwriteReplacesPreparedData) {
  TempFolder folder;
  RunOptions in{.folder = folder.path().string()};
  folder.write("a.txt", some_text(300));
  folder.write("b.txt", some_text(500));
  ASSERT_EQ(run_crest({"data", "prepare", "a.txt", "--out", "d"}, in).code, 0);
  RunResult r = run_crest({"data", "prepare", "b.txt", "--out", "d", "--overwrite", "--json"}, in);
  ASSERT_EQ(r.code, 0) << r.err;
  EXPECT_EQ(r.json()["text_bytes"], some_text(500).size());
}
