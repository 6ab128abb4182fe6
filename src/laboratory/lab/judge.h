// From the measured table to verdicts.
#pragma once
#include <array>
#include <nlohmann/json_fwd.hpp>
#include <string>
#include <utility>
#include <vector>

#include "backend/backend.h"
#include "lab/experiment.h"

namespace crest::lab {

// not_comparable: the device or the measurements do not meet the conditions of the claim.
enum class Verdict { upheld, refuted, cannot_tell, not_comparable };
inline constexpr std::array verdicts = {Verdict::upheld, Verdict::refuted, Verdict::cannot_tell,
                                        Verdict::not_comparable};
using VerdictCounts = std::array<size_t, verdicts.size()>;  // by Verdict
const char* name(Verdict);   // "upheld", "refuted", "cannot tell here", "not_comparable": JSON
const char* label(Verdict);  // "upheld", "refuted", "inconclusive", "not comparable": people
// "12 claims: 1 upheld, 3 refuted, 6 inconclusive, 2 not comparable"
std::string verdict_counts(const VerdictCounts& counts);

// "... also B" continues the claim "A" before it; alone it reads "A ... also B".
std::string whole_text(const std::vector<std::string>& claims, size_t i);

// A figure that a formula reads: its text in the formula, and its value.
using Figures = std::vector<std::pair<std::string, Value>>;

struct ClaimResult {
  Verdict verdict = Verdict::cannot_tell;
  std::string reason;  // of an inconclusive claim, or one that is not comparable
  Figures figures;
};

struct Result {
  const Experiment* experiment = nullptr;
  std::string scale, device;
  double noise_floor = 0;
  std::string floor_source;
  Table table;
  size_t measurements_left = 0;  // not measured
  std::vector<std::pair<std::string, Value>> quantities;
  std::vector<ClaimResult> claims;  // one per claim
  std::vector<Value> then;          // one per claim
};

// The device properties, for `needs` and all formulas.
Value device_property(const Device& device, const std::string& name);

// Computes the [columns] of a measurement from its detail table; later ones may use earlier ones.
void add_columns(const Experiment& experiment, const Table& detail, Row& row);

// Fills quantities, claims and then of a result from its table.
void judge(Result& result, const Device& device);

// Widens the times of every row by half the noise floor on both sides, so that a ratio includes all
// of it. Rows of two rounds become at least that wide.
void widen_times(Table& table, double floor);

}  // namespace crest::lab
