#include <map>
#include <nlohmann/json.hpp>
#include <sstream>

#include "cli/saved_model_command.h"
#include "store/store.h"

using namespace crest;
using namespace crest::test;

namespace {

class SampleCommand : public ::testing::Test {
 protected:
  static void SetUpTestSuite() {
    shared_ = new TemporaryFolder;
    make_checkpoint(*shared_ / "run", 100, byte_recipe());
  }
  static void TearDownTestSuite() { delete shared_; }
  CommandResult sample(const std::string& arguments) {
    return run_crest("sample --device cpu --precision fp32 --run '" + run() + "' " + arguments, folder_);
  }
  static std::string run() { return *shared_ / "run"; }

  TemporaryFolder folder_;

 private:
  static inline TemporaryFolder* shared_ = nullptr;
};

}  // namespace

TEST_F(SampleCommand, TextToStandardOutputMessagesToStandardError) {
  CommandResult r = sample("--prompt 'Hello' --max-tokens 20 --ignore-end");
  EXPECT_EQ(r.code, 0) << r.err;
  EXPECT_EQ(r.out.substr(0, 5), "Hello");
  EXPECT_EQ(r.out.back(), '\n');
  EXPECT_GT(r.out.size(), 20u);
  EXPECT_TRUE(contains(r.err, "at step 100")) << r.err;
  EXPECT_TRUE(contains(r.err, "tokens/s")) << r.err;
  EXPECT_FALSE(contains(r.out, "tokens/s"));
  CommandResult again = sample("--prompt 'Hello' --max-tokens 20 --ignore-end");
  EXPECT_EQ(again.out, r.out);
  EXPECT_NE(sample("--prompt 'Hello' --max-tokens 20 --ignore-end --seed 5").out, r.out);
  EXPECT_EQ("Hello" + sample("--prompt 'Hello' --max-tokens 20 --ignore-end --no-echo").out, r.out);
}

TEST_F(SampleCommand, Json) {
  CommandResult r = sample("--prompt 'Hello' --max-tokens 20 --num-samples 3 --ignore-end --top-k 0 --json");
  ASSERT_EQ(r.code, 0) << r.err;
  nlohmann::json j = nlohmann::json::parse(r.out);
  EXPECT_EQ(j["step"], 100);
  EXPECT_EQ(j["prompt"], "Hello");
  EXPECT_EQ(j["prompt_tokens"], 5);
  ASSERT_EQ(j["samples"].size(), 3u);
  for (auto& s : j["samples"]) {
    EXPECT_EQ(s["tokens"].size(), 20u);
    EXPECT_EQ(s["finish"], "length");
    EXPECT_TRUE(s["text"].is_string());
    EXPECT_GT(s["tokens_per_second"].get<double>(), 0);
  }
  EXPECT_NE(j["samples"][0]["tokens"], j["samples"][1]["tokens"]);
}

