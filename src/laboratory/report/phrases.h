// Numbers and names as prose.
#pragma once
#include <string>
#include <string_view>
#include <vector>

namespace crest {

std::string say_ms(double ms);            // "12.3 ms", "1.23 s"; "-" if unknown, as everywhere here
std::string say_bytes(double bytes);      // "1.50 GiB"
std::string say_rate(double per_second);  // "43.8k"
std::string say_percent(double share, int digits = 0);
// The ratio of two quantities: "1.25x".
std::string say_times(double ratio);
// How much faster, from a ratio of speeds: "12% faster", "2.9 times as fast", "5.1% slower".
std::string say_faster(double speed_ratio);
// How much more: "12% more", "2.1 times as much", "34% less", "unchanged".
std::string say_more(double ratio);
// "12% to 45% faster", or one figure if both print the same. Ends as in say_faster() and
// say_more().
std::string say_faster_range(double low, double high);
std::string say_more_range(double low, double high);
std::string say_signed_ms(double ms);        // "+1.2 ms"
std::string say_signed_bytes(double bytes);  // "-34.0 MiB"
// "one", "two", ..., "nine", "10".
std::string say_count(size_t n);
std::string plural(size_t n, const std::string& one, const std::string& many = "");  // "1 run", "2 runs"
std::string say_list(const std::vector<std::string>& items);                         // "a, b and c"
// "optimizer_state" -> "optimizer state"
std::string spaced(const std::string& name);

// A phase in words: "forward pass", ..., "step".
std::string say_phase(std::string_view phase);

}  // namespace crest
