#include "data/tokenizer.h"

#include <omp.h>

#include <algorithm>
#include <iterator>
#include <sstream>

#include "core/random.h"
#include "data/bpe_train.h"
#include "data/helpers.h"
#include "data/split_rule.h"

using namespace crest;
using namespace crest::test;
namespace fs = std::filesystem;

// Made by compare_tokenizers.py with Hugging Face `tokenizers`.
static std::string fixture(const std::string& name) {
  return read_file(fs::path(CREST_TEST_DIR) / "data/fixtures" / name);
}

static Tokenizer trained(const std::string& text, uint32_t vocab) {
  BpeTrainer trainer(vocab);
  trainer.add(text);
  return trainer.train();
}

static std::string random_bytes(size_t n, uint64_t seed) {
  std::string s(n, '\0');
  for (size_t i = 0; i < n; ++i) s[i] = char(random_bits(seed, 0, i));
  return s;
}

static std::vector<std::string> pretokens_of(std::string_view text, std::string_view rule = "gpt2") {
  std::vector<std::string> pretokens;
  for (size_t start = 0, end; start < text.size(); start = end) {
    end = find_split_rule(rule).next_pretoken(text, start);
    pretokens.emplace_back(text.substr(start, end - start));
  }
  return pretokens;
}

using Pretokens = std::vector<std::string>;

TEST(SplitRules, SplitRuleOfGpt2) {
  EXPECT_EQ(pretokens_of("Hello world"), (Pretokens{"Hello", " world"}));
  EXPECT_EQ(pretokens_of("don't we'll I'm they're I've he'd it's"),
            (Pretokens{"don", "'t", " we", "'ll", " I", "'m", " they", "'re", " I", "'ve", " he", "'d", " it", "'s"}));
  EXPECT_EQ(pretokens_of("'sample"), (Pretokens{"'s", "ample"}));
  EXPECT_EQ(pretokens_of(" 'sample"), (Pretokens{" '", "sample"}));
  EXPECT_EQ(pretokens_of("IT'S"), (Pretokens{"IT", "'", "S"}));
  EXPECT_EQ(pretokens_of("!'s"), (Pretokens{"!'", "s"}));
  EXPECT_EQ(pretokens_of("'r 'l '"), (Pretokens{"'", "r", " '", "l", " '"}));
  EXPECT_EQ(pretokens_of("abc123 45!?"), (Pretokens{"abc", "123", " 45", "!?"}));
  EXPECT_EQ(pretokens_of("a  b"), (Pretokens{"a", " ", " b"}));
  EXPECT_EQ(pretokens_of("a   \n b"), (Pretokens{"a", "   \n", " b"}));
  EXPECT_EQ(pretokens_of("a\n\nb"), (Pretokens{"a", "\n", "\n", "b"}));
  EXPECT_EQ(pretokens_of("a\tb"), (Pretokens{"a", "\t", "b"}));
  EXPECT_EQ(pretokens_of("a  "), (Pretokens{"a", "  "}));
  EXPECT_EQ(pretokens_of("   "), (Pretokens{"   "}));
  EXPECT_EQ(pretokens_of("a \u00a0b"), (Pretokens{"a", " ", "\u00a0", "b"}));
  EXPECT_EQ(pretokens_of("a\u3000\u3000b"), (Pretokens{"a", "\u3000", "\u3000", "b"}));
  EXPECT_EQ(pretokens_of("naïve Straße, 日本語"), (Pretokens{"naïve", " Straße", ",", " 日本語"}));
  EXPECT_EQ(pretokens_of("e\u0301x"), (Pretokens{"e", "\u0301", "x"}));  // a mark is no letter
  EXPECT_EQ(pretokens_of("x²½Ⅷ٣"), (Pretokens{"x", "²½Ⅷ٣"}));
  EXPECT_EQ(pretokens_of("a\u200bb"), (Pretokens{"a", "\u200b", "b"}));  // zero width space is no White_Space
  EXPECT_EQ(pretokens_of("a\U000105c0"), (Pretokens{"a\U000105c0"}));    // Todhri, a letter since Unicode 16
  EXPECT_EQ(pretokens_of(""), Pretokens{});
}

