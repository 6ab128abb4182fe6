#include <nlohmann/json.hpp>

#include "cli/saved_model_command.h"
#include "device/find.h"
#include "device/matmul_rates.h"
#include "host/isa.h"

using namespace crest;
using namespace crest::test;
using Json = nlohmann::json;

namespace {

class EvalCommand : public SavedModelTest {
 protected:
  CommandResult eval(const std::string& arguments, const std::string& run = *shared_ / "run") {
    return run_crest("eval --device cpu --precision fp32 --run '" + run + "' " + arguments, folder_);
  }
  static std::string data() { return "--data '" + *shared_ / "data" + "' "; }
};

}  // namespace

TEST_F(EvalCommand, TextAndJson) {
  CommandResult r = eval(data() + "--batch 2 --seq 16 --batches 3 --split train --json");
  ASSERT_EQ(r.code, 0) << r.err;
  Json j = Json::parse(r.out);
  EXPECT_EQ(j["tokens"], 96);
  EXPECT_EQ(j["split"], "train");
  EXPECT_EQ(j["seq"], 16);
  EXPECT_EQ(j["step"], 100);
  EXPECT_NEAR(std::log(j["perplexity"].get<double>()), j["loss"].get<double>(), 1e-9);
  CommandResult text = eval(data());
  for (auto part : {"loss", "perplexity", "bits/byte", "of split val"}) EXPECT_TRUE(contains(text.out, part)) << part;
}

// Training and evaluation read the same table of matmul rates.
TEST_F(EvalCommand, AutomaticPrecisionIsTheFasterOne) {
  if (best_isa() < Isa::avx512_bf16) GTEST_SKIP() << "this processor has no bf16";
  for (const char* faster : {"fp32", "bf16"}) {
    nlohmann::json rates = {{"fp32", 1e11}, {"bf16", 1e11}};
    rates[faster] = 2e11;
    write_text(folder_ / "cache/matmul-rates.json",
               Json{{"format", 1}, {"rates", {{matmul_rates_key(cpu_device(active_isa(), 1)), rates}}}}.dump());
    const std::string with = "env CREST_CACHE='" + folder_ / "cache' '" + crest_binary() + "' ";
    auto precision = [&](const std::string& command) {
      const std::string out = folder_ / "json";
      EXPECT_EQ(std::system((with + command + " --device cpu --json > '" + out + "' 2> /dev/null").c_str()), 0);
      return Json::parse(read_all(out))["precision"];
    };
    const std::string run = " --run '" + *shared_ / "run' ";
    EXPECT_EQ(precision("eval" + run + data() + "--batches 1"), faster);
    EXPECT_EQ(precision("sample" + run + "--prompt a --max-tokens 1"), faster);
  }
}

// Two files with the log-likelihoods of crest score for prompts made by hand.
TEST_F(EvalCommand, TasksAreScoresOfTheirPrompts) {
  auto piqa = [](const std::string& goal, int label) {
    return Json{{"goal", goal}, {"sol1", "of seven words"}, {"sol2", "x"}, {"label", label}}.dump() + "\n";
  };
  const std::string question = "How?" + std::string(40, 'o');  // longer than the context of 33
  write_text(folder_ / "piqa.jsonl", piqa("Why?", 0) + piqa(question, 1) + piqa("Why?", 1));
  write_text(folder_ / "wino.jsonl",
             R"({"sentence": "a _ is b", "option1": "king", "option2": "line", "answer": "2"})");
  std::string lines;
  auto pair = [&](const std::string& context, const std::string& continuation) {
    lines += Json{{"context", context}, {"continuation", continuation}}.dump() + "\n";
  };
  for (const std::string& goal : {std::string("Why?"), question, std::string("Why?")})
    for (const char* choice : {" of seven words", " x"}) pair("Question: " + goal + "\nAnswer:", choice);
  pair("a king", " is b"), pair("a line", " is b");
  write_text(folder_ / "pairs.jsonl", lines);
  const std::string common = " --device cpu --precision fp32 --json --run '" + *shared_ / "run' '";
  const CommandResult scored = run_crest("score" + common + folder_ / "pairs.jsonl'", folder_);
  ASSERT_EQ(scored.code, 0) << scored.err;
  const Json scores = Json::parse(scored.out)["pairs"];
  const std::string files = "--tasks '" + folder_ / "piqa.jsonl," + folder_ / "wino.jsonl' ";
  const CommandResult r = eval(files + "--json");
  ASSERT_EQ(r.code, 0) << r.err;
  const Json tasks = Json::parse(r.out)["tasks"];
  ASSERT_EQ(tasks.size(), 2u);
  size_t next = 0;
  for (const Json& task : tasks) {
    double right = 0, right_by_length = 0;
    for (const Json& sample : task["samples"]) {
      const double first = scores[next++]["logprob"], second = scores[next++]["logprob"];
      EXPECT_EQ(sample["logprobs"], (Json{first, second}));
      right += size_t(second > first) == sample["answer"];
      right_by_length += size_t(second / 1 > first / 14) == sample["answer"];
    }
    EXPECT_EQ(task["acc"], right / double(task["samples"].size()));
    if (task["layout"] != "piqa") continue;
    EXPECT_EQ(task["acc_norm"], right_by_length / 3);
    EXPECT_EQ(task["acc_bytes"], right_by_length / 3);
    EXPECT_EQ(task["cut"], 4) << "the long question twice, the long choice twice";
    // Answers 0, 1, 1 of equal choices: one or two are right.
    EXPECT_NEAR(task["acc_stderr"], 1.0 / 3, 1e-12);
  }
  EXPECT_EQ(tasks[0]["task"], "piqa");
  EXPECT_EQ(tasks[0]["n"], 3);
  EXPECT_EQ(tasks[0]["samples"][2]["line"], 3);
  EXPECT_EQ(tasks[1]["layout"], "winogrande");
  EXPECT_EQ(tasks[1]["acc_norm"], nullptr);
  EXPECT_EQ(tasks[1]["acc_stderr"], nullptr) << "of one question";
  const CommandResult text = eval(files + "--limit 1");
  EXPECT_TRUE(contains(text.out, "acc_norm") && contains(text.out, "wino")) << text.out << text.err;
  EXPECT_TRUE(contains(text.err, "piqa: 1 text was cut at the left")) << text.err;
  EXPECT_TRUE(contains(eval(files).err, "piqa: 4 texts were cut at the left: the model's context is 33"));
}

