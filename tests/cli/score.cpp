#include <nlohmann/json.hpp>

#include <algorithm>
#include <cmath>
#include <filesystem>

#include "checkpoint/safetensors.h"
#include "cli/saved_model_command.h"

using namespace crest;
using namespace crest::test;

namespace {

class ScoreCommand : public SavedModelTest {
 protected:
  CommandResult crest(const std::string& arguments) {
    return run_crest(arguments + " --device cpu --precision fp32 --run '" + *shared_ / "run'", folder_);
  }
  std::string pairs(const std::vector<std::pair<std::string, std::string>>& list) {
    std::string lines;
    for (auto& [context, continuation] : list)
      lines += nlohmann::json{{"context", context}, {"continuation", continuation}, {"id", 7}}.dump() + "\n";
    write_text(folder_ / "pairs.jsonl", lines);
    return "score '" + folder_ / "pairs.jsonl'";
  }
  static std::vector<nlohmann::json> rows(const std::string& text) {
    std::vector<nlohmann::json> out;
    std::istringstream in(text);
    for (std::string line; std::getline(in, line);) out.push_back(nlohmann::json::parse(line));
    return out;
  }
};

}  // namespace

// Against the logits of eval, in double precision.
TEST_F(ScoreCommand, IsTheSumOfLogProbabilities) {
  const std::string file = folder_ / "logits.safetensors";
  CommandResult r = crest("eval --data '" + *shared_ / "data' --batches 1 --logits '" + file + "'");
  ASSERT_EQ(r.code, 0) << r.err;
  auto tensors = SafetensorsFile::open(file);
  std::vector<int32_t> tokens;
  std::vector<float> logits;
  size_t vocab = 0;
  for (size_t i = 0; i < tensors.tensors().size(); ++i) {
    auto& t = tensors.tensors()[i];
    if (t.spec.name == "tokens") {
      tokens.resize(t.bytes / 4);
      tensors.read(i, tokens.data(), t.bytes);
    } else {
      vocab = size_t(t.spec.shape[1]);
      logits.resize(t.bytes / 4);
      tensors.read(i, logits.data(), t.bytes);
    }
  }
  ASSERT_GE(tokens.size(), 16u);
  std::string text;
  for (size_t i = 0; i < 16; ++i) text += char(tokens[i]);
  // White space at the border would move into the continuation.
  size_t border = 5;
  while (text[border - 1] <= ' ') ++border;
  ASSERT_LT(border, 16u);
  double sum = 0;
  bool greedy = true;
  for (size_t i = border; i < 16; ++i) {
    const float* row = logits.data() + (i - 1) * vocab;
    double all = 0;
    for (size_t v = 0; v < vocab; ++v) all += std::exp(double(row[v]));
    sum += double(row[tokens[i]]) - std::log(all);
    greedy = greedy && std::max_element(row, row + vocab) - row == tokens[i];
  }
  // A context whose most probable next token is a letter.
  size_t length = 0;
  char next = 0;
  for (size_t n = 1; n <= 16 && length == 0; ++n) {
    const float* row = logits.data() + (n - 1) * vocab;
    const auto most = std::max_element(row, row + vocab) - row;
    if (most > ' ' && most < 128 && text[n - 1] > ' ') length = n, next = char(most);
  }
  ASSERT_GT(length, 0u);
  r = crest(pairs({{text.substr(0, border), text.substr(border)}, {text.substr(0, length), std::string(1, next)}}));
  ASSERT_EQ(r.code, 0) << r.err;
  auto said = rows(r.out);
  ASSERT_EQ(said.size(), 2u);
  EXPECT_NEAR(said[0]["logprob"], sum, 1e-5 * std::abs(sum));
  EXPECT_EQ(said[0]["tokens"], 16 - border);
  EXPECT_EQ(said[0]["greedy"], greedy);
  EXPECT_EQ(said[1]["greedy"], true);
  EXPECT_TRUE(contains(r.err, "2 pairs, " + std::to_string(17 - border) + " tokens in")) << r.err;
}

// White space at the border belongs to the continuation. Long contexts are cut at the left.
TEST_F(ScoreCommand, BordersAndLength) {
  CommandResult r =
      crest(pairs({{"the king ", "said"}, {"the king", " said"}, {"", "the"}, {"the king\xe2\x80\x83", "x"}}));
  ASSERT_EQ(r.code, 0) << r.err;
  auto said = rows(r.out);
  ASSERT_EQ(said.size(), 4u);
  EXPECT_EQ(said[0], said[1]);
  EXPECT_EQ(said[0]["tokens"], 5);
  EXPECT_EQ(said[2]["tokens"], 3);
  EXPECT_EQ(said[3]["tokens"], 4) << "the em space has three bytes";

  std::string text;
  for (int i = 0; i < 4000; ++i) text += "the king said "[i % 14];
  text += "x";
  r = crest(pairs({{text, "abc"}}) + " --json");
  ASSERT_EQ(r.code, 0) << r.err;
  nlohmann::json j = nlohmann::json::parse(r.out);
  const int64_t cut = j["pairs"][0]["cut"], context = 4001 + 3 - 1 - cut;
  EXPECT_EQ(j["cut"], 1);
  EXPECT_TRUE(contains(r.err, "1 pair was cut at the left: the model's context is " + std::to_string(context)))
      << r.err;
  // The rest of the context gives the same.
  r = crest(pairs({{text.substr(size_t(cut)), "abc"}}));
  EXPECT_EQ(rows(r.out).at(0)["logprob"], j["pairs"][0]["logprob"]);
  EXPECT_EQ(rows(r.out).at(0)["cut"], 0);
  // A continuation of the whole context needs one token before it.
  r = crest(pairs({{"y", text.substr(0, size_t(context))}}));
  EXPECT_EQ(r.code, 0) << r.err;
  r = crest(pairs({{"y", text.substr(0, size_t(context) + 1)}}));
  EXPECT_TRUE(r.code == 1 && contains(r.err, "line 1") && contains(r.err, "Shorten the continuation")) << r.err;
}

