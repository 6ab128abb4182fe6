#include "data/json_lines.h"

#include <fmt/format.h>

#include <algorithm>

#include "core/error.h"
#include "core/json.h"
#include "core/json_error.h"
#include "core/text.h"
#include "core/unpack.h"

namespace crest {

// The value of a key. Null is like an absent key: tables of mixed records fill their columns with
// it.
static const nlohmann::json* find(const nlohmann::json& object, std::string_view key) {
  auto found = object.find(key);
  return found == object.end() || found->is_null() ? nullptr : &*found;
}

bool is_json_lines(std::string_view name) {
  name = name_inside(name);
  return name.ends_with(".jsonl") || name.ends_with(".ndjson");
}

// The byte of a key's value in the object of a line, which is valid JSON; without the key, of the
// object itself.
static size_t byte_of_value(std::string_view line, std::string_view key) {
  constexpr const char* spaces = " \t\r";
  int depth = 0;
  for (size_t i = 0; i < line.size(); ++i) {
    depth += line[i] == '{' || line[i] == '[';
    depth -= line[i] == '}' || line[i] == ']';
    if (line[i] != '"') continue;
    size_t end = i + 1;
    while (end < line.size() && line[end] != '"') end += line[end] == '\\' ? 2 : 1;
    const size_t next = line.find_first_not_of(spaces, end + 1);
    if (depth == 1 && !key.empty() && next < line.size() && line[next] == ':' && line.substr(i + 1, end - i - 1) == key)
      return line.find_first_not_of(spaces, next + 1);
    i = end;
  }
  return line.find_first_not_of(spaces);
}

void JsonLines::refuse(const std::string& problem, const std::string& advice) const {
  const size_t byte = at_byte_ || text_.empty() ? at_byte_ : byte_of_value(text_, at_key_);
  throw BadLine(
      problem, fmt::format("{}, line {}, column {}", printable(name_), line_, byte + 1),
      !advice.empty()
          ? advice
          : fmt::format("Every line must be a JSON object with its text under \"{}\" (--text-key chooses another key), "
                        "with \"prompt\" and \"answer\" (or \"completion\", \"response\"), with \"messages\" or "
                        "\"conversations\", or with \"instruction\" and \"output\".",
                        printable(key_)));
}

const std::string& JsonLines::text_at(const nlohmann::json& object, const std::string& key) {
  at_key_ = key;
  const nlohmann::json* value = find(object, key);
  if (!value || !value->is_string()) refuse(fmt::format("\"{}\" is not a string", printable(key)));
  return value->get_ref<const std::string&>();
}

// An answer must be present and not empty: otherwise there would be nothing to learn but to stop.
void JsonLines::record(const nlohmann::json& object, const Use& use) {
  std::string answer;
  for (const char* key : {"answer", "completion", "response"}) {
    if (!find(object, key)) continue;
    at_key_ = key;
    if (!answer.empty()) refuse(fmt::format("the line has both \"{}\" and \"{}\"", answer, key));
    answer = key;
  }
  if (answer.empty()) refuse("the line has a \"prompt\" but no \"answer\", \"completion\" or \"response\"");
  const DocumentPart parts[] = {{text_at(object, "prompt"), false}, {text_at(object, answer), true}};
  if (parts[1].text.empty()) refuse(fmt::format("\"{}\" is empty", answer));
  use({.text = {}, .parts = parts});
}

// A message of OpenAI's form ("role", "content") or ShareGPT's ("from", "value").
ChatMessage JsonLines::message(const nlohmann::json& object, const std::string& where) const {
  static const std::string advice =
      "A message is an object with \"role\" (system, user or assistant) and \"content\", or with \"from\" (system, "
      "human or gpt) and \"value\", all of them strings. Correct the line or remove it.";
  struct Name {
    std::string_view name;
    ChatRole role;
  };
  static constexpr Name names[] = {{"system", ChatRole::system},
                                   {"user", ChatRole::user},
                                   {"human", ChatRole::user},
                                   {"assistant", ChatRole::assistant},
                                   {"gpt", ChatRole::assistant}};
  if (!object.is_object()) refuse(where + " is not a JSON object", advice);
  auto text = [&](const char* key, const char* other) -> const std::string& {
    const char* found = find(object, key) ? key : other;
    const nlohmann::json* value = find(object, found);
    if (!value) refuse(fmt::format("{} has no \"{}\"", where, key), advice);
    if (!value->is_string()) refuse(fmt::format("\"{}\" of {} is not a string", found, where), advice);
    return value->get_ref<const std::string&>();
  };
  const bool sharegpt = !find(object, "role") && find(object, "from");
  const std::string& role = sharegpt ? text("from", "role") : text("role", "from");
  auto* name = std::find_if(std::begin(names), std::end(names), [&](auto& n) { return n.name == role; });
  if (name == std::end(names)) refuse(fmt::format("{} is of the unknown role \"{}\"", where, printable(role)), advice);
  for (const char* key : {"tool_calls", "function_call"})
    if (auto* call = find(object, key); call && !call->empty())
      refuse(fmt::format("{} has \"{}\", which no template supports", where, key), "Remove the line.");
  ChatMessage m{name->role, sharegpt ? text("value", "content") : text("content", "value")};
  if (m.role == ChatRole::assistant && m.content.empty()) refuse(where + " is an empty answer", advice);
  if (auto* weight = find(object, "weight")) {
    if (*weight != 0 && *weight != 1) refuse(fmt::format("\"weight\" of {} is neither 0 nor 1", where), advice);
    m.trained = *weight == 1;
  }
  return m;
}

void JsonLines::use_chat(std::span<const ChatMessage> messages, const std::string& where, const Use& use) const {
  if (std::string problem = chat_.problem(messages); !problem.empty())
    refuse(fmt::format("{}: {}", where, problem), "Correct the line or remove it, or choose another --chat-template.");
  std::vector<DocumentPart> parts = chat_.parts(messages);
  use({.text = {}, .parts = parts, .chat = true});
}

void JsonLines::conversation(const nlohmann::json& object, const std::string& key, const Use& use) {
  at_key_ = key;
  const nlohmann::json& list = object.at(key);
  if (!list.is_array())
    refuse(fmt::format("\"{}\" is not a list", key), "It must be a list of messages. Correct the line or remove it.");
  std::vector<ChatMessage> messages;
  for (size_t i = 0; i < list.size(); ++i) messages.push_back(message(list[i], fmt::format("\"{}\"[{}]", key, i)));
  use_chat(messages, fmt::format("\"{}\"", key), use);
}

// Alpaca's records are conversations of one question and one answer.
void JsonLines::instruction(const nlohmann::json& object, const Use& use) {
  at_key_ = "instruction";
  if (!find(object, "output")) refuse("the line has an \"instruction\" but no \"output\"");
  std::string question = text_at(object, "instruction");
  const std::string& answer = text_at(object, "output");
  if (answer.empty()) refuse("\"output\" is empty", "Remove the line.");
  std::vector<ChatMessage> messages;
  if (find(object, "input") && !text_at(object, "input").empty()) {
    question += chat_.form().input;
    question += text_at(object, "input");
    if (!chat_.form().input_system.empty()) messages.push_back({ChatRole::system, chat_.form().input_system});
  }
  messages.push_back({ChatRole::user, question});
  messages.push_back({ChatRole::assistant, answer});
  use_chat(messages, "\"instruction\"", use);
}

void JsonLines::skip_or_throw(const BadLine& bad) const {
  if (!bad_lines_) throw bad;
  bad_lines_->skip(bad);
}

void JsonLines::document(std::string_view line, const Use& use) {
  text_ = line, at_byte_ = 0, at_key_.clear();
  try {
    document_of(line, use);
  } catch (const BadLine& bad) {
    skip_or_throw(bad);
  }
  text_ = {};
}

void JsonLines::document_of(std::string_view line, const Use& use) {
  if (line.find_first_not_of(" \t\r") == std::string_view::npos) return;
  nlohmann::json object;
  try {
    object = parse_json_guarded(line, {.bytes = max_line_bytes, .string_bytes = max_line_bytes}, name_);
  } catch (const JsonError& e) {
    at_byte_ = e.position();
    refuse(e.problem());
  }
  if (!object.is_object()) refuse("the line is not a JSON object");
  const bool text = find(object, key_);
  if (text && !chat_.named()) return use({text_at(object, key_)});
  for (const char* key : {"messages", "conversations"})
    if (key != key_ && find(object, key)) return conversation(object, key, use);
  if (find(object, "instruction") && (!text || find(object, "output"))) return instruction(object, use);
  if (text) return use({text_at(object, key_)});
  if (find(object, "prompt")) return record(object, use);
  at_key_ = key_;
  if (object.contains(key_)) refuse(fmt::format("\"{}\" is null", printable(key_)));
  refuse(fmt::format("the line has no key \"{}\"", printable(key_)));
}

void JsonLines::add(std::string_view block, bool last, const std::function<void(const JsonDocument&)>& use) {
  while (true) {
    size_t end = block.find('\n');
    bool whole = end != std::string_view::npos;
    std::string_view part = block.substr(0, end);
    if (rest_.empty() && !too_long_) ++line_;
    // A line within one block is not copied.
    if (!too_long_ && rest_.size() + part.size() > max_line_bytes) {
      rest_.clear(), text_ = {}, at_byte_ = max_line_bytes;
      try {
        refuse(fmt::format("the line is longer than {}", format_bytes(double(max_line_bytes))));
      } catch (const BadLine& bad) {
        skip_or_throw(bad);
      }
      too_long_ = true;
    }
    if (too_long_) {
      too_long_ = !whole;
      if (!whole) return;
      block.remove_prefix(end + 1);
      continue;
    }
    if (!whole && !last) {
      rest_.append(part);
      if (part.empty()) --line_;  // the line has not begun
      return;
    }
    if (rest_.empty()) {
      document(part, use);
    } else {
      rest_.append(part);
      document(rest_, use);
      rest_.clear();
    }
    if (!whole) return;
    block.remove_prefix(end + 1);
  }
}

}  // namespace crest
