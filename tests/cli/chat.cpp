// crest chat: lines from a pipe, and a person at a terminal.
#include <nlohmann/json.hpp>

#include "cli/saved_model_command.h"
#include "cli/terminal.h"
#include "data/chat.h"
#include "run/text_stream.h"

using namespace crest;
using namespace crest::test;

namespace {

class ChatCommand : public ::testing::Test {
 protected:
  static void SetUpTestSuite() {
    shared_ = new TemporaryFolder;
    Recipe recipe = byte_recipe("llama");
    recipe.model.context = 8000;
    const std::string plain(chat_template("plain")->jinja);
    make_checkpoint(*shared_ / "run", 7, recipe, true, false, plain);
    make_checkpoint(*shared_ / "endless", 1, recipe, true, true, plain);  // writes token 0 for ever
    make_checkpoint(*shared_ / "bare", 2, byte_recipe());
  }
  static void TearDownTestSuite() { delete shared_; }
  // `input`: what printf makes of it.
  CommandResult chat(const std::string& input, const std::string& arguments, const std::string& run = "run") {
    const std::string command = "chat --device cpu --precision fp32 --run '" + *shared_ / run + "' ";
    return run_crest(command + arguments + " < '" + written(input) + "'", folder_);
  }
  std::string written(const std::string& input) {
    write_text(folder_ / "input", input);
    return folder_ / "input";
  }
  Terminal typed(const std::string& run, const std::vector<std::string>& more, const std::string& command = "chat") {
    std::vector<std::string> arguments = {command,     "--device", "cpu",   "--precision", "fp32",
                                          "--threads", "1",        "--run", *shared_ / run};
    arguments.insert(arguments.end(), more.begin(), more.end());
    return Terminal(arguments, folder_.path());
  }
  static inline TemporaryFolder* shared_ = nullptr;
  TemporaryFolder folder_;
};

std::vector<nlohmann::json> lines_of(const std::string& text) {
  std::vector<nlohmann::json> all;
  std::istringstream in(text);
  for (std::string line; std::getline(in, line);) all.push_back(nlohmann::json::parse(line));
  return all;
}

}  // namespace

TEST_F(ChatCommand, LinesOfAPipeAreQuestionsAndOnlyAnswersAreWritten) {
  const std::string flags = "--temperature 0 --max-tokens 9 --stop '\n'";
  CommandResult json = chat("Hello\nAnd you?\r\n\n/reset", flags + " --json");
  ASSERT_EQ(json.code, 0) << json.err;
  const auto turns = lines_of(json.out);
  ASSERT_EQ(turns.size(), 4u);
  std::string answers;
  int64_t before = 0;
  for (auto& turn : turns) {
    EXPECT_EQ(turn["role"], "assistant");
    EXPECT_LE(turn["tokens"].size(), 9u);
    EXPECT_GT(turn["ms"].get<double>(), 0);
    EXPECT_GE(turn["kept_tokens"].get<int64_t>(), before) << "of the turns before";
    before = int64_t(turn["prompt"].size());
    answers += turn["content"].get<std::string>() + "\n";
  }
  // The first question is the same alone, and as a prompt of crest sample.
  std::string prompt = "User: Hello\nAssistant:";
  EXPECT_EQ(turns[0]["prompt"].size(), prompt.size());
  CommandResult sample = run_crest("sample --device cpu --precision fp32 --run '" + *shared_ / "run" +
                                       "' --temperature 0 --max-tokens 9 --json --prompt '" + prompt + "'",
                                   folder_);
  ASSERT_EQ(sample.code, 0) << sample.err;
  const auto drawn = nlohmann::json::parse(sample.out)["samples"][0]["tokens"];
  for (size_t i = 0; i < turns[0]["tokens"].size(); ++i) EXPECT_EQ(turns[0]["tokens"][i], drawn[i]);
  // As text: the bytes as the model writes them.
  CommandResult text = chat("Hello\nAnd you?\r\n\n/reset", flags);
  ASSERT_EQ(text.code, 0) << text.err;
  EXPECT_EQ(replace_invalid_utf8(text.out), answers);
  EXPECT_TRUE(contains(text.err, "template plain")) << text.err;
  EXPECT_EQ(chat("", flags).out, "");
}

