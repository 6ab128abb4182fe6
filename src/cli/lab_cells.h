// From the settings of an experiment's cell to what is measured: a recipe and a phase, or a matrix product.
#pragma once
#include <string>
#include <vector>

#include "lab/experiment.h"
#include "measure/bench_cell.h"

namespace crest {

struct LabCell {
  lab::CellSpec spec;
  std::string absent;  // why this device cannot run it; "": it can
  // Every kind but gemm.
  Recipe recipe;  // resolved
  BenchPhase phase = BenchPhase::step;
  int64_t limit = 0;  // bytes that it may plan
  // gemm
  int64_t m = 0, n = 0, k = 0;
  std::string precision;
  // How it is measured.
  int samples = 0, warmup = 3;
  double max_seconds = 2;
  Device device;
};

// All cells of a scale. Wrong flags and values are usage errors that name the experiment's file; what the device lacks
// makes a cell absent. Precisions and memory are those of `device`.
std::vector<LabCell> lab_cells(const lab::Experiment& experiment, const std::string& scale, const Device& device,
                               int64_t limit);

}  // namespace crest