// Windows of the model's context: every byte is predicted once, the last window starts in the one
// before it.
TEST_F(ScoreCommand, WholeTexts) {
  const size_t context = 33, size = 2 * context + 5;
  std::string text;
  for (size_t i = 0; i < size; ++i) text += char('a' + i * 7 % 26);
  write_text(folder_ / "text.jsonl",
             nlohmann::json{{"text", text}}.dump() + "\n" + nlohmann::json{{"text", "ab"}}.dump());
  CommandResult r = crest("score '" + folder_ / "text.jsonl'");
  ASSERT_EQ(r.code, 0) << r.err;
  const auto whole = rows(r.out);
  ASSERT_EQ(whole.size(), 2u);
  EXPECT_EQ(whole[0]["tokens"], size);
  EXPECT_EQ(whole[0]["cut"], 0);
  const size_t last = size - context - 1, second = 2 * context;
  r = crest(pairs({{"", text.substr(0, context)},
                   {text.substr(context - 1, 1), text.substr(context, context)},
                   {text.substr(last, second - last), text.substr(second)},
                   {"", "ab"}}));
  ASSERT_EQ(r.code, 0) << r.err;
  double sum = 0;
  const auto parts = rows(r.out);
  for (size_t i = 0; i < 3; ++i) sum += parts.at(i)["logprob"].get<double>();
  EXPECT_NEAR(whole[0]["logprob"], sum, 1e-5 * std::abs(sum));
  EXPECT_EQ(whole[1]["logprob"], parts.at(3)["logprob"]);
}

TEST_F(ScoreCommand, EndsWithItsReader) {
  // A pipe without a reader, as behind `| head -1`.
  const std::string pipe = folder_ / "pipe";
  const std::string closed = "mkfifo '" + pipe + "' && exec 3<>'" + pipe + "' 4>'" + pipe + "' 3<&- && ";
  const std::string command = "'" + std::string(test::crest_binary()) + "' " + pairs({{"a", "b"}}) +
                              " --device cpu --precision fp32 --run '" + *shared_ / "run' >&4 2> '" + folder_ / "err'";
  int status = std::system((closed + command).c_str());
  EXPECT_TRUE(WIFEXITED(status) && WEXITSTATUS(status) == 130) << status << read_all(folder_ / "err");
  std::filesystem::remove(pipe);
  status = std::system(("trap '' PIPE && " + closed + command).c_str());
  EXPECT_TRUE(WIFEXITED(status) && WEXITSTATUS(status) == 1) << status;
  EXPECT_TRUE(contains(read_all(folder_ / "err"), "could not write to standard output"));
}

TEST_F(ScoreCommand, BadLinesAreNamed) {
  const std::string good = "{\"context\": \"a\", \"continuation\": \"b\"}\n";
  for (auto& [lines, said] : std::vector<std::pair<std::string, std::string>>{
           {"", "there are no pairs"},
           {good + "\n", "line 2"},
           {good + "[1]", "there is no key 'context'"},
           {good + "{\"context\": \"a\"}", "there is no key 'continuation'"},
           {"{\"context\": 1, \"continuation\": \"b\"}", "the value of 'context' is not a text"},
           {"{\"context\": \"a\", \"continuation\": \"\"}", "the continuation is empty"},
           {"{\"text\": \"\"}", "the text is empty"},
           {good + "{\"context\": a}", "standard input, line 2, column 13"}}) {
    write_text(folder_ / "bad.jsonl", lines);
    CommandResult r = crest("score < '" + folder_ / "bad.jsonl'");
    EXPECT_EQ(r.code, 1) << lines;
    EXPECT_EQ(r.out, "");
    EXPECT_TRUE(contains(r.err, said) && contains(r.err, "standard input")) << r.err;
  }
  CommandResult r = crest("score < .");
  EXPECT_TRUE(r.code == 1 && contains(r.err, "standard input: ") && !contains(r.err, "/dev/stdin")) << r.err;
  r = run_crest("score < /dev/null", folder_);
  EXPECT_TRUE(r.code == 2 && contains(r.err, "no model given")) << r.err;
}
