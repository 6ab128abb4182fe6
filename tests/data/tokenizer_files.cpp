// Tokenizers of other programs: their formats and
// split rules, and the mistakes of damaged files.
#include <fmt/format.h>
#include <omp.h>

#include <cstring>
#include <iterator>
#include <nlohmann/json.hpp>
#include <sstream>

#include "data/helpers.h"
#include "data/prepare.h"
#include "data/tokenizer.h"
#include "data/unicode.h"

using namespace crest;
using namespace crest::test;
namespace fs = std::filesystem;

// Made by compare_tokenizers.py with Hugging Face `tokenizers` and `tiktoken`.
static fs::path fixture_path(const std::string& name) { return fs::path(CREST_TEST_DIR) / "data/fixtures" / name; }
static std::string fixture_text(const std::string& name) { return read_file(fixture_path(name)); }
static std::vector<uint32_t> numbers(const std::string& name) {
  std::istringstream in(fixture_text(name));
  return {std::istream_iterator<uint32_t>(in), {}};
}

static std::string base64_lines(const std::string& skipped = "") {
  static const char* digits = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
  std::string text;
  for (int b = 0; b < 256; ++b) {
    std::string code = {digits[b >> 2], digits[(b & 3) << 4], '=', '='};
    if (code != skipped) text += code + " " + std::to_string(b) + "\n";
  }
  return text;
}

TEST(TokenizerFiles, EverySplitRuleEqualsHuggingFace) {
  std::string text = fixture_text("rules.txt");
  DataFolder dir;
  for (std::string rule : {"llama3", "qwen2", "o200k", "cl100k"}) {
    Tokenizer t = Tokenizer::load(fixture_path(rule + ".json"));
    EXPECT_EQ(t.split_rule().name, rule);
    std::vector<uint32_t> ids = numbers(rule + "-ids.txt");
    ASSERT_GT(ids.size(), 1000u);
    EXPECT_EQ(t.encode(text), ids) << rule;
    if (rule != "qwen2") {
      EXPECT_EQ(t.decode(ids).size(), text.size());  // é and e + acute are the same added token: same bytes otherwise
    }
    // The written file is the same tokenizer, the post-processor included.
    t.save(dir / "tokenizer.json");
    Tokenizer u = Tokenizer::load(dir / "tokenizer.json");
    EXPECT_EQ(u.encode(text), ids) << rule;
    EXPECT_EQ(u.to_json(), t.to_json());
    EXPECT_NE(t.to_json().find("TemplateProcessing"), std::string::npos);
  }
}

TEST(TokenizerFiles, AModelWithoutVocabularyOrMergesIsRefused) {
  for (const char* key : {"vocab", "merges"}) {
    auto json = nlohmann::json::parse(fixture_text("llama3.json"));
    json["model"].erase(key);
    EXPECT_ERROR(Tokenizer::parse(json.dump(), "t.json"), std::string("its model has no \"") + key + "\"");
  }
}

TEST(TokenizerFiles, AddedTokensAreFoundSpecialOnesInPromptsOnly) {
  Tokenizer t = Tokenizer::load(fixture_path("llama3.json"));
  uint32_t tool = t.encode("<tool>").at(0), start = t.encode("<|start|>", true).at(0);
  EXPECT_EQ(t.decode_token(tool), "<tool>");
  EXPECT_FALSE(t.is_special(tool));
  EXPECT_TRUE(t.is_special(start));
  EXPECT_EQ(t.encode("<tool><|start|>", true), (std::vector<uint32_t>{tool, start}));
  EXPECT_GT(t.encode("<|start|>").size(), 1u);
  EXPECT_EQ(t.end_of_text(), t.encode("<|endoftext|>", true).at(0));
}

TEST(TokenizerFiles, AnyBytesRoundTrip) {
  std::string text = fixture_text("rules.txt") + "\xff\xfe\xc3 \xed\xa0\x80 \xf4\x90\x80\x80 a\xcc";
  for (std::string rule : {"llama3", "o200k", "cl100k"}) {
    Tokenizer t = Tokenizer::load(fixture_path(rule + ".json"));
    EXPECT_EQ(t.decode(t.encode(text)).size(), text.size()) << rule;
  }
  Tokenizer qwen = Tokenizer::load(fixture_path("qwen2.json"));
  EXPECT_EQ(qwen.decode(qwen.encode("x\xff"
                                    "e\xcc\x81\xff\xcc\x81")),
            "x\xff\xc3\xa9\xff\xcc\x81")
      << "NFC around them";
}

TEST(TokenizerFiles, LargeTextsGiveTheSameTokensInParallel) {
  for (std::string rule : {"llama3", "qwen2", "o200k", "cl100k"}) {
    Tokenizer t = Tokenizer::load(fixture_path(rule + ".json"));
    std::string text;
    while (text.size() < (1 << 20)) text += fixture_text("rules.txt") + fixture_text("nasty.txt");
    int threads = omp_get_max_threads();
    omp_set_num_threads(1);
    auto one = t.encode(text, true);  // special: not cut into chunks
    omp_set_num_threads(3);
    auto three = t.encode(text);
    omp_set_num_threads(threads);
    EXPECT_EQ(one, three) << rule;
  }
}

