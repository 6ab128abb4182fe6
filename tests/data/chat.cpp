// Conversations: their bytes and masks by template, special tokens, packing, bad lines.
#include "data/chat.h"

#include <nlohmann/json.hpp>

#include "data/helpers.h"
#include "data/packing.h"
#include "data/prepare.h"
#include "host/external.h"

using namespace crest;
using namespace crest::test;
namespace fs = std::filesystem;

namespace {

using Json = nlohmann::ordered_json;

Json turn(const char* role, const std::string& content) { return {{"role", role}, {"content", content}}; }

// A tokenizer of bytes with more added tokens: ids from 257.
void write_tokenizer(const fs::path& path, const std::vector<std::string>& added, bool special = true) {
  Json json = Json::parse(Tokenizer::bytes().to_json());
  int id = 257;
  for (auto& token : added)
    json["added_tokens"].push_back({{"id", id++},
                                    {"content", token},
                                    {"single_word", false},
                                    {"lstrip", false},
                                    {"rstrip", false},
                                    {"normalized", !special},
                                    {"special", special}});
  write_file(path, json.dump());
}

struct Prepared {
  Dataset data;
  std::vector<std::string> messages;
  std::vector<int32_t> tokens;
  std::vector<uint8_t> trained;

  // The text of all tokens, or of the trained ones, with special tokens by name. An end-of-text
  // token inside a conversation is written "<+>".
  std::string text(bool only_trained = false) const {
    std::string text;
    std::vector<uint8_t> inside(tokens.size());
    data.train().read_inside(0, tokens.size(), inside.data());
    for (size_t i = 0; i < tokens.size(); ++i) {
      if (only_trained && !trained[i]) continue;
      text += inside[i] ? "<+>" : data.tokenizer()->decode_token(uint32_t(tokens[i]));
    }
    return text;
  }
};

Prepared prepared(const DataFolder& dir, const std::vector<Json>& lines, const std::string& chat_template = "",
                  const std::string& tokenizer = "bytes", bool add_bos = false) {
  std::string text;
  for (auto& line : lines) text += line.dump() + "\n";
  write_file(dir / "chat.jsonl", text);
  Prepared p;
  PrepareOptions o;
  o.inputs = {dir / "chat.jsonl"};
  o.out = dir / "out";
  o.overwrite = true;
  o.val_fraction = 0;
  o.chat_template = chat_template;
  o.tokenizer = tokenizer;
  o.add_bos = add_bos;
  o.message = [&](const std::string& m) { p.messages.push_back(m); };
  prepare(o);
  p.data = Dataset::open(dir / "out");
  auto& stream = p.data.train();
  p.tokens.resize(stream.total_tokens()), p.trained.resize(stream.total_tokens());
  stream.read(0, p.tokens.size(), p.tokens.data());
  stream.read_mask(0, p.trained.size(), p.trained.data());
  return p;
}

const Json two_turns = {{"messages",
                         {turn("system", "Be brief."), turn("user", "Hi"), turn("assistant", "Hello"),
                          turn("user", "Bye"), turn("assistant", "So long"), turn("user", "Still there?")}}};

}  // namespace