// One process gives the texts of one process for each prompt.
TEST_F(SampleCommand, ManyPromptsAreLinesOfJson) {
  write_text(folder_ / "prompts",
             "{\"prompt\": \"Hello\"}\n{\"prompt\": \"\", \"max_tokens\": 3, \"id\": 7}\n"
             "{\"prompt\": \"Hello\", \"seed\": 5, \"top_k\": 0, \"temperature\": 2, \"stop\": \"~\", \"id\": 8}");
  const CommandResult r = sample("--prompts '" + folder_ / "prompts' --max-tokens 12 --num-samples 2 --ignore-end");
  ASSERT_EQ(r.code, 0) << r.err;
  EXPECT_TRUE(contains(r.err, "prompts: ignored keys: id\n")) << r.err;
  EXPECT_TRUE(contains(r.err, "3 prompts, ")) << r.err;
  std::vector<nlohmann::json> lines;
  std::istringstream in(r.out);
  for (std::string line; std::getline(in, line);) lines.push_back(nlohmann::json::parse(line));
  ASSERT_EQ(lines.size(), 6u);
  const char* const same[] = {"--prompt Hello --max-tokens 12", "--max-tokens 3",
                              "--prompt Hello --seed 5 --top-k 0 --temperature 2 --stop '~' --max-tokens 12"};
  for (size_t i = 0; i < 3; ++i) {
    const auto alone = nlohmann::json::parse(sample(std::string(same[i]) + " --num-samples 2 --ignore-end --json").out);
    for (size_t number = 0; number < 2; ++number) {
      const nlohmann::json& line = lines[2 * i + number];
      EXPECT_EQ(line["sample"], number);
      EXPECT_EQ(line["prompt"], alone["prompt"]);
      EXPECT_EQ(line["prompt_tokens"], alone["prompt_tokens"]);
      for (const char* key : {"text", "tokens", "finish"}) EXPECT_EQ(line[key], alone["samples"][number][key]) << key;
    }
  }
  for (auto& [text, error] : std::map<std::string, std::string>{
           {"", "there are no prompts"},
           {"{\"prompt\": \"a\"}\n\n", "line 2: the line is empty"},
           {"{\"prompt\": 1}", "line 1: the value of 'prompt' is not a text"},
           {"{\"prompt\": \"a\"}\n{\"text\": \"a\"}", "line 2: there is no key 'prompt'"},
           {"{\"prompt\": \"a\", \"max_tokens\": 0}", "'max_tokens' is not a whole number above 0"},
           {"{\"prompt\": \"a\", \"seed\": -1}", "'seed' is not a whole number of at least 0"},
           {"{\"prompt\": \"a\", \"stop\": [1]}", "'stop' is not a text"},
           {"{\"prompt\": \"a\", \"top_p\": 2}", "line 1: --top-p: '2' is out of range"}}) {
    write_text(folder_ / "wrong", text);
    const CommandResult refused = sample("--prompts '" + folder_ / "wrong'");
    EXPECT_EQ(refused.code, 1) << text;
    EXPECT_TRUE(contains(refused.err, error)) << refused.err;
  }
  EXPECT_EQ(sample("--prompts '" + folder_ / "prompts' --prompt a").code, 2);
}

TEST_F(SampleCommand, PromptsOfEveryKind) {
  write_text(folder_ / "prompt", "from a file");
  EXPECT_EQ(sample("--prompt-file '" + folder_ / "prompt' --max-tokens 3").out.substr(0, 11), "from a file");
  CommandResult piped = run_crest(
      "sample --device cpu --run '" + run() + "' --prompt-file - --max-tokens 3 < '" + folder_ / "prompt'", folder_);
  EXPECT_EQ(piped.out.substr(0, 11), "from a file") << piped.err;
  // None, and bytes of invalid UTF-8.
  EXPECT_EQ(sample("--max-tokens 3").code, 0);
  EXPECT_EQ(sample("--prompt '' --max-tokens 3").code, 0);
  nlohmann::json empty = nlohmann::json::parse(sample("--prompt= --max-tokens 3 --json").out);
  EXPECT_EQ(empty["prompt_tokens"], 1);
  CommandResult bytes = sample("--prompt \"$(printf '\\377\\303(')\" --max-tokens 3");
  EXPECT_EQ(bytes.code, 0) << bytes.err;
  EXPECT_EQ(bytes.out.substr(0, 3), "\xFF\xC3(");
  // Longer than the context of 33.
  CommandResult longer = sample("--prompt '" + std::string(100, 'x') + "' --max-tokens 40 --ignore-end");
  EXPECT_EQ(longer.code, 0);
  EXPECT_TRUE(contains(longer.err, "100 tokens but the context is 33")) << longer.err;
  EXPECT_TRUE(contains(longer.err, "the last half was kept")) << longer.err;
}

