// Limits of processor time for any machine: a factor to a time measured beside them.
#pragma once
#include <algorithm>
#include <ctime>
#include <map>
#include <string>

namespace crest::test {

// How much slower this processor is than the limits' reference (a Xeon of 2023 at 2.2 GHz), by work
// of the same kind: strings, maps and memory. At least 1.
inline double slowness() {
  static const double factor = [] {
    double best = 1e9;
    for (int round = 0; round < 7; ++round) {
      std::clock_t start = std::clock();
      std::map<std::string, unsigned> map;
      for (unsigned i = 0; i < 20000; ++i) map["key " + std::to_string(i * 2654435761u)] += i;
      best = std::min(best, double(std::clock() - start) / CLOCKS_PER_SEC);
    }
    return std::max(1.0, best / 0.005);
  }();
  return factor;
}

}  // namespace crest::test
