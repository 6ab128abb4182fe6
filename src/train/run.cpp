#include "train/run.h"

#include <fmt/format.h>
#include <omp.h>

#include <algorithm>
#include <chrono>
#include <cmath>
#include <exception>
#include <future>
#include <mutex>
#include <optional>

#include "core/error.h"
#include "core/text.h"
#include "data/dataset.h"
#include "data/loader.h"
#include "data/packing.h"
#include "measure/environment.h"
#include "measure/libraries.h"
#include "model/config_files.h"
#include "passes/pass.h"
#include "report/table.h"
#include "run/generate.h"
#include "train/checkpoint.h"
#include "train/engine.h"
#include "train/read_ahead.h"
#include "train/run_files.h"
#include "train/run_record.h"
#include "train/run_report.h"
#include "train/run_state.h"
#include "train/schedule.h"
#include "train/stop_signal.h"

namespace crest {

namespace {

using Clock = std::chrono::steady_clock;
double since(Clock::time_point t) { return std::chrono::duration<double>(Clock::now() - t).count(); }

constexpr int fit_after = 12;  // steps measured before the schedule is fitted to max_seconds
constexpr int64_t most_bad_steps = 5;

struct Stopped {};  // thrown out of a validation or a step that a signal cuts short

class Training {
 public:
  explicit Training(const TrainOptions& o)
      : o_(o), dataset_(open_data(o)), report_(o), record_(o, [this](auto& text) { report_.warning(text); }) {}

  TrainOutcome run() {
    check_data();
    SessionUse use;
    use.train = use.update = true;
    use.sampling = !o_.out.empty();
    use.validation = val_.has_value();
    // A split of few windows is read once, not partly twice.
    if (val_)
      use.validation_batch =
          std::clamp<int64_t>(int64_t(val_->samples_per_epoch()) / o_.recipe.data_parallel, 1, o_.recipe.batch);
    CompiledSession session = compile(o_.recipe, o_.device, session_programs(o_.recipe, use));
    check_fits(session, o_.memory_limit / o_.recipe.data_parallel);
    if (o_.resume)
      continue_run(std::move(session));
    else
      start_run(std::move(session));
    engine_->set_masked(train_->masked());
    report_.describe(*engine_, dataset_, state_, {schedule_, fitting_, val_ ? val_every_ : 0, save_every_});
    record_.begin(*files_);
    try {
      loop();
      return finish();
    } catch (const std::exception& e) {
      settle_saving();
      record_.finish("failed", nullptr, e.what());
      throw;
    }
  }

 private:
  // Tokens are checked against the data's own vocabulary, which may be smaller than the model's; where the folder does
  // not say it, against the model's.
  static Dataset open_data(const TrainOptions& o) {
    Dataset data = Dataset::open(o.data);
    return data.vocab_size() ? data : Dataset::open(o.data, uint32_t(o.recipe.model.vocab));
  }
  const Recipe& recipe() const { return engine_ ? engine_->session().recipe : o_.recipe; }

  void check_data() {
    if (dataset_.vocab_size() > uint64_t(o_.recipe.model.vocab))
      fail(fmt::format("the data has a vocabulary of {}, the model one of {}", dataset_.vocab_size(),
                       o_.recipe.model.vocab),
           printable(o_.data),
           "Prepare the data with the model's tokenizer, or train a model of the data's vocabulary (leave --vocab "
           "out).");
    int64_t seq = o_.recipe.seq_length();
    if (packs_documents(o_.recipe))
      pack();
    else
      train_.emplace(dataset_.train(), seq, o_.seed);
    train_->delay(std::chrono::duration<double, std::milli>(o_.loader_delay_ms));
    if (o_.val_every == 0 || train_->packed()) return;
    if (dataset_.val().total_tokens() > uint64_t(seq))
      val_.emplace(dataset_.val(), seq, o_.seed, SampleOrder::sequential);
    else if (!o_.quiet)
      report_.warning(fmt::format("no validation: the split has {} tokens, a sequence needs {}",
                                  dataset_.val().total_tokens(), seq + 1));
  }