TEST_F(SampleCommand, TokensInTokensOut) {
  TemporaryFolder other;
  make_checkpoint(other / "run", 3, byte_recipe("llama"), false);
  std::string command = "sample --device cpu --precision fp32 --run '" + other / "run' ";
  CommandResult r = run_crest(command + "--tokens 1,2,3 --max-tokens 4 --temperature 0", folder_);
  EXPECT_EQ(r.code, 0) << r.err;
  int ids[4], count = std::sscanf(r.out.c_str(), "%d,%d,%d,%d\n", ids, ids + 1, ids + 2, ids + 3);
  EXPECT_EQ(count, 4) << r.out;
  for (int id : ids) EXPECT_TRUE(id >= 0 && id < 257) << id;
  r = run_crest(command + "--prompt hello", folder_);
  EXPECT_EQ(r.code, 1);
  EXPECT_TRUE(contains(r.err, "the checkpoint has no tokenizer") && contains(r.err, "--prompt-tokens")) << r.err;
  for (std::string bad : {"1,257", "1,,2", "x", "-1", "1.5", "''", "99999999999999999999"}) {
    r = run_crest(command + "--tokens=" + bad, folder_);
    EXPECT_EQ(r.code, 2) << bad;
    EXPECT_TRUE(contains(r.err, "--prompt-tokens")) << r.err;
  }
}

TEST_F(SampleCommand, Stop) {
  nlohmann::json all =
      nlohmann::json::parse(sample("--prompt a --max-tokens 30 --ignore-end --temperature 0 --json").out)["samples"][0];
  std::string text = all["text"];
  // A printable piece of its output.
  std::string stop;
  for (size_t i = 3; i < text.size() && stop.empty(); ++i)
    if (std::isalnum(static_cast<unsigned char>(text[i]))) stop = text.substr(i, 1);
  ASSERT_FALSE(stop.empty()) << all.dump();
  nlohmann::json cut = nlohmann::json::parse(
      sample("--prompt a --max-tokens 30 --ignore-end --temperature 0 --json --stop nothere --stop " + stop)
          .out)["samples"][0];
  EXPECT_EQ(cut["finish"], "stop");
  EXPECT_EQ(cut["text"], text.substr(0, text.find(stop)));
}

// Texts the option parser could take for a list: "]" alone must not be a stop text.
TEST_F(SampleCommand, AStopTextInBracketsIsOneText) {
  std::string common = "--prompt a --max-tokens 30 --ignore-end --temperature 0 --json ";
  nlohmann::json all = nlohmann::json::parse(sample(common).out)["samples"][0];
  std::string text = all["text"], letter;
  for (size_t i = 3; i < text.size() && letter.empty(); ++i)
    if (std::isalnum(static_cast<unsigned char>(text[i]))) letter = text.substr(i, 1);
  ASSERT_FALSE(letter.empty()) << all.dump();
  nlohmann::json same =
      nlohmann::json::parse(sample(common + "--stop '[" + letter + "," + letter + "]'").out)["samples"][0];
  EXPECT_EQ(same["text"], text);
  EXPECT_EQ(same["finish"], "length");
}

TEST_F(SampleCommand, WrongUsage) {
  for (auto [arguments, part] :
       std::vector<std::pair<std::string, std::string>>{{"--temperature=-1", "--temperature"},
                                                        {"--temperature nan", "--temperature"},
                                                        {"--top-p 0", "--top-p"},
                                                        {"--top-p 1.5", "--top-p"},
                                                        {"--top-k=-3", "--top-k"},
                                                        {"--max-tokens 0", "--max-tokens"},
                                                        {"--num-samples 0", "--num-samples"},
                                                        {"--temprature 1", "--temperature"},
                                                        {"--prompt a --tokens 1", "only one of"},
                                                        {"--precision fp7", "--precision"},
                                                        {"stray", "stray"}}) {
    CommandResult r = sample(arguments);
    EXPECT_EQ(r.code, 2) << arguments << r.err;
    EXPECT_TRUE(contains(r.err, part)) << arguments << ": " << r.err;
    EXPECT_EQ(r.out, "");
  }
  setenv("CREST_STORE", (folder_ / "none.db").c_str(), 1);
  CommandResult r = run_crest("sample --prompt a", folder_);
  unsetenv("CREST_STORE");
  EXPECT_EQ(r.code, 2);
  EXPECT_TRUE(contains(r.err, "--run") && contains(r.err, "none.db has no training run")) << r.err;
  EXPECT_FALSE(std::filesystem::exists(folder_ / "none.db"));
  EXPECT_EQ(run_crest("sample --prompt a --run ''", folder_).code, 2);
}