// The last line of a text counts, too: its bytes are those of the file.
TEST_F(EvalCommand, TextByItsOwnBytes) {
  const std::string text = "line 7 of a text\nand n\xc3\xa4her, without an end of line, to the end";
  write_text(folder_ / "own.txt", text);
  write_text(folder_ / "own.jsonl", Json{{"text", text}}.dump());
  const std::string common = " --device cpu --precision fp32 --json --run '" + *shared_ / "run' '";
  const Json score = Json::parse(run_crest("score" + common + folder_ / "own.jsonl'", folder_).out)["pairs"][0];
  const CommandResult r = eval("--text '" + folder_ / "own.txt' --json");
  ASSERT_EQ(r.code, 0) << r.err;
  const Json j = Json::parse(r.out);
  EXPECT_EQ(j["bytes"], text.size());
  EXPECT_EQ(j["tokens"], score["tokens"]);
  EXPECT_NEAR(j["loss"], -score["logprob"].get<double>() / score["tokens"].get<double>(), 1e-9);
  EXPECT_NEAR(j["perplexity"], std::exp(j["loss"].get<double>()), 1e-6 * j["perplexity"].get<double>());
  EXPECT_NEAR(j["bits_per_byte"], -score["logprob"].get<double>() / std::log(2.0) / double(text.size()), 1e-9);
  EXPECT_TRUE(contains(eval("--text '" + folder_ / "own.txt'").out, "bits/byte"));
  write_text(folder_ / "empty.txt", "");
  EXPECT_TRUE(contains(eval("--text '" + folder_ / "empty.txt'").err, "the file is empty"));
}

TEST_F(EvalCommand, WrongUsage) {
  for (auto [arguments, part] : std::vector<std::pair<std::string, std::string>>{
           {"--tasks a.jsonl --seq 8", "--tasks and --seq exclude each other"},
           {"--text a.txt " + data(), "--text and --data exclude each other"},
           {"--text a.txt --tasks a.jsonl", "--tasks and --text exclude each other"},
           {"--tasks a.jsonl,", "the name of a file is empty"},
           {"--limit 3", "--tasks"},
           {"--tasks a.jsonl --limit -1", "--limit"}}) {
    CommandResult r = eval(arguments);
    EXPECT_EQ(r.code, 2) << arguments << r.err;
    EXPECT_TRUE(contains(r.err, part)) << arguments << ": " << r.err;
  }
  EXPECT_EQ(eval("--tasks '" + folder_ / "nothing.jsonl'").code, 1);
  for (auto [arguments, part] : std::vector<std::pair<std::string, std::string>>{{data() + "--split test", "--split"},
                                                                                 {data() + "--seq 34", "context of 33"},
                                                                                 {data() + "--batch 0", "--batch"},
                                                                                 {data() + "--batches=-1", "--batches"},
                                                                                 {data() + "--bach 2", "--batch"},
                                                                                 {"", "--data"}}) {
    CommandResult r = eval(arguments);
    EXPECT_EQ(r.code, 2) << arguments << r.err;
    EXPECT_TRUE(contains(r.err, part)) << arguments << ": " << r.err;
  }
  EXPECT_EQ(run_crest("eval " + data(), folder_).code, 2);
  EXPECT_EQ(eval("--data '" + folder_ / "nothing'").code, 1);
  EXPECT_EQ(eval(data(), folder_ / "nothing").code, 1);
}

// The error comes before anything is loaded: here even the model is missing.
TEST_F(EvalCommand, LogitsThatCannotBeWrittenAreToldFirst) {
  for (const std::string& file : {folder_ / "no/such/folder/logits.safetensors", folder_ / "."}) {
    CommandResult r = eval(data() + "--logits '" + file + "'", folder_ / "nothing");
    EXPECT_EQ(r.code, 1);
    EXPECT_TRUE(contains(r.err, file)) << r.err;
  }
}
