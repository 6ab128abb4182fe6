// crest data prepare of .jsonl files.
#include "data/json_lines.h"

#include "cli/run.h"
#include "core/error.h"

using namespace crest;
using namespace crest::test;

namespace {

RunOptions lines_in(const TempFolder& folder) { return {.folder = folder.path().string()}; }

// Tokens are bytes, 256 stands between documents: the text of both splits.
std::string text_of(const TempFolder& folder, const std::string& data) {
  std::string text;
  for (const char* shard : {"/train-000000.bin", "/val-000000.bin"}) {
    std::string file = folder.read(data + shard);
    for (size_t i = 1024; i + 1 < file.size(); i += 2) text += file[i + 1] ? '|' : file[i];
  }
  return text;
}

}  // namespace

TEST(JsonLinesInput, EveryLineIsADocument) {
  TempFolder folder;
  std::string lines, expected;
  for (int i = 0; i < 200; ++i) {
    lines += "{\"id\": " + std::to_string(i) + ", \"text\": \"line " + std::to_string(i) +
             "\\nwith \\u00e4 and \\ud83d\\ude00\", \"more\": {\"text\": [1]}}" + (i % 2 ? "\r\n\n" : "\n");
    expected += (i ? "|" : "") + ("line " + std::to_string(i)) + "\nwith \u00e4 and \U0001F600";
  }
  lines += "{\"text\": \"the last\"}";  // no line break at the end
  expected += "|the last";
  folder.write("corpus/a.jsonl", lines);
  RunResult r = run_crest({"data", "prepare", "corpus/a.jsonl", "--out", "d", "--json"}, lines_in(folder));
  ASSERT_EQ(r.code, 0) << r.err;
  EXPECT_EQ(r.json()["documents"], 201);
  EXPECT_EQ(text_of(folder, "d"), expected);
  // A folder takes it beside a text; another key; lines longer than a block make no difference to
  // memory's blocks.
  folder.write("corpus/b.txt", "plain text, one document");
  r = run_crest({"data", "prepare", "corpus", "--out", "both", "--json"}, lines_in(folder));
  ASSERT_EQ(r.code, 0) << r.err;
  EXPECT_EQ(r.json()["documents"], 202);
  EXPECT_EQ(text_of(folder, "both"), expected + "|plain text, one document");
  folder.write("keys.jsonl",
               "{\"body\": \"" + std::string(9 << 20, 'x') + "\"}\n{\"text\": 1, \"body\": \"two words\"}\n");
  r = run_crest({"data", "prepare", "keys.jsonl", "--text-key", "body", "--out", "keys", "--json"}, lines_in(folder));
  ASSERT_EQ(r.code, 0) << r.err;
  EXPECT_EQ(r.json()["text_bytes"], (9 << 20) + 9);
  // The held-out part may begin between the two: then the token between them is the first of the
  // second split.
  EXPECT_TRUE(text_of(folder, "keys").ends_with("xx|two words"));
}

TEST(JsonLinesInput, BadLinesAreNamed) {
  TempFolder folder;
  std::string good = "{\"text\": \"fine\"}\n";
  for (auto& [line, said] : std::vector<std::pair<std::string, std::string>>{
           {"{\"text\": \"open", "JSON"},
           {"[1, 2]", "not a JSON object"},
           {"{\"content\": \"x\"}", "no key \"text\""},
           {"{\"text\": 5}", "not a string"},
           {"{\"text\": \"\xff\"}", "column 11: not valid JSON: invalid string"},
           {"{\"text\": \"a\\ud800\"}", "column 18: not valid JSON: invalid string: surrogate"},
           {"{\"text\": \"a\", \"n\": NaN}", "column 20: not valid JSON, which has no NaN"},
           {"{\"text\": \"a\", \"n\": 1e999}", "column 20: not valid JSON: number overflow"},
           {"{\"text\": \"a\"} {\"text\": \"b\"}", "JSON"},
           {std::string(5000, '['), "deep"},
           {"plain text", "JSON"}}) {
    folder.write("bad.jsonl", good + "\n" + good + line + "\n" + good);
    expect_error({"data", "prepare", "bad.jsonl", "--out", "d"}, 1, {said, "bad.jsonl, line 4", "--text-key"},
                 lines_in(folder));
    EXPECT_FALSE(std::filesystem::exists(folder / "d"));
  }
  folder.write("bad.jsonl", "{\"text\": \"\"}\n\n");
  expect_error({"data", "prepare", "bad.jsonl", "--out", "d"}, 1, {"the input contains no text"}, lines_in(folder));
}

