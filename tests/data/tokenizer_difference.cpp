// Tokenizer::difference compares the effect of tokenizers. The form of their files does not matter.
#include <nlohmann/json.hpp>

#include "core/random.h"
#include "data/byte_alphabet.h"
#include "data/helpers.h"
#include "data/tokenizer.h"

using namespace crest;
using Json = nlohmann::ordered_json;

namespace {

// The bytes in the alphabet's order, then a token for each merge, then <|endoftext|>.
Json byte_level(const std::vector<std::string>& merges, const std::vector<std::string>& order = {}) {
  Json vocab;
  int id = 0;
  for (uint8_t b : alphabet_order()) {
    char c = char(b);
    vocab[to_alphabet({&c, 1})] = id++;
  }
  auto add = [&](std::string text) {
    std::erase(text, ' ');
    if (!vocab.contains(text)) vocab[text] = id++;
  };
  for (auto& text : order.empty() ? merges : order) add(text);
  Json end = {{"id", id},        {"content", "<|endoftext|>"}, {"single_word", false}, {"lstrip", false},
              {"rstrip", false}, {"normalized", false},        {"special", true}};
  Json split = {{"type", "ByteLevel"}, {"add_prefix_space", false}, {"trim_offsets", true}, {"use_regex", true}};
  return {{"added_tokens", Json::array({end})},
          {"normalizer", nullptr},
          {"pre_tokenizer", split},
          {"post_processor", nullptr},
          {"decoder", split},
          {"model", {{"type", "BPE"}, {"ignore_merges", false}, {"vocab", vocab}, {"merges", merges}}}};
}

Tokenizer read(const Json& json) { return Tokenizer::parse(json.dump(), "tokenizer.json"); }
std::string difference(const Json& a, const Json& b) { return read(a).difference(read(b), "one", "two"); }

const std::vector<std::string> words = {"t h", "th e", "h e", "a n", "an d", "e r"};

}  // namespace

TEST(TokenizerDifference, TheFormOfTheFileDoesNotMatter) {
  Json a = byte_level(words), b = a;
  // As written by transformers: merges as pairs, the special token in the vocabulary too, a
  // post-processor without additions.
  Json pairs = Json::array();
  for (auto& m : words) pairs.push_back({m.substr(0, m.find(' ')), m.substr(m.find(' ') + 1)});
  b["model"]["merges"] = pairs;
  b["model"]["vocab"]["<|endoftext|>"] = b["added_tokens"][0]["id"];
  b["post_processor"] = {{"type", "TemplateProcessing"}, {"single", Json::array()}, {"pair", Json::array()}};
  b["added_tokens"][0]["normalized"] = true;  // nothing is normalized
  ASSERT_NE(read(a).to_json(), read(b).to_json());
  EXPECT_EQ(difference(a, b), "");
  EXPECT_EQ(difference(b, a), "");
}

TEST(TokenizerDifference, MergesThatNeverHappenDoNotMatter) {
  std::vector<std::string> more = words;
  more.insert(more.begin() + 3, "t he");  // "th" is merged before "he"
  Json a = byte_level(words), b = byte_level(more, words);
  EXPECT_EQ(difference(a, b), "");
  EXPECT_EQ(difference(b, a), "");
  Tokenizer x = read(a), y = read(b);
  std::string text;
  for (uint64_t i = 0; i < 20000; ++i) text += "thean dr"[random_bits(1, 2, i) % 8];
  EXPECT_EQ(x.encode(text), y.encode(text));
  // Merges make every token, so looking tokens up first changes nothing.
  b["model"]["ignore_merges"] = true;
  EXPECT_EQ(difference(a, b), "");
}

TEST(TokenizerDifference, EachPartOfWhatItDoesIsNamed) {
  Json a = byte_level(words);
  auto expect = [&](const Json& b, const std::string& said) {
    EXPECT_EQ(difference(a, b), said);
    EXPECT_NE(difference(b, a), "");
  };
  std::vector<std::string> swapped = {"h e", "th e", "t h", "a n", "an d", "e r"};  // "the" is t he
  expect(byte_level(swapped, words), "merge 1 is 't' + 'h' in one, 'h' + 'e' in two");
  std::vector<std::string> renamed = words;
  renamed.back() = "o r";
  expect(byte_level(renamed), "token 261 is 'er' in one, 'or' in two");
  renamed.push_back("e r");
  expect(byte_level(renamed), "the vocabulary is 263 tokens in one, 264 tokens in two");
  Json b = a;
  b["normalizer"] = {{"type", "NFC"}};
  expect(b, "the normalizer is none in one, NFC in two");
  b = a, b["added_tokens"][0]["special"] = false;
  expect(b, "token 262 is '<|endoftext|>' (special) in one, '<|endoftext|>' (added) in two");
  b = Json::parse(Tokenizer::from_merges({}, find_split_rule("llama3")).to_json());
  Json c = a;
  c["pre_tokenizer"] = b["pre_tokenizer"];
  expect(c, "the split rule is gpt2 in one, llama3 in two");
}

// A token without a merge: found only if merges are ignored.
TEST(TokenizerDifference, IgnoredMergesMatterWhereATokenHasNone) {
  std::vector<std::string> order = words;
  order.push_back("xyz");
  Json a = byte_level(words, order), b = a;
  b["model"]["ignore_merges"] = true;
  EXPECT_EQ(difference(a, b), "ignore_merges is false in one, true in two");
  EXPECT_NE(read(a).encode("xyz"), read(b).encode("xyz"));
}

// SentencePiece's, and the same as a tokenizer.json: every token is made by its own merge.
TEST(TokenizerDifference, TokenizersOfCharacters) {
  Tokenizer model = Tokenizer::load(std::string(CREST_TEST_DIR) + "/data/fixtures/sentencepiece.model");
  Json json = Json::parse(model.to_json());
  EXPECT_EQ(model.difference(read(json), "one", "two"), "");
  // Its merges in another form: pairs for texts.
  Json pairs = Json::array();
  for (auto& m : json["model"]["merges"]) {
    std::string text = m;
    pairs.push_back({text.substr(0, text.find(' ')), text.substr(text.find(' ') + 1)});
  }
  Json other = json;
  other["model"]["merges"] = pairs;
  EXPECT_EQ(model.difference(read(other), "one", "two"), "");
  std::swap(other["model"]["merges"][0], other["model"]["merges"][1]);
  EXPECT_NE(model.difference(read(other), "one", "two"), "");
  other = json, other["model"]["byte_fallback"] = false, other["model"]["unk_token"] = "<unk>";
  EXPECT_NE(model.difference(read(other), "one", "two"), "");
}
