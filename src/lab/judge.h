// From the measured table to verdicts.
#pragma once
#include <nlohmann/json_fwd.hpp>
#include <string>
#include <utility>
#include <vector>

#include "backend/backend.h"
#include "lab/experiment.h"

namespace crest::lab {

enum class Verdict { upheld, refuted, cannot_tell };
const char* name(Verdict);  // "upheld", "refuted", "cannot tell here"

// A figure that a formula read: its text in the formula, and its value.
using Figures = std::vector<std::pair<std::string, Value>>;

struct ClaimResult {
  Verdict verdict = Verdict::cannot_tell;
  std::string reason;  // of "cannot tell here"
  Figures figures;
};

struct Result {
  const Experiment* experiment = nullptr;
  std::string scale, device;
  double noise_floor = 0;
  std::string floor_source;
  Table table;
  size_t cells_left = 0;  // that were not measured
  std::vector<std::pair<std::string, Value>> quantities;
  std::vector<ClaimResult> claims;  // one each
  std::vector<Value> then;          // one each
};

// Names of what is known of the device, for `needs` and any formula.
Value device_property(const Device& device, const std::string& name);

// [columns] of a cell from the table behind it; later ones may read earlier ones.
void add_columns(const Experiment& experiment, const Table& detail, Row& row);

// Fills quantities, claims and then of a result that has its table.
void judge(Result& result, const Device& device);

// Widens the times of every row by half the noise floor on both sides, so that a ratio carries all of it. Rows of two
// rounds become at least that wide.
void widen_times(Table& table, double floor);

}  // namespace crest::lab