  void pack() {
    auto tokenizer = dataset_.tokenizer();
    if (!tokenizer || !tokenizer->end_of_text())
      fail("documents cannot be told apart: the data has no tokenizer with an end-of-text token", printable(o_.data),
           "Prepare the data with crest data prepare, or leave --packing documents out.");
    auto packed = [&](const TokenStream& split) {
      return std::make_shared<const Packing>(split, *tokenizer->end_of_text(), o_.recipe.seq_length());
    };
    auto train = packed(dataset_.train());
    train_.emplace(dataset_.train(), train, o_.seed);
    if (!o_.quiet)
      report_.message(fmt::format("packing  {} documents in {} rows of {} tokens, {:.1f}% filled, {} cut",
                                  train->documents(), train->rows(), train->seq(), 100 * train->filled(),
                                  train->cut()));
    if (o_.val_every == 0) return;
    auto val = packed(dataset_.val());
    if (val->rows())
      val_.emplace(dataset_.val(), val, o_.seed, SampleOrder::sequential);
    else if (!o_.quiet)
      report_.warning("no validation: the split has no document with a token that counts");
  }

  void start_run(CompiledSession session) {
    engine_.emplace(std::move(session));
    if (o_.init.empty())
      engine_->initialize_weights(o_.seed);
    else
      load_initial_weights(*engine_, o_.init, [&](const std::string& m) { report_.warning(m); });
    state_.seed = o_.seed;
    state_.threads = o_.device.threads;
    state_.train_tokens = dataset_.train().total_tokens();
    set_schedule();
    files_.emplace(o_.out.empty() ? RunFiles::none() : RunFiles::create(o_.out, o_.overwrite));
    write_config();
    files_->write("model.toml", to_toml(recipe().model));
    files_->write("environment.json", to_json(read_environment(library_versions(o_.device))) + "\n");
    files_->continue_at(0);
  }

  // The engine chooses kernels when it is made, so it is told first what the run chose before.
  void continue_run(CompiledSession session) {
    auto warn = [&](const std::string& m) { report_.warning(m); };
    files_.emplace(RunFiles::open(o_.out));
    Checkpoint checkpoint = newest_checkpoint(files_->checkpoints(), warn);
    engine_.emplace(std::move(session), kernel_choices(checkpoint, warn));
    state_ = restore(*engine_, checkpoint, files_->checkpoints(), warn);
    if (state_.seed != o_.seed)
      fail_usage(fmt::format("the run has seed {}", state_.seed), "--seed",
                 "Leave --seed out when a run is continued.");
    if (state_.threads != o_.device.threads)
      report_.warning(fmt::format("the run used {} threads, now {}: it continues, but not bit for bit", state_.threads,
                                  o_.device.threads));
    if (std::string other = engine_->choices().difference(); !other.empty())
      warn(fmt::format("{}: the run continues, but not bit for bit", other));
    uint64_t tokens = dataset_.train().total_tokens();
    if (state_.train_tokens != tokens)
      report_.warning(
          fmt::format("the run was made with {} training tokens, this data has {}: it continues with other "
                      "data",
                      state_.train_tokens, tokens));
    state_.train_tokens = tokens;
    state_.threads = o_.device.threads;
    start_step_ = last_good_ = state_.step;
    set_schedule();
    write_config();
    files_->continue_at(state_.step);
    if (!files_->steps().empty()) last_loss_ = files_->steps().back().loss;
  }

  // The options as they are used.
  void write_config() {
    TrainOptions resolved = o_;
    resolved.recipe = recipe();
    resolved.steps = fitting_ ? 0 : steps_;
    resolved.lr = schedule_.lr;
    resolved.min_lr = schedule_.min_lr;
    resolved.warmup = schedule_.warmup_steps;
    config_ = o_.config_toml ? o_.config_toml(resolved) : "";
    files_->write("config.toml", config_);
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
    // The steps before the fit are all of the warm-up: their rates do not depend on what is fitted, and the run can be
    // repeated with the steps that were found.
    if (o_.max_seconds > 0 && o_.steps == 0 && (fitting_ || fitted_))
      schedule_.warmup_steps = std::max<int64_t>(o_.warmup, fit_after);
    val_every_ = o_.val_every < 0 ? std::max<int64_t>(1, steps_ / 10) : o_.val_every;
    save_every_ = o_.save_every < 0 ? std::max<int64_t>(1, (steps_ + 3) / 4) : o_.save_every;
  }

