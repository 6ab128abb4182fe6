// Judges claims by the measured table.
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

// "... also B" continues the claim "A" before it. Alone it reads "A ... also B".
std::string whole_text(const std::vector<std::string>& claims, size_t i);

// The figures in a formula: text in the formula, and value.
using Figures = std::vector<std::pair<std::string, Value>>;

struct ClaimResult {
  Verdict verdict = Verdict::cannot_tell;
  std::string reason;  // why a claim is inconclusive or not comparable
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

// Properties of the device, for `needs` and all formulas.
Value device_property(const Device& device, const std::string& name);

// Computes the [columns] of a measurement from its detail table. A column may use earlier columns.
void add_columns(const Experiment& experiment, const Table& detail, Row& row);

// Fills the quantities, claims and `then` of a result from its table.
void judge(Result& result, const Device& device);

// Widens the times, rates and shares of time of every row by half the noise floor on both sides, so
// a ratio includes all of it. Rows with two rounds become at least that wide.
void widen_times(Table& table, double floor);

}  // namespace crest::lab