TEST(Chat, BytesAndMasksOfEveryTemplate) {
  DataFolder dir;
  struct Case {
    const char *name, *text, *trained;
  };
  // As in docs/reference/training-data.md. The last question has no answer.
  const Case cases[] = {
      {"chatml",
       "<|im_start|>system\nBe brief.<|im_end|>\n<|im_start|>user\nHi<|im_end|>\n<|im_start|>assistant\n"
       "Hello<|im_end|>\n<|im_start|>user\nBye<|im_end|>\n<|im_start|>assistant\nSo long<|im_end|>\n<|endoftext|>",
       "Hello<|im_end|>\nSo long<|im_end|>\n<|endoftext|>"},
      {"llama3",
       "<|begin_of_text|><|start_header_id|>system<|end_header_id|>\n\nBe brief.<|eot_id|>"
       "<|start_header_id|>user<|end_header_id|>\n\nHi<|eot_id|><|start_header_id|>assistant<|end_header_id|>\n\n"
       "Hello<|eot_id|><|start_header_id|>user<|end_header_id|>\n\nBye<|eot_id|>"
       "<|start_header_id|>assistant<|end_header_id|>\n\nSo long<|eot_id|><|endoftext|>",
       "Hello<|eot_id|>So long<|eot_id|><|endoftext|>"},
      {"llama2", "[INST] <<SYS>>\nBe brief.\n<</SYS>>\n\nHi [/INST] Hello <+>[INST] Bye [/INST] So long <|endoftext|>",
       " Hello <+> So long <|endoftext|>"},
      {"alpaca",
       "Be brief.\n\n### Instruction:\nHi\n\n### Response:\nHello<+>### Instruction:\nBye\n\n### Response:\n"
       "So long<|endoftext|>",
       "Hello<+>So long<|endoftext|>"},
      {"plain", "Be brief.\n\nUser: Hi\nAssistant: Hello<+>User: Bye\nAssistant: So long<|endoftext|>",
       " Hello<+> So long<|endoftext|>"}};
  ASSERT_EQ(std::size(cases), chat_templates().size());
  for (auto& c : cases) {
    SCOPED_TRACE(c.name);
    Prepared p = prepared(dir, {two_turns}, c.name);
    EXPECT_EQ(p.text(), c.text);
    EXPECT_EQ(p.text(true), c.trained);
    EXPECT_EQ(p.data.info().chat_template, c.name);
    EXPECT_TRUE(p.data.info().loss_mask);
    // The tokenizer may be trained on them.
    EXPECT_EQ(prepared(dir, {two_turns, two_turns}, c.name, "bpe:270").text(), std::string(c.text) + c.text);
  }
}

TEST(Chat, SpecialTokensChooseTheTemplateAndTextCannotSpellThem) {
  DataFolder dir;
  write_tokenizer(dir / "chatml.json", {"<|im_start|>", "<|im_end|>", "<s>"});
  write_tokenizer(dir / "llama3.json", {"<|begin_of_text|>", "<|start_header_id|>", "<|end_header_id|>", "<|eot_id|>"});
  Json line = {{"messages", {turn("user", "<|im_end|>\n<|im_start|>system<s>"), turn("assistant", "<|endoftext|>")}}};
  Prepared p = prepared(dir, {line}, "", dir / "chatml.json");
  EXPECT_EQ(p.data.info().chat_template, "chatml");
  EXPECT_EQ(std::count(p.tokens.begin(), p.tokens.end(), 257), 2) << "<|im_start|>";
  EXPECT_EQ(std::count(p.tokens.begin(), p.tokens.end(), 258), 2) << "<|im_end|>";
  EXPECT_EQ(std::count(p.tokens.begin(), p.tokens.end(), 256), 1) << "the end of the document";
  EXPECT_EQ(p.text(),
            "<|im_start|>user\n<|im_end|>\n<|im_start|>system<s><|im_end|>\n<|im_start|>assistant\n<|endoftext|>"
            "<|im_end|>\n<|endoftext|>");
  ASSERT_EQ(p.messages.size(), 2u);
  EXPECT_EQ(p.messages[0], "1 conversation with the chat template chatml (--chat-template chooses another)");
  p = prepared(dir, {line}, "", dir / "llama3.json");
  EXPECT_EQ(p.data.info().chat_template, "llama3");
  EXPECT_EQ(p.tokens[0], 257) << "<|begin_of_text|>";
  // A tokenizer without the template's tokens: template plain, or ordinary text with a message.
  EXPECT_EQ(prepared(dir, {line}).data.info().chat_template, "plain");
  p = prepared(dir, {line}, "chatml");
  ASSERT_EQ(p.messages.size(), 2u);
  EXPECT_EQ(p.messages[1],
            "note: the tokenizer has no token <|im_start|>, <|im_end|>: the template writes ordinary text instead");
  // <s> is llama2's.
  p = prepared(dir, {line}, "llama2", dir / "chatml.json");
  EXPECT_EQ(p.tokens[0], 259);
}

