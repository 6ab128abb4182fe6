// Text for people: units, nearest names, untrusted names made safe for a terminal.
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
// "40GiB", "512MB", "1e9", "1024"; throws a usage error that names `where`.
int64_t parse_bytes(std::string_view text, std::string_view where);
// Escapes control characters and terminal escapes of a name that came from a file.
std::string printable(std::string_view text, size_t limit = 200);
// The candidate with the smallest edit distance, empty when none is near.
std::string nearest(std::string_view word, const std::vector<std::string>& candidates);
// "did you mean --batch?" or "".
std::string did_you_mean(std::string_view word, const std::vector<std::string>& candidates);
std::vector<std::string> split(std::string_view text, char separator);
std::string join(const std::vector<std::string>& parts, std::string_view separator);

}  // namespace crest
