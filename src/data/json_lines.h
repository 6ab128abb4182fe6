// JSON lines: one document per line, with its text under one key, or with a prompt and an answer.
#pragma once
#include <cstdint>
#include <functional>
#include <nlohmann/json_fwd.hpp>
#include <string>
#include <string_view>

namespace crest {

// The content of a line: a text, or a prompt and its answer (record). Only the answer is trained
// on.
struct JsonDocument {
  std::string_view text;    // of a record: the answer
  std::string_view prompt;  // of a record
  bool record = false;
};

// True for names that end in .jsonl.
bool is_json_lines(std::string_view name);

class JsonLines {
 public:
  // A longer line is an error, so memory stays at a few of these.
  static constexpr size_t max_line_bytes = size_t(64) << 20;
  // `name` is the file in errors, which also give the line.
  JsonLines(std::string name, std::string text_key) : name_(std::move(name)), key_(std::move(text_key)) {}
  // The next block of the file; last: no more follow. `use` gets the document of each complete
  // line; blank lines are skipped. A line is a record if it has no text under the key but a
  // "prompt"; its answer is under "answer", "completion" or "response".
  void add(std::string_view block, bool last, const std::function<void(const JsonDocument&)>& use);

 private:
  void document(std::string_view line, const std::function<void(const JsonDocument&)>& use) const;
  JsonDocument record(const nlohmann::json& object) const;
  const std::string& text_at(const nlohmann::json& object, const std::string& key) const;
  [[noreturn]] void refuse(const std::string& problem) const;

  std::string name_, key_, rest_;  // rest_: a line whose end has not arrived yet
  uint64_t line_ = 0;
};

}  // namespace crest
