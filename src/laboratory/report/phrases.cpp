#include "report/phrases.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>

#include "core/text.h"

namespace crest {

std::string say_ms(double ms) {
  double a = std::abs(ms);
  if (!std::isfinite(ms)) return "-";
  if (a >= 10000) return fmt::format("{:.1f} s", ms / 1e3);
  if (a >= 1000) return fmt::format("{:.2f} s", ms / 1e3);
  if (a >= 100) return fmt::format("{:.0f} ms", ms);
  if (a >= 10) return fmt::format("{:.1f} ms", ms);
  if (a >= 0.01 || a < 1e-5) return fmt::format("{:.2f} ms", a < 1e-5 ? 0 : ms);
  return fmt::format("{:.1f} us", 1e3 * ms);
}

std::string say_bytes(double bytes) { return std::isfinite(bytes) ? format_bytes(bytes) : "-"; }

std::string say_rate(double r) {
  if (!std::isfinite(r)) return "-";
  return r < 1000 ? fmt::format("{:.{}f}", r, r < 10 ? 2 : r < 100 ? 1 : 0) : format_count(r);
}

std::string say_percent(double share, int digits) {
  if (!std::isfinite(share)) return "-";
  // Small shares need a digit, since 0.4% is not 0%.
  if (digits == 0 && std::abs(share) < 0.0995 && share != 0) digits = 1;
  return fmt::format("{:.{}f}%", 100 * share, digits);
}

std::string say_times(double ratio) {
  if (!std::isfinite(ratio)) return "-";
  return fmt::format("{:.{}f}x", ratio, ratio >= 99.5 ? 0 : ratio >= 9.95 ? 1 : 2);
}

static std::string multiple(double ratio) { return fmt::format("{:.{}f}", ratio, ratio >= 9.95 ? 0 : 1); }

std::string say_faster(double r) {
  if (!(r > 0) || !std::isfinite(r)) return "-";
  if (r >= 1.95) return multiple(r) + " times as fast";
  return say_percent(std::abs(r - 1)) + (r >= 1 ? " faster" : " slower");
}

std::string say_more(double r) {
  if (!(r >= 0) || !std::isfinite(r)) return "-";
  if (std::abs(r - 1) < 5e-4) return "unchanged";
  if (r >= 1.95) return multiple(r) + " times as much";
  return say_percent(std::abs(r - 1)) + (r >= 1 ? " more" : " less");
}

static std::string range(std::string (*say)(double), double low, double high) {
  std::string a = say(low), b = say(high);
  if (a == b) return a;
  auto space_a = a.find(' '), space_b = b.find(' ');
  bool same_end =
      space_a != std::string::npos && space_b != std::string::npos && a.substr(space_a) == b.substr(space_b);
  return same_end ? a.substr(0, space_a) + " to " + b : a + " to " + b;
}

std::string say_faster_range(double low, double high) {
  // Reads from the small effect to the large one: "3% slower to 12% slower".
  return low < 1 && high < 1 ? range(say_faster, high, low) : range(say_faster, low, high);
}
std::string say_more_range(double low, double high) {
  return low < 1 && high < 1 ? range(say_more, high, low) : range(say_more, low, high);
}

std::string say_signed_ms(double ms) {
  if (std::abs(ms) < 0.005) ms = 0;
  return (ms > 0 ? "+" : "") + say_ms(ms);
}
std::string say_signed_bytes(double bytes) { return (bytes > 0 ? "+" : "") + say_bytes(bytes); }

std::string say_count(size_t n) {
  static const char* const words[] = {"no", "one", "two", "three", "four", "five", "six", "seven", "eight", "nine"};
  return n < 10 ? words[n] : std::to_string(n);
}

std::string plural(size_t n, const std::string& one, const std::string& many) {
  return fmt::format("{} {}", n, n == 1 ? one : many.empty() ? one + "s" : many);
}

std::string say_list(const std::vector<std::string>& items) {
  std::string out;
  for (size_t i = 0; i < items.size(); ++i) out += (i == 0 ? "" : i + 1 == items.size() ? " and " : ", ") + items[i];
  return out;
}

std::string spaced(const std::string& name) {
  std::string text = name;
  std::replace(text.begin(), text.end(), '_', ' ');
  return text;
}

std::string say_phase(std::string_view phase) {
  if (phase == "forward") return "forward pass";
  if (phase == "decode") return "decoding of a token";
  if (phase == "forward-saved") return "forward pass that keeps activations";
  return phase == "backward" ? "forward and backward pass" : "step";
}

}  // namespace crest