TEST(TokenizerFiles, Gpt2PairInAllItsNames) {
  std::vector<uint32_t> ids = numbers("ids.txt");
  EXPECT_EQ(Tokenizer::load(fixture_path("gpt2-vocab.json")).encode(fixture_text("nasty.txt")), ids);
  EXPECT_EQ(Tokenizer::load(fixture_path("gpt2-merges.txt")).encode(fixture_text("nasty.txt")), ids);
  DataFolder dir;
  std::string vocabulary = fixture_text("gpt2-vocab.json");
  vocabulary.replace(vocabulary.rfind('}'), 1, ",\"<|endoftext|>\":5000}");
  write_file(dir / "encoder.json", vocabulary);
  EXPECT_ERROR(Tokenizer::load(dir / "encoder.json"), "vocab.bpe is missing");
  write_file(dir / "vocab.bpe", fixture_text("gpt2-merges.txt"));
  for (auto& path : {dir / "encoder.json", dir / "vocab.bpe", dir.path()}) {
    Tokenizer t = Tokenizer::load(path);
    EXPECT_EQ(t.encode(fixture_text("nasty.txt")), ids);
    EXPECT_EQ(t.end_of_text(), 5000u);
    EXPECT_EQ(t.vocab_size(), 5001u);
  }
  EXPECT_ERROR(Tokenizer::parse_gpt2("[1]", "", "f"), "not an object");
  EXPECT_ERROR(Tokenizer::parse_gpt2("{\"a\": {\"b\": 1}}", "", "f"), "not a number");
  EXPECT_ERROR(Tokenizer::parse_gpt2("{\"a\": 1", "", "f"), "not valid JSON");
  EXPECT_ERROR(Tokenizer::parse_gpt2("5", "", "f"), "not an object");
  EXPECT_ERROR(Tokenizer::parse_gpt2(vocabulary, "#version: 0.2\na\n", "f"), "not two tokens");
  EXPECT_ERROR(Tokenizer::parse_gpt2(vocabulary, "q zzqz", "f"), "not in the vocabulary");
}

TEST(TokenizerFiles, TiktokenEqualsTiktokenWhateverTheRanks) {
  std::string text = fixture_text("rules.txt");
  Tokenizer t = Tokenizer::load(fixture_path("cl100k.tiktoken"), "cl100k");
  EXPECT_EQ(t.encode(text), numbers("tiktoken-ids.txt"));
  EXPECT_EQ(t.decode(t.encode(text)), text);
  Tokenizer u = Tokenizer::parse(t.to_json(), "written");
  EXPECT_EQ(u.encode(text), numbers("tiktoken-ids.txt"));
  EXPECT_EQ(u.split_rule().name, "cl100k");
}

TEST(TokenizerFiles, DamagedTiktokenFilesAreErrors) {
  auto parse = [](const std::string& text) { return Tokenizer::parse_tiktoken(text, "f.tiktoken", "gpt2"); };
  std::string bytes = base64_lines();
  EXPECT_EQ(parse(bytes + "YWI= 300\n").encode("ab"), std::vector<uint32_t>{300});
  EXPECT_EQ(parse(bytes + "= 256\n").vocab_size(), 258u) << "Whisper's empty token keeps its id";
  EXPECT_ERROR(Tokenizer::parse_tiktoken(bytes, "f.tiktoken"), "--split-rule");
  EXPECT_ERROR(parse(base64_lines("QQ==")), "byte 0x41");
  EXPECT_ERROR(parse(bytes + "QQ== 400\n"), "twice");
  EXPECT_ERROR(parse(bytes + "YWI= 3\n"), "two tokens have id 3");
  EXPECT_ERROR(parse(bytes + "YWI=\n"), "line 257");
  EXPECT_ERROR(parse(bytes + "Y?I= 300\n"), "line 257");
  EXPECT_ERROR(parse(bytes + "YWI 300\n"), "line 257");
  EXPECT_ERROR(parse(bytes + "YWI= -3\n"), "line 257");
  EXPECT_ERROR(parse(bytes + "YWI= 99999999999999999999\n"), "line 257");
  EXPECT_ERROR(parse(bytes + "YWI= 4000000000\n"), "above the limit");
  EXPECT_ERROR(parse(bytes + "YWI= 900000\n"), "leaves most ids unused");
  EXPECT_ERROR(parse(bytes + std::string(4000, 'Q') + " 300\n"), "more than 512 bytes");
  EXPECT_ERROR(parse(""), "byte 0x00");
}

