#include "train/validations.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>

#include "checkpoint/checkpoint.h"
#include "comm/rank_group.h"
#include "core/error.h"
#include "core/io.h"
#include "core/timer.h"

namespace crest {

void Validations::check_settings(const RunSchedule& schedule) const {
  const char* judges = o_.patience > 0     ? "--patience"
                       : o_.until_loss > 0 ? "--until-loss"
                       : o_.keep_best      ? "--keep-best"
                                           : nullptr;
  const bool never = schedule.val_every() == 0;
  if (judges && (never || !data_.validates()))
    fail_usage("the run has no validations", judges,
               never ? "Set --val-every above 0." : "Give data with a validation split of at least one sequence.");
  if (o_.min_delta > 0 && o_.patience == 0)
    fail_usage("an improvement counts only for --patience", "--min-delta", "Give --patience N, too.");
}

std::optional<RunEnd> Validations::end() const {
  const BestLoss& v = state_.validation;
  if (o_.until_loss > 0 && v.best_step >= 0 && v.best <= o_.until_loss) return RunEnd::loss;
  if (o_.patience > 0 && v.waited >= o_.patience) return RunEnd::patience;
  return {};
}

UntilLoss Validations::until_loss(const RunFiles& files, int64_t tokens_per_step) const {
  UntilLoss u = {state_.step, false, 0, 0};
  for (auto& row : files.validations())
    if (!u.reached && row.val_loss <= o_.until_loss) u.step = row.step, u.reached = true;
  for (auto& row : files.steps())
    if (row.step <= u.step) u.step_seconds += row.step_ms / 1e3;
  u.tokens = u.step * tokens_per_step;
  return u;
}

void Validations::continue_from(const RunFiles& files) {
  for (auto& row : files.validations())
    if (row.step > state_.validation.step) state_.validation.add(row.step, row.val_loss, o_.min_delta);
  if (o_.group) state_ = parse_run_state(o_.group->from_first(to_text(state_)), "rank 0");
  if (!o_.keep_best) return;
  if (files.on_disk()) find_kept(files);
  if (!o_.group) return;
  kept_step_ = int64_t(o_.group->from_first(double(kept_step_)));
  kept_loss_ = o_.group->from_first(kept_loss_);
}

// Without --keep-best, an earlier command may have removed the best checkpoint, or saved none.
void Validations::find_kept(const RunFiles& files) {
  const std::string root = files.checkpoints();
  auto consider = [&](int64_t step, double loss) {
    if (step >= 0 && loss < kept_loss_ && path_exists(join_path(root, checkpoint_name(step))))
      kept_step_ = step, kept_loss_ = loss;
  };
  const BestLoss& all = state_.validation;
  consider(all.best_step, all.best);
  for (auto& row : files.validations()) consider(row.step, row.val_loss);
  label_best(root, kept_step_);
}

int64_t Validations::labeled_step(const RunFiles& files) const {
  if (!files.on_disk() || kept_step_ < 0) return -1;
  return labeled_checkpoint(files.checkpoints(), best_label) == checkpoint_name(kept_step_) ? kept_step_ : -1;
}

void Validations::add_to(RunReport::Summary& end, const RunFiles& files, int64_t tokens_per_step) const {
  end.val_loss = NAN;
  end.best = state_.validation;
  end.until_loss = until_loss(files, tokens_per_step);
  end.kept_step = labeled_step(files), end.kept_loss = kept_loss_;
  end.validation_seconds = seconds_;
  if (files.validations().empty()) return;
  const ValidationRow& last = files.validations().back();
  end.val_loss = last.val_loss, end.val_step = last.step;
  if (data_.data().mixed()) end.val_losses = last.of_sources;
}

static int64_t rows_of_batch(const Engine& engine) {
  return engine.validation_batch() * engine.session().recipe.data_ranks();
}

Validations::Size Validations::size(const Engine& engine) const {
  Size size;
  for (size_t source : data_.validated()) {
    size.rows = rows_of_batch(engine);
    size.batches = std::max(size.batches, data_.val_batches(source, size.rows));
  }
  return size;
}

double Validations::loss_of(Engine& engine, size_t source) {
  const double loss =
      engine.validate(data_.val_batches(source, rows_of_batch(engine)), data_.validation(source, engine.ranks()));
  const bool failed = data_.error() != nullptr;
  if (o_.group ? o_.group->any(failed) : failed) {
    if (failed) throw RunData::Failed{data_.error()};
    throw Engine::PeerDidNotRead{-1};
  }
  return std::isnan(loss) ? NAN : loss;  // messages show no sign
}

ValidationRow Validations::measure(Engine& engine) {
  RankGroup* group = o_.group;
  if (group) group->doing(fmt::format("validation after step {}", state_.step), true);
  Timer timer;
  ValidationRow row;
  row.step = state_.step;
  double sum = 0, shares = 0;
  const TrainingData& data = data_.data();
  for (size_t source : data_.validated()) {
    const double loss = loss_of(engine, source), share = data.mixed() ? data.order.share(source) : 1;
    sum += share * loss, shares += share;
    if (data.mixed()) row.of_sources.emplace_back(data.labels[source], loss);
  }
  row.val_loss = sum / shares;
  seconds_ += timer.seconds();
  const double judged = group ? group->from_first(row.val_loss) : row.val_loss;
  state_.validation.add(state_.step, judged, o_.min_delta);
  if (judged < kept_loss_) kept_step_ = state_.step, kept_loss_ = judged;
  return row;
}

}  // namespace crest
