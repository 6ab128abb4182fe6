#include "train/run_report.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>

#include "core/error.h"
#include "core/json.h"
#include "core/json_number.h"
#include "core/shell_word.h"
#include "core/text.h"
#include "model/parameters.h"
#include "passes/optimizers.h"
#include "stats/samples.h"
#include "store/step_times.h"
#include "terminal/table.h"

namespace crest {

namespace {

// Print the time above this fraction of the run's time.
constexpr double noted_saving_share = 0.035, noted_validation_share = 0.25;

ProgressOptions progress_options(bool quiet) {
  ProgressOptions p;
  p.quiet = quiet;
  return p;
}

// Model output may contain terminal escapes. Keeps only line breaks and tabs.
std::string terminal_text(const std::string& s) {
  std::string out;
  for (auto& line : split(valid_utf8(s), '\n')) out += (out.empty() ? "" : "\n") + printable(line, line.size());
  return out;
}

}  // namespace

RunReport::RunReport(const TrainOptions& o, bool prints)
    : options_(o), prints_(prints), progress_(progress_options(o.quiet || !prints)) {}

void RunReport::message(const std::string& text) {
  if (!options_.quiet && prints_) progress_.message(text);
}

void RunReport::warning(const std::string& text) {
  if (prints_) progress_.warning(text);
}

double RunReport::median_step_ms() const {
  if (step_ms_.size() <= size_t(warmup_steps)) return 0;
  return Samples({step_ms_.begin() + warmup_steps, step_ms_.end()}).median();
}

const char* name(RunEnd end) {
  switch (end) {
    case RunEnd::steps: return "steps";
    case RunEnd::time: return "time";
    case RunEnd::stop_after: return "stop_after";
    case RunEnd::signal: return "signal";
    case RunEnd::data: return "data";
    case RunEnd::stream: return "stream";
    case RunEnd::patience: return "patience";
    case RunEnd::loss: return "loss";
  }
  return "";
}

void RunReport::describe(Engine& engine, const std::string& data) {
  if (options_.restarted) return;
  const CompiledSession& s = engine.session();
  const Recipe& r = s.recipe;
  const ModelConfig& m = r.model;
  bool half = r.precision == "bf16" || r.precision == "fp16" || r.precision == "fp8";
  int ranks = engine.ranks();
  message(fmt::format("device   {}", options_.device.name));
  message(fmt::format("model    {}: {} parameters, {}, width {}, vocabulary {}, {} {}", printable(m.name),
                      format_count(double(parameter_count(m))), format_number_of(m.layers, "layer"), m.width, m.vocab,
                      r.precision, half ? r.policy : "weights"));
  message("data     " + data);
  std::vector<std::string> factors;
  for (auto& [n, noun] : {std::pair{r.batch, "sequence"},
                          {r.seq_length(), "token"},
                          {r.grad_accumulation, "micro step"},
                          {int64_t(r.data_ranks()), "rank"}})
    if (n > 1) factors.push_back(format_number_of(n, noun));
  std::string tokens = format_number_of(r.tokens_per_step(), "token");
  message(fmt::format("step     {}", factors.size() > 1 ? join(factors, " x ") + " = " + tokens : tokens));
  std::string host = s.host_bytes ? fmt::format(", and {} in host memory", format_bytes(double(s.host_bytes))) : "";
  message(fmt::format("memory   {} planned ({} persistent, {} transient{}){}", format_bytes(double(s.planned_bytes())),
                      format_bytes(double(s.persistent_bytes)), format_bytes(double(s.transient_bytes)),
                      ranks > 1 ? "; for each rank" : "", host));
}

void RunReport::describe(const RunState& state, const Plan& plan) {
  if (options_.restarted) return;
  std::string continued = options_.resume ? fmt::format("; continued at step {}", state.step) : "";
  if (plan.fitting) {
    message(fmt::format("run      {}{}; measuring how many steps fit into {}", printable(options_.out), continued,
                        format_duration(options_.max_seconds)));
    return;
  }
  const Schedule& c = plan.schedule;
  std::string decay =
      c.kind == ScheduleKind::constant ? " constant" : fmt::format(" {} to {:.3g}", name(c.kind), c.min_lr);
  if (c.kind == ScheduleKind::wsd)
    decay += fmt::format(" in the last {:.3g}% ({})", 100 * c.decay_share, options_.decay_shape);
  message(fmt::format("schedule {} step{}, lr {:.3g}{}, warm-up {}, seed {}", c.total_steps,
                      c.total_steps == 1 ? "" : "s", c.lr, decay, c.warmup_steps, state.seed));
  std::vector<std::string> passes;
  for (auto& source : plan.passes)
    passes.push_back(fmt::format("{:.3g} over {}", double(c.total_steps) / source.epoch, printable(source.label)));
  if (!passes.empty())
    message("passes   " + join(passes, ", "));
  else if (plan.epoch > 0)
    message(fmt::format("passes   {:.3g} over the training data; one takes {:.4g} steps",
                        double(c.total_steps) / plan.epoch, plan.epoch));
  if (std::string rates = learning_rates_text(options_.recipe); !rates.empty())
    message("rates    " + rates + ", on the same schedule");
  if (!options_.init.empty() && options_.lr == 0 && !options_.resume && options_.recipe.model.lora.rank == 0)
    message("note     this learning rate suits a new model: a lower --lr keeps more of what the model knows");
  auto every = [](int64_t n, const char* otherwise) {
    return n == 1 ? "every step" : n > 0 ? fmt::format("every {} steps", n) : otherwise;
  };
  std::string of =
      plan.val_every > 0
          ? fmt::format(" ({} batch{} of {}{})", plan.val_batches, plan.val_batches == 1 ? "" : "es",
                        format_number_of(plan.val_rows, "sequence"), plan.passes.empty() ? "" : " from each source")
          : "";
  message(fmt::format("run      {}; validation {}{}, checkpoint {}{}", printable(options_.out),
                      every(plan.val_every, "never"), of, every(plan.save_every, "at the end"), continued));
  if (state.step >= c.total_steps)
    message(fmt::format("the run is at step {}{} {}: nothing to do; give a larger --steps to continue training",
                        state.step, state.step > c.total_steps ? ", past --steps" : " of", c.total_steps));
}

void RunReport::step(const StepRow& row, int64_t total_steps, Engine& engine) {
  const Recipe& r = engine.session().recipe;
  if (flops_per_token_ == 0) {
    flops_per_token_ = flops_per_token(r.model, r.seq_length());
    time_.begin(engine.session(), options_);
  }
  time_.add(row);
  step_ms_.push_back(row.step_ms);
  mean_ms_ = mean_ms_ > 0 ? mean_ms_ + 0.1 * (row.step_ms - mean_ms_) : row.step_ms;
  StepReport report;
  report.step = row.step, report.total_steps = total_steps;
  report.loss = row.loss, report.grad_norm = row.grad_norm, report.lr = row.lr, report.step_ms = row.step_ms;
  report.tokens_per_second = row.tokens_per_second;
  report.flops_per_second = row.tokens_per_second * flops_per_token_;
  report.memory_bytes = engine.rank(0).held_bytes();
  if (total_steps > row.step) report.eta_seconds = double(total_steps - row.step) * mean_ms_ / 1e3;
  report.skipped = row.skipped;
  progress_.step(report);
}

void RunReport::validation(const ValidationRow& row, int64_t batches) {
  std::string sources;
  for (auto& [label, loss] : row.of_sources) sources += fmt::format(", {} {:.4f}", printable(label), loss);
  message(fmt::format("step {}: validation loss {:.4f}{} ({} batch{}{})", row.step, row.val_loss, sources, batches,
                      batches == 1 ? "" : "es", sources.empty() ? "" : " from each source"));
}

void RunReport::sample(int64_t step, const std::string& text) {
  message(fmt::format("--- sample at step {}\n{}\n---", step, terminal_text(text)));
}

nlohmann::ordered_json RunReport::result(const Summary& s) const {
  auto rounded = [](double x) { return std::round(x * 1000) / 1000; };
  nlohmann::ordered_json json = {
      {"run", options_.out},
      {"step", s.step},
      {"loss", number_or_null(s.loss)},
      {"val_loss", number_or_null(s.val_loss)},
      {"step_ms_median", rounded(s.step_ms_median)},
      {"seconds", rounded(s.seconds)},
      {"saving_seconds", rounded(s.saving_seconds)},
      {"interrupted", s.end == RunEnd::signal},
      {"ended", name(s.end)},
      {"steps", step_ms_.size()},
      {"loss_step", s.loss_step},
      {"val_step", s.val_step},
      {"validation_seconds", rounded(s.validation_seconds)},
      {"last_save_seconds", rounded(s.last_save_seconds)},
      {"epochs", number_or_null(s.epochs)},
      {"best_val_loss", number_or_null(s.best.best_step < 0 ? NAN : s.best.best)},
      {"best_val_step", s.best.best_step < 0 ? nlohmann::ordered_json() : nlohmann::ordered_json(s.best.best_step)}};
  for (auto& source : s.passes) {
    auto loss =
        std::find_if(s.val_losses.begin(), s.val_losses.end(), [&](auto& l) { return l.first == source.label; });
    json["sources"].push_back({{"source", source.label},
                               {"share", source.share},
                               {"epochs", double(s.step) / source.epoch},
                               {"val_loss", number_or_null(loss == s.val_losses.end() ? NAN : loss->second)}});
  }
  if (options_.until_loss > 0)
    json["until_loss"] = {{"loss", options_.until_loss},
                          {"reached", s.until_loss.reached},
                          {"step", s.until_loss.step},
                          {"tokens", s.until_loss.tokens},
                          {"step_seconds", rounded(s.until_loss.step_seconds)}};
  json.update(
      to_json(time_, s.seconds, {s.validation_seconds, s.saving_seconds + s.last_save_seconds, s.sampling_seconds}));
  if (s.skipped_samples) json["skipped_samples"] = s.skipped_samples;
  if (s.pipeline) json["pipeline"] = to_json(*s.pipeline);
  return json;
}

namespace {

std::string ending(const RunReport::Summary& s, const TrainOptions& o) {
  // The request may be for fewer steps than were done.
  bool of_all = s.total_steps > 0 && s.step <= s.total_steps;
  std::string at = fmt::format("at step {}{}", s.step, of_all ? fmt::format(" of {}", s.total_steps) : "");
  const char* stopped = s.saved ? "stopped; saved" : "stopped";
  switch (s.end) {
    case RunEnd::steps: return "done " + at;
    case RunEnd::time: return fmt::format("{} {} (--max-seconds {:g} reached)", stopped, at, o.max_seconds);
    case RunEnd::stop_after: return fmt::format("{} {} (--stop-after {})", stopped, at, o.stop_after);
    case RunEnd::signal: return fmt::format("interrupted; {} {} ({})", s.saved ? "saved" : "ended", at, s.signal);
    case RunEnd::data: return fmt::format("{} {} (data could not be read)", stopped, at);
    case RunEnd::stream:
      return fmt::format("{} {} (the stream ended{})", stopped, at,
                         s.rows_left ? fmt::format(", {} into a step", format_number_of(s.rows_left, "row")) : "");
    case RunEnd::patience:
      return fmt::format(
          "{} {} ({} without {}, --patience {})", stopped, at, format_number_of(s.best.waited, "validation"),
          o.min_delta > 0 ? fmt::format("an improvement of {:g}", o.min_delta) : "a lower loss", o.patience);
    case RunEnd::loss: return fmt::format("{} {} (--until-loss {:g} reached)", stopped, at, o.until_loss);
  }
  return at;
}

// The parts of the time. As printed, they add up to the total.
std::string time_text(const RunReport::Summary& s, const std::vector<double>& step_ms, const RunTime& time) {
  double steps = 0;
  for (double ms : step_ms) steps += ms / 1e3;
  auto n = step_ms.size();
  std::string text =
      fmt::format("{:.2f} s: {} step{} x {:.2f} ms = {:.2f} s (median {:.2f} ms{})", s.seconds, n, n == 1 ? "" : "s",
                  1e3 * steps / double(n), steps, s.step_ms_median, time.parts_text());
  double rest = s.seconds - steps;
  for (auto [seconds, what] : {std::pair{s.validation_seconds, "validation"},
                               {s.saving_seconds, "saving"},
                               {s.last_save_seconds, "last save"},
                               {s.sampling_seconds, "samples"}}) {
    if (seconds < 0.005) continue;
    text += fmt::format(", {} {:.2f} s", what, seconds);
    rest -= seconds;
  }
  return rest < 0.005 ? text : text + fmt::format(", the rest {:.2f} s", rest);
}

// What reaching the loss took, or that it was not reached.
std::string until_loss_line(const RunReport::Summary& s, double loss) {
  const UntilLoss& u = s.until_loss;
  const std::string work = fmt::format("{} tokens, {} of steps (without validation, saving and samples)",
                                       format_count(double(u.tokens)), format_duration(u.step_seconds));
  if (u.reached) return fmt::format("validation loss {:g} reached at step {}: {}", loss, u.step, work);
  return fmt::format("validation loss {:g} not reached: {}, lowest {}", loss, work,
                     s.best.best_step < 0 ? "unknown" : fmt::format("{:.4f} (step {})", s.best.best, s.best.best_step));
}

// The parts add up to the bubble.
std::string pipeline_line(const PipelineTimes& t) {
  auto percent = [&](double ms) { return 100 * ms / t.bubble.ideal; };
  return fmt::format(
      "bubble of the stages {:.1f}% of the work, measured in {}: warm-up {:.1f}%, drain {:.1f}%, imbalance {:.1f}%, "
      "transfers {:.1f}%, other {:.1f}%",
      100 * t.measured_bubble(), format_number_of(t.runs, "step"), percent(t.bubble.warm_up), percent(t.bubble.drain),
      percent(t.bubble.imbalance), percent(t.bubble.transfers), percent(t.other_ms));
}

}  // namespace

void RunReport::skipped(int64_t step, const StepResult& r, bool searching) {
  warning(searching
              ? fmt::format("step {}: overflow at loss scale {:.4g}, update skipped ({} so far), scale now {:.4g}",
                            step, r.loss_scale, r.skipped_steps, r.next_loss_scale)
              : fmt::format("step {}: gradients are not finite, update skipped ({} so far)", step, r.skipped_steps));
}

void RunReport::not_finite(const std::string& checkpoints, int64_t step) {
  int64_t finite = step;
  try {
    finite = newest_finite(checkpoints);
  } catch (const Error& e) {
    return warning(fmt::format("whether the saved weights are finite is unknown: {}", e.what()));
  }
  if (finite == step) return;
  warning(finite < 0 ? "the weights are not finite, and no checkpoint has finite ones: lower --lr or raise --warmup"
                     : fmt::format("the weights are not finite; --resume and crest sample use the last finite "
                                   "checkpoint, step {}: lower --lr or raise --warmup",
                                   finite));
}

void RunReport::finish(const Summary& s) {
  if (options_.json && prints_)
    fmt::print("{}\n", result(s).dump(-1, ' ', false, nlohmann::json::error_handler_t::replace));
  if (!s.curve.empty()) message("\n" + s.curve + "\n");
  // Ignores the last save: no --save-every avoids it.
  if (s.saving_seconds > noted_saving_share * s.seconds)
    message(fmt::format("saving took {:.2f} s ({:.1f}% of the time): raise --save-every to reduce it", s.saving_seconds,
                        100 * s.saving_seconds / s.seconds));
  if (s.validation_seconds > noted_validation_share * s.seconds)
    message(fmt::format("validation took {:.2f} s ({:.1f}% of the time): raise --val-every, or lower --val-batches",
                        s.validation_seconds, 100 * s.validation_seconds / s.seconds));
  std::string text = ending(s, options_);
  if (std::isfinite(s.loss)) text += fmt::format(": loss {:.4f} (step {})", s.loss, s.loss_step);
  if (std::isfinite(s.val_loss))
    text += fmt::format("{} validation {:.4f} (step {})", std::isfinite(s.loss) ? "," : ":", s.val_loss, s.val_step);
  message(text);
  if (!step_ms_.empty()) message("  " + time_text(s, step_ms_, time_));
  if (std::string share = time_.peak_text(s.seconds); !share.empty()) message("  " + share);
  if (options_.until_loss > 0) message("  " + until_loss_line(s, options_.until_loss));
  if (s.pipeline && s.pipeline->bubble.ideal > 0) message("  " + pipeline_line(*s.pipeline));
  message(fmt::format("  {}/checkpoints, loss.svg, log.jsonl", printable(options_.out)));
  const std::string best = options_.keep_best && s.kept_step >= 0 ? "/checkpoints/best" : "";
  if (!best.empty())
    message(fmt::format("  {}{}: step {}, validation loss {:.4f}", printable(options_.out), best, s.kept_step,
                        s.kept_loss));
  message(s.end != RunEnd::steps && s.end != RunEnd::patience && s.end != RunEnd::loss
              ? fmt::format("  continue with: crest train --resume {}", shell_path(options_.out))
              : fmt::format("  sample with: crest sample --run {} --prompt \"...\"", shell_path(options_.out + best)));
}

std::exception_ptr RunReport::unreadable(const std::exception_ptr& error, int64_t step) const {
  try {
    std::rethrow_exception(error);
  } catch (const Error& e) {
    std::string saved =
        fmt::format("The run is saved at step {}. Repair the {}, then continue: crest train --resume {}", step,
                    options_.streams() ? "stream" : "data", shell_path(options_.out));
    return std::make_exception_ptr(
        Error(e.code(), e.problem(), e.where(), e.advice().empty() ? saved : e.advice() + " " + saved));
  } catch (...) {
    return error;
  }
}

}  // namespace crest
