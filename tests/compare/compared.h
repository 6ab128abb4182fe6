// Comparisons of synthetic runs with checked sums, and look-ups in them.
#pragma once
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <numeric>
#include <string>

#include "compare/compare.h"
#include "compare/synthetic.h"
#include "contains.h"

namespace crest::test {

inline double part(const RunComparison& c, Factor f) {
  for (auto& w : c.waterfall)
    if (w.factor == f) return w.ms;
  return 0;
}

inline const Cause* cause(const RunComparison& c, const std::string& role, const std::string& phase) {
  for (auto& x : c.causes)
    if (x.phase.find(phase) != std::string::npos && std::count(x.roles.begin(), x.roles.end(), role)) return &x;
  return nullptr;
}

// All sums promised by a comparison.
inline void expect_exact(const RunComparison& c) {
  double size = std::max(c.a.step_ms, c.b.step_ms), bars = 0, per_token = 0, causes = 0, settings = 0;
  for (auto& w : c.waterfall) bars += w.ms, per_token += w.ms_per_token;
  EXPECT_NEAR(bars, c.step_difference(), 1e-9 * size);
  if (c.a.tokens && c.b.tokens) {
    double difference = c.b.step_ms / double(c.b.tokens) - c.a.step_ms / double(c.a.tokens);
    EXPECT_NEAR(per_token, difference, 1e-9 * size / double(std::min(c.a.tokens, c.b.tokens)));
  }
  for (auto& x : c.causes) {
    EXPECT_NEAR(std::accumulate(x.factors.begin(), x.factors.end(), 0.0), x.ms, 1e-9 * size) << x.label;
    EXPECT_NEAR(x.ms, x.b.ms - x.a.ms, 1e-9 * size) << x.label;
    causes += x.ms;
  }
  double around = part(c, Factor::idle) + part(c, Factor::overlap) + part(c, Factor::residual);
  EXPECT_NEAR(causes + around, c.step_difference(), 1e-9 * size);
  for (auto& l : c.settings) settings += l.ms;
  EXPECT_NEAR(settings, c.step_difference(), 1e-9 * size);
  int64_t categories = 0, blocks = 0;
  for (auto& m : c.memory) categories += m.b - m.a;
  for (auto& m : c.memory_causes) blocks += m.b - m.a;
  EXPECT_EQ(categories, c.planned_difference());
  EXPECT_EQ(blocks, c.planned_difference());
}

inline RunComparison compared(const Synthetic& a, const Synthetic& b, const CompareOptions& options = {}) {
  RunComparison c = compare_runs(make_record(a, "first"), make_record(b, "second"), options);
  expect_exact(c);
  return c;
}

}  // namespace crest::test