  void loop() {
    std::optional<StopSignal> signal;  // a caller may have one
    if (!StopSignal::guarded()) signal.emplace();
    if (o_.prefetch > 0) read_ahead_.emplace(*train_, recipe(), state_.step, ReadAhead{o_.prefetch, o_.loader_threads});
    auto begin = Clock::now();
    try {
      if (!validated() && val_every_ && state_.step % val_every_ == 0) validate_now();
      while (state_.step < steps_) {
        train_step();
        if (fitting_ && state_.step - start_step_ == fit_after) fit(since(begin));
        bool end = state_.step >= steps_;
        if (val_every_ && (state_.step % val_every_ == 0 || end)) validate_now();
        if (o_.sample_every && state_.step % o_.sample_every == 0) sample_now();
        if (o_.stop_after && state_.step - start_step_ >= o_.stop_after) break;
        if (o_.max_seconds > 0 && !fitting_ && since(begin) > o_.max_seconds * (o_.steps > 0 ? 1.0 : 1.15)) break;
        if (StopSignal::requested()) break;
        if (save_every_ && state_.step % save_every_ == 0 && !end) {
          auto start = Clock::now();
          save_now();
          saving_seconds_ += since(start);
        }
      }
    } catch (const Stopped&) {
    }
    interrupted_ = StopSignal::requested() && state_.step < steps_;
    seconds_ = since(begin);
    save_now();
    if (last_good_ == state_.step) prune();
    finish_saving();
  }

  // Reads samples where the engine needs them, unless --prefetch says otherwise: 1.1 us for 256 tokens is 0.01% of
  // nano's step (experiment data-loader). A signal ends a step between two micro steps; what they accumulated is
  // overwritten by the next step. With several ranks no rank may leave the others waiting in a reduction: the step runs
  // to its end, and an error is kept until then.
  using Read = std::function<void(uint64_t, int32_t*, int32_t*, int32_t*)>;
  SampleSource source(Read read) {
    return [this, read](uint64_t g, int32_t* x, int32_t* y, int32_t* p) {
      bool alone = engine_->ranks() == 1;
      if (alone && StopSignal::requested()) throw Stopped();
      try {
        read(g, x, y, p);
      } catch (const Error&) {
        if (alone) throw;
        std::lock_guard lock(read_error_mutex_);
        if (!read_error_) read_error_ = std::current_exception();
        std::fill_n(x, train_->seq(), 0), std::fill_n(y, train_->seq(), 0);
        if (p) std::fill_n(p, train_->seq(), 0);
      }
    };
  }
  SampleSource training_source() {
    return source([this](uint64_t g, int32_t* x, int32_t* y, int32_t* p) {
      read_ahead_ ? read_ahead_->sample(g, x, y, p) : train_->sample(g, x, y, p);
    });
  }
  SampleSource validation_source() {
    uint64_t windows = val_->samples_per_epoch();
    return source([this, windows](uint64_t g, int32_t* x, int32_t* y, int32_t* p) {
      if (g < windows || !val_->masked()) return val_->sample(g % windows, x, y, p);
      // What is left of the last batch does not count.
      std::fill_n(x, val_->seq(), 0), std::fill_n(y, val_->seq(), -1);
      if (p) std::fill_n(p, val_->seq(), 0);
    });
  }
  void throw_read_error() {
    if (read_error_) std::rethrow_exception(read_error_);
  }

  void train_step() {
    double lr = learning_rate(schedule_, state_.step);
    StepResult r = engine_->step(state_.step, lr, state_.seed, training_source());
    throw_read_error();
    ++state_.step;
    record(r, lr);
    count_bad(r);
    if (!r.skipped) last_good_ = state_.step;
    if (saving_.valid() && saving_.wait_for(std::chrono::seconds(0)) == std::future_status::ready) finish_saving();
    if (last_good_ > saved_step_ && !saving_.valid()) prune();
  }