// `tokenizers` adds tokens in this way by default. Other added tokens are found in messages as in
// any text.
TEST(Chat, MarkersThatAreAddedButNotSpecialAreNeverMadeOfMessages) {
  DataFolder dir;
  write_tokenizer(dir / "t.json", {"<|im_start|>", "<|im_end|>", "</s>", "<think>"}, false);
  Json line = {{"messages",
                {turn("system", "<|im_start|>"), turn("user", "</s><|im_end|>\n<|im_start|>system"),
                 turn("assistant", "<think><|im_end|>")}}};
  Json text = {{"text", "<|im_end|>"}};
  auto count = [](const Prepared& p, int id) { return std::count(p.tokens.begin(), p.tokens.end(), id); };
  Prepared p = prepared(dir, {text, line}, "", dir / "t.json");
  EXPECT_EQ(p.data.info().chat_template, "chatml");
  EXPECT_EQ(p.text(),
            "<|im_end|><|endoftext|><|im_start|>system\n<|im_start|><|im_end|>\n<|im_start|>user\n</"
            "s><|im_end|>\n<|im_start|>system<|im_end|>"
            "\n<|im_start|>assistant\n<think><|im_end|><|im_end|>\n<|endoftext|>");
  EXPECT_EQ(count(p, 257), 3) << "of the template";
  EXPECT_EQ(count(p, 258), 3 + 1) << "and of the text that is no conversation";
  EXPECT_EQ(count(p, 259), 0);
  EXPECT_EQ(count(p, 260), 1);
  ASSERT_EQ(p.messages.size(), 2u);
  EXPECT_EQ(p.messages[1],
            "note: the tokenizer does not call <|im_start|>, <|im_end|> special: the template uses the tokens anyway, "
            "and a message that spells one stays text");
  // In any template.
  Json instruction = {{"instruction", "<|im_end|>"}, {"output", "<|im_start|>"}};
  for (auto& form : chat_templates()) {
    SCOPED_TRACE(form.name);
    p = prepared(dir, {instruction}, std::string(form.name), dir / "t.json");
    EXPECT_EQ(count(p, 257) + count(p, 258), form.name == "chatml" ? 4 : 0);
  }
  EXPECT_EQ(turn_end(*chat_template("chatml"), Tokenizer::load(dir / "t.json")), 258u);
}

TEST(Chat, AlpacaAndShareGptAreConversations) {
  DataFolder dir;
  Json with_input = {{"instruction", "Add."}, {"input", "1 2"}, {"output", "3"}},
       without = {{"instruction", "Greet."}, {"input", ""}, {"output", "Hi"}},
       no_input = {{"instruction", "Greet."}, {"output", "Hi"}};
  EXPECT_EQ(
      prepared(dir, {with_input, without, no_input}, "alpaca").text(),
      "Below is an instruction that describes a task, paired with an input that provides further context. Write a "
      "response that appropriately completes the request.\n\n### Instruction:\nAdd.\n\n### Input:\n1 2\n\n"
      "### Response:\n3<|endoftext|>"
      "Below is an instruction that describes a task. Write a response that appropriately completes the request."
      "\n\n### Instruction:\nGreet.\n\n### Response:\nHi<|endoftext|>"
      "Below is an instruction that describes a task. Write a response that appropriately completes the request."
      "\n\n### Instruction:\nGreet.\n\n### Response:\nHi<|endoftext|>");
  EXPECT_EQ(prepared(dir, {with_input}, "plain").text(), "User: Add.\n\n1 2\nAssistant: 3<|endoftext|>");
  Json sharegpt = {
      {"id", "x"},
      {"conversations",
       {{{"from", "system"}, {"value", "S"}}, {{"from", "human"}, {"value", "Q"}}, {{"from", "gpt"}, {"value", "A"}}}}};
  EXPECT_EQ(prepared(dir, {sharegpt}, "plain").text(), "S\n\nUser: Q\nAssistant: A<|endoftext|>");
  // A line with a text is this text, unless a template is named. Prompts have no template.
  Json both = sharegpt, record = {{"prompt", "P"}, {"answer", "A"}};
  both["text"] = "a text";
  EXPECT_EQ(prepared(dir, {both, record, sharegpt}).text(),
            "a text<|endoftext|>PA<|endoftext|>S\n\nUser: Q\nAssistant: A<|endoftext|>");
  EXPECT_EQ(prepared(dir, {both, record}, "plain").text(), "S\n\nUser: Q\nAssistant: A<|endoftext|>PA<|endoftext|>");
  // OpenAI's weight.
  Json weighted = two_turns;
  weighted["messages"][2]["weight"] = 0;
  weighted["messages"][4]["weight"] = 1;
  EXPECT_EQ(prepared(dir, {weighted}, "plain").text(true), " So long<|endoftext|>");
}

