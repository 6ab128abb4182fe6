// The difference of two step times as bars that sum to it, and the groups of instructions behind them.
#pragma once
#include <vector>

#include "compare/compare.h"
#include "compare/join.h"
#include "compare/side.h"

namespace crest {

// Fills join and causes (without levers and sentences); where both have a profile also times, waterfall and
// residual_share.
void join_steps(RunComparison& comparison, const ComparedSide& a, const ComparedSide& b, GroupBy by);

// "38.1 ms", "0.042 ms": three digits or so; signed: with a sign before it.
// A sum without its last bits, which depend on the order of the terms: what is told of A against B and of B against A
// then mirror each other.
inline double without_last_bits(double sum) { return std::round(sum * 1e9) / 1e9; }
std::string format_ms(double ms);
std::string format_ms_signed(double ms);
std::string format_ms_pair(double a, double b);  // "140.3 -> 81.6 ms"

}  // namespace crest
