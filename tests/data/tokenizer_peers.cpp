// Token for token against Hugging Face `tokenizers` and `tiktoken`, where they are installed:
//   python3 -m venv V && V/bin/pip install tokenizers tiktoken && CREST_PYTHON=V/bin/python3 test_data
#include <cstdlib>
#include <nlohmann/json.hpp>

#include "data/bpe_train.h"
#include "data/helpers.h"
#include "data/tokenizer.h"
#include "host/external.h"

using namespace crest;
using namespace crest::test;
namespace fs = std::filesystem;

namespace {

std::string python() {
  const char* named = std::getenv("CREST_PYTHON");
  return named ? named : "python3";
}

CommandOutput run_python(std::vector<std::string> arguments) {
  arguments.insert(arguments.begin(), {"env", python()});
  return run_program("/usr/bin/env", arguments);
}

bool has_module(const std::string& name) { return run_python({"-c", "import " + name}).exit_code == 0; }

std::string script() { return (fs::path(CREST_TEST_DIR) / "data/compare_tokenizers.py").string(); }

void write_ids(const fs::path& path, const std::vector<uint32_t>& ids) {
  std::string text;
  for (uint32_t id : ids) text += std::to_string(id) + "\n";
  write_file(path, text);
}

CommandOutput compare(std::vector<std::string> arguments) {
  arguments.insert(arguments.begin(), script());
  return run_python(arguments);
}

}  // namespace

TEST(TokenizerPeers, TokenizersGivesTheSameTokensByEveryRule) {
  if (!has_module("tokenizers")) GTEST_SKIP() << "Hugging Face tokenizers is not installed: pip install tokenizers";
  DataFolder dir;
  std::string text_path = (dir / "text").string(), ids = (dir / "ids").string(), json = (dir / "t.json").string();
  ASSERT_EQ(compare({"write-text", text_path}).exit_code, 0);
  std::string text = read_file(text_path);
  for (auto& rule : split_rules()) {
    BpeTrainer trainer(1000, rule);
    trainer.add(text.substr(0, text.find(' ', 40000)));
    Tokenizer t = trainer.train();
    t.save(json);
    write_ids(ids, t.encode(text));
    CommandOutput r = compare({"check", json, text_path, ids});
    EXPECT_EQ(r.exit_code, 0) << rule.name << ": " << r.out << r.err;
  }
  // And a wrong token is noticed.
  write_ids(ids, {1, 2, 3});
  EXPECT_EQ(compare({"check", json, text_path, ids}).exit_code, 1);
}

// Every kind except byte-level BPE with a split rule, on 2,000
// documents and more: SentencePiece's models, and tokenizer.json with
// the normalizers, pre-tokenizers and decoders of Llama-like files.
TEST(TokenizerPeers, OtherKindsGiveTheSameTokensAndTexts) {
  if (!has_module("tokenizers, sentencepiece")) GTEST_SKIP() << "pip install tokenizers sentencepiece";
  DataFolder dir;
  std::string folder = (dir / "").string();
  CommandOutput made = compare({"write-kinds", folder});
  ASSERT_EQ(made.exit_code, 0) << made.err;
  auto documents = nlohmann::json::parse(read_file(dir / "documents.txt"));
  ASSERT_GT(documents.size(), 2000u);
  std::vector<fs::path> files;
  for (auto& entry : fs::directory_iterator(folder))
    if (entry.path().extension() != ".txt") files.push_back(entry.path());
  for (auto& path : files) {
    Tokenizer t = Tokenizer::load(path);
    Tokenizer again = Tokenizer::parse(t.to_json(), "written");
    ASSERT_EQ(again.to_json(), t.to_json()) << path;
    auto sample = documents[1800].get<std::string>();
    ASSERT_EQ(again.encode(sample), t.encode(sample)) << path;
    std::string ids;
    auto texts = nlohmann::json::array();
    for (auto& document : documents) {
      auto tokens = t.encode(document.get<std::string>(), path.string().find("special") != std::string::npos);
      for (uint32_t id : tokens) ids += std::to_string(id) + " ";
      ids += "\n";
      texts.push_back(t.decode(tokens));
    }
    std::vector<std::string> names = {path.string()};
    if (path.extension() == ".model") {  // `tokenizers` gets the written file
      names.push_back(path.string() + ".json");
      t.save(names[1]);
    }
    for (auto& name : names) {
      write_file(name + ".ids", ids);
      write_file(name + ".texts", texts.dump(-1, ' ', true, nlohmann::json::error_handler_t::replace));
    }
  }
  CommandOutput r = compare({"check-kinds", folder});
  EXPECT_EQ(r.exit_code, 0) << r.out << r.err;
}

TEST(TokenizerPeers, TiktokenGivesTheSameTokens) {
  if (!has_module("tiktoken") || !has_module("tokenizers"))
    GTEST_SKIP() << "tiktoken or tokenizers is not installed: pip install tiktoken tokenizers";
  DataFolder dir;
  std::string text_path = (dir / "text").string(), ids = (dir / "ids").string();
  ASSERT_EQ(compare({"write-text", text_path}).exit_code, 0);
  std::string ranks = (fs::path(CREST_TEST_DIR) / "data/fixtures/cl100k.tiktoken").string();
  for (auto& rule : split_rules()) {
    write_ids(ids, Tokenizer::load(ranks, rule.name).encode(read_file(text_path)));
    CommandOutput r = compare({"check-tiktoken", ranks, std::string(rule.name), text_path, ids});
    EXPECT_EQ(r.exit_code, 0) << rule.name << ": " << r.out << r.err;
  }
}
