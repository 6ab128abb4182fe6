#include "train/step_row.h"

#include "train/engine.h"

namespace crest {

StepRow step_row(const StepResult& r, int64_t step, double lr, int64_t tokens_per_step) {
  StepRow row;
  row.step = step, row.loss = r.loss, row.lr = lr, row.grad_norm = r.grad_norm, row.skipped = r.skipped;
  row.step_ms = r.seconds * 1e3, row.tokens_per_second = double(tokens_per_step) / r.seconds;
  row.wait_ms = r.wait_seconds * 1e3, row.update_ms = r.update_seconds * 1e3;
  if (r.communication_seconds >= 0) row.communication_ms = r.communication_seconds * 1e3;
  row.saturated = r.saturated, row.vanished = r.vanished, row.vanished_most = r.vanished_most;
  return row;
}

}  // namespace crest