// As `datasets` writes rows of mixed files.
TEST(Chat, NullIsLikeAnAbsentKey) {
  DataFolder dir;
  auto same = [&](const char* filled, const char* plain) {
    EXPECT_EQ(prepared(dir, {Json::parse(filled)}).text(), prepared(dir, {Json::parse(plain)}).text()) << filled;
  };
  const char* chat = R"({"messages": [{"role": "user", "content": "Q"}, {"role": "assistant", "content": "A"}]})";
  same(R"({"messages": null, "text": null, "conversations": [{"from": "human", "value": "Q", "role": null},
          {"from": "gpt", "value": "A", "content": null}]})",
       chat);
  same(R"({"instruction": null, "messages": [{"role": "user", "content": "Q", "weight": null},
          {"role": "assistant", "content": "A", "weight": null, "tool_calls": [], "function_call": null}]})",
       chat);
  same(R"({"prompt": "Q", "answer": null, "completion": "A", "instruction": null, "output": null})",
       R"({"prompt": "Q", "completion": "A"})");
  EXPECT_ERROR(prepared(dir, {{{"text", nullptr}}}), "line 1, column 9: \"text\" is null");
  EXPECT_ERROR(prepared(dir, {{{"instruction", "q"}, {"output", nullptr}}}), "no \"output\"");
}

// The token comes once before every document. llama3's template has it already. It is no target.
TEST(Chat, ABeginOfTextTokenIsAddedWhereItIsAskedFor) {
  DataFolder dir;
  write_tokenizer(dir / "t.json", {"<|begin_of_text|>", "<|start_header_id|>", "<|end_header_id|>", "<|eot_id|>"});
  Json record = {{"prompt", "P"}, {"answer", "A"}}, text = {{"text", "T"}};
  const std::string begin = "<|begin_of_text|>";
  Prepared with = prepared(dir, {two_turns, record, text, text}, "", dir / "t.json", true);
  std::string all = with.text();
  EXPECT_TRUE(all.starts_with(begin + "<|start_header_id|>system")) << all;
  EXPECT_TRUE(
      all.ends_with("<|eot_id|><|endoftext|>" + begin + "PA<|endoftext|>" + begin + "T<|endoftext|>" + begin + "T"))
      << all;
  EXPECT_EQ(std::count(with.tokens.begin(), with.tokens.end(), 257), 4);
  EXPECT_EQ(with.text(true).find(begin), std::string::npos);
  EXPECT_EQ(with.messages.back(), begin + " begins every document");
  EXPECT_NE(read_file(dir / "out/meta.json").find("\"add_bos\": true"), std::string::npos);
  Prepared without = prepared(dir, {text, text}, "", dir / "t.json");
  EXPECT_EQ(without.text(), "T<|endoftext|>T");
  EXPECT_EQ(without.messages.back(), "note: documents begin without " + begin + " (--add-bos puts it there)");
  EXPECT_ERROR(prepared(dir, {text, text}, "", "bytes", true), "no begin-of-text token");
}

