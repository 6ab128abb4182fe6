// JSON lines: a document a line, its text under one key, or a prompt and its answer.
#pragma once
#include <cstdint>
#include <functional>
#include <nlohmann/json_fwd.hpp>
#include <string>
#include <string_view>

namespace crest {

// What a line holds. A text; or a prompt and the answer to it, which alone is trained on (record).
struct JsonDocument {
  std::string_view text;    // of a record: the answer
  std::string_view prompt;  // of a record
  bool record = false;
};

// True for names that end in .jsonl.
bool is_json_lines(std::string_view name);

class JsonLines {
 public:
  // A longer line is an error: memory stays at a few of these.
  static constexpr size_t max_line_bytes = size_t(64) << 20;
  // `name` is the file in errors, which say the line, too.
  JsonLines(std::string name, std::string text_key) : name_(std::move(name)), key_(std::move(text_key)) {}
  // The next block of the file; last: no more follows. `use` gets the document of each line that is complete; blank
  // lines are passed over. A line is a record if it has no text under the key, but a "prompt"; its answer is under
  // "answer", "completion" or "response".
  void add(std::string_view block, bool last, const std::function<void(const JsonDocument&)>& use);

 private:
  void document(std::string_view line, const std::function<void(const JsonDocument&)>& use) const;
  JsonDocument record(const nlohmann::json& object) const;
  const std::string& text_at(const nlohmann::json& object, const std::string& key) const;
  [[noreturn]] void refuse(const std::string& problem) const;

  std::string name_, key_, rest_;  // rest_: a line whose end has not come yet
  uint64_t line_ = 0;
};

}  // namespace crest