TEST(TokenizerFiles, WhatTheFileIsIsSeenInItsContent) {
  DataFolder dir;
  write_file(dir / "tokenizer.model", base64_lines());
  EXPECT_EQ(Tokenizer::load(dir / "tokenizer.model", "llama3").split_rule().name, "llama3");
  write_file(dir / "sp.model", "\n\x0e\n\x05<unk>");
  EXPECT_ERROR(Tokenizer::load(dir / "sp.model"), "SentencePiece model ends within a field");
  EXPECT_ERROR(Tokenizer::load(fixture_path("sentencepiece.model"), "gpt2"), "no split rule");
  write_file(dir / "text", "hello world\n");
  EXPECT_ERROR(Tokenizer::load(dir / "text"), "unknown tokenizer format");
  write_file(dir / "empty/file", "");
  EXPECT_ERROR(Tokenizer::load(dir / "empty"), "the folder has no tokenizer");
  EXPECT_ERROR(Tokenizer::load(dir / "empty/file"), "unknown tokenizer format");
  EXPECT_ERROR(Tokenizer::load(fixture_path("llama3.json"), "qwen2"), "states its split rule: llama3");
  EXPECT_ERROR(Tokenizer::load(fixture_path("llama3.json"), "bert"), "no split rule 'bert'");
}

// Made by compare_tokenizers.py: a model of Llama's kind, and its tokens by `sentencepiece`.
TEST(TokenizerFiles, SentencePieceModelsGiveTheirTokens) {
  Tokenizer t = Tokenizer::load(fixture_path("sentencepiece.model"));
  EXPECT_FALSE(t.byte_level());
  EXPECT_FALSE(t.lossless());
  ASSERT_TRUE(t.end_of_text());
  EXPECT_EQ(t.decode_token(*t.end_of_text()), "</s>");
  std::vector<uint32_t> ids;
  std::string text = fixture_text("nasty.txt"), line;
  for (std::istringstream in(text); std::getline(in, line);) {
    auto tokens = t.encode(line);
    EXPECT_EQ(t.decode(tokens), line);
    ids.insert(ids.end(), tokens.begin(), tokens.end());
  }
  EXPECT_EQ(ids, numbers("sentencepiece-ids.txt"));
  // The written file is the same tokenizer.
  DataFolder dir;
  t.save(dir / "tokenizer.json");
  Tokenizer u = Tokenizer::load(dir / "tokenizer.json");
  EXPECT_EQ(u.encode(text), t.encode(text));
  EXPECT_EQ(u.to_json(), t.to_json());
  write_file(dir / "m/tokenizer.model", fixture_text("sentencepiece.model"));
  EXPECT_EQ(Tokenizer::load(dir / "m").to_json(), t.to_json());
}

// As `sentencepiece` and `tokenizers` have it: a space is its mark, U+2581, where bytes spell it.
TEST(TokenizerFiles, ASpaceWithoutAPieceIsTheBytesOfItsMark) {
  auto vocabulary = nlohmann::json::object();
  for (int b = 0; b < 256; ++b) vocabulary[fmt::format("<0x{:02X}>", b)] = b;
  vocabulary["a"] = 256, vocabulary["b"] = 257, vocabulary["ab"] = 258;
  const nlohmann::json mark = {{"type", "Replace"}, {"pattern", {{"String", " "}}}, {"content", "\u2581"}},
                       back = {{"type", "Replace"}, {"pattern", {{"String", "\u2581"}}}, {"content", " "}};
  nlohmann::json json = {
      {"normalizer", mark},
      {"decoder", {{"type", "Sequence"}, {"decoders", {back, {{"type", "ByteFallback"}}, {{"type", "Fuse"}}}}}},
      {"model", {{"type", "BPE"}, {"byte_fallback", true}, {"vocab", vocabulary}, {"merges", {"a b"}}}}};
  using Ids = std::vector<uint32_t>;
  const Ids space = {0xe2, 0x96, 0x81};
  Tokenizer t = Tokenizer::parse(json.dump(), "t.json");
  EXPECT_EQ(t.encode(" "), space);
  EXPECT_EQ(t.encode("\u2581"), space);
  EXPECT_EQ(t.encode("ab a"), (Ids{258, 0xe2, 0x96, 0x81, 256}));
  EXPECT_EQ(t.encode("\n"), Ids{10});
  EXPECT_EQ(t.decode(t.encode("a b")),
            "a\u2581"
            "b")
      << "as both decode it";
  // With a pre-tokenizer for the marks, too.
  json["normalizer"] = nullptr;
  json["pre_tokenizer"] = {{"type", "Metaspace"}, {"prepend_scheme", "always"}};
  EXPECT_EQ(Tokenizer::parse(json.dump(), "t.json").encode("ab"), (Ids{0xe2, 0x96, 0x81, 258}));
  // A mark among the tokens is this token.
  json["model"]["vocab"]["\u2581"] = 259;
  EXPECT_EQ(Tokenizer::parse(json.dump(), "t.json").encode("ab"), (Ids{259, 258}));
}