TEST(SplitRules, OtherSplitRules) {
  for (std::string_view rule : {"llama3", "cl100k", "qwen2"}) {
    EXPECT_EQ(pretokens_of("Don't DON'T it'\u017f \t\tx (y)", rule),
              (Pretokens{"Don", "'t", " DON", "'T", " it", "'\u017f", " \t", "\tx", " (", "y", ")"}));
    EXPECT_EQ(pretokens_of("a.\n\n  b \n \n c", rule), (Pretokens{"a", ".\n\n", " ", " b", " \n \n", " c"}));
    EXPECT_EQ(pretokens_of("'hello e\u0301x", rule), (Pretokens{"'hello", " e", "\u0301x"}));
  }
  EXPECT_EQ(pretokens_of("x12345 6", "llama3"), (Pretokens{"x", "123", "45", " ", "6"}));
  EXPECT_EQ(pretokens_of("x123", "qwen2"), (Pretokens{"x", "1", "2", "3"}));
  EXPECT_EQ(pretokens_of("a \n ", "llama3"), (Pretokens{"a", " \n", " "}));
  EXPECT_EQ(pretokens_of("a \n ", "cl100k"), (Pretokens{"a", " \n "}));
  EXPECT_EQ(pretokens_of("camelCase HTTPServer's it's", "o200k"),
            (Pretokens{"camel", "Case", " HTTPServer's", " it's"}));
  EXPECT_EQ(pretokens_of("ABC \u0301ABC /\n/ x", "o200k"), (Pretokens{"ABC", " \u0301", "ABC", " /\n/", " x"}));
  EXPECT_ERROR(find_split_rule("llama4"), "Did you mean 'llama3'");
}

TEST(SplitRules, InvalidUtf8BytesAreSymbols) {
  EXPECT_EQ(pretokens_of("a\xff\xfe"
                         "b"),
            (Pretokens{"a", "\xff\xfe", "b"}));
  EXPECT_EQ(pretokens_of("a\xc3"), (Pretokens{"a", "\xc3"}));
  EXPECT_EQ(pretokens_of("\xed\xa0\x80x"), (Pretokens{"\xed\xa0\x80", "x"}));  // a surrogate
  EXPECT_EQ(pretokens_of("\xc0\xa0 \xf5"), (Pretokens{"\xc0\xa0", " \xf5"}));  // overlong, too large
}

TEST(SplitRules, SafeCutsDoNotChangePretokens) {
  std::string text = fixture("nasty.txt").substr(0, 4000) + fixture("rules.txt").substr(0, 3000) +
                     random_bytes(500, 5) + " \xff\xa0 \xc2\xa0 x\xa0 y\xe3\x80\x80 z";
  for (auto& rule : split_rules()) {
    Pretokens whole = pretokens_of(text, rule.name);
    size_t cuts = 0;
    for (size_t p = 1; p < text.size(); p = safe_cut_after(text, p + 1), ++cuts) {
      if (p == 1) continue;
      Pretokens parts = pretokens_of(text.substr(0, p), rule.name), rest = pretokens_of(text.substr(p), rule.name);
      parts.insert(parts.end(), rest.begin(), rest.end());
      ASSERT_EQ(parts, whole) << rule.name << p;
      ASSERT_EQ(last_safe_cut(text.substr(0, p + 1)), p);
    }
    EXPECT_GT(cuts, 150u);
  }
  EXPECT_EQ(safe_cut_after("abc", 1), 3u);
  EXPECT_EQ(last_safe_cut("abc"), 0u);
  // Marks of a text's last character may follow.
  EXPECT_EQ(last_character_cut("ab\xe6\x97"), 1u) << "it may become a mark of b";
  EXPECT_EQ(last_character_cut("ab\xe6\x97\xa5"), 2u);
  EXPECT_EQ(last_character_cut("abc\xcc\x81\xcc\xa3"), 2u);
  EXPECT_EQ(last_character_cut("a"), 1u);
  EXPECT_EQ(character_cut_after("ab\xcc\x81\xcc\xa3z", 2), 6u);
  EXPECT_EQ(character_cut_after("a\xe6\x97\xa5z", 2), 4u);
}

