#include "core/json.h"

#include <fmt/format.h>

#include <algorithm>
#include <cctype>
#include <vector>

#include "core/error.h"
#include "core/json_error.h"
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
    throw JsonError(what, fmt::format("{} ({})", printable(where), line_and_column(text, at)),
                    "The file is damaged or is not the expected kind of file.", at);
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

namespace {

// Reads an invalid JSON text up to the error. The parser reports a number beyond the range of
// double without its position elsewhere.
class ErrorFinder : public nlohmann::json_sax<nlohmann::json> {
 public:
  bool null() override { return true; }
  bool boolean(bool) override { return true; }
  bool number_integer(number_integer_t) override { return true; }
  bool number_unsigned(number_unsigned_t) override { return true; }
  bool number_float(number_float_t, const string_t&) override { return true; }
  bool string(string_t&) override { return true; }
  bool binary(binary_t&) override { return true; }
  bool start_object(size_t) override { return true; }
  bool key(string_t&) override { return true; }
  bool end_object() override { return true; }
  bool start_array(size_t) override { return true; }
  bool end_array() override { return true; }
  bool parse_error(size_t bytes, const std::string&, const nlohmann::json::exception& e) override {
    position = bytes > 0 ? bytes - 1 : 0;
    said = e.what();
    return false;
  }
  size_t position = 0;
  std::string said;
};

// "[json.exception.parse_error.101] parse error at line 1, column 9: syntax error while parsing
// value - invalid literal; last read: 'N'" -> "invalid literal"
std::string_view reason_in(std::string_view said) {
  size_t start = said.find(" - ");
  if (start == std::string_view::npos) return said.substr(std::min(said.find("] ") + 2, said.size()));
  said.remove_prefix(start + 3);
  return said.substr(0, said.find("; last read"));
}

// The start of the number or word around a position or before it.
size_t start_of_word(std::string_view text, size_t at, bool ended) {
  auto in_word = [](char c) { return std::isalnum(static_cast<unsigned char>(c)) || c == '-' || c == '+' || c == '.'; };
  at = std::min(at, text.size());
  if (at < text.size() && !in_word(text[at]) && !(ended && at > 0 && in_word(text[at - 1]))) return at;
  while (at > 0 && in_word(text[at - 1])) --at;
  return at;
}

[[noreturn]] void refuse_text(std::string_view text, std::string_view where) {
  ErrorFinder found;
  nlohmann::json::sax_parse(text.begin(), text.end(), &found);
  auto error_at = [&](const std::string& what, size_t at) {
    return JsonError(what, fmt::format("{} ({})", printable(where), line_and_column(text, at)), "", at);
  };
  const bool overflow = found.said.find("out_of_range") != std::string::npos;
  if (found.position >= text.size() && !overflow) throw error_at("the JSON text is incomplete", found.position);
  std::string_view reason = reason_in(found.said);
  // Python's json module writes these words, and reads numbers of any size.
  size_t word = reason.starts_with("invalid string")
                    ? found.position
                    : start_of_word(text, found.position, reason.starts_with("invalid literal"));
  for (std::string_view name : {"NaN", "Infinity", "-Infinity"})
    if (text.substr(word).starts_with(name)) throw error_at(fmt::format("not valid JSON, which has no {}", name), word);
  throw error_at(fmt::format("not valid JSON: {}", printable(reason, 200)), word);
}

}  // namespace

template <class Document>
static Document parse(std::string_view text, const JsonLimits& limits, std::string_view where) {
  check_json_limits(text, limits, where);
  try {
    return Document::parse(text.begin(), text.end());
  } catch (const nlohmann::json::exception&) {
    refuse_text(text, where);
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