// The files beside a vocabulary, as transformers reads them.
TEST(TokenizerFiles, FilesBesideAVocabularyAddTheirTokens) {
  DataFolder dir;
  write_file(dir / "vocab.json", fixture_text("gpt2-vocab.json"));
  write_file(dir / "merges.txt", fixture_text("gpt2-merges.txt"));
  const uint32_t size = Tokenizer::load(dir / "vocab.json").vocab_size();
  using Ids = std::vector<uint32_t>;
  auto write = [&](const char* name, const nlohmann::json& json) { write_file(dir / name, json.dump()); };
  auto encode = [&](const char* text, bool special = false) {
    return Tokenizer::load(dir.path()).encode(text, special);
  };
  write("added_tokens.json", {{"<tool>", size + 1}, {"<|im_end|>", size}});
  EXPECT_EQ(encode("<|im_end|><tool>"), (Ids{size, size + 1})) << "neither is special";
  // Named tokens are special: found in prompts only. Without an id, a token gets the next one.
  write("special_tokens_map.json", {{"eos_token", "<|im_end|>"},
                                    {"bos_token", {{"content", "<bos>"}, {"lstrip", false}}},
                                    {"additional_special_tokens", {"<a>", {{"content", "<b>"}}}}});
  Tokenizer t = Tokenizer::load(dir / "merges.txt");
  EXPECT_EQ(t.vocab_size(), size + 5);
  EXPECT_EQ(t.encode("<tool>"), Ids{size + 1});
  EXPECT_GT(t.encode("<|im_end|>").size(), 1u);
  EXPECT_EQ(t.encode("<|im_end|><bos><a><b>", true), (Ids{size, size + 2, size + 3, size + 4}));
  EXPECT_EQ(t.begin_of_text(), size + 2);
  EXPECT_EQ(Tokenizer::parse(t.to_json(), "written").encode("<bos><tool>", true), (Ids{size + 2, size + 1}));
  // Names with a prefix are of other programs' files.
  for (const char* name : {"vocab.json", "merges.txt"})
    write_file(dir / ("x-" + std::string(name)), read_file(dir / name));
  EXPECT_EQ(Tokenizer::load(dir / "x-vocab.json").vocab_size(), size);
  // added_tokens_decoder replaces both files.
  nlohmann::json decoder = {{std::to_string(size), {{"content", "<|eot|>"}, {"special", true}}},
                            {std::to_string(size + 3), {{"content", "<x>"}, {"special", false}}}};
  write("tokenizer_config.json", {{"added_tokens_decoder", decoder}, {"eos_token", "<|eot|>"}, {"pad_token", "the"}});
  t = Tokenizer::load(dir.path());
  EXPECT_EQ(t.encode("<|eot|><x>", true), (Ids{size, size + 3}));
  EXPECT_GT(t.encode("<tool>").size(), 1u);
  EXPECT_FALSE(t.is_special(t.encode("the").at(0))) << "text stays text";
  // The same beside a tokenizer.json, and beside SentencePiece's model.
  write_file(dir / "j/tokenizer.json", Tokenizer::bytes().to_json());
  write("j/tokenizer_config.json",
        {{"added_tokens_decoder", {{"257", {{"content", "<x>"}, {"special", false}}}}}, {"pad_token", "<none>"}});
  t = Tokenizer::load(dir / "j/tokenizer.json");
  EXPECT_EQ(t.encode("a<x>"), (Ids{'a', 257}));
  EXPECT_EQ(t.vocab_size(), 258u) << "tokenizer.json has all tokens of the model";
  write_file(dir / "s/tokenizer.model", fixture_text("sentencepiece.model"));
  write("s/added_tokens.json", {{"<pad>", 480}});
  EXPECT_EQ(Tokenizer::load(dir / "s").encode("<pad>"), Ids{480});
  // An unreadable file is an error with its name.
  struct Case {
    const char *file, *text, *said;
  };
  for (auto& c : {Case{"added_tokens.json", "[]", "not a JSON object"},
                  Case{"added_tokens.json", R"({"a": "b"})", "the id of 'a' is not a number"},
                  Case{"added_tokens.json", R"({"<s>": 3})", "disagree about id 3"},
                  Case{"special_tokens_map.json", R"({"eos_token": 5})", "eos_token is not a token"},
                  Case{"tokenizer_config.json", R"({"added_tokens_decoder": {"x": {}}})", "not an id and its token"},
                  Case{"tokenizer_config.json", "{", "line 1"}}) {
    SCOPED_TRACE(c.text);
    DataFolder bad;
    for (const char* name : {"vocab.json", "merges.txt"}) write_file(bad / name, read_file(dir / name));
    write_file(bad / c.file, c.text);
    EXPECT_ERROR(Tokenizer::load(bad.path()), c.said);
  }
}