TEST(Tokenizer, BytesRoundTrip) {
  Tokenizer t = Tokenizer::bytes();
  EXPECT_EQ(t.vocab_size(), 257u);
  EXPECT_EQ(t.end_of_text(), 256u);
  std::string text = random_bytes(5000, 1);
  auto ids = t.encode(text);
  ASSERT_EQ(ids.size(), text.size());
  for (size_t i = 0; i < ids.size(); ++i) ASSERT_EQ(ids[i], uint8_t(text[i]));
  EXPECT_EQ(t.decode(ids), text);
  EXPECT_EQ(t.encode("a<|endoftext|>b").size(), 15u);
  EXPECT_EQ(t.encode("a<|endoftext|>b", true), (std::vector<uint32_t>{'a', 256, 'b'}));
  EXPECT_EQ(t.decode_token(256), "<|endoftext|>");
  EXPECT_TRUE(t.is_special(256));
  EXPECT_FALSE(t.is_special('a'));
  EXPECT_ERROR(t.decode_token(257), "outside the vocabulary of 257");
}

TEST(Tokenizer, EqualsHuggingFaceOnTheFixture) {
  Tokenizer t = trained(fixture("corpus.txt"), 800);
  // Merge for merge as trained by Hugging Face.
  std::istringstream lines(fixture("merges.txt"));
  std::string json = t.to_json(), line, wanted;
  while (std::getline(lines, line)) {
    std::string escaped;
    for (char c : line) escaped += c == '"' || c == '\\' ? std::string("\\") + c : std::string(1, c);
    wanted += (wanted.empty() ? "\n      \"" : ",\n      \"") + escaped + "\"";
  }
  EXPECT_NE(json.find("\"merges\": [" + wanted + "\n    ]"), std::string::npos);
  // Token for token as encoded by Hugging Face.
  std::istringstream numbers(fixture("ids.txt"));
  std::vector<uint32_t> ids{std::istream_iterator<uint32_t>(numbers), {}};
  ASSERT_GT(ids.size(), 1000u);
  EXPECT_EQ(t.encode(fixture("nasty.txt")), ids);
  EXPECT_EQ(t.decode(ids), fixture("nasty.txt"));
}

TEST(Tokenizer, BpeRoundTripsEveryByteString) {
  Tokenizer t = trained(fixture("corpus.txt"), 600);
  EXPECT_EQ(t.vocab_size(), 600u);
  EXPECT_EQ(t.end_of_text(), 599u);
  EXPECT_EQ(t.encode("<|endoftext|>", true), std::vector<uint32_t>{599});
  for (uint64_t seed = 0; seed < 20; ++seed) {
    std::string text = random_bytes(2000, seed) + fixture("nasty.txt").substr(seed * 100, 300);
    EXPECT_EQ(t.decode(t.encode(text)), text);
  }
  EXPECT_TRUE(t.encode("").empty());
}

TEST(Tokenizer, LargeTextsAreEncodedInParallelToTheSameTokens) {
  Tokenizer t = trained(fixture("corpus.txt"), 700);
  std::string text;
  while (text.size() < (3 << 20)) text += fixture("corpus.txt") + fixture("nasty.txt") + std::string(300, 'a');
  int threads = omp_get_max_threads();
  omp_set_num_threads(1);
  auto one = t.encode(text);
  omp_set_num_threads(4);
  auto four = t.encode(text);
  omp_set_num_threads(threads);
  EXPECT_EQ(one, four);
  // Word by word, as the definition says.
  std::vector<uint32_t> plain;
  for (auto& w : pretokens_of(std::string_view(text).substr(0, 60000)))
    for (uint32_t id : t.encode(w)) plain.push_back(id);
  plain.resize(plain.size() - 100);  // the last word was cut
  EXPECT_TRUE(std::equal(plain.begin(), plain.end(), one.begin()));
  EXPECT_EQ(t.decode(one), text);
}

