#include "core/json.h"

#include <fmt/format.h>

#include <algorithm>
#include <vector>

#include "core/error.h"
#include "core/text.h"

namespace crest {

std::string line_and_column(std::string_view text, size_t position) {
  position = std::min(position, text.size());
  size_t line = 1 + size_t(std::count(text.begin(), text.begin() + std::ptrdiff_t(position), '\n'));
  size_t start = position == 0 ? std::string_view::npos : text.rfind('\n', position - 1);
  return fmt::format("line {}, column {}", line, position - (start == std::string_view::npos ? 0 : start + 1) + 1);
}

void check_json_limits(std::string_view text, const JsonLimits& limits, std::string_view where) {
  auto refuse = [&](const std::string& what, size_t at) {
    fail(what, fmt::format("{} ({})", printable(where), line_and_column(text, at)),
         "The file is damaged or is not the expected kind of file.");
  };
  if (text.size() > limits.bytes)
    fail(fmt::format("JSON of {} is larger than the {} allowed here", format_bytes(double(text.size())),
                     format_bytes(double(limits.bytes))),
         printable(where));
  int depth = 0;
  uint64_t values = 0;
  std::vector<uint64_t> keys;  // of each open object
  for (size_t i = 0; i < text.size(); ++i) {
    char c = text[i];
    size_t start = i;
    switch (c) {
      case '[':
      case '{':
        if (++depth > limits.depth) refuse(fmt::format("JSON is nested deeper than {} levels", limits.depth), i);
        ++values;
        keys.push_back(0);
        break;
      case ']':
      case '}':
        --depth;
        if (!keys.empty()) keys.pop_back();
        break;
      case '"':
        for (++i; i < text.size() && text[i] != '"'; ++i)
          if (text[i] == '\\') ++i;
        ++values;
        break;
      case ' ':
      case '\t':
      case '\r':
      case '\n':  // the parser keeps these, so an endless run is as long as an endless text
        while (i + 1 < text.size() && std::string_view(" \t\r\n").find(text[i + 1]) != std::string_view::npos) ++i;
        break;
      case ':':
        if (!keys.empty() && ++keys.back() > limits.keys)
          refuse(fmt::format("a JSON object has more than {} keys", limits.keys), i);
        break;
      case ',': break;
      default:  // a number or a word: ends at the next separator
        while (i + 1 < text.size() && std::string_view(" \t\r\n,:[]{}\"").find(text[i + 1]) == std::string_view::npos)
          ++i;
        ++values;
    }
    if (i - start > limits.string_bytes)
      refuse(fmt::format("a JSON text, number or gap is longer than {} bytes", limits.string_bytes), start);
    if (values > limits.values) refuse(fmt::format("JSON has more than {} values", limits.values), start);
  }
}

template <class Document>
static Document parse(std::string_view text, const JsonLimits& limits, std::string_view where) {
  check_json_limits(text, limits, where);
  try {
    return Document::parse(text.begin(), text.end());
  } catch (const nlohmann::json::parse_error& e) {
    size_t at = e.byte > 0 ? e.byte - 1 : 0;
    fail(at >= text.size() ? "the JSON text is incomplete" : "not valid JSON",
         fmt::format("{} ({})", printable(where), line_and_column(text, at)));
  } catch (const nlohmann::json::exception& e) {  // a number beyond the range of double
    fail(fmt::format("not valid JSON: {}", printable(e.what())), printable(where));
  }
}

nlohmann::json parse_json_guarded(std::string_view text, const JsonLimits& limits, std::string_view where) {
  return parse<nlohmann::json>(text, limits, where);
}

nlohmann::ordered_json parse_ordered_json_guarded(std::string_view text, const JsonLimits& limits,
                                                  std::string_view where) {
  return parse<nlohmann::ordered_json>(text, limits, where);
}

}  // namespace crest
