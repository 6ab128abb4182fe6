// crest data prepare, info and get-gpt2-tokenizer.
#include <cstring>

#include "packed.h"
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
  // Tokens are bytes, so both splits together are the text. The held-out part is a quarter,
  // extended to the end of the next word.
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
  // A shard without its end, and a shard from another program.
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

// "IQ== 0": every byte is a token of its own.
static std::string byte_ranks() {
  static const char* digits = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
  std::string text;
  for (int b = 0; b < 256; ++b)
    text += {digits[b >> 2], digits[(b & 3) << 4], '=', '='}, text += " " + std::to_string(b) + "\n";
  return text;
}

TEST(CliData, TokenizersOfFilesAndTheirSplitRule) {
  TempFolder folder;
  RunOptions in{.folder = folder.path().string()};
  folder.write("a.txt", some_text(300));
  folder.write("ranks.tiktoken", byte_ranks() + "bGk= 256\nbGluZQ== 257\n");
  expect_error({"data", "prepare", "a.txt", "--out", "x", "--tokenizer", "ranks.tiktoken"}, 1,
               {"258 tokens", "--split-rule", "llama3"}, in);
  expect_error({"data", "prepare", "a.txt", "--out", "x", "--tokenizer", "ranks.tiktoken", "--split-rule", "lama3"}, 2,
               {"'lama3'", "llama3"}, in);
  expect_error({"data", "prepare", "a.txt", "--out", "x", "--split-rule", "gpt2"}, 2, {"--split-rule", "bytes"}, in);
  EXPECT_FALSE(fs::exists(folder / "x"));
  RunResult r = run_crest(
      {"data", "prepare", "a.txt", "--out", "d", "--tokenizer", "ranks.tiktoken", "--split-rule", "llama3", "--json"},
      in);
  ASSERT_EQ(r.code, 0) << r.err;
  EXPECT_EQ(r.json()["vocab_size"], 259) << "<|endoftext|> is added";
  EXPECT_NE(folder.read("d/tokenizer.json").find("{1,3}"), std::string::npos) << "the rule is in the file";
  // The written folder is a tokenizer for other data.
  for (const char* file : {"d/tokenizer.json", "d"}) {
    RunResult again = run_crest({"data", "prepare", "a.txt", "--out", "e", "--overwrite", "--tokenizer", file}, in);
    EXPECT_EQ(again.code, 0) << again.err;
    EXPECT_EQ(folder.read("e/tokenizer.json"), folder.read("d/tokenizer.json"));
  }
}

TEST(CliData, GetGpt2TokenizerRefusesWhatIsNotIt) {
  TempFolder folder;
  RunOptions in{.folder = folder.path().string()};
  folder.write("other.tiktoken", byte_ranks());
  folder.write("damaged.tar.gz", "\x1f\x8b\x08 not a package");
  folder.write("there.json", "{}");
  std::vector<std::string> get = {"data", "get-gpt2-tokenizer", "--out", "out.json"};
  auto with = [&](std::vector<std::string> more) {
    more.insert(more.begin(), get.begin(), get.end());
    return more;
  };
  expect_error(with({"--from", "other.tiktoken"}), 1, {"SHA-256", "306cd27f", "openai-whisper"}, in);
  expect_error(with({"--from", "damaged.tar.gz"}), 1, {"damaged.tar.gz", "gpt2.tiktoken"}, in);
  expect_error(with({"--from", "missing.whl"}), 1, {"missing.whl"}, in);
  // Nothing listens on this port. It acts like a machine without a network, without the waiting.
  expect_error(with({"--from", "http://127.0.0.1:1/p.tar.gz"}), 1, {"127.0.0.1", "--from FILE"}, in);
  in.environment = {{"CREST_GPT2_PACKAGE", "other.tiktoken"}};
  expect_error(get, 1, {"other.tiktoken", "SHA-256"}, in);
  expect_error({"data", "get-gpt2-tokenizer", "--out", "there.json"}, 1, {"exists", "--overwrite"}, in);
  expect_error(with({"package.tar.gz"}), 2, {"--from FILE"}, in);
  expect_error(with({"--separator", "x"}), 2, {"--separator", "prepare"}, in);
  expect_error({"data", "info", "d", "--from", "x"}, 2, {"--from", "get-gpt2-tokenizer"}, in);
  EXPECT_FALSE(fs::exists(folder / "out.json"));
  EXPECT_EQ(folder.read("there.json"), "{}");
}