TEST(Tokenizer, LongPretokensGiveWhatShortOnesGive) {
  // The heap and the scan are two implementations of one rule: compare them around the border.
  Tokenizer t = trained(std::string(200, 'a') + " " + fixture("corpus.txt"), 500);
  for (size_t n : {40, 47, 48, 49, 50, 64, 200, 1000}) {
    auto ids = t.encode(std::string(n, 'a'));
    EXPECT_EQ(t.decode(ids), std::string(n, 'a'));
    // Equal merges from the left: the pieces never grow from left to right.
    for (size_t i = 1; i < ids.size(); ++i) EXPECT_LE(t.decode_token(ids[i]).size(), t.decode_token(ids[i - 1]).size());
  }
}

TEST(Tokenizer, SavedFilesLoadToTheSameTokenizer) {
  DataFolder dir;
  std::string text = fixture("nasty.txt");
  for (auto& t : {Tokenizer::bytes(), trained(fixture("corpus.txt"), 640)}) {
    t.save(dir / "tokenizer.json");
    Tokenizer u = Tokenizer::load(dir / "tokenizer.json");
    EXPECT_EQ(u.kind(), t.kind());
    EXPECT_EQ(u.vocab_size(), t.vocab_size());
    EXPECT_EQ(u.end_of_text(), t.end_of_text());
    EXPECT_EQ(u.encode(text), t.encode(text));
    EXPECT_EQ(u.to_json(), t.to_json());
  }
}

TEST(Tokenizer, MergesAsPairsAreReadToo) {
  std::string json = trained("aaa bbb aab aab aab", 260).to_json();
  std::istringstream lines(json.substr(json.find("\"merges\"")));
  std::string pairs = json.substr(0, json.find("\"merges\"")), line;
  for (bool first = true; std::getline(lines, line); first = false) {
    size_t open = line.find('"'), space = line.find(' ', open), close = line.rfind('"');
    if (!first && open != std::string::npos)
      line = "[" + line.substr(open, space - open) + "\", \"" + line.substr(space + 1, close - space) + "]" +
             line.substr(close + 1);
    pairs += line + "\n";
  }
  ASSERT_NE(pairs, json);
  EXPECT_EQ(Tokenizer::parse(pairs, "pairs").to_json(), json);
}

TEST(Tokenizer, DamagedAndForeignFilesAreErrors) {
  std::string json = trained("aaa bbb aab aab aab", 260).to_json();
  auto with = [&](const std::string& from, const std::string& to) {
    std::string s = json;
    size_t p = s.find(from);
    if (p == std::string::npos) ADD_FAILURE() << from;
    return s.replace(p, from.size(), to);
  };
  auto parse = [](const std::string& s) { return Tokenizer::parse(s, "file.json"); };
  EXPECT_NO_THROW(parse(json));
  for (size_t n = 0; n + 2 < json.size(); n += 7) EXPECT_ERROR(parse(json.substr(0, n)), "file.json");
  EXPECT_ERROR(parse(std::string(100000, '[')), "file.json");
  EXPECT_ERROR(parse("{\"a\":" + std::string(100000, '[')), "nests deeper");
  std::string objects;
  for (int i = 0; i < 100000; ++i) objects += "{\"a\":";
  EXPECT_ERROR(parse(objects), "nests deeper");
  EXPECT_ERROR(parse("[]"), "a list");
  EXPECT_ERROR(parse("{}"), "no \"model\"");
  EXPECT_ERROR(parse(with("\"type\": \"BPE\"", "\"type\": \"WordPiece\"")), "WordPiece");
  EXPECT_ERROR(parse(with("\"pre_tokenizer\": {\"type\":\"ByteLevel\"", "\"pre_tokenizer\": {\"type\":\"Metaspace\"")),
               "the decoder ByteLevel");
  EXPECT_ERROR(parse(with("\"normalizer\": null", "\"normalizer\": {\"type\":\"BertNormalizer\"}")), "BertNormalizer");
  EXPECT_ERROR(parse(with("\"byte_fallback\": false", "\"byte_fallback\": true")), "byte_fallback");
  EXPECT_ERROR(parse(with("\"!\": 0", "\"!\": 1")), "two tokens have id 1");
  EXPECT_ERROR(parse(with("\"!\": 0", "\"!\": -1")), "negative");
  EXPECT_ERROR(parse(with("\"!\": 0", "\"!\": 4000000000")), "above the limit");
  EXPECT_ERROR(parse(with("\"!\": 0", "\"!\": 900000")), "leaves most ids unused");
  EXPECT_ERROR(parse(with("\"!\": 0", "\"!\": \"x\"")), "not a number");
  EXPECT_ERROR(parse(with("\"!\": 0", "\"\\u4e00\": 0")), "alphabet");
  EXPECT_ERROR(parse(with("\"!\": 0,\n", "\n")), "byte 0x21");
  EXPECT_ERROR(parse(with("\"!\": 0", "\"!\": 0, \"!\": 999")), "twice");
  EXPECT_ERROR(parse(with("\"a a", "\"a zz")), "not in the vocabulary");
  EXPECT_ERROR(parse(with("\"a a", "\"aa")), "not two tokens");
  EXPECT_ERROR(parse(with("\"id\":259", "\"id\":3")), "disagree");
  EXPECT_ERROR(Tokenizer::load("/nonexistent/tokenizer.json"), "cannot open");
}