// Texts end at the same tokens as in generate() of transformers: the tokens named by the files.
// Between documents there is only the token for the end of texts. No text can produce it.
TEST(TokenizerFiles, TheTokenBetweenDocumentsIsTheOneThatTheFilesName) {
  DataFolder dir;
  auto json = nlohmann::json::parse(Tokenizer::bytes().to_json());
  for (auto [text, id, special] : {std::tuple("<|im_end|>", 257, true), {"<stop>", 258, false}})
    json["added_tokens"].push_back({{"id", id}, {"content", text}, {"special", special}, {"normalized", false}});
  write_file(dir / "tokenizer.json", json.dump());
  auto end = [&] { return Tokenizer::load(dir.path()).end_of_text(); };
  auto write = [&](const char* name, const nlohmann::json& content) { write_file(dir / name, content.dump()); };
  EXPECT_EQ(end(), 256u) << "the known name";
  write("config.json", {{"eos_token_id", 258}});
  EXPECT_EQ(end(), 258u);
  EXPECT_GT(Tokenizer::load(dir.path()).encode("<stop>").size(), 1u);
  write("generation_config.json", {{"eos_token_id", {'a', 257}}});
  EXPECT_EQ(end(), 257u) << "a letter ends no document; config.json does not count";
  write("generation_config.json", {{"eos_token_id", {257, 256}}});
  EXPECT_EQ(end(), 256u) << "the one that only ends texts";
  write_file(dir / "generation_config.json", "{");
  EXPECT_EQ(end(), 256u) << "what generates reports it";
  write("tokenizer_config.json", {{"eos_token", "<|im_end|>"}});
  EXPECT_EQ(end(), 257u);
}

// transformers uses one file or the other here, so Crest refuses the contradiction.
TEST(TokenizerFiles, FilesThatDisagreeAreRefused) {
  DataFolder dir;
  auto json = nlohmann::json::parse(Tokenizer::bytes().to_json());
  write_file(dir / "tokenizer.json", json.dump());
  auto config = [&](const nlohmann::json& content) { write_file(dir / "tokenizer_config.json", content.dump()); };
  auto decoder = [](const char* id, const char* text) {
    return nlohmann::json{{"added_tokens_decoder", {{id, {{"content", text}, {"special", true}}}}}};
  };
  config(decoder("256", "<|im_end|>"));
  EXPECT_ERROR(Tokenizer::load(dir.path()), "token 256 is '<|endoftext|>' and '<|im_end|>'");
  config(decoder("300", "<|im_end|>"));
  EXPECT_ERROR(Tokenizer::load(dir.path()), "has the id 300, but transformers would give it the id 257");
  config({{"add_prefix_space", true}, {"tokenizer_class", "GPT2Tokenizer"}});
  EXPECT_ERROR(Tokenizer::load(dir.path()), "add_prefix_space is true");
  config({{"add_prefix_space", true}, {"tokenizer_class", "PreTrainedTokenizerFast"}});
  EXPECT_EQ(Tokenizer::load(dir.path()).encode("a").size(), 1u);
  json["pre_tokenizer"] = {{"type", "ByteLevel"}, {"add_prefix_space", true}, {"use_regex", true}};
  write_file(dir / "tokenizer.json", json.dump());
  config({{"add_prefix_space", true}, {"tokenizer_class", "GPT2Tokenizer"}});
  EXPECT_EQ(Tokenizer::load(dir.path()).encode("a").size(), 2u);
  // Llama's: the normalizer puts it there.
  std::filesystem::remove(dir / "tokenizer.json");
  write_file(dir / "tokenizer.model", fixture_text("sentencepiece.model"));
  config({{"add_prefix_space", false}, {"tokenizer_class", "LlamaTokenizer"}});
  EXPECT_ERROR(Tokenizer::load(dir.path()), "puts a space before texts");
}

// Such a token is found in the text before merges, and still stands for its byte.
TEST(TokenizerFiles, AnAddedTokenMayBeThatOfAByte) {
  auto json = nlohmann::json::parse(fixture_text("llama3.json"));
  auto add = [&](const char* text) {
    json["added_tokens"].push_back(
        {{"id", json["model"]["vocab"][text]}, {"content", text}, {"special", false}, {"normalized", false}});
  };
  const Tokenizer before = Tokenizer::parse(json.dump(), "t.json");
  const auto the = before.encode("the");
  ASSERT_LT(the.size(), 3u);
  add("h");
  const Tokenizer t = Tokenizer::parse(json.dump(), "t.json");
  EXPECT_EQ(t.encode("the"),
            (std::vector<uint32_t>{before.encode("t")[0], before.encode("h")[0], before.encode("e")[0]}));
  EXPECT_EQ(t.decode(t.encode("the")), "the");
  add("\u00c5");  // in the alphabet of bytes 0xc5, as a text two bytes
  EXPECT_ERROR(Tokenizer::parse(json.dump(), "t.json"), "also the token of byte 0xc5");
}

TEST(TokenizerFiles, WhatIsNoFileOfATokenizerIsNamed) {
  DataFolder dir;
  write_file(dir / "tokenizer.json", "version https://git-lfs.github.com/spec/v1\noid sha256:4d7a\nsize 1\n");
  EXPECT_ERROR(Tokenizer::load(dir.path()), "pointer of Git LFS");
  write_file(dir / "tokenizer.json", "\xef\xbb\xbf" + Tokenizer::bytes().to_json());
  EXPECT_EQ(Tokenizer::load(dir.path()).vocab_size(), 257u) << "a byte order mark";
}

