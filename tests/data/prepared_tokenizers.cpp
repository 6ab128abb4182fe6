// A preparation publishes only a tokenizer that Crest can load. Otherwise it ends with one error.
#include <nlohmann/json.hpp>

#include "data/bpe_train.h"
#include "data/helpers.h"
#include "data/prepare.h"

using namespace crest;
using namespace crest::test;
namespace fs = std::filesystem;
using Json = nlohmann::ordered_json;

namespace {

const std::string end_name(Tokenizer::end_of_text_name);

// tokenizer.json with the bytes and a test's additions: (token, id), merges as pairs, (added token,
// id).
struct TokenizerFile {
  std::vector<std::pair<std::string, uint32_t>> tokens;
  std::vector<std::pair<std::string, std::string>> merges;
  std::vector<std::pair<std::string, uint32_t>> added = {{end_name, 256}};

  std::string text() const {
    Json j = Json::parse(Tokenizer::bytes().to_json());
    j["model"]["vocab"].erase(end_name);
    for (auto& [token, id] : tokens) j["model"]["vocab"][token] = id;
    for (auto& [left, right] : merges) j["model"]["merges"].push_back({left, right});
    j["added_tokens"] = Json::array();
    for (auto& [content, id] : added)
      j["added_tokens"].push_back({{"id", id},
                                   {"content", content},
                                   {"single_word", false},
                                   {"lstrip", false},
                                   {"rstrip", false},
                                   {"normalized", false},
                                   {"special", true}});
    return j.dump();
  }
};

std::string base64(std::string_view bytes) {
  static const char* digits = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
  std::string text;
  for (size_t i = 0; i < bytes.size(); i += 3) {
    uint32_t bits = 0;
    size_t n = std::min<size_t>(3, bytes.size() - i);
    for (size_t k = 0; k < 3; ++k) bits = bits << 8 | (k < n ? uint8_t(bytes[i + k]) : 0);
    for (size_t k = 0; k < 4; ++k) text += k <= n ? digits[bits >> (18 - 6 * k) & 63] : '=';
  }
  return text;
}

// A .tiktoken file: the bytes, then these tokens.
std::string ranks(const std::vector<std::pair<std::string, uint32_t>>& tokens) {
  std::string text;
  for (int b = 0; b < 256; ++b) text += base64(std::string(1, char(b))) + " " + std::to_string(b) + "\n";
  for (auto& [token, id] : tokens) text += (token.empty() ? "=" : base64(token)) + " " + std::to_string(id) + "\n";
  return text;
}

class PreparedTokenizers : public ::testing::Test {
 protected:
  void SetUp() override {
    std::string text;
    for (int i = 0; i < 400; ++i) text += "ab abc <|endoftext|> abab ";
    write_file(dir_ / "in.txt", text);
  }
  PrepareOptions options(const std::string& tokenizer) const {
    PrepareOptions o;
    o.inputs = {dir_ / "in.txt"};
    o.out = dir_ / "out";
    o.tokenizer = tokenizer;
    o.split_rule = tokenizer.ends_with(".tiktoken") ? "cl100k" : "";
    return o;
  }
  // Prepared, and all of it is read again.
  Dataset prepared(const std::string& name, const std::string& content) {
    write_file(dir_ / name, content);
    prepare(options(dir_ / name));
    Dataset d = Dataset::open(dir_ / "out");
    std::vector<int32_t> tokens(d.train().total_tokens());
    d.train().read(0, tokens.size(), tokens.data());
    std::string text = d.tokenizer()->decode(std::vector<uint32_t>(tokens.begin(), tokens.end()));
    EXPECT_EQ(text, read_file(dir_ / "in.txt").substr(0, text.size()));
    EXPECT_GT(text.size(), 1000u);
    return d;
  }
  void refused(const std::string& name, const std::string& content, const std::string& why) {
    write_file(dir_ / name, content);
    EXPECT_ERROR(prepare(options(dir_ / name)), why);
    EXPECT_FALSE(fs::exists(dir_ / "out"));
    for (auto& entry : fs::directory_iterator(dir_.path()))
      EXPECT_FALSE(entry.path().filename().string().starts_with(".out")) << entry.path();
  }
  TemporaryFolder dir_;
};

}  // namespace