TEST_F(ChatCommand, OneErrorSaysWhatToDo) {
  CommandResult r = chat("Hello\n", "", "bare");
  EXPECT_EQ(r.code, 1);
  EXPECT_TRUE(contains(r.err, "the model has no chat template") && contains(r.err, "--chat-template")) << r.err;
  r = chat("Hello\n" + std::string(200, 'x') + "\n", "--context 100 --max-tokens 3");
  EXPECT_EQ(r.code, 1);
  EXPECT_TRUE(contains(r.err, "standard input, line 2") && contains(r.err, "the context is 100")) << r.err;
  EXPECT_NE(r.out, "");
  for (auto [arguments, part] :
       std::vector<std::pair<std::string, std::string>>{{"--temperature=-1", "--temperature"},
                                                        {"--max-tokens 0", "--max-tokens"},
                                                        {"--context=-1", "--context"},
                                                        {"--context 9000", "--context"},
                                                        {"--chat-template chatlm", "--chat-template"},
                                                        {"--prompt x", "--prompt"},
                                                        {"--precision fp7", "--precision"}}) {
    r = chat("Hello\n", arguments);
    EXPECT_EQ(r.code, 2) << arguments << r.err;
    EXPECT_TRUE(contains(r.err, part)) << arguments << ": " << r.err;
    EXPECT_EQ(r.out, "");
  }
}

TEST_F(ChatCommand, APersonTypesQuestionsAndCommands) {
  Terminal t = typed("run", {"--temperature", "0", "--max-tokens", "5"});
  t.see("/help lists commands");
  t.see("> ");
  t.type("Hello\n");
  const std::string first = t.see("> ");
  t.type("/help\n");
  t.see("begin a new conversation");
  t.see("> ");
  t.type("\n");
  t.see("> ");
  t.type("/rset\n");
  t.see("There is no command /rset");
  t.see("> ");
  t.type("//x\n");
  EXPECT_NE(t.see("> "), first);
  t.type("/reset\n");
  t.see("(a new conversation)");
  t.see("> ");
  t.type("Hello\n");
  EXPECT_EQ(t.see("> "), first);  // temperature 0
  t.type(std::string(200, 'x') + "\n");
  t.see("> ");
  t.type("/quit\n");
  EXPECT_EQ(t.end(), 0) << t.rest();
}

TEST_F(ChatCommand, CtrlCEndsAnAnswerAndThenTheProgram) {
  {
    Terminal t = typed("endless", {"--temperature", "0", "--max-tokens", "7900"});
    t.see("> ");
    t.type("Hello\n");
    t.see("\xEF\xBF\xBD");  // the terminal does not get control characters
    t.type("\x03");
    t.see("(interrupted)");
    t.see("> ");
    t.type("Again\n");
    t.see("\xEF\xBF\xBD");
    t.type("\x03");
    t.see("(interrupted)");
    t.see("> ");
    t.type("\x03");
    EXPECT_EQ(t.end(), 128 + SIGINT) << t.rest();
  }
  Terminal t = typed("run", {});
  t.see("> ");
  t.type("\x04");
  EXPECT_EQ(t.end(), 0) << t.rest();
}

TEST_F(ChatCommand, SampleAsksAtATerminal) {
  Terminal t = typed("run", {"--temperature", "0", "--max-tokens", "5"}, "sample");
  t.see("prompt (empty: a new text)> ");
  t.type("Once upon\n");
  t.see("Once upon");  // the echo of the keys
  t.see("Once upon");  // the text
  t.see("prompt of 9 tokens");
  EXPECT_EQ(t.end(), 0) << t.rest();
}
