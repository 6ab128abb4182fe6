#include "train/run.h"

#include <fmt/format.h>

#include <chrono>
#include <cmath>
#include <optional>

#include "core/error.h"
#include "core/json.h"
#include "core/text.h"
#include "data/dataset.h"
#include "data/loader.h"
#include "measure/environment.h"
#include "report/table.h"
#include "run/generate.h"
#include "train/engine.h"
#include "train/progress.h"
#include "train/run_files.h"
#include "train/run_state.h"
#include "train/stop_signal.h"

namespace crest {

namespace {

using Clock = std::chrono::steady_clock;
double since(Clock::time_point t) { return std::chrono::duration<double>(Clock::now() - t).count(); }

constexpr int fit_after = 12;  // steps measured before the schedule is fitted to max_seconds
constexpr int64_t most_bad_steps = 5;

class Training {
 public:
  explicit Training(const TrainOptions& o) : o_(o), dataset_(Dataset::open(o.data, uint32_t(o.recipe.model.vocab))) {
    ProgressOptions p;
    p.quiet = o.quiet;
    progress_.emplace(p);
  }

  int run() {
    check_data();
    SessionUse use;
    use.train = use.update = use.sampling = true;
    use.validation = validates();
    CompiledSession session = compile(o_.recipe, o_.device, session_programs(o_.recipe, use));
    check_fits(session, o_.memory_limit);
    engine_.emplace(std::move(session));
    start_weights();
    set_schedule();
    describe();
    loop();
    return finish();
  }

 private:
  const Recipe& recipe() const { return engine_ ? engine_->session().recipe : o_.recipe; }
  bool validates() const {
    return o_.val_every != 0 && dataset_.val().total_tokens() > uint64_t(o_.recipe.seq_length());
  }

  void check_data() {
    if (dataset_.vocab_size() > uint64_t(o_.recipe.model.vocab))
      fail(fmt::format("the data has a vocabulary of {}, the model one of {}", dataset_.vocab_size(),
                       o_.recipe.model.vocab),
           o_.data,
           "Prepare the data with the model's tokenizer, or train a model of the data's vocabulary (leave --vocab "
           "out).");
    train_.emplace(dataset_.train(), o_.recipe.seq_length(), o_.seed);
    if (validates()) val_.emplace(dataset_.val(), o_.recipe.seq_length(), o_.seed, SampleOrder::sequential);
  }

  void start_weights() {
    engine_->initialize_weights(o_.seed);
    state_.seed = o_.seed;
    if (!o_.init.empty()) load_initial_weights(*engine_, o_.init);
    if (o_.resume) {
      state_ = restore(*engine_, o_.out + "/checkpoints", [&](const std::string& m) { progress_->warning(m); });
      if (state_.threads != o_.device.threads)
        progress_->warning(
            fmt::format("the run used {} threads, this machine {}: results continue, but not bit for bit",
                        state_.threads, o_.device.threads));
      files_.emplace(RunFiles::resume(o_.out, state_.step));
    } else {
      files_.emplace(RunFiles::create(o_.out, o_.overwrite, o_.config_toml, to_json(read_environment())));
    }
    state_.threads = o_.device.threads;
    start_step_ = state_.step;
  }

  void set_schedule() {
    steps_ = o_.steps > 0 ? o_.steps : state_.total_steps > 0 ? state_.total_steps : 1000;
    fitting_ = o_.steps == 0 && o_.max_seconds > 0 && state_.total_steps == 0;
    apply_steps();
    validate(schedule_);
  }
  void apply_steps() {
    schedule_.kind = parse_schedule(o_.schedule);
    schedule_.lr = o_.lr > 0 ? o_.lr : std::clamp(6e-4 * std::sqrt(768.0 / double(recipe().model.width)), 1e-4, 3e-3);
    schedule_.min_lr = o_.min_lr >= 0 ? o_.min_lr : schedule_.lr / 10;
    schedule_.total_steps = steps_;
    schedule_.warmup_steps = o_.warmup >= 0 ? o_.warmup : std::min<int64_t>(2000, steps_ / 50);
    val_every_ = o_.val_every < 0 ? std::max<int64_t>(1, steps_ / 10) : o_.val_every;
    save_every_ = o_.save_every < 0 ? std::max<int64_t>(1, (steps_ + 3) / 4) : o_.save_every;
  }

