#include "data/chat.h"

#include <fmt/format.h>

#include <algorithm>

#include "core/error.h"
#include "core/text.h"
#include "data/tokenizer.h"

namespace crest {

namespace {

// docs/reference/training-data.md has the bytes of each.
constexpr ChatTemplate templates[] = {
    {.name = "chatml",
     .begin = "",
     .system = {"<|im_start|>system\n", "<|im_end|>\n"},
     .user = {"<|im_start|>user\n", "<|im_end|>\n"},
     .answer_prompt = "<|im_start|>assistant\n",
     .answer = {"", "<|im_end|>\n"},
     .jinja = R"({% for message in messages %})"
              R"({{ '<|im_start|>' + message['role'] + '\n' + message['content'] + '<|im_end|>\n' }})"
              R"({% endfor %}{% if add_generation_prompt %}{{ '<|im_start|>assistant\n' }}{% endif %})",
     .tokens = {"<|im_start|>", "<|im_end|>"}},
    {.name = "llama3",
     .begin = "<|begin_of_text|>",
     .system = {"<|start_header_id|>system<|end_header_id|>\n\n", "<|eot_id|>"},
     .user = {"<|start_header_id|>user<|end_header_id|>\n\n", "<|eot_id|>"},
     .answer_prompt = "<|start_header_id|>assistant<|end_header_id|>\n\n",
     .answer = {"", "<|eot_id|>"},
     .jinja = R"({{ '<|begin_of_text|>' }}{% for message in messages %})"
              R"({{ '<|start_header_id|>' + message['role'] + '<|end_header_id|>\n\n' + message['content'] + )"
              R"('<|eot_id|>' }}{% endfor %}{% if add_generation_prompt %})"
              R"({{ '<|start_header_id|>assistant<|end_header_id|>\n\n' }}{% endif %})",
     .tokens = {"<|begin_of_text|>", "<|start_header_id|>", "<|end_header_id|>", "<|eot_id|>"}},
    {.name = "llama2",
     .begin = "",
     .system = {"<<SYS>>\n", "\n<</SYS>>\n\n"},
     .user = {"{bos}[INST] ", " [/INST]"},
     .answer_prompt = "",
     .answer = {" ", " {eos}"},
     .jinja = R"({% set ns = namespace(system='') %}{% for message in messages %})"
              R"({% if message['role'] == 'system' %})"
              R"({% set ns.system = '<<SYS>>\n' + message['content'] + '\n<</SYS>>\n\n' %})"
              R"({% elif message['role'] == 'user' %})"
              R"({{ (bos_token or '') + '[INST] ' + ns.system + message['content'] + ' [/INST]' }})"
              R"({% set ns.system = '' %})"
              R"({% else %}{{ ' ' + message['content'] + ' ' + eos_token }}{% endif %}{% endfor %})",
     .system_in_user = true},
    {.name = "alpaca",
     .begin = "",
     .system = {"", "\n\n"},
     .user = {"### Instruction:\n", "\n\n"},
     .answer_prompt = "### Response:\n",
     .answer = {"", "{eos}"},
     .jinja = R"({% if messages[0]['role'] != 'system' %}{{ 'Below is an instruction that describes a task. )"
              R"(Write a response that appropriately completes the request.\n\n' }}{% endif %})"
              R"({% for message in messages %}{% if message['role'] == 'system' %}{{ message['content'] + '\n\n' }})"
              R"({% elif message['role'] == 'user' %}{{ '### Instruction:\n' + message['content'] + '\n\n' }})"
              R"({% else %}{{ '### Response:\n' + message['content'] + eos_token }}{% endif %}{% endfor %})"
              R"({% if add_generation_prompt %}{{ '### Response:\n' }}{% endif %})",
     .default_system = "Below is an instruction that describes a task. Write a response that appropriately completes "
                       "the request.",
     .input = "\n\n### Input:\n",
     .input_system = "Below is an instruction that describes a task, paired with an input that provides further "
                     "context. Write a response that appropriately completes the request."},
    {.name = "plain",
     .begin = "",
     .system = {"", "\n\n"},
     .user = {"User: ", "\n"},
     .answer_prompt = "Assistant:",
     .answer = {" ", "{eos}"},
     .jinja = R"({% for message in messages %}{% if message['role'] == 'system' %}{{ message['content'] + '\n\n' }})"
              R"({% elif message['role'] == 'user' %}{{ 'User: ' + message['content'] + '\n' }})"
              R"({% else %}{{ 'Assistant: ' + message['content'] + eos_token }}{% endif %}{% endfor %})"
              R"({% if add_generation_prompt %}{{ 'Assistant:' }}{% endif %})"},
};

}  // namespace

std::span<const ChatTemplate> chat_templates() { return templates; }

const ChatTemplate* chat_template(std::string_view name) {
  for (auto& t : templates)
    if (t.name == name) return &t;
  return nullptr;
}

const ChatTemplate* chat_template_of(std::string_view jinja) {
  for (auto& t : templates)
    if (t.jinja == jinja) return &t;
  return nullptr;
}

std::string chat_template_names() {
  std::vector<std::string> names;
  for (auto& t : templates) names.emplace_back(t.name);
  return join(names, ", ");
}

bool is_chat_marker(std::string_view text) {
  for (std::string_view name : Tokenizer::end_of_text_names)
    if (text == name) return true;
  for (std::string_view name : Tokenizer::begin_of_text_names)
    if (text == name) return true;
  for (auto& t : templates)
    if (std::find(t.tokens.begin(), t.tokens.end(), text) != t.tokens.end()) return true;
  return false;
}

std::optional<uint32_t> turn_end(const ChatTemplate& form, const Tokenizer& tokenizer) {
  for (auto token : form.tokens)
    if (!token.empty() && form.answer.after.starts_with(token)) return tokenizer.added(token);
  return std::nullopt;
}

ChatFormat::ChatFormat(std::string_view name, const Tokenizer* tokenizer)
    : form_(chat_template(name.empty() ? "plain" : name)), named_(!name.empty()) {
  if (!form_)
    fail_usage(fmt::format("unknown chat template '{}'", printable(name)), "--chat-template",
               fmt::format("Choose one of: {}.", chat_template_names()));
  auto look_up = [&](const ChatTemplate& form) {
    tokens_.clear(), missing_.clear(), not_special_.clear();
    for (auto token : form.tokens) {
      if (token.empty()) continue;
      auto id = tokenizer ? tokenizer->added(token) : std::nullopt;
      if (!id) {
        missing_.push_back(token);
        continue;
      }
      tokens_.emplace_back(token, *id);
      if (!tokenizer->is_special(*id)) not_special_.push_back(token);
    }
    return missing_.empty() && !tokens_.empty();
  };
  if (!named_)
    if (auto* t = std::find_if(std::begin(templates), std::end(templates), look_up); t != std::end(templates))
      form_ = t;
  look_up(*form_);
  if (!tokenizer) {
    end_of_text_ = 0;  // the trained part has an end, which takes this place in time
    return;
  }
  begin_of_text_ = tokenizer->begin_of_text();
  set_end_of_text(tokenizer->end_of_text());
}

static void add_text(std::string_view text, bool trained, std::vector<DocumentPart>& parts) {
  if (text.empty()) return;
  if (parts.empty() || parts.back().token || parts.back().trained != trained) parts.push_back({"", trained, {}});
  parts.back().text += text;
}

void ChatFormat::add(std::string_view form, bool trained, std::vector<DocumentPart>& parts) const {
  while (!form.empty()) {
    size_t at = form.size(), length = 0;
    std::optional<uint32_t> id;
    auto look_for = [&](std::string_view token, std::optional<uint32_t> its_id) {
      if (size_t p = form.find(token); p < at) at = p, length = token.size(), id = its_id;
    };
    look_for("{eos}", end_of_text_);
    look_for("{bos}", begin_of_text_);
    for (auto& [token, its_id] : tokens_) look_for(token, its_id);
    add_text(form.substr(0, at), trained, parts);
    if (id) parts.push_back({"", trained, id});
    form.remove_prefix(at + length);
  }
}

std::vector<DocumentPart> ChatFormat::all_parts(std::span<const ChatMessage> messages, bool training) const {
  std::vector<DocumentPart> parts;
  // A content is text, whatever it spells.
  auto content = [&](std::string_view text, bool trained) { add_text(text, trained, parts); };
  add(form_->begin, false, parts);
  if (!form_->default_system.empty() && (messages.empty() || messages[0].role != ChatRole::system)) {
    add(form_->system.before, false, parts);
    content(form_->default_system, false);
    add(form_->system.after, false, parts);
  }
  std::string_view system;
  bool has_system = false;
  for (auto& m : messages) {
    if (m.role == ChatRole::system && form_->system_in_user) {
      system = m.content, has_system = true;
    } else if (m.role == ChatRole::assistant) {
      add(form_->answer_prompt, false, parts);
      const bool trained = training && m.trained;
      add(form_->answer.before, trained, parts);
      content(m.content, trained);
      add(form_->answer.after, trained, parts);
    } else {
      auto& form = m.role == ChatRole::system ? form_->system : form_->user;
      add(form.before, false, parts);
      if (has_system) {
        add(form_->system.before, false, parts);
        content(system, false);
        add(form_->system.after, false, parts);
        has_system = false;
      }
      content(m.content, false);
      add(form.after, false, parts);
    }
  }
  return parts;
}

std::vector<DocumentPart> ChatFormat::parts(std::span<const ChatMessage> messages) const {
  while (!messages.empty() && messages.back().role != ChatRole::assistant)
    messages = messages.first(messages.size() - 1);
  std::vector<DocumentPart> parts = all_parts(messages, true);
  if (form_->answer.after.ends_with("{eos}") && !parts.empty() && parts.back().token) parts.pop_back();
  return parts;
}

std::vector<DocumentPart> ChatFormat::prompt(std::span<const ChatMessage> messages) const {
  std::vector<DocumentPart> parts = all_parts(messages, false);
  add(form_->answer_prompt, false, parts);
  return parts;
}

std::string ChatFormat::problem(std::span<const ChatMessage> messages) const {
  bool answered = false;
  for (size_t i = 0; i < messages.size(); ++i) {
    auto role = messages[i].role;
    answered |= role == ChatRole::assistant && messages[i].trained;
    if (role == ChatRole::system && i > 0) return "a system message is not the first one";
    if (!form_->system_in_user || role == ChatRole::system) continue;
    size_t turn = i - (messages[0].role == ChatRole::system);
    if ((role == ChatRole::user) != (turn % 2 == 0))
      return fmt::format("user and assistant do not alternate, which the template {} requires", form_->name);
  }
  return answered ? "" : "no message is a trained answer (role assistant)";
}

}  // namespace crest
