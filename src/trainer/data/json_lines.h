// JSON lines: one document per line, with its text under one key, or with a prompt and an answer,
// or a conversation.
#pragma once
#include <cstdint>
#include <functional>
#include <nlohmann/json_fwd.hpp>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "data/bad_lines.h"
#include "data/chat.h"

namespace crest {

// The content of a line: a text, or the parts of a record (a prompt and its answer, or a
// conversation).
struct JsonDocument {
  std::string_view text;
  std::span<const DocumentPart> parts = {};
  bool chat = false;  // the parts of a conversation
  bool record() const { return !parts.empty(); }
};

// True for names with the ending .jsonl or .ndjson, or these compressed (.jsonl.gz, ...).
bool is_json_lines(std::string_view name);

class JsonLines {
 public:
  // A longer line is an error, so memory stays at a few of these.
  static constexpr size_t max_line_bytes = size_t(64) << 20;
  // `name` is the file in errors, next to the line and the column (in bytes, from 1). bad_lines
  // receives the lines that cannot be used; null: they are errors.
  JsonLines(std::string name, std::string text_key, ChatFormat chat = {"", nullptr}, BadLines* bad_lines = nullptr)
      : name_(std::move(name)), key_(std::move(text_key)), chat_(std::move(chat)), bad_lines_(bad_lines) {}
  // The next block of the file; last: no more follow. `use` gets the document of each
  // complete line; blank lines are skipped. A line is a text if it has one under the
  // key. Otherwise it is a conversation under "messages" or "conversations", or an
  // instruction ("instruction", "input", "output"), or a prompt, with its answer
  // under "answer", "completion" or "response". A conversation goes before a text if
  // the user named a template. A null value counts as absent.
  void add(std::string_view block, bool last, const std::function<void(const JsonDocument&)>& use);

 private:
  using Use = std::function<void(const JsonDocument&)>;
  void document(std::string_view line, const Use& use);
  void document_of(std::string_view line, const Use& use);
  void record(const nlohmann::json& object, const Use& use);
  void conversation(const nlohmann::json& object, const std::string& key, const Use& use);
  void instruction(const nlohmann::json& object, const Use& use);
  ChatMessage message(const nlohmann::json& object, const std::string& where) const;
  void use_chat(std::span<const ChatMessage> messages, const std::string& where, const Use& use) const;
  const std::string& text_at(const nlohmann::json& object, const std::string& key);
  [[noreturn]] void refuse(const std::string& problem, const std::string& advice = {}) const;
  void skip_or_throw(const BadLine& bad) const;

  std::string name_, key_, rest_;  // rest_: a line without its end so far
  ChatFormat chat_;
  BadLines* bad_lines_;
  uint64_t line_ = 0;
  bool too_long_ = false;  // this line, which is skipped
  // Where an error is, while a line is read: at its byte, or at the value of a key.
  std::string_view text_;
  size_t at_byte_ = 0;
  std::string at_key_;
};

}  // namespace crest