// A merge is written as one string: two tokens and a space.
TEST_F(PreparedTokenizers, TheLongestMergeIsRead) {
  std::string half(1 << 15, 'a');
  TokenizerFile f;
  f.tokens = {{half, 257}, {half + half, 258}};
  f.merges = {{half, half}};
  EXPECT_EQ(prepared("t.json", f.text()).vocab_size(), 259u);
}

// The file spells the token in the byte-level alphabet. In a text the token is found as it is
// written.
TEST_F(PreparedTokenizers, AnAddedTokenMayBePartOfAMerge) {
  TokenizerFile f;
  f.tokens = {{"\xc4\xa0"
               "a",
               257},
              {"\xc4\xa0"
               "ab",
               258}};
  f.merges = {{"\xc4\xa0", "a"},
              {"\xc4\xa0"
               "a",
               "b"}};
  f.added.push_back(
      {"\xc4\xa0"
       "a",
       257});
  write_file(dir_ / "t.json", f.text());
  prepare(options(dir_ / "t.json"));
  Tokenizer given = Tokenizer::load(dir_ / "t.json"), written = *Dataset::open(dir_ / "out").tokenizer();
  EXPECT_EQ(written.merge_count(), 2u);
  EXPECT_EQ(written.encode(" ab ba"), given.encode(" ab ba"));
}

TEST_F(PreparedTokenizers, AnAddedTokenThatAppearsTwiceIsRefused) {
  TokenizerFile f;
  f.added = {{end_name, 256}, {"<tool>", 257}, {"<tool>", 258}};
  refused("t.json", f.text(), "added token '<tool>' appears twice");
}

// OpenAI's files leave the special tokens out; others do not.
TEST_F(PreparedTokenizers, EndOfTextMayStandAmongTheRanks) {
  Dataset d = prepared("t.tiktoken", ranks({{"ab", 256}, {end_name, 257}, {"abc", 258}}));
  EXPECT_EQ(d.vocab_size(), 259u);
  EXPECT_EQ(d.tokenizer()->end_of_text(), 257u);
}

TEST_F(PreparedTokenizers, RanksThatAreMostlyEmptyAreRefused) {
  std::vector<std::pair<std::string, uint32_t>> tokens;
  for (uint32_t id = 256; id < 7000; ++id) tokens.push_back({"", id});
  refused("t.tiktoken", ranks(tokens), "leaves most ids unused");
}

// No rank is free for the end-of-text token.
TEST_F(PreparedTokenizers, TheHighestIdLeavesNoneForEndOfText) {
  std::string text = ranks({});
  for (uint32_t id = 256; id < 263'000; ++id) {
    std::string token = {char(id), char(id >> 8), char(id >> 16), 'x'};
    text += base64(token) + " " + std::to_string(id) + "\n";
  }
  text += base64("last") + " " + std::to_string((1 << 20) - 1) + "\n";
  refused("t.tiktoken", text, "token id 1048576 is above the limit");
}

// A text with one character repeated for pages: pairs double until they are too long for any file.
TEST_F(PreparedTokenizers, TrainedTokensAreNeverTooLongToRead) {
  write_file(dir_ / "in.txt", std::string(300'000, 'a') + " b");
  prepare(options("bpe:300"));
  Dataset d = Dataset::open(dir_ / "out");
  size_t longest = 0;
  for (uint32_t id = 0; id < d.vocab_size(); ++id) longest = std::max(longest, d.tokenizer()->decode_token(id).size());
  EXPECT_EQ(longest, BpeTrainer::longest_token);
}

// If the reader refuses a tokenizer, nothing is published.
TEST_F(PreparedTokenizers, WhatIsNotReadAgainIsNotPublished) {
  std::vector<std::pair<uint32_t, uint32_t>> doubling = {{0, 0}};
  for (uint32_t id = 256; id < 256 + 17; ++id) doubling.push_back({id, id});
  Tokenizer t = Tokenizer::from_merges(doubling);
  try {
    t.save(dir_ / "tokenizer.json");
    FAIL() << "a token of " << t.decode_token(272).size() << " bytes was written";
  } catch (const Tokenizer::Unreadable& e) {
    EXPECT_NE(std::string(e.what()).find("a token longer than 64 KiB"), std::string::npos) << e.what();
  }
  EXPECT_FALSE(fs::exists(dir_ / "tokenizer.json"));
}