  // Saving removes nothing: older checkpoints go when finite gradients of the next step have proved the new weights.
  void prune() {
    if (!unproved_) return;
    unproved_ = false;
    start_saving([root = files_->checkpoints(), keep = o_.keep] {
      std::vector<std::string> warnings;
      try {
        keep_newest(root, keep);
      } catch (const Error& e) {
        warnings.push_back(fmt::format("old checkpoints could not be removed: {}", e.what()));
      }
      return warnings;
    });
  }

  // Steps that fit into max_seconds, from the median of the first ones; the schedule follows.
  void fit(double spent) {
    double step_seconds = report_.median_step_ms(2) / 1e3;
    double budget = std::max(0.0, o_.max_seconds - spent) * 0.93;  // the rest is validation, saving and the sample
    steps_ = state_.step + std::max<int64_t>(1, int64_t(budget / step_seconds));
    fitting_ = false, fitted_ = true;
    apply_steps();
    write_config();
    report_.message(fmt::format("steps    {} fit into {}", steps_, format_duration(o_.max_seconds)));
  }

  void record(const StepResult& r, double lr) {
    double tokens_per_second = double(recipe().tokens_per_step()) / r.seconds;
    StepRow row{state_.step,         r.loss, lr, r.grad_norm, r.seconds * 1e3, tokens_per_second, r.skipped,
                r.wait_seconds * 1e3};
    files_->add(row);
    if (o_.on_step) o_.on_step(row);
    record_.add(row);
    if (!r.skipped) last_loss_ = r.loss;
    report_.step(row, fitting_ ? -1 : steps_, *engine_);
  }

  // A skipped step above the smallest loss scale only searches for the scale; anything else is a sign of
  // trouble.
  void count_bad(const StepResult& r) {
    const CompiledSession& session = engine_->session();
    bool scaled = session.programs[size_t(session.find("update"))].program.properties.has("loss_scale");
    bool searching = scaled && r.loss_scale > 1;
    if (!searching) bad_steps_ = r.skipped ? bad_steps_ + 1 : 0;
    if (!r.skipped) return;
    Scalars s = engine_->rank(0).scalars();
    report_.warning(
        searching
            ? fmt::format("step {}: overflow at loss scale {:.4g}, update skipped ({} so far), scale now {:.4g}",
                          state_.step, r.loss_scale, s.skipped, s.loss_scale)
            : fmt::format("step {}: gradients are not finite, update skipped ({} so far)", state_.step, s.skipped));
    if (bad_steps_ >= most_bad_steps) stop_bad_run();
  }

  [[noreturn]] void stop_bad_run() {
    report_.end_steps();
    files_->flush();
    settle_saving();
    std::string kept = files_->on_disk() ? keep_good_checkpoints() : "nothing was to be saved";
    fail(fmt::format("{} steps in a row gave gradients that are not finite", bad_steps_),
         fmt::format("step {}", state_.step),
         fmt::format("Training stopped; {}. Lower --lr, raise --warmup, or use --precision fp32.", kept));
  }

  // Checkpoints since the last good step hold the weights that gave these gradients. Says what is left.
  std::string keep_good_checkpoints() {
    std::string root = files_->checkpoints();
    auto saved = list_checkpoints(root);
    if (!saved.empty() && saved.back().step < last_good_) reject_newer(root, last_good_ - 1);
    saved = list_checkpoints(root);
    if (saved.empty()) return "no checkpoint was saved before";
    return fmt::format("the last good checkpoint is {}/{} (crest train --resume {})", printable(root), saved[0].name,
                       printable(o_.out));
  }

  // A signal may have kept a continued run from it.
  bool validated() const { return !files_->validations().empty() && files_->validations().back().step == state_.step; }

  void validate_now() {
    if (!val_) return;
    int64_t per_batch = engine_->validation_batch() * engine_->ranks();
    int64_t rows = int64_t(val_->samples_per_epoch()) + (val_->masked() ? per_batch - 1 : 0);
    int64_t batches = std::clamp<int64_t>(rows / per_batch, 1, o_.val_batches);
    double loss = engine_->validate(batches, validation_source());
    throw_read_error();
    if (std::isnan(loss)) loss = NAN;  // without a sign in messages
    ValidationRow row{state_.step, loss};
    if (o_.on_validation) o_.on_validation(row);
    files_->add(row);
    record_.add(row);
    report_.message(fmt::format("step {}: validation loss {:.4f}", state_.step, loss));
  }