// A prompt and an answer: the answer and the token after it are trained on.
TEST(JsonLinesInput, PromptsAreMaskedAndAnswersAreNot) {
  TempFolder folder;
  std::string lines;
  for (int i = 0; i < 40; ++i) {
    const char* key = i % 3 == 0 ? "answer" : i % 3 == 1 ? "completion" : "response";
    lines += "{\"prompt\": \"Q" + std::to_string(i) + ":\", \"" + key + "\": \" yes \u00e4\"}\n";
  }
  lines += "{\"text\": \"plain\"}\n{\"prompt\": \"\", \"answer\": \"A\"}\n";
  folder.write("qa.jsonl", lines);
  RunResult r = run_crest({"data", "prepare", "qa.jsonl", "--out", "d", "--json"}, lines_in(folder));
  ASSERT_EQ(r.code, 0) << r.err;
  EXPECT_TRUE(r.json()["loss_mask"]);
  EXPECT_EQ(r.json()["documents"], 42);
  // The trained text, by the mask; '|' ends an answer, and a text before a record.
  std::string all, trained;
  for (const char* split : {"train", "val"}) {
    std::string shard = folder.read(std::string("d/") + split + "-000000.bin");
    std::string mask = folder.read(std::string("d/") + split + "-000000.mask");
    size_t tokens = (shard.size() - 1024) / 2;
    ASSERT_EQ(mask.size(), 1024 + tokens);
    uint64_t count = 0;
    for (size_t i = 0; i < tokens; ++i) {
      char c = shard[1024 + 2 * i + 1] ? '|' : shard[1024 + 2 * i];
      all += c;
      if (mask[1024 + i]) trained += c, ++count;
    }
    EXPECT_EQ(r.json()[std::string(split) + "_targets"], count);
    EXPECT_TRUE(all.ends_with("|")) << "a record is divided";
  }
  std::string expected_all, expected;
  for (int i = 0; i < 40; ++i) expected_all += "Q" + std::to_string(i) + ": yes \u00e4|", expected += " yes \u00e4|";
  EXPECT_EQ(all, expected_all + "plain|A|");
  EXPECT_EQ(trained, expected + "plain|A|");
  EXPECT_NE(run_crest({"data", "info", "d"}, lines_in(folder)).out.find("loss mask"), std::string::npos);
  // Plain text has none.
  folder.write("plain.jsonl", "{\"text\": \"some text to train on\"}\n{\"text\": \"and some more of it\"}\n");
  r = run_crest({"data", "prepare", "plain.jsonl", "--out", "p", "--json"}, lines_in(folder));
  ASSERT_EQ(r.code, 0) << r.err;
  EXPECT_FALSE(r.json()["loss_mask"]);
  EXPECT_FALSE(std::filesystem::exists(folder / "p/train-000000.mask"));
}

TEST(JsonLinesInput, BadRecordsAreNamed) {
  TempFolder folder;
  std::string good = "{\"prompt\": \"q\", \"answer\": \"a\"}\n";
  for (auto& [line, said] : std::vector<std::pair<std::string, std::string>>{
           {"{\"prompt\": \"q\"}", "no \"answer\""},
           {"{\"answer\": \"a\"}", "no key \"text\""},
           {"{\"prompt\": 3, \"answer\": \"a\"}", "\"prompt\" is not a string"},
           {"{\"prompt\": \"q\", \"completion\": [\"a\"]}", "\"completion\" is not a string"},
           {"{\"prompt\": \"q\", \"response\": \"\"}", "\"response\" is empty"},
           {"{\"prompt\": \"q\", \"answer\": \"a\", \"response\": \"b\"}", "both \"answer\" and \"response\""},
           {"{\"prompt\": \"q\", \"answer\": \"\xc3\"}", "JSON"}}) {
    folder.write("bad.jsonl", good + good + line + "\n" + good);
    expect_error({"data", "prepare", "bad.jsonl", "--out", "d"}, 1, {said, "bad.jsonl, line 3"}, lines_in(folder));
    EXPECT_FALSE(std::filesystem::exists(folder / "d"));
  }
}

// Wherever the blocks end.
TEST(JsonLinesInput, BlocksDoNotMatter) {
  const std::string file = "{\"text\":\"a\"}\n\n  \n{\"text\":\"bc\"}\r\n{\"text\":\"\"}\n{\"text\":\"d\"}";
  for (size_t block = 1; block <= file.size(); ++block) {
    JsonLines lines("x.jsonl", "text");
    std::vector<std::string> found;
    for (size_t at = 0; at < file.size(); at += block)
      lines.add(std::string_view(file).substr(at, block), at + block >= file.size(),
                [&](const JsonDocument& d) { found.emplace_back(d.text); });
    EXPECT_EQ(found, (std::vector<std::string>{"a", "bc", "", "d"})) << block;
    JsonLines bad("x.jsonl", "text");
    std::string broken = file + "\nbroken\n";
    try {
      for (size_t at = 0; at < broken.size(); at += block)
        bad.add(std::string_view(broken).substr(at, block), at + block >= broken.size(), [](const JsonDocument&) {});
      ADD_FAILURE() << "no error with blocks of " << block;
    } catch (const Error& e) {
      EXPECT_EQ(e.where(), "x.jsonl, line 7, column 1") << block;
    }
  }
  JsonLines endless("x.jsonl", "text");
  std::string block(1 << 20, ' ');
  EXPECT_THROW(for (int i = 0; i < 80; ++i) endless.add(block, false, [](const JsonDocument&) {}), Error);
}
