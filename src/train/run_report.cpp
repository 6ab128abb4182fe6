#include "train/run_report.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>

#include "core/error.h"
#include "core/json.h"
#include "core/text.h"
#include "report/table.h"

namespace crest {

namespace {

constexpr double saving_share_told = 0.035;  // of the run's time

ProgressOptions progress_options(const TrainOptions& o) {
  ProgressOptions p;
  p.quiet = o.quiet;
  return p;
}

// What a model wrote may hold terminal escapes: only line breaks and tabs pass.
std::string terminal_text(const std::string& s) {
  std::string out;
  for (auto& line : split(valid_utf8(s), '\n')) out += (out.empty() ? "" : "\n") + printable(line, line.size());
  return out;
}

}  // namespace

RunReport::RunReport(const TrainOptions& o) : options_(o), progress_(progress_options(o)) {}

void RunReport::message(const std::string& text) {
  if (!options_.quiet) progress_.message(text);
}

double RunReport::median_step_ms(size_t skip_first) const {
  if (step_ms_.size() <= skip_first) return 0;
  std::vector<double> ms(step_ms_.begin() + std::ptrdiff_t(skip_first), step_ms_.end());
  std::nth_element(ms.begin(), ms.begin() + std::ptrdiff_t(ms.size() / 2), ms.end());
  return ms[ms.size() / 2];
}

void RunReport::describe(Engine& engine, const Dataset& data, const RunState& state, const Plan& plan) {
  const CompiledSession& s = engine.session();
  const Recipe& r = s.recipe;
  const ModelConfig& m = r.model;
  bool half = r.precision == "bf16" || r.precision == "fp16";
  int ranks = engine.ranks();
  message(fmt::format("device   {}", options_.device.name));
  message(fmt::format("model    {}: {} parameters, {} layers, width {}, vocabulary {}, {} {}", printable(m.name),
                      format_count(double(m.parameters())), m.layers, m.width, m.vocab, r.precision,
                      half ? r.policy : "weights"));
  message(fmt::format("data     {} training tokens, {} validation tokens in {}",
                      format_count(double(data.train().total_tokens())),
                      format_count(double(data.val().total_tokens())), printable(options_.data)));
  message(fmt::format("step     {} sequences x {} tokens x {} micro steps x {} ranks = {} tokens", r.batch,
                      r.seq_length(), r.grad_accumulation, ranks, r.tokens_per_step()));
  message(fmt::format("memory   {} planned ({} persistent, {} transient{})",
                      format_bytes(double(s.planned_bytes()) * ranks), format_bytes(double(s.persistent_bytes)),
                      format_bytes(double(s.transient_bytes)), ranks > 1 ? " a rank" : ""));
  const Schedule& c = plan.schedule;
  std::string decay =
      c.kind == ScheduleKind::constant ? " constant" : fmt::format(" {} to {:.3g}", name(c.kind), c.min_lr);
  std::string steps =
      plan.fitting ? format_duration(options_.max_seconds) + " of" : std::to_string(plan.schedule.total_steps);
  message(fmt::format("schedule {} steps, lr {:.3g}{}, warm-up {}, seed {}", steps, c.lr, decay, c.warmup_steps,
                      state.seed));
  auto every = [](int64_t n, const char* otherwise) { return n > 0 ? fmt::format("every {}", n) : otherwise; };
  message(fmt::format("run      {}; validation {}, checkpoint {}{}", printable(options_.out),
                      every(plan.val_every, "never"), every(plan.save_every, "at the end"),
                      options_.resume ? fmt::format("; continued at step {}", state.step) : ""));
  if (!plan.fitting && state.step >= c.total_steps)
    message(fmt::format("the run has all of its {} steps: give a larger --steps to train on", c.total_steps));
}

void RunReport::step(const StepRow& row, int64_t total_steps, Engine& engine) {
  const Recipe& r = engine.session().recipe;
  step_ms_.push_back(row.step_ms);
  mean_ms_ = mean_ms_ > 0 ? mean_ms_ + 0.1 * (row.step_ms - mean_ms_) : row.step_ms;
  StepReport report;
  report.step = row.step, report.total_steps = total_steps;
  report.loss = row.loss, report.grad_norm = row.grad_norm, report.lr = row.lr, report.step_ms = row.step_ms;
  report.tokens_per_second = row.tokens_per_second;
  report.flops_per_second = row.tokens_per_second * r.model.flops_per_token(r.seq_length());
  report.memory_bytes = engine.rank(0).held_bytes() * engine.ranks();
  if (total_steps > row.step) report.eta_seconds = double(total_steps - row.step) * mean_ms_ / 1e3;
  report.skipped = row.skipped;
  progress_.step(report);
}

void RunReport::sample(int64_t step, const std::string& text) {
  message(fmt::format("--- sample at step {}\n{}\n---", step, terminal_text(text)));
}

nlohmann::ordered_json RunReport::result(const Summary& s) const {
  auto rounded = [](double x) { return std::round(x * 1000) / 1000; };
  auto loss = [](double x) { return std::isfinite(x) ? nlohmann::ordered_json(x) : nlohmann::ordered_json(nullptr); };
  return {{"run", options_.out},
          {"step", s.step},
          {"loss", loss(s.loss)},
          {"val_loss", loss(s.val_loss)},
          {"step_ms_median", rounded(median_step_ms())},
          {"seconds", rounded(s.seconds)},
          {"saving_seconds", rounded(s.saving_seconds)},
          {"interrupted", s.interrupted}};
}

void RunReport::finish(const Summary& s) {
  double median = median_step_ms();
  if (options_.json) fmt::print("{}\n", result(s).dump(-1, ' ', false, nlohmann::json::error_handler_t::replace));
  if (!s.curve.empty()) message("\n" + s.curve + "\n");
  if (s.saving_seconds > saving_share_told * s.seconds)
    message(fmt::format("saving took {} ({:.1f}% of the time): a larger --save-every lowers it",
                        format_duration(s.saving_seconds), 100 * s.saving_seconds / s.seconds));
  std::string text = fmt::format("{} at step {}", s.interrupted ? "interrupted; saved" : "done", s.step);
  if (std::isfinite(s.loss)) text += fmt::format(": loss {:.4f}", s.loss);
  if (std::isfinite(s.val_loss)) text += fmt::format(", validation {:.4f}", s.val_loss);
  if (median > 0) text += fmt::format("; {:.1f} ms a step, {}", median, format_duration(s.seconds));
  message(text);
  message(fmt::format("  {}/checkpoints, loss.svg, log.jsonl", printable(options_.out)));
  message(s.interrupted
              ? fmt::format("  continue with: crest train --resume {}", printable(options_.out))
              : fmt::format("  sample with: crest sample --run {} --prompt \"...\"", printable(options_.out)));
}

}  // namespace crest