// A preparation reads a text in blocks: one space before the document, none between blocks.
TEST(TokenizerFiles, ADocumentHasTheSameTokensInBlocks) {
  Tokenizer t = Tokenizer::load(fixture_path("sentencepiece.model"));
  std::string text;
  while (text.size() < 400'000) text += fixture_text("nasty.txt");  // longer than a task's text
  auto whole = t.encode(text);
  Encoder encoder(t);
  std::vector<std::string_view> parts;
  std::vector<uint8_t> continues;
  for (std::string_view rest = text; !rest.empty();) {
    size_t cut = safe_cut_after(rest, 1000);
    continues.push_back(!parts.empty());
    parts.push_back(rest.substr(0, cut));
    rest.remove_prefix(cut);
  }
  std::vector<uint32_t> ids;
  for (auto& part : encoder.encode(parts, continues)) ids.insert(ids.end(), part.begin(), part.end());
  EXPECT_EQ(ids, whole);
  EXPECT_EQ(t.decode(whole), text);
}

// Text of the .proto, by hand: (text, score, type), and the fields of the two specs.
static std::string proto(uint64_t field, std::string_view bytes) {
  return std::string{char(field << 3 | 2), char(bytes.size())} + std::string(bytes);
}
static std::string piece(std::string_view text, char type = 1, uint8_t score = 0x80) {
  std::string score_field = {0x15, 0, 0, char(score), char(0xbf)};  // about -1
  return proto(1, proto(1, text) + score_field + std::string{0x18, type});
}

TEST(TokenizerFiles, WhatIsNotSupportedInASentencePieceModelIsNamed) {
  std::string pieces = piece("<unk>", 2) + piece("\xe2\x96\x81") + piece("a") + piece("b") + piece("ab");
  std::string bpe = proto(2, "\x18\x02"), identity = proto(3, std::string("\x20\x00", 2));
  auto parse = [&](const std::string& s) { return Tokenizer::parse_sentencepiece(s, "file.model"); };
  Tokenizer t = parse(pieces + bpe + identity);
  EXPECT_EQ(t.encode("abb a?!"), (std::vector<uint32_t>{1, 4, 3, 1, 2, 0}));
  EXPECT_EQ(t.encode(""), (std::vector<uint32_t>{}));
  EXPECT_ERROR(parse(pieces + identity), "type Unigram");
  EXPECT_ERROR(parse(pieces + proto(2, "\x18\x04") + identity), "type characters");
  EXPECT_ERROR(parse(pieces + bpe), "remove_extra_whitespaces");
  EXPECT_ERROR(parse(pieces + bpe + proto(3, proto(1, "nmt_nfkc") + proto(2, "x"))), "normalization nmt_nfkc");
  EXPECT_ERROR(parse(pieces + proto(2, std::string("\x18\x02\xc0\x01\x01", 5)) + identity),
               "treat_whitespace_as_suffix");
  EXPECT_ERROR(parse(pieces + bpe + proto(3, std::string("\x20\x00\x28\x00", 4))), "escape_whitespaces");
  EXPECT_ERROR(parse(pieces + piece("c", 4) + bpe + identity), "user-defined piece 'c'");
  EXPECT_ERROR(parse(pieces + piece("c", 5) + bpe + identity), "unused piece 'c'");
  EXPECT_ERROR(parse(pieces + piece("ba") + bpe + identity), "with the score of another");
  EXPECT_ERROR(parse(pieces + piece("bc", 1, 0x81) + bpe + identity), "whose characters are not all pieces");
  EXPECT_ERROR(parse(pieces + piece("a\xe2\x96\x81", 1, 0x81) + bpe + identity),
               "holds a space after another character");
  EXPECT_ERROR(parse(pieces + piece("a") + bpe + identity), "appears twice");
  EXPECT_ERROR(parse(pieces + piece("\xff") + bpe + identity), "not UTF-8");
  EXPECT_ERROR(parse(std::string("\n\x84\x10\n\x81\x10", 6) + std::string(2049, 'a') + bpe + identity),
               "longer than 1024");
  EXPECT_ERROR(parse(pieces + proto(2, "\x18\x02\x98\x02\x01") + identity), "no token <0x00>");
  std::string whole = pieces + bpe + identity;
  for (size_t n = 0; n < whole.size(); ++n) EXPECT_THROW(parse(whole.substr(0, n)), Error) << n;
}

TEST(TokenizerFiles, WhatIsNotSupportedOfATokenizerOfCharactersIsNamed) {
  const std::string json = Tokenizer::load(fixture_path("sentencepiece.model")).to_json();
  auto with = [&](const std::string& from, const std::string& to) {
    std::string s = json;
    size_t p = s.find(from);
    if (p == std::string::npos) ADD_FAILURE() << from;
    return s.replace(p, from.size(), to);
  };
  auto parse = [](const std::string& s) { return Tokenizer::parse(s, "file.json"); };
  EXPECT_NO_THROW(parse(json));
  EXPECT_ERROR(parse(with("\"type\": \"Prepend\"", "\"type\": \"Nmt\"")), "the normalizer Nmt");
  EXPECT_ERROR(parse(with("\"type\": \"Prepend\"", "\"type\": \"Precompiled\", \"precompiled_charsmap\": \"AA\"")),
               "Precompiled");
  EXPECT_ERROR(
      parse(with(
          "{\"type\": \"Prepend\"",
          "{\"type\": \"Replace\", \"pattern\": {\"Regex\": \"a+\"}, \"content\": \"b\"}, {\"type\": \"Prepend\"")),
      "Replace of 'a+' by 'b'");
  for (const char* bad : {"\"a b\"}, \"content\": \"c\"", "\"\\n\"}, \"content\": \"\"", "\"a\"}, \"content\": \"a \"",
                          "\"a\"}, \"content\": \"\""})
    EXPECT_ERROR(parse(with("{\"type\": \"Prepend\"", "{\"type\": \"Replace\", \"pattern\": {\"String\": " +
                                                          std::string(bad) + "}, {\"type\": \"Prepend\"")),
                 "the normalizer Replace of");
  EXPECT_ERROR(parse(with("\"pre_tokenizer\": null", "\"pre_tokenizer\": {\"type\": \"Whitespace\"}")),
               "pre_tokenizer Whitespace");
  EXPECT_ERROR(parse(with("\"pre_tokenizer\": null",
                          "\"pre_tokenizer\": {\"type\": \"Metaspace\", \"prepend_scheme\": \"often\"}")),
               "prepend_scheme often");
  EXPECT_ERROR(
      parse(with("\"pre_tokenizer\": null", "\"pre_tokenizer\": {\"type\": \"Metaspace\", \"replacement\": \"_\"}")),
      "'_'");
  EXPECT_ERROR(parse(with("\"type\": \"Fuse\"", "\"type\": \"CTC\"")), "the decoder CTC");
  EXPECT_ERROR(parse(with("\"type\": \"ByteFallback\"", "\"type\": \"Fuse\"")), "without the decoder ByteFallback");
  EXPECT_ERROR(parse(with("\"ignore_merges\": false", "\"ignore_merges\": true")),
               "ignore_merges = true without ByteLevel");
  EXPECT_ERROR(parse(with("\"byte_fallback\": true", "\"byte_fallback\": false, \"unk_token\": \"none\"")),
               "without unk_token");
}

// A word that is a token stays one, though no merges make it.
TEST(TokenizerFiles, WholeWordsOfCharactersIgnoreMerges) {
  const std::string metaspace =
      R"({"type": "Metaspace", "replacement": "\u2581", "prepend_scheme": "never", "split": true})";
  const std::string model =
      R"("unk_token": "<unk>", "merges": [],
         "vocab": {"<unk>": 0, "\u2581": 1, "a": 2, "b": 3, "ab": 4, "\u2581ab": 5})";
  const Tokenizer t = Tokenizer::parse(R"({"model": {"type": "BPE", "ignore_merges": true, )" + model +
                                           R"(}, "normalizer": null, "pre_tokenizer": )" + metaspace +
                                           R"(, "decoder": )" + metaspace + "}",
                                       "file.json");
  EXPECT_EQ(t.encode("ab ab abab a"), (std::vector<uint32_t>{4, 5, 1, 2, 3, 2, 3, 1, 2}));  // as `tokenizers`
  EXPECT_EQ(Tokenizer::parse(t.to_json(), "again").encode("ab ab"), (std::vector<uint32_t>{4, 5}));
}

