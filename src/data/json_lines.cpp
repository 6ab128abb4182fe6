#include "data/json_lines.h"

#include <fmt/format.h>

#include "core/error.h"
#include "core/json.h"
#include "core/text.h"

namespace crest {

bool is_json_lines(std::string_view name) { return name.ends_with(".jsonl"); }

void JsonLines::refuse(const std::string& problem) const {
  fail(problem, fmt::format("{}, line {}", printable(name_), line_),
       fmt::format(
           "Every line must be a JSON object with its text under \"{}\" (--text-key chooses another key), or with "
           "\"prompt\" and \"answer\" (or \"completion\", \"response\").",
           printable(key_)));
}

const std::string& JsonLines::text_at(const nlohmann::json& object, const std::string& key) const {
  const nlohmann::json& value = object.at(key);
  if (!value.is_string()) refuse(fmt::format("\"{}\" is not a string", printable(key)));
  return value.get_ref<const std::string&>();
}

// An answer must be present and not empty: otherwise there would be nothing to learn but to stop.
JsonDocument JsonLines::record(const nlohmann::json& object) const {
  std::string answer;
  for (const char* key : {"answer", "completion", "response"}) {
    if (!object.contains(key)) continue;
    if (!answer.empty()) refuse(fmt::format("the line has both \"{}\" and \"{}\"", answer, key));
    answer = key;
  }
  if (answer.empty()) refuse("the line has a \"prompt\" but no \"answer\", \"completion\" or \"response\"");
  JsonDocument d{text_at(object, answer), text_at(object, "prompt"), true};
  if (d.text.empty()) refuse(fmt::format("\"{}\" is empty", answer));
  return d;
}

void JsonLines::document(std::string_view line, const std::function<void(const JsonDocument&)>& use) const {
  if (line.find_first_not_of(" \t\r") == std::string_view::npos) return;
  nlohmann::json object;
  try {
    object = parse_json_guarded(line, {.bytes = max_line_bytes, .string_bytes = max_line_bytes}, name_);
  } catch (const Error& e) {
    refuse(e.problem());
  }
  if (!object.is_object()) refuse("the line is not a JSON object");
  if (object.contains(key_))
    use({text_at(object, key_), {}, false});
  else if (object.contains("prompt"))
    use(record(object));
  else
    refuse(fmt::format("the line has no key \"{}\"", printable(key_)));
}

void JsonLines::add(std::string_view block, bool last, const std::function<void(const JsonDocument&)>& use) {
  while (true) {
    size_t end = block.find('\n');
    bool whole = end != std::string_view::npos;
    std::string_view part = block.substr(0, end);
    if (rest_.empty()) ++line_;
    // A line within one block is not copied.
    if (rest_.size() + part.size() > max_line_bytes)
      refuse(fmt::format("the line is longer than {}", format_bytes(double(max_line_bytes))));
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