TEST(BpeTrain, IsDeterministicAtAnyThreadCountAndDivision) {
  std::string text;
  while (text.size() < (2 << 20)) text += fixture("corpus.txt") + fixture("nasty.txt");
  int threads = omp_get_max_threads();
  omp_set_num_threads(1);
  std::string one = trained(text, 1200).to_json();
  omp_set_num_threads(3);
  std::string three = trained(text, 1200).to_json();
  omp_set_num_threads(threads);
  EXPECT_EQ(one, three);
  BpeTrainer pieces(1200);
  for (size_t start = 0, end; start < text.size(); start = end) {
    end = safe_cut_after(text, start + 100000);
    pieces.add(std::string_view(text).substr(start, end - start));
  }
  EXPECT_EQ(pieces.train().to_json(), one);
}

// Few tracked pairs are used up and counted again, over and over.
TEST(BpeTrain, TheResultDoesNotDependOnHowManyPairsAreTracked) {
  const std::string runs = std::string(1000, 'a') + std::string(77, 'b') + "\n";
  for (const std::string& text : {fixture("corpus.txt").substr(0, 6000), fixture("nasty.txt").substr(0, 3000), runs}) {
    std::string all;
    for (size_t tracked : {1 << 20, 100, 7}) {
      BpeTrainer trainer(400);
      trainer.add(text);
      std::string json = trainer.train({}, tracked).to_json();
      if (all.empty()) all = json;
      EXPECT_EQ(json, all) << tracked;
    }
  }
}

TEST(BpeTrain, TiesGoToTheSmallestIdsAndCountsDecide) {
  // "bc" twice, "ab" twice: equal counts, ids of a < ids of b, so "ab" comes first; then "abc" and
  // so on.
  Tokenizer t = trained("abc abc", 260);
  std::string json = t.to_json();
  EXPECT_NE(json.find("\"a b\",\n      \"ab c\""), std::string::npos) << json.substr(json.find("merges"));
  Tokenizer u = trained("xbc ybc zbc ab", 258);
  EXPECT_NE(u.to_json().find("\"merges\": [\n      \"b c\"\n"), std::string::npos);
}

TEST(BpeTrain, SmallTextsGiveASmallerVocabulary) {
  Tokenizer t = trained("hello hello", 50000);
  EXPECT_LT(t.vocab_size(), 270u);
  EXPECT_EQ(t.encode("hello").size(), 1u);
  EXPECT_EQ(trained("", 257).vocab_size(), 257u);
  EXPECT_ERROR(BpeTrainer(256), "vocabulary of 256 tokens");
  EXPECT_ERROR(BpeTrainer(2000000), "not possible");
}