TEST(CliData, GetGpt2TokenizerFromAPackage) {
  const char* package = std::getenv("CREST_GPT2_PACKAGE");
  if (!package)
    GTEST_SKIP() << "needs openai-whisper of PyPI (any .tar.gz): CREST_GPT2_PACKAGE=FILE, see docs/reference/data.md";
  TempFolder folder;
  RunOptions in{.folder = folder.path().string()};
  RunResult r = run_crest({"data", "get-gpt2-tokenizer", "--from", fs::absolute(package).string(), "--json"}, in);
  ASSERT_EQ(r.code, 0) << r.err;
  EXPECT_EQ(r.json()["vocab_size"], 50257);
  EXPECT_EQ(r.json()["merges"], 50000);
  folder.write("a.txt", "Hello world" + std::string(400, '!') + some_text(100));
  r = run_crest({"data", "prepare", "a.txt", "--tokenizer", "gpt2-tokenizer.json", "--out", "d", "--json"}, in);
  ASSERT_EQ(r.code, 0) << r.err;
  EXPECT_EQ(r.json()["token_dtype"], "u16");
  std::string shard = folder.read("d/train-000000.bin");
  uint16_t first[2];
  std::memcpy(first, shard.data() + 1024, 4);
  EXPECT_EQ(first[0], 15496) << "Hello";
  EXPECT_EQ(first[1], 995) << " world";
}

TEST(CliData, CompressedJsonLinesAndStandardInput) {
  TempFolder folder;
  RunOptions in{.folder = folder.path().string()};
  std::string lines;
  for (int i = 0; i < 300; ++i) lines += "{\"text\": \"document " + std::to_string(i) + "\"}\n";
  folder.write("a.jsonl", lines);
  folder.write("a.jsonl.gz", gzipped(lines));
  auto documents = [&](const std::vector<std::string>& flags, const std::string& input = "") {
    std::vector<std::string> all = {"data", "prepare"};
    all.insert(all.end(), flags.begin(), flags.end());
    all.insert(all.end(), {"--out", "d", "--overwrite", "--json"});
    RunOptions with = in;
    with.input = input;
    RunResult r = run_crest(all, with);
    EXPECT_EQ(r.code, 0) << r.err;
    return r.json()["documents"].get<int>();
  };
  EXPECT_EQ(documents({"a.jsonl"}), 300);
  EXPECT_EQ(documents({"a.jsonl.gz"}), 300);
  EXPECT_EQ(documents({"-"}, lines), 300);
  EXPECT_EQ(documents({"-", "--format", "jsonl"}, gzipped(lines)), 300);
  EXPECT_EQ(documents({"-", "--format=text"}, lines), 1);
  expect_error({"data", "prepare", "a.jsonl", "--out", "x", "--format", "json"}, 2, {"--format", "'json'", "jsonl"},
               in);
  expect_error({"data", "prepare", "a.jsonl", "--out", "x", "--chat-template", "chat"}, 2,
               {"--chat-template", "'chat'", "chatml"}, in);
  expect_error({"data", "prepare", "a.jsonl", "--out", "x", "--chat-template", "chatml"}, 2,
               {"no line of the input is a conversation"}, in);
  folder.write("cut.jsonl.gz", gzipped(lines).substr(0, 300));
  expect_error({"data", "prepare", "cut.jsonl.gz", "--out", "x"}, 1, {"cut.jsonl.gz", "it ends at byte 300"}, in);
  EXPECT_FALSE(fs::exists(folder / "x"));
}

// prepare and train refuse files other than text with the same message.
TEST(CliData, WhatIsNotTextIsRefusedByEveryCommand) {
  TempFolder folder;
  RunOptions in{.folder = folder.path().string()};
  folder.write("a.pdf", "%PDF-1.4\n");
  folder.write("a.txt", std::string("\xff\xfeh\0i\0", 6));
  for (auto& [file, parts] : std::vector<std::pair<std::string, std::vector<std::string>>>{
           {"a.pdf", {"a.pdf: this looks like a PDF document", "pdftotext a.pdf"}},
           {"a.txt", {"a.txt: this looks like UTF-16 text", "iconv -f UTF-16 -t UTF-8 a.txt > utf8.txt"}}}) {
    expect_error({"data", "prepare", file, "--out", "x"}, 1, parts, in);
    expect_error({"train", file, "--steps", "1"}, 1, parts, in);
  }
  EXPECT_FALSE(fs::exists(folder / "x"));
}