// Eight steps, each doubling every letter, make 256 of one.
TEST(TokenizerFiles, ANormalizerThatMultipliesTextIsStopped) {
  std::string json = Tokenizer::load(fixture_path("sentencepiece.model")).to_json(), steps;
  for (int i = 0; i < 8; ++i) steps += R"({"type": "Replace", "pattern": {"String": "a"}, "content": "aa"}, )";
  const std::string first = R"({"type": "Prepend")";
  Tokenizer t = Tokenizer::parse(json.replace(json.find(first), first.size(), steps + first), "file.json");
  EXPECT_EQ(t.decode(t.encode("abc")), std::string(256, 'a') + "bc");
  EXPECT_ERROR(t.encode(std::string(1000, 'a')), "of a text of 1000");
}

TEST(TokenizerFiles, WhatIsNotSupportedIsNamed) {
  std::string json = fixture_text("llama3.json");
  auto with = [&](const std::string& from, const std::string& to) {
    std::string s = json;
    size_t p = s.find(from);
    if (p == std::string::npos) ADD_FAILURE() << from;
    return s.replace(p, from.size(), to);
  };
  auto parse = [](const std::string& s) { return Tokenizer::parse(s, "file.json"); };
  EXPECT_ERROR(parse(with("{1,3}", "{1,4}")), "the split rule");
  EXPECT_ERROR(parse(with("\"Isolated\"", "\"MergedWithNext\"")), "MergedWithNext");
  EXPECT_ERROR(parse(with("\"use_regex\":false", "\"use_regex\":true")), "more than one split rule");
  EXPECT_ERROR(parse(with("\"type\":\"Split\"", "\"type\":\"Digits\"")), "use_regex = false");
  EXPECT_ERROR(parse(with("\"type\":\"Split\"", "\"type\":\"Punctuation\"")), "Punctuation");
  EXPECT_ERROR(parse(with("<tool>", "<a tool>")), "holds a space");
  EXPECT_ERROR(parse(with("\"normalizer\":null", "\"normalizer\":{\"type\":\"StripAccents\"}")), "StripAccents");
  EXPECT_NO_THROW(parse(with("\"normalizer\":null", "\"normalizer\":{\"type\":\"Sequence\",\"normalizers\":[]}")));
}

