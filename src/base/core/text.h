// Text for people: units, nearest names, and untrusted names made safe for a terminal.
#pragma once
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

namespace crest {

std::string format_bytes(double bytes);             // "1.50 GiB"
std::string format_count(double n);                 // "124.4M"
std::string format_si(double x, const char* unit);  // "1.23 TFLOP/s" with unit "FLOP/s"
std::string format_duration(double seconds);        // "1h 02m", "3m 20s", "12.3 s", "4.56 ms"
// "1 rank", "4 micro steps".
std::string format_number_of(int64_t n, std::string_view noun);
std::string utc_now();  // "2026-01-31T12:00:00.123Z"
// "40GiB", "512MB", "1e9", "1024"; throws a usage error with `where`.
int64_t parse_bytes(std::string_view text, std::string_view where);
// The first UTF-8 character of a nonempty text.
struct Character {
  uint32_t code;  // U+FFFD for invalid UTF-8
  size_t size;    // bytes used, at least 1
  bool valid;
};
Character first_character(std::string_view text);
bool is_utf8(std::string_view text);
// Whether a terminal would obey a character instead of showing it: control characters (C0, DEL,
// C1), and marks of text direction. With these marks a name can look like another.
bool is_control(uint32_t code);

// Text from a file, made safe for a terminal: control characters and invalid UTF-8 are written as
// \x1b or \u202e.
std::string printable(std::string_view text, size_t limit = 200);
// The candidate with the smallest edit distance; empty if none is near.
std::string nearest(std::string_view word, const std::vector<std::string>& candidates);
// "did you mean --batch?" or "".
std::string did_you_mean(std::string_view word, const std::vector<std::string>& candidates);
std::vector<std::string> split(std::string_view text, char separator);
std::string join(const std::vector<std::string>& parts, std::string_view separator);

}  // namespace crest
