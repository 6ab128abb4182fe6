#include "core/text.h"

#include <fmt/format.h>
#include <time.h>

#include <algorithm>
#include <charconv>
#include <cmath>

#include "core/error.h"

namespace crest {

std::string format_bytes(double bytes) {
  static const char* units[] = {"B", "KiB", "MiB", "GiB", "TiB", "PiB"};
  int u = 0;
  double x = bytes;
  while (std::abs(x) >= 1024 && u < 5) x /= 1024, ++u;
  return u == 0 ? fmt::format("{:.0f} B", x) : fmt::format("{:.2f} {}", x, units[u]);
}

static std::string scaled(double x, const char* const* prefixes) {
  int p = 0;
  while (std::abs(x) >= 1000 && p < 5) x /= 1000, ++p;
  double a = std::abs(x);
  const char* f = p == 0 && x == std::floor(x) ? "{:.0f}{}" : a >= 100 ? "{:.1f}{}" : "{:.2f}{}";
  return fmt::format(fmt::runtime(f), x, prefixes[p]);
}

std::string format_count(double n) {
  static const char* const prefixes[] = {"", "k", "M", "B", "T", "P"};
  return scaled(n, prefixes);
}

std::string format_si(double x, const char* unit) {
  static const char* const prefixes[] = {" ", " k", " M", " G", " T", " P"};
  return scaled(x, prefixes) + unit;
}

std::string format_duration(double s) {
  if (!(s >= 0) || !std::isfinite(s)) return "?";
  if (s > 1e9) return format_count(s / (365.25 * 24 * 3600)) + " years";
  if (s < 1e-3) return fmt::format("{:.1f} us", s * 1e6);
  if (s < 1) return fmt::format("{:.2f} ms", s * 1e3);
  if (s < 60) return fmt::format("{:.1f} s", s);
  auto t = int64_t(s + 0.5);
  if (t < 3600) return fmt::format("{}m {:02}s", t / 60, t % 60);
  return fmt::format("{}h {:02}m", t / 3600, t / 60 % 60);
}

int64_t parse_bytes(std::string_view text, std::string_view where) {
  double number = 0;
  auto [end, ec] = std::from_chars(text.data(), text.data() + text.size(), number);
  std::string unit(end, text.data() + text.size());
  unit.erase(std::remove(unit.begin(), unit.end(), ' '), unit.end());
  std::transform(unit.begin(), unit.end(), unit.begin(), ::tolower);
  static const std::pair<const char*, double> units[] = {
      {"", 1},         {"b", 1},   {"k", 1e3},  {"kb", 1e3},     {"kib", 1024.}, {"m", 1e6},   {"mb", 1e6},
      {"mib", 0x1p20}, {"g", 1e9}, {"gb", 1e9}, {"gib", 0x1p30}, {"t", 1e12},    {"tb", 1e12}, {"tib", 0x1p40}};
  if (ec == std::errc() && number >= 0 && std::isfinite(number))
    for (auto& [n, factor] : units)
      if (unit == n && number * factor < 9e18) return int64_t(number * factor);
  fail_usage(fmt::format("'{}' is not a size", printable(text)), std::string(where),
             "Give a number with or without a unit, for example 40GiB, 512MB or 1048576.");
}

Character first_character(std::string_view s) {
  auto byte = [&](size_t i) { return i < s.size() ? uint8_t(s[i]) : uint8_t(0); };
  uint8_t b = byte(0);
  if (b < 0x80) return {b, 1, true};
  size_t size = b >= 0xF0 ? 4 : b >= 0xE0 ? 3 : 2;
  if (b < 0xC2 || b > 0xF4) return {0xFFFD, 1, false};
  uint32_t code = b & (0x7Fu >> size);
  for (size_t i = 1; i < size; ++i) {
    if (i == s.size()) return {0xFFFD, i, false};  // cut short
    if ((byte(i) & 0xC0) != 0x80) return {0xFFFD, 1, false};
    code = code << 6 | (byte(i) & 0x3F);
  }
  static const uint32_t smallest[] = {0, 0, 0x80, 0x800, 0x10000};
  if (code < smallest[size] || code > 0x10FFFF || (code >= 0xD800 && code < 0xE000)) return {0xFFFD, 1, false};
  return {code, size, true};
}

bool is_utf8(std::string_view text) {
  while (!text.empty()) {
    Character c = first_character(text);
    if (!c.valid) return false;
    text.remove_prefix(c.size);
  }
  return true;
}

bool is_control(uint32_t code) {
  return code < 0x20 || (code >= 0x7F && code < 0xA0) || code == 0x061C || code == 0x200E || code == 0x200F ||
         code == 0x2028 || code == 0x2029 || (code >= 0x202A && code <= 0x202E) || (code >= 0x2066 && code <= 0x2069);
}

std::string printable(std::string_view text, size_t limit) {
  std::string out;
  while (!text.empty()) {
    if (out.size() >= limit) return out + "...";
    Character c = first_character(text);
    if (!c.valid)
      for (char byte : text.substr(0, c.size)) out += fmt::format("\\x{:02x}", uint8_t(byte));
    else if (is_control(c.code) && c.code < 0x100)
      out += fmt::format("\\x{:02x}", c.code);
    else if (is_control(c.code))
      out += fmt::format("\\u{:04x}", c.code);
    else
      out += text.substr(0, c.size);
    text.remove_prefix(c.size);
  }
  return out;
}

// Insertions, deletions, replacements, and swaps of neighbors.
static size_t distance(std::string_view a, std::string_view b) {
  std::vector<size_t> before(b.size() + 1), above(b.size() + 1), row(b.size() + 1);
  for (size_t j = 0; j <= b.size(); ++j) row[j] = j;
  for (size_t i = 1; i <= a.size(); ++i) {
    std::swap(before, above), std::swap(above, row);
    row[0] = i;
    for (size_t j = 1; j <= b.size(); ++j) {
      row[j] = std::min({above[j] + 1, row[j - 1] + 1, above[j - 1] + (a[i - 1] != b[j - 1])});
      if (i > 1 && j > 1 && a[i - 1] == b[j - 2] && a[i - 2] == b[j - 1]) row[j] = std::min(row[j], before[j - 2] + 1);
    }
  }
  return row[b.size()];
}

// Near: a typing error in three letters, or one word begins with the other. The dashes of flags do
// not count.
std::string nearest(std::string_view word, const std::vector<std::string>& candidates) {
  std::string best;
  auto letters = [](std::string_view text) { return text.substr(std::min(text.find_first_not_of('-'), text.size())); };
  word = letters(word);
  size_t best_distance = std::max<size_t>(1, (word.size() + 1) / 3) + 1;
  if (word.size() > 100) return best;
  for (auto& c : candidates) {
    std::string_view candidate = letters(c);
    size_t d = distance(word, candidate);
    std::string_view shorter = std::min(candidate, word), longer = std::max(candidate, word);
    if (shorter.size() > (shorter == word ? 0 : 1) && longer.starts_with(shorter)) d = std::min<size_t>(d, 1);
    if (d < best_distance) best = c, best_distance = d;
  }
  return best;
}

std::string did_you_mean(std::string_view word, const std::vector<std::string>& candidates) {
  std::string n = nearest(word, candidates);
  return n.empty() ? "" : fmt::format("Did you mean '{}'?", n);
}

std::vector<std::string> split(std::string_view text, char separator) {
  std::vector<std::string> parts;
  size_t start = 0;
  for (size_t i = 0; i <= text.size(); ++i)
    if (i == text.size() || text[i] == separator) parts.emplace_back(text.substr(start, i - start)), start = i + 1;
  return parts;
}

std::string join(const std::vector<std::string>& parts, std::string_view separator) {
  return fmt::format("{}", fmt::join(parts, separator));
}

std::string format_number_of(int64_t n, std::string_view noun) {
  return fmt::format("{} {}{}", n, noun, n == 1 ? "" : "s");
}

std::string utc_now() {
  timespec now{};
  clock_gettime(CLOCK_REALTIME, &now);
  tm parts{};
  gmtime_r(&now.tv_sec, &parts);
  char text[32];
  strftime(text, sizeof text, "%Y-%m-%dT%H:%M:%S", &parts);
  return fmt::format("{}.{:03}Z", text, now.tv_nsec / 1'000'000);
}

}  // namespace crest