// Phi-3's special tokens take the white space behind them, masks the one before them.
TEST(TokenizerFiles, AddedTokensTakeTheWhiteSpaceBesideThem) {
  const auto with = [](std::string json, const std::string& token, const char* flag) {
    const size_t at = json.find(flag, json.find("\"" + token + "\""));
    return json.replace(at, std::strlen(flag), std::string(flag).substr(0, std::strlen(flag) - 5) + "true");
  };
  const std::string json = fixture_text("llama3.json");
  const Tokenizer plain = Tokenizer::parse(json, "file.json");
  const uint32_t start = plain.encode("<|start|>", true).at(0), tool = plain.encode("<tool>").at(0);
  auto join = [&](const Tokenizer& t, std::initializer_list<const char*> parts, uint32_t token) {
    std::vector<uint32_t> ids;
    for (const char* part : parts) {
      if (part != *parts.begin()) ids.push_back(token);
      for (uint32_t id : t.encode(part)) ids.push_back(id);
    }
    return ids;
  };
  const Tokenizer right = Tokenizer::parse(with(json, "<|start|>", "\"rstrip\":false"), "file.json");
  EXPECT_EQ(right.encode("a <|start|> \n\xc2\xa0 b<|start|>c <|start|> ", true),
            join(right, {"a ", "b", "c ", ""}, start));
  EXPECT_EQ(right.encode("a <|start|> b"), plain.encode("a <|start|> b")) << "special tokens are for prompts";
  const Tokenizer left = Tokenizer::parse(with(json, "<tool>", "\"lstrip\":false"), "file.json");
  EXPECT_EQ(left.encode("a \xe3\x80\x80<tool> b\n<tool><tool>"), join(left, {"a", " b", "", ""}, tool));
  EXPECT_EQ(Tokenizer::parse(left.to_json(), "again").to_json(), left.to_json());
  EXPECT_NE(left.difference(plain, "A", "B"), "");
  // Next to a letter, mark, digit, connector or joiner it is ordinary text, and so is all in it.
  const Tokenizer word = Tokenizer::parse(with(json, "<tool>", "\"single_word\":false"), "file.json");
  EXPECT_EQ(word.encode("a <tool>.<tool>\u00bd"), join(word, {"a ", ".", "\u00bd"}, tool));
  for (const char* beside : {"a", "\u00e9", "\u0301", "1", "\u2167", "_", "\u200d", "\u24d0"})
    for (bool before : {false, true}) {
      const std::string text = before ? beside + std::string("<tool>") : std::string("<tool>") + beside;
      const std::vector<uint32_t> ids = word.encode(text);
      EXPECT_EQ(std::ranges::count(ids, tool), 0) << text;
      EXPECT_EQ(word.decode(ids), text);
    }
  EXPECT_EQ(Tokenizer::parse(word.to_json(), "again").to_json(), word.to_json());
  EXPECT_NE(word.difference(plain, "A", "B"), "");
  EXPECT_ERROR(Tokenizer::parse(with(json, "<tool>", "\"rstrip\":false"), "file.json"), "not special and has rstrip");
}

TEST(TokenizerFiles, TextsAreNormalizedAndOthersLeftAlone) {
  std::string out;
  EXPECT_FALSE(normalize_nfc("plain \xc3\xa9 \xff\xcc", out));
  EXPECT_TRUE(normalize_nfc("a e\xcc\x81. \xe1\x84\x80\xe1\x85\xa1", out));
  EXPECT_EQ(out, "a \xc3\xa9. \xea\xb0\x80");
  EXPECT_FALSE(normalize_nfc("\u08d0\u0334", out)) << "a mark of Unicode 14 stays where it is";
}

TEST(TokenizerFiles, PreparedDataKeepTheTokenizer) {
  DataFolder dir;
  std::string text = fixture_text("rules.txt") + fixture_text("nasty.txt");
  std::erase(text, '\0');  // a file with NUL bytes is not text
  write_file(dir / "a.txt", text);
  PrepareOptions o;
  o.inputs = {(dir / "a.txt").string()};
  o.tokenizer = fixture_path("qwen2.json").string();
  o.out = dir / "d";
  prepare(o);
  EXPECT_EQ(read_file(dir / "d/tokenizer.json"), Tokenizer::load(o.tokenizer).to_json());
  o.tokenizer = "bpe:300", o.split_rule = "llama3", o.out = dir / "e";
  prepare(o);
  EXPECT_EQ(Tokenizer::load(dir / "e/tokenizer.json").split_rule().name, "llama3");
  o.tokenizer = "bytes", o.out = dir / "f";
  EXPECT_ERROR(prepare(o), "has no split rule");
}
