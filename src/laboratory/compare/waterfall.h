// The difference of two step times as bars that sum to it, and the groups of instructions behind
// them.
#pragma once
#include <vector>

#include "compare/compare.h"
#include "compare/join.h"
#include "compare/side.h"

namespace crest {

// Fills join and causes (without settings and sentences). If both sides have a profile, also times,
// waterfall and residual_share.
void join_steps(RunComparison& comparison, const ComparedSide& a, const ComparedSide& b, GroupBy by);

// Drops the last bits, because they depend on the order of the terms. Then the sentences for B
// against A mirror the ones for A against B.
inline double without_last_bits(double sum) { return std::round(sum * 1e9) / 1e9; }
// "82% -> 86% of the limit"; "": unknown.
std::string efficiency_text(const Slowdowns& slowdowns);
std::string format_ms(double ms);  // "38.1 ms", "0.042 ms": about three digits
std::string format_ms_signed(double ms);
std::string format_ms_pair(double a, double b);  // "140.3 -> 81.6 ms"

}  // namespace crest