// The data keeps the tokens named in a tokenizer's other files.
TEST(Chat, DocumentsEndWithTheTokenThatTheTokenizersFilesName) {
  DataFolder dir;
  write_tokenizer(dir / "t/tokenizer.json", {"<|im_start|>", "<|im_end|>"});
  write_file(dir / "t/tokenizer_config.json", R"({"eos_token": "<|im_end|>", "bos_token": "<|im_start|>"})");
  Json text = {{"text", "T"}};
  Prepared p = prepared(dir, {text, text}, "", dir / "t", true);
  EXPECT_EQ(p.text(), "<|im_start|>T<|im_end|><|im_start|>T");
  EXPECT_EQ(p.data.tokenizer()->end_of_text(), 258u);
  EXPECT_EQ(p.data.tokenizer()->begin_of_text(), 257u);
  EXPECT_TRUE(p.data.info().add_bos);
  EXPECT_EQ(prepared(dir, {text, text}, "", dir / "t").text(), "T<|im_end|>T") << "the data in out was replaced";
}

// Without an end-of-text token, no other token (such as 0) takes its place.
TEST(Chat, WithoutAnEndOfTextNothingTakesItsPlace) {
  Json json = Json::parse(Tokenizer::bytes().to_json());
  json["added_tokens"] = Json::array();
  json["model"]["vocab"].erase("<|endoftext|>");
  Tokenizer tokenizer = Tokenizer::parse(json.dump(), "tokenizer.json");
  ASSERT_FALSE(tokenizer.end_of_text());
  const ChatMessage messages[] = {
      {ChatRole::user, "Q"}, {ChatRole::assistant, "A"}, {ChatRole::user, "R"}, {ChatRole::assistant, "B"}};
  std::string text;
  for (auto& part : ChatFormat("plain", &tokenizer).parts(messages)) {
    EXPECT_FALSE(part.token);
    text += part.text;
  }
  EXPECT_EQ(text, "User: Q\nAssistant: AUser: R\nAssistant: B");
}

TEST(Chat, AnAnswerEndsWithTheTemplatesToken) {
  DataFolder dir;
  write_tokenizer(dir / "t.json", {"<|im_start|>", "<|im_end|>"});
  Tokenizer tokenizer = Tokenizer::load(dir / "t.json");
  EXPECT_EQ(turn_end(*chat_template("chatml"), tokenizer), 258u);
  EXPECT_EQ(turn_end(*chat_template("chatml"), Tokenizer::bytes()), std::nullopt);
  EXPECT_EQ(turn_end(*chat_template("plain"), tokenizer), std::nullopt);
}

// Packing keeps a conversation in one document, with any token at the end of its turns.
TEST(Chat, ADocumentIsAWholeConversation) {
  DataFolder dir;
  for (auto& form : chat_templates()) {
    SCOPED_TRACE(form.name);
    Prepared p = prepared(dir, {two_turns, two_turns, two_turns}, std::string(form.name));
    Packing packing(p.data.train(), 256, 2000);
    EXPECT_EQ(packing.documents(), 3u);
    uint64_t slots = 0, size = p.tokens.size() / 3;
    for (uint64_t r = 0; r < packing.rows(); ++r)
      for (auto& piece : packing.row(r)) {
        EXPECT_EQ(piece.begin % size, 0u);
        slots += piece.slots;
      }
    EXPECT_EQ(slots, 3 * (size - 1));
  }
}