// Runs without a checkpoint, and runs whose folder is gone, have no model.
TEST_F(SampleCommand, WithoutARunTheNewestIsUsedAndNamed) {
  auto record = [&](const std::string& name, const std::string& kind, const std::string& started) {
    RunRecord r;
    r.kind = kind, r.status = "done", r.started = started, r.folder = folder_ / name;
    Store(folder_ / "crest.db").add(r);
  };
  make_checkpoint(folder_ / "old", 10, byte_recipe());
  make_checkpoint(folder_ / "new", 20, byte_recipe());
  make_checkpoint(folder_ / "other", 30, byte_recipe());
  std::filesystem::create_directories(folder_ / "fresh/checkpoints");
  record("new", "train", "2026-01-02T00:00:00.000Z");
  record("old", "train", "2026-01-01T00:00:00.000Z");
  record("gone", "train", "2026-01-03T00:00:00.000Z");
  record("fresh", "train", "2026-01-04T00:00:00.000Z");
  record("other", "profile", "2026-01-05T00:00:00.000Z");
  std::string command = "sample --device cpu --precision fp32 --prompt a --max-tokens 2 ";
  CommandResult r = run_crest(command + "--json --store '" + folder_ / "crest.db'", folder_);
  ASSERT_EQ(r.code, 0) << r.err;
  EXPECT_TRUE(contains(r.err, "/new, the newest run in ") && contains(r.err, "at step 20")) << r.err;
  EXPECT_TRUE(contains(nlohmann::json::parse(r.out)["run"].get<std::string>(), "/new")) << r.out;
  r = run_crest(command + "--store '" + folder_ / "absent.db'", folder_);
  EXPECT_EQ(r.code, 1);
  EXPECT_TRUE(contains(r.err, "absent.db")) << r.err;
}

TEST_F(SampleCommand, NoModel) {
  CommandResult r = run_crest("sample --run '" + folder_ / "nothing' --prompt a", folder_);
  EXPECT_EQ(r.code, 1);
  EXPECT_TRUE(contains(r.err, "no such run or model")) << r.err;
  std::filesystem::create_directories(folder_ / "fresh/checkpoints");
  r = run_crest("sample --run '" + folder_ / "fresh' --prompt a", folder_);
  EXPECT_EQ(r.code, 1);
  EXPECT_TRUE(contains(r.err, "no checkpoint yet")) << r.err;
}

TEST_F(SampleCommand, ADamagedCheckpointFallsBackToTheOneBefore) {
  make_checkpoint(folder_ / "run", 10, byte_recipe());
  std::string newest = make_checkpoint(folder_ / "run", 20, byte_recipe());
  std::filesystem::resize_file(newest + "/model.safetensors",
                               std::filesystem::file_size(newest + "/model.safetensors") - 1);
  CommandResult r = run_crest("sample --run '" + folder_ / "run' --prompt a --max-tokens 2", folder_);
  EXPECT_EQ(r.code, 0) << r.err;
  EXPECT_TRUE(contains(r.err, "step-000020") && contains(r.err, "Using") && contains(r.err, "at step 10")) << r.err;
  r = run_crest("sample --run '" + newest + "' --prompt a --max-tokens 2", folder_);
  EXPECT_EQ(r.code, 1);
  EXPECT_TRUE(contains(r.err, "damaged checkpoint")) << r.err;
}

TEST_F(SampleCommand, AModelThatDoesNotFit) {
  CommandResult r = sample("--prompt a --memory-limit 1KiB");
  EXPECT_EQ(r.code, 3);
  EXPECT_TRUE(contains(r.err, "only 1.00 KiB")) << r.err;
}

TEST_F(SampleCommand, AFullDiskIsAnError) {
  std::string command = "'" + std::string(crest::test::crest_binary()) + "' sample --device cpu --run '" + run() +
                        "' --prompt a --max-tokens 3 > /dev/full 2> '" + folder_ / "err'";
  int status = std::system(command.c_str());
  EXPECT_EQ(WEXITSTATUS(status), 1);
  EXPECT_TRUE(contains(read_all(folder_ / "err"), "standard output"));
}
