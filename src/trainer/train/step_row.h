// A row of a training run's log.
#pragma once
#include <cmath>
#include <cstdint>
#include <string>
#include <utility>
#include <vector>

namespace crest {

struct StepResult;

struct StepRow {
  int64_t step = 0;
  double loss = 0, lr = 0, grad_norm = 0, step_ms = 0, tokens_per_second = 0;
  bool skipped = false;
  double wait_ms = 0;                    // part of step_ms: waiting for samples
  double saturated = -1, vanished = -1;  // StepResult; negative: not in this run
  std::string vanished_most = {};
  double update_ms = -1;         // part of step_ms: the optimizer step; negative: unknown
  double communication_ms = -1;  // part of step_ms: StepResult::communication_seconds; negative: unknown
  double watts = NAN, clock_mhz = NAN, memory_bytes = NAN;  // DeviceState
};

StepRow step_row(const StepResult& result, int64_t step, double lr, int64_t tokens_per_step);

struct ValidationRow {
  int64_t step = 0;
  double val_loss = 0;
  // Of a mixture: the loss on each source's validation split, by label (data/mixture.h). val_loss
  // is their mean with the sources' shares.
  std::vector<std::pair<std::string, double>> of_sources = {};
};

}  // namespace crest
