#include "train/spikes.h"

#include <fmt/format.h>

#include <utility>

#include "comm/rank_group.h"
#include "core/error.h"
#include "core/text.h"

namespace crest {

static constexpr int most_rollbacks = 10;  // of a process
// A jump shows before its cause is over, so the run also leaves out the samples of this many steps.
static constexpr int64_t steps_after = 2 * SpikeWatch::window;

void Spikes::check_settings() const {
  if (o_.on_spike != "rollback" || (!o_.streams() && !o_.out.empty())) return;
  fail_usage(o_.streams() ? "a stream cannot be read again" : "a run without files has no checkpoints",
             "--on-spike rollback", "Use --on-spike warn.");
}

void Spikes::continue_from(const RunFiles& files) {
  for (auto& row : files.steps()) watch_.add(row.step, row.loss);
}

void Spikes::add(int64_t step, double loss) {
  const auto event = watch_.add(step, loss);
  if (!event || (o_.group && !o_.group->leads())) return;
  if (!event->rises) return report_.message(fmt::format("step {}: the loss is back at {:.4f}", step, event->to));
  const bool undo = o_.on_spike == "rollback";
  report_.warning(
      fmt::format("step {}: the loss jumped from {:.4f} to {:.4f} (means of {} steps; noise of a step "
                  "{:.2g}){}",
                  step, event->from, event->to, SpikeWatch::window, event->noise,
                  undo ? "" : ": lower --lr, raise --warmup, or use --on-spike rollback"));
  if (undo) calm_step_ = event->calm_step;
}

std::optional<Rollback> Spikes::rollback(const RunState& state, const RunFiles& files, int64_t per_step) {
  const int64_t calm = std::exchange(calm_step_, -1);
  int64_t to = files.on_disk() ? newest_until(files.checkpoints(), calm) : -1;
  if (o_.group) to = int64_t(o_.group->from_first(double(to)));
  const int count = o_.rolled_back ? o_.rolled_back->count + 1 : 1;
  if (to < 0)
    report_.warning(fmt::format("no checkpoint is from before step {}: training goes on", calm + 1));
  else if (count > most_rollbacks)
    report_.warning(fmt::format("this is spike number {}: training goes on", count));
  if (to < 0 || count > most_rollbacks) return {};
  const int64_t steps = state.step - to + steps_after;
  report_.end_steps();
  report_.message(fmt::format("step {}: back to the checkpoint of step {}, without the samples of its next {}",
                              state.step, to, format_number_of(steps, "step")));
  return Rollback{to, state.skipped_samples + uint64_t(steps * per_step), count, {}};
}

}  // namespace crest