  void describe() {
    const CompiledSession& s = engine_->session();
    const ModelConfig& m = recipe().model;
    if (o_.quiet) return;
    progress_->message(fmt::format("device   {}", o_.device.name));
    progress_->message(fmt::format("model    {}: {} parameters, {} layers, width {}, vocabulary {}, {} {}", m.name,
                                   format_count(double(m.parameters())), m.layers, m.width, m.vocab, recipe().precision,
                                   is_half_precision() ? recipe().policy : "weights"));
    progress_->message(fmt::format("data     {} training tokens, {} validation tokens in {}",
                                   format_count(double(dataset_.train().total_tokens())),
                                   format_count(double(dataset_.val().total_tokens())), printable(o_.data)));
    progress_->message(fmt::format("step     {} sequences x {} tokens x {} micro steps x {} ranks = {} tokens",
                                   recipe().batch, recipe().seq_length(), recipe().grad_accumulation, engine_->ranks(),
                                   recipe().tokens_per_step()));
    progress_->message(fmt::format("memory   {} planned ({} persistent, {} transient)",
                                   format_bytes(double(s.planned_bytes()) * engine_->ranks()),
                                   format_bytes(double(s.persistent_bytes)), format_bytes(double(s.transient_bytes))));
    progress_->message(fmt::format("run      {}{}", printable(o_.out),
                                   o_.resume ? fmt::format(", continued at step {}", state_.step) : ""));
  }
  bool is_half_precision() const { return recipe().precision == "bf16" || recipe().precision == "fp16"; }

  void loop() {
    StopSignal signal;
    auto begin = Clock::now();
    SampleSource source = [&](uint64_t g, int32_t* x, int32_t* y) { train_->sample(g, x, y); };
    if (state_.step == 0) validate_now();
    while (state_.step < steps_) {
      int64_t step = state_.step;
      double lr = learning_rate(schedule_, step);
      StepResult r = engine_->step(step, lr, state_.seed, source);
      ++state_.step;
      record(r, lr);
      count_bad(r);
      if (fitting_ && state_.step - start_step_ == fit_after) fit(since(begin));
      bool end = state_.step >= steps_;
      if (val_every_ && (state_.step % val_every_ == 0 || end)) validate_now();
      if (o_.sample_every && state_.step % o_.sample_every == 0) sample_now();
      if (StopSignal::requested()) {
        interrupted_ = true;
        break;
      }
      if (o_.stop_after && state_.step - start_step_ >= o_.stop_after) break;
      if (o_.max_seconds > 0 && !fitting_ && since(begin) > o_.max_seconds * (o_.steps > 0 ? 1.0 : 1.15)) break;
      if (save_every_ && state_.step % save_every_ == 0 && !end) save_now();
    }
    seconds_ = since(begin);
    save_now();
  }

  // Steps that fit into max_seconds, from the median of the first ones; the schedule follows.
  void fit(double spent) {
    std::vector<double> ms(step_ms_.begin() + 2, step_ms_.end());
    std::sort(ms.begin(), ms.end());
    double step_seconds = ms[ms.size() / 2] / 1e3;
    double budget = std::max(0.0, o_.max_seconds - spent) * 0.93;  // the rest is validation, saving and the sample
    steps_ = state_.step + std::max<int64_t>(1, int64_t(budget / step_seconds));
    fitting_ = false;
    apply_steps();
    progress_->message(fmt::format("steps    {} fit into {}", steps_, format_duration(o_.max_seconds)));
  }

  void record(const StepResult& r, double lr) {
    step_ms_.push_back(r.seconds * 1e3);
    double tokens_per_second = double(recipe().tokens_per_step()) / r.seconds;
    files_->add(StepRow{state_.step, r.loss, lr, r.grad_norm, r.seconds * 1e3, tokens_per_second, r.skipped}, 0);
    if (!r.skipped) last_loss_ = r.loss;
    mean_ms_ = mean_ms_ > 0 ? mean_ms_ + 0.1 * (r.seconds * 1e3 - mean_ms_) : r.seconds * 1e3;
    StepReport report;
    report.step = state_.step, report.total_steps = fitting_ ? -1 : steps_;
    report.loss = r.loss, report.grad_norm = r.grad_norm, report.lr = lr, report.step_ms = r.seconds * 1e3;
    report.tokens_per_second = tokens_per_second;
    report.flops_per_second = tokens_per_second * recipe().model.flops_per_token(recipe().seq_length());
    report.memory_bytes = engine_->rank(0).held_bytes() * engine_->ranks();
    report.eta_seconds = fitting_ ? -1 : double(steps_ - state_.step) * mean_ms_ / 1e3;
    report.skipped = r.skipped;
    progress_->step(report);
  }

