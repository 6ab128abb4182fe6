// Measures the cells of experiments with the machinery of crest bench and crest profile; each is a record of the store.
#pragma once
#include <memory>
#include <string>

#include "cli/bench_measure.h"
#include "cli/lab_cells.h"
#include "lab/judge.h"
#include "measure/profile_rates.h"

namespace crest {

class LabMeasure {
 public:
  explicit LabMeasure(BenchMeasure& bench) : bench_(bench) {}
  // A row with its columns; grid: of the records. What does not fit in memory is a row, too. Throws `interrupted`.
  lab::Row row_of(const lab::Experiment& experiment, const LabCell& cell, const std::string& grid);
  // RunRecord::key of the cell; "" where nothing of a recipe is measured.
  static std::string key_of(const lab::Experiment& experiment, const LabCell& cell);

 private:
  struct Open;
  void plan_columns(const lab::Experiment& e, const LabCell& cell, const CompiledSession& session, lab::Row& row) const;
  void bench(const lab::Experiment& e, const LabCell& cell, CompiledSession session, RunRecord& record, lab::Row& row);
  Profile profile(const LabCell& cell, CompiledSession session, RunRecord& record, lab::Row& row);
  void gemm(const LabCell& cell, lab::Row& row) const;

  BenchMeasure& bench_;
  std::vector<ProfileRate> rates_;  // measured once
};

}  // namespace crest