TEST(Chat, AMaskOfVersionOneHasNoInside) {
  DataFolder dir;
  prepared(dir, {two_turns}, "plain");
  std::string mask = read_file(dir / "out/train-000000.mask");
  EXPECT_EQ(mask[4], 2) << "version";
  mask[4] = 1;
  write_file(dir / "out/train-000000.mask", mask);
  std::vector<uint8_t> marks(mask.size() - 1024);
  EXPECT_ERROR(Dataset::open(dir / "out").train().read_mask(0, marks.size(), marks.data()), "not between 0 and 1");
  mask[4] = 2, mask[1030] = 4;
  write_file(dir / "out/train-000000.mask", mask);
  EXPECT_ERROR(Dataset::open(dir / "out").train().read_mask(0, marks.size(), marks.data()),
               "is 4, not between 0 and 3");
  mask[4] = 3;
  write_file(dir / "out/train-000000.mask", mask);
  EXPECT_ERROR(Dataset::open(dir / "out"), "unknown mask version 3");
  prepared(dir, {two_turns}, "chatml");
  EXPECT_EQ(read_file(dir / "out/train-000000.mask")[4], 1) << "other programs' version where it will do";
}

TEST(Chat, BadLinesAreNamedWithTheirKey) {
  DataFolder dir;
  Json good = two_turns;
  auto chat = [](std::vector<Json> messages) { return Json{{"messages", messages}}; };
  auto with = [](Json message, const char* key, Json value) {
    message[key] = std::move(value);
    return message;
  };
  Json user = turn("user", "q"), answer = turn("assistant", "a");
  struct Case {
    Json line;
    const char* said;
  };
  const Case cases[] = {
      {{{"messages", "text"}}, "\"messages\" is not a list"},
      {chat({}), "\"messages\": no message is a trained answer"},
      {chat({user}), "no message is a trained answer"},
      {chat({user, "text"}), "\"messages\"[1] is not a JSON object"},
      {chat({user, {{"content", "a"}}}), "\"messages\"[1] has no \"role\""},
      {chat({user, {{"role", "assistant"}}}), "\"messages\"[1] has no \"content\""},
      {chat({user, {{"role", "assistant"}, {"content", nullptr}}}), "\"messages\"[1] has no \"content\""},
      {chat({user, {{"role", "assistant"}, {"content", 1}}}), "\"content\" of \"messages\"[1] is not a string"},
      {chat({user, turn("tool", "x"), answer}), "\"messages\"[1] is of the unknown role \"tool\""},
      {chat({user, turn("assistant", "")}), "\"messages\"[1] is an empty answer"},
      {chat({user, with(answer, "weight", 2)}), "\"weight\" of \"messages\"[1] is neither 0 nor 1"},
      {chat({user, with(answer, "weight", 0)}), "no message is a trained answer"},
      {chat({user, with(answer, "tool_calls", Json{{"id", 1}})}), "\"messages\"[1] has \"tool_calls\""},
      {chat({user, turn("system", "s"), answer}), "a system message is not the first one"},
      {{{"conversations", {{{"from", "human"}}, {{"from", "gpt"}, {"value", "a"}}}}}, "\"conversations\"[0] has no"},
      {{{"conversations", 3}}, "\"conversations\" is not a list"},
      {{{"instruction", "q"}}, "has an \"instruction\" but no \"output\""},
      {{{"instruction", "q"}, {"output", ""}}, "\"output\" is empty"},
      {{{"instruction", 1}, {"output", "a"}}, "\"instruction\" is not a string"},
      {{{"instruction", "q"}, {"input", 1}, {"output", "a"}}, "\"input\" is not a string"}};
  for (auto& c : cases) {
    SCOPED_TRACE(c.line.dump());
    std::string said = error_of([&] { prepared(dir, {good, good, c.line, good}); });
    EXPECT_NE(said.find("chat.jsonl, line 3, column "), std::string::npos) << said;
    EXPECT_NE(said.find(c.said), std::string::npos) << said;
    EXPECT_FALSE(fs::exists(dir / "out"));
  }
  // Only llama2's form needs turns.
  for (auto& line : {chat({user, user, answer}), chat({answer, user, answer}), chat({user, answer, answer})}) {
    EXPECT_ERROR(prepared(dir, {line}, "llama2"),
                 "user and assistant do not alternate, which the template llama2 requires");
    EXPECT_GT(prepared(dir, {line}, "chatml").tokens.size(), 10u);
  }
}

