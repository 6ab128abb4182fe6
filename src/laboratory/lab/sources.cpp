#include "lab/sources.h"

#include <fmt/format.h>

#include <cctype>
#include <functional>

namespace crest::lab {

const std::vector<Source>& sources() {
  static const std::vector<Source> table = {
      {"000", "Comparing torch versions for performance", "a conversation with Cursor"},
      {"001", "Diagnosing memory usage with tf32", "a conversation with Cursor"},
      {"002", "Write-up of the CS336 systems assignment", "unnamed author"},
      {"003", "Software Tune Up For The Best Performance", "Stas Bekman"},
      {"004", "Training speed optimization", "cohlem"},
      {"005", "DeepSeek-V3 Technical Report, arXiv 2412.19437", "DeepSeek-AI"},
      {"006", "Using FP8 with Transformer Engine", "NVIDIA"},
  };
  return table;
}

namespace {

// Calls key(source) for every key standing as a word of its own, and text(part) for the text
// between keys.
void each_part(const std::string& given, const std::function<void(const Source&)>& key,
               const std::function<void(const std::string&)>& text) {
  auto in_word = [&](size_t i) { return i < given.size() && std::isalnum(static_cast<unsigned char>(given[i])) != 0; };
  std::string between;
  for (size_t i = 0; i < given.size();) {
    const Source* found = nullptr;
    for (auto& s : sources())
      if (given.compare(i, 3, s.key) == 0 && !in_word(i + 3) && (i == 0 || !in_word(i - 1))) found = &s;
    if (!found) {
      between += given[i++];
      continue;
    }
    text(between), between.clear();
    key(*found), i += 3;
  }
  text(between);
}

}  // namespace

std::string source_text(const std::string& given) {
  std::string shown;
  each_part(
      given, [&](const Source& s) { shown += fmt::format("\"{}\" ({})", s.title, s.author); },
      [&](const std::string& part) { shown += part; });
  return shown;
}

std::string section_text(const std::string& given) {
  std::string shown;
  bool any = false;
  each_part(
      given, [&](const Source&) { any = true; }, [&](const std::string& part) { shown += part; });
  if (!any) return given;
  size_t first = shown.find_first_not_of(" ,:;");
  return first == std::string::npos ? "" : shown.substr(first);
}

std::vector<std::string> source_keys(const std::string& given) {
  std::vector<std::string> keys;
  each_part(
      given, [&](const Source& s) { keys.emplace_back(s.key); }, [](const std::string&) {});
  return keys;
}

}  // namespace crest::lab