  void sample_now() {
    if (!dataset_.tokenizer() || StopSignal::requested()) return;
    std::string text = generate_text(engine_->rank(0), *dataset_.tokenizer(), "", o_.sample_tokens,
                                     state_.seed + uint64_t(state_.step));
    files_->add_sample(state_.step, text);
    report_.sample(state_.step, text);
  }

  void save_now() {
    if (!files_->on_disk() || state_.step == saved_step_) return;
    finish_saving();
    if (last_good_ > saved_step_) prune();
    state_.total_steps = fitting_ ? 0 : steps_;
    auto contents = contents_to_save(*engine_, state_, config_, dataset_.tokenizer().get(), in_background());
    start_saving([root = files_->checkpoints(), contents = std::move(contents)] {
      return save_checkpoint(contents, root, 0).warnings;
    });
    saved_step_ = state_.step;
    unproved_ = true;
  }

  bool in_background() {
    return o_.save_mode == SaveMode::background ||
           (o_.save_mode == SaveMode::automatic && !engine_->rank(0).runtime().host_memory());
  }

  // Saving and removing checkpoints, one after the other; work() gives warnings.
  template <class Work>
  void start_saving(Work work) {
    finish_saving();
    if (in_background()) {
      saving_ = std::async(std::launch::async, [work = std::move(work)] {
        // The cores are not all for hashing while a step is being launched.
        omp_set_num_threads(std::max(1, omp_get_max_threads() / 2));
        return work();
      });
    } else {
      saving_ = std::async(std::launch::deferred, std::move(work));
      finish_saving();
    }
  }

  // Waits for what is under way; throws what went wrong with it.
  void finish_saving() {
    if (!saving_.valid()) return;
    for (auto& w : saving_.get()) report_.warning(w);
  }
  // For a run that ends with another error.
  void settle_saving() {
    try {
      finish_saving();
    } catch (const std::exception& e) {
      report_.warning(fmt::format("the last checkpoint was not saved: {}", e.what()));
    }
  }

  TrainOutcome finish() {
    report_.end_steps();
    files_->flush();
    RunReport::Summary end{};
    end.step = state_.step, end.interrupted = interrupted_;
    end.loss = last_loss_, end.val_loss = files_->validations().empty() ? NAN : files_->validations().back().val_loss;
    end.seconds = seconds_, end.saving_seconds = saving_seconds_;
    end.curve = files_->draw_loss(std::min(terminal_width(2), 100));
    record_.finish(interrupted_ ? "interrupted" : "done", report_.result(end));
    report_.finish(end);
    TrainOutcome outcome{interrupted_};
    for (int r = 0; r < engine_->ranks(); ++r) outcome.held_bytes += engine_->rank(r).held_bytes();
    outcome.device_bytes = outcome.held_bytes + engine_->rank(0).runtime().other_bytes();
    return outcome;
  }

  const TrainOptions& o_;
  Dataset dataset_;
  RunReport report_;
  TrainingRecord record_;
  std::optional<Loader> train_, val_;
  std::optional<ReadAheadSource> read_ahead_;
  std::optional<Engine> engine_;
  std::optional<RunFiles> files_;
  Schedule schedule_;
  RunState state_;
  int64_t steps_ = 0, val_every_ = 0, save_every_ = 0, start_step_ = 0, saved_step_ = -1, bad_steps_ = 0,
          last_good_ = 0;
  bool fitting_ = false, fitted_ = false, interrupted_ = false;
  bool unproved_ = false;  // old checkpoints have not been pruned since the last save
  double last_loss_ = NAN, seconds_ = 0, saving_seconds_ = 0;
  std::string config_;
  std::future<std::vector<std::string>> saving_;  // valid from the start of work until its end is noticed
  std::exception_ptr read_error_;
  std::mutex read_error_mutex_;
};

}  // namespace

TrainOutcome run_training(const TrainOptions& options) { return Training(options).run(); }

}  // namespace crest