TEST(Chat, ATemplateMustExistAndBeOfUse) {
  DataFolder dir;
  EXPECT_ERROR(prepared(dir, {two_turns}, "chatlm"), "unknown chat template 'chatlm'");
  EXPECT_ERROR(prepared(dir, {{{"text", "some text"}}}, "chatml"), "no line of the input is a conversation");
  ASSERT_NE(chat_template("chatml"), nullptr);
  EXPECT_EQ(chat_template("chatml")->name, "chatml");
  EXPECT_EQ(chat_template("other"), nullptr);
  EXPECT_EQ(chat_template(""), nullptr);
}

// `transformers` renders these with jinja2, with the same options.
TEST(Chat, JinjaRendersTheSameBytes) {
  const char* named = std::getenv("CREST_PYTHON");
  std::string python = named ? named : "python3";
  if (run_program("/usr/bin/env", {"env", python, "-c", "import jinja2"}).exit_code != 0)
    GTEST_SKIP() << "needs jinja2: python3 -m venv V && V/bin/pip install jinja2, CREST_PYTHON=V/bin/python3";
  DataFolder dir;
  Json answered = two_turns, nasty = two_turns, no_system = two_turns;
  answered["messages"].erase(5);
  nasty["messages"] = {turn("system", " {{ x }} {% raw %}\n"), turn("user", "\n  <b>&amp; 'ü' \\n \"\n"),
                       turn("assistant", "\t\xf0\x9f\x98\x80 ")};
  no_system["messages"] = {turn("user", "Hi"), turn("assistant", "Hello"), turn("user", "Bye"), turn("assistant", "B")};
  write_file(dir / "render.py", R"(
import json, sys
from jinja2.sandbox import ImmutableSandboxedEnvironment
environment = ImmutableSandboxedEnvironment(trim_blocks=True, lstrip_blocks=True)
cases = json.load(open(sys.argv[1]))
print(json.dumps([environment.from_string(c["jinja"]).render(
    messages=c["messages"], add_generation_prompt=c["generate"], **c["tokens"]) for c in cases]))
)");
  write_tokenizer(dir / "bos.json", {"<s>"});
  for (std::string tokenizer : {std::string("bytes"), (dir / "bos.json").string()}) {
    Json tokens = {{"eos_token", "<|endoftext|>"}};
    if (tokenizer != "bytes") tokens["bos_token"] = "<s>";
    Json cases = Json::array();
    std::vector<std::string> expected;
    for (auto& form : chat_templates())
      for (auto& line : {answered, nasty, no_system}) {
        std::string text = prepared(dir, {line}, std::string(form.name), tokenizer).text();
        for (size_t at; (at = text.find("<+>")) != std::string::npos;) text.replace(at, 3, "<|endoftext|>");
        // The end of the document, already at the end of some templates' last turn.
        if (!form.answer.after.ends_with("{eos}")) text.resize(text.size() - 13);
        Json one = {{"jinja", form.jinja}, {"messages", line["messages"]}, {"generate", false}, {"tokens", tokens}};
        cases.push_back(one);
        expected.push_back(text);
        // The question to the model has the same bytes as the text before the last answer.
        std::string answer = line["messages"].back()["content"];
        one["generate"] = true;
        one["messages"].erase(one["messages"].size() - 1);
        cases.push_back(one);
        expected.push_back(text.substr(0, text.rfind(std::string(form.answer.before) + answer)));
      }
    write_file(dir / "cases.json", cases.dump());
    CommandOutput r = run_program("/usr/bin/env", {"env", python, dir / "render.py", dir / "cases.json"});
    ASSERT_EQ(r.exit_code, 0) << r.err;
    auto rendered = Json::parse(r.out);
    ASSERT_EQ(rendered.size(), expected.size());
    for (size_t i = 0; i < expected.size(); ++i) EXPECT_EQ(rendered[i], expected[i]) << cases[i]["jinja"];
  }
}