  // A skipped step of fp16 above the smallest loss scale only searches for the scale; anything else is a sign of
  // trouble.
  void count_bad(const StepResult& r) {
    bool searching = recipe().precision == "fp16" && r.loss_scale > 1;
    bad_steps_ = r.skipped && !searching ? bad_steps_ + 1 : 0;
    if (!r.skipped) return;
    progress_->warning(fmt::format("step {}: gradients are not finite, update skipped ({} so far)", state_.step,
                                   engine_->rank(0).scalars().skipped));
    if (bad_steps_ >= most_bad_steps) {
      progress_->finish();
      files_->flush();
      fail(fmt::format("{} steps in a row gave gradients that are not finite", bad_steps_),
           fmt::format("step {}", state_.step),
           fmt::format("Training stopped; the last good checkpoint in {} is kept. Lower --lr, raise --warmup, or use "
                       "--precision fp32.",
                       printable(files_->checkpoints())));
    }
  }

  void validate_now() {
    if (!val_) return;
    int64_t per_batch = engine_->validation_batch() * engine_->ranks();
    int64_t batches = std::clamp<int64_t>(int64_t(val_->samples_per_epoch()) / per_batch, 1, o_.val_batches);
    uint64_t windows = val_->samples_per_epoch();
    double loss =
        engine_->validate(batches, [&](uint64_t g, int32_t* x, int32_t* y) { val_->sample(g % windows, x, y); });
    files_->add(ValidationRow{state_.step, loss});
    progress_->message(fmt::format("step {}: validation loss {:.4f}", state_.step, loss));
  }

  void sample_now() {
    if (!dataset_.tokenizer()) return;
    std::string text = generate_text(engine_->rank(0), *dataset_.tokenizer(), "", o_.sample_tokens,
                                     state_.seed + uint64_t(state_.step));
    files_->add_sample(state_.step, text);
    progress_->message(fmt::format("--- sample at step {}\n{}\n---", state_.step, terminal_text(text)));
  }

  void save_now() {
    if (state_.step == saved_step_) return;
    state_.total_steps = fitting_ ? 0 : steps_;
    save(*engine_, state_, files_->checkpoints(), o_.keep, o_.config_toml, dataset_.tokenizer().get(),
         [&](const std::string& m) { progress_->warning(m); });
    saved_step_ = state_.step;
  }

  int finish() {
    progress_->finish();
    files_->flush();
    std::string curve = files_->draw_loss(std::min(terminal_width(2), 100));
    if (!o_.quiet && !curve.empty()) fmt::print(stderr, "\n{}\n", curve);
    std::sort(step_ms_.begin(), step_ms_.end());
    double median = step_ms_.empty() ? 0 : step_ms_[step_ms_.size() / 2];
    double val = files_->validations().empty() ? NAN : files_->validations().back().val_loss;
    const char* end = interrupted_ ? "interrupted; saved" : "done";
    if (o_.json)
      fmt::print(
          "{{\"run\": {}, \"step\": {}, \"loss\": {}, \"val_loss\": {}, \"step_ms_median\": {:.3f}, \"seconds\": "
          "{:.3f}, "
          "\"interrupted\": {}}}\n",
          json_text(o_.out), state_.step, number(last_loss_), number(val), median, seconds_, interrupted_);
    else
      fmt::print(
          stderr, "{} at step {}: loss {:.4f}{}; {:.1f} ms a step, {}\n  {}/checkpoints, loss.svg, log.jsonl\n{}", end,
          state_.step, last_loss_, std::isfinite(val) ? fmt::format(", validation {:.4f}", val) : "", median,
          format_duration(seconds_), printable(o_.out),
          interrupted_ ? fmt::format("  continue with: crest train --resume {}\n", printable(o_.out))
                       : fmt::format("  sample with: crest sample --run {} --prompt \"...\"\n", printable(o_.out)));
    return int(interrupted_ ? Exit::interrupted : Exit::ok);
  }
  static std::string json_text(const std::string& s) { return Json(s).dump(-1, ' ', false, Json::error_handler_t::replace); }
  // What a model wrote may hold terminal escapes: only line breaks and tabs pass.
  static std::string terminal_text(const std::string& s) {
    std::string out;
    for (auto& line : split(valid_utf8(s), '\n')) out += (out.empty() ? "" : "\n") + printable(line, line.size());
    return out;
  }
  static std::string number(double x) { return std::isfinite(x) ? fmt::format("{}", x) : "null"; }

  const TrainOptions& o_;
  Dataset dataset_;
  std::optional<Progress> progress_;
  std::optional<Loader> train_, val_;
  std::optional<Engine> engine_;
  std::optional<RunFiles> files_;
  Schedule schedule_;
  RunState state_;
  int64_t steps_ = 0, val_every_ = 0, save_every_ = 0, start_step_ = 0, saved_step_ = -1, bad_steps_ = 0;
  bool fitting_ = false, interrupted_ = false;
  double last_loss_ = NAN, mean_ms_ = 0, seconds_ = 0;
  std::vector<double> step_ms_;
};

}  // namespace

int run_training(const TrainOptions& options) { return Training(options).run(); }

}  // namespace crest
