#include "train/run.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <cstdlib>
#include <exception>
#include <optional>
#include <utility>

#include "checkpoint/checkpoint.h"
#include "comm/exchange.h"
#include "comm/rank_group.h"
#include "core/error.h"
#include "core/shell_word.h"
#include "core/text.h"
#include "core/timer.h"
#include "device/device_watch.h"
#include "device/libraries.h"
#include "host/environment.h"
#include "host/stop_signal.h"
#include "model/config_files.h"
#include "plan/recipe_settings.h"
#include "stats/samples.h"
#include "store/step_times.h"
#include "terminal/table.h"
#include "train/cut.h"
#include "train/engine.h"
#include "train/fp8_watch.h"
#include "train/run_data.h"
#include "train/run_files.h"
#include "train/run_record.h"
#include "train/run_report.h"
#include "train/run_samples.h"
#include "train/run_schedule.h"
#include "train/run_session.h"
#include "train/run_state.h"
#include "train/same_program.h"
#include "train/same_weights.h"
#include "train/saver.h"
#include "train/spikes.h"
#include "train/stage_watch.h"
#include "train/training_settings.h"
#include "train/validations.h"

namespace crest {

namespace {

constexpr int64_t most_bad_steps = 5;

// The training loop. Data, schedule, saving and reporting are separate classes (run_data,
// run_schedule, saver, run_report).
class Training {
 public:
  // engine: of the part before, if a spike ended it (o.rolled_back); else empty. It outlives this
  // part.
  Training(const TrainOptions& o, std::optional<Engine>& engine)
      : o_(o),
        group_(o.group),
        report_(o, leads()),
        data_(
            o, [this](auto& text) { report_.message(text); }, [this](auto& text) { report_.warning(text); }),
        record_(o, [this](auto& text) { report_.warning(text); }),
        engine_(engine) {}

  TrainOutcome run() {
    if (engine_) {
      data_.make_rows();
      load_run({});
    } else {
      CompiledSession session = run_session(o_, data_);
      check_ranks(session);
      if (o_.resume)
        load_run(std::move(session));
      else
        prepare_run(std::move(session));
    }
    set_schedule();
    engine_->read_whole_steps(data_.masked());
    // All checks have passed. Files are replaced only from here on.
    if (o_.resume)
      continue_run();
    else
      begin_run();
    report_.describe(*engine_, data_.description());
    describe_plan();
    record_.begin(*files_, stored_settings());
    // Catch SIGPIPE until the last line is printed: a closed pipe must not end the process earlier.
    // The caller may already have a guard.
    std::optional<StopSignal> signal;
    if (!StopSignal::guarded()) signal.emplace();
    try {
      loop();
      if (rollback_) return go_back();
      TrainOutcome outcome = finish();
      if (data_error_ && !leads()) throw_ended_by_first();
      if (data_error_) std::rethrow_exception(data_error_);
      return outcome;
    } catch (const std::exception& e) {
      if (auto* lost = dynamic_cast<const PeerLost*>(&e); lost && group_) group_->noticed(*lost);
      saver_->settle();
      try {
        files_->check_folder();  // the cause may be a removed folder
      } catch (const Error& gone) {
        record_.finish("failed", nullptr, gone.what());
        throw;
      }
      record_.finish("failed", nullptr, e.what());
      throw;
    }
  }

 private:
  // The first process writes files and records, and prints.
  bool leads() const { return !group_ || group_->leads(); }
  Communicator* communicator() const { return group_ ? &group_->communicator() : nullptr; }
  Communicator* host() const { return group_ ? &group_->host() : nullptr; }
  // Tells the other ranks. steady: `what` counts progress.
  void doing(const std::string& what, bool steady = false) {
    if (group_) group_->doing(what, steady);
  }
  // Rank 0's value.
  double of_first(double own) const { return group_ ? group_->from_first(own) : own; }
  const Recipe& recipe() const { return engine_ ? engine_->session().recipe : o_.recipe; }
  // For each rank.
  int threads() const { return engine_->session().device.threads; }

  // Before the first collective between devices, and before files are replaced.
  void check_ranks(const CompiledSession& session) {
    if (group_) check_same_session(*host(), run_rows(o_, session.recipe, group_->options(), data_.data()), session);
  }

  void prepare_run(CompiledSession session) {
    start_engine(std::move(session));
    const bool adapters = recipe().model.lora.rank > 0;
    if (o_.init.empty() || adapters) engine_->initialize_weights(o_.seed, 0, adapters);
    if (!o_.init.empty() && leads())
      start_from(open_model(
          o_.init, [&](const std::string& m) { report_.warning(m); }, o_.base));
    if (!o_.init.empty() && !leads()) engine_->load();
    state_.seed = o_.seed;
    state_.threads = threads();
    state_.train_tokens = data_.data().train_tokens();
    state_.data_hash = data_.data().content_hash(), state_.data_weights = data_.data().weights();
    if (!o_.overwrite || !leads()) return;
    std::vector<InputPath> inputs = {{"--init", o_.init}};
    for (auto& source : data_.data().sources) inputs.push_back({"--data", source.info().folder});
    check_inputs_stay(o_.out, inputs);
  }

  void begin_run() {
    files_.emplace(o_.out.empty() || !leads() ? RunFiles::none()
                                              : RunFiles::create(o_.out, o_.overwrite, o_.fresh || o_.restarted));
    tell_launcher_folder();
    make_saver();
    write_config();
    files_->write("model.toml", to_toml(recipe().model));
    files_->write("environment.json", to_json(read_environment(library_versions(o_.device))) + "\n");
    files_->continue_at(0);
  }

  // Rank 0 chooses kernels for all. An update with matrix products must be bitwise identical on
  // every rank.
  void start_engine(CompiledSession session) {
    auto of_first = [&] {
      return leads() ? Choices() : Choices(parse_choices(group_->from_first(std::string()), "rank 0"));
    };
    engine_.emplace(std::move(session), Choices(), communicator(), host(), of_first);
    if (group_ && leads()) group_->from_first(to_json(engine_->choices().used()));
  }

  void tell_launcher_folder() const {
    if (files_->on_disk()) tell_run_folder(files_->folder(), start_step_);
  }

  void start_from(const LoadedModel& model) {
    data_.take_text(model);
    load_initial_weights(*engine_, model, state_);
  }

  // The engine chooses kernels when it is created, so it needs the run's earlier choices first.
  // Rank 0 reads the checkpoint and sends it to the others. session: for a new engine.
  void load_run(CompiledSession session) {
    auto warn = [&](const std::string& m) { report_.warning(m); };
    const bool new_engine = !engine_;
    if (leads()) {
      files_.emplace(RunFiles::open(o_.out));
      Checkpoint checkpoint = newest_checkpoint(files_->checkpoints(), warn);
      if (new_engine) {
        Choices::Table choices = kernel_choices(checkpoint, warn);
        if (group_) group_->from_first(to_json(choices));
        engine_.emplace(std::move(session), Choices(choices), communicator(), host());
      }
      state_ = restore(*engine_, checkpoint, o_.out, o_.base);
      if (o_.rolled_back) state_.skipped_samples = o_.rolled_back->skipped_samples;
      data_.take_text(open_model(std::move(checkpoint)));
      if (group_) group_->from_first(to_text(state_));
    } else {
      files_.emplace(RunFiles::none());
      if (new_engine) {
        Choices choices(parse_choices(group_->from_first(std::string()), "rank 0"));
        engine_.emplace(std::move(session), std::move(choices), communicator(), host());
      }
      engine_->load();
      state_ = parse_run_state(group_->from_first(std::string()), "rank 0");
    }
    if (state_.seed != o_.seed)  // a change was rejected before
      fail_usage(fmt::format("the run was trained with seed {}, not {}", state_.seed, o_.seed),
                 printable(o_.out + "/config.toml"), fmt::format("Set seed = {} there.", state_.seed));
    if (std::string other = engine_->choices().difference(); new_engine && !other.empty())
      warn(fmt::format("{}: the run continues, but not bit for bit", other));
    data_.continue_from(state_, threads());
    start_step_ = state_.step;
  }

  void continue_run() {
    if (int n = leads() ? reject_newer(files_->checkpoints(), state_.step) : 0)
      report_.warning(format_number_of(n, "damaged checkpoint") + " of later steps set aside as .rejected-*");
    make_saver();
    if (int64_t lines = files_->continue_at(state_.step))  // before write_config: throws if rows are unreadable
      report_.warning(format_number_of(lines, "line") + " of log.jsonl cannot be read: log.jsonl.damaged has the file");
    validations_.continue_from(*files_);
    write_config();
    tell_launcher_folder();
    if (files_->steps().empty()) return;
    spikes_.continue_from(*files_);
    const StepRow& last = files_->steps().back();
    last_loss_ = last.loss, last_loss_step_ = last.step;
    if (auto jump = schedule_->jump(last, state_.step)) report_.message(*jump);
  }

  void describe_plan() {
    const Validations::Size val = data_.validates() ? validations_.size(*engine_) : Validations::Size();
    report_.describe(state_,
                     {schedule_->schedule(), schedule_->fitting(), val.rows ? schedule_->val_every() : 0,
                      schedule_->save_every(), val.batches, val.rows, data_.epoch(recipe()), data_.passes(recipe())});
  }

  void set_schedule() {
    schedule_.emplace(o_, recipe(), state_.total_steps, data_.epoch(recipe()));
    validations_.check_settings(*schedule_);
    spikes_.check_settings();
  }

  void make_saver() {
    if (o_.keep > 0 && files_->linked())
      report_.warning("checkpoints are behind a symbolic link: old ones are not removed (--keep)");
    bool background = o_.save_mode == SaveMode::background ||
                      (o_.save_mode == SaveMode::automatic && !engine_->rank(0).runtime().host_memory());
    saver_.emplace(files_->on_disk() ? files_->checkpoints() : "", files_->linked() ? 0 : o_.keep, background,
                   [this](const std::string& text) { report_.warning(text); });
    if (!files_->on_disk()) return;
    const int64_t every = schedule_->save_every(), steps = schedule_->steps() - state_.step;
    const int64_t saves = schedule_->fitting() ? 0 : every > 0 ? (steps + every - 1) / every : 1;
    const std::string warning = saver_->check_space(checkpoint_bytes(engine_->rank(0)), saves);
    if (!warning.empty()) report_.warning(warning);
  }

  // Possible differences between runs besides their recipes, recorded for comparisons.
  Json stored_settings() const {
    TrainOptions options = schedule_->used(recipe());
    Json json = settings_of(options).json([](const Setting& s) { return s.stored; });
    json["data_hash"] = data_.data().content_hash();
    return json;
  }
  void write_config() {
    config_ = o_.config_toml ? o_.config_toml(schedule_->used(recipe())) : "";
    files_->write("config.toml", config_);
  }

  void loop() {
    data_.start(recipe(), state_.step, engine_->first_rank(), state_.skipped_samples);
    if (leads()) device_watch_.emplace(o_.device);
    Cut cut;
    Timer loop;
    try {
      validate_first();
      std::optional<RunEnd> early = validations_.end();
      while (state_.step < schedule_->steps() && !early) {
        train_step();
        if (schedule_->fitting() && state_.step - start_step_ == RunSchedule::fit_after) fit(spent(loop));
        bool end = state_.step >= schedule_->steps();
        if (schedule_->validates_at(state_.step) || (schedule_->val_every() && end)) validate_now();
        if (o_.sample_every && state_.step % o_.sample_every == 0) sample_now();
        early = validations_.end();
        if (end || early) break;
        if (o_.stop_after && steps_of_command(state_.step) >= o_.stop_after) {
          end_ = RunEnd::stop_after;
          break;
        }
        if (ends_early(spent(loop)) || rolls_back(spent(loop))) break;
        if (compares_at(state_.step)) check_weights();
        if (schedule_->saves_at(state_.step) || validations_.is_best()) save_timed();
      }
      if (early && (early == RunEnd::loss || state_.step < schedule_->steps())) end_ = *early;
    } catch (const RunData::Stopped&) {
      cut.kind = Cut::stopped;
    } catch (const RunData::Failed& failed) {
      cut.kind = Cut::failed, cut.error = failed.error;
    } catch (const RunData::Ended& end) {
      end_ = RunEnd::stream, stream_rows_ = int64_t(end.rows);
    } catch (const Engine::PeerDidNotRead&) {
    } catch (const WeightsDiffer&) {
      throw;
    } catch (const PeerLost& e) {
      if (!group_) throw;
      PeerLost lost = group_->noticed(e);
      throw PeerLost(lost.rank(), lost.problem(), fmt::format("step {}, {}", state_.step + 1, lost.where()),
                     lost.advice());
    }
    agree_on(cut);
    while (engine_->queued_steps()) rollback_ ? void(engine_->take_step()) : take_step();
    if (rollback_) return saver_->finish();
    if (signal_number_ && state_.step < schedule_->steps() && end_ == RunEnd::steps) {
      end_ = RunEnd::signal;
      signal_ = StopSignal::signal_name(signal_number_);
    }
    Timer saving;
    try {
      save_at_end();
    } catch (const std::exception& e) {
      if (!data_error_) throw;
      report_.warning(fmt::format("the run was not saved at its last step: {}", e.what()));
    }
    if (data_error_) wait_for_first();
    last_save_seconds_ = saving.seconds();
    seconds_ = loop.seconds();
    if (!data_error_) pipeline_ = stages().measure(*engine_, state_.step, group_);
  }

  // A command's limits apply to all its restarts together.
  double spent(const Timer& loop) const { return loop.seconds() + (o_.restarted ? o_.restarted->seconds : 0); }
  int64_t steps_of_command(int64_t step) const {
    return step - (o_.restarted ? o_.restarted->first_step : start_step_);
  }

  // Until rank 0 has saved, an end would end the others. One may be gone before another has passed.
  void wait_for_first() const try {
    if (group_) group_->host().barrier();
  } catch (const PeerLost& lost) {
    group_->noticed(lost);
  }

  // Whether the time is over (by rank 0's clock) or a rank received a signal. Rank 0 tells the
  // others whether it saw a spike.
  bool ends_early(double seconds) {
    bool over = schedule_->over(seconds);
    int signal = StopSignal::signal_number();
    if (group_) {
      auto all = gather(group_->host(), {double(over), double(signal), double(spikes_.calm_step())});
      over = all[0][0] != 0, spikes_.set_calm_step(int64_t(all[0][2]));
      for (auto& rank : all) signal = signal ? signal : int(rank[1]);
    }
    if (over) end_ = RunEnd::time;
    signal_number_ = signal;
    return over || signal;
  }

  // After a spike: whether the run goes back to a checkpoint from before it.
  bool rolls_back(double seconds) {
    if (spikes_.calm_step() < 0) return false;
    saver_->finish();
    rollback_ = spikes_.rollback(state_, *files_, recipe().tokens_per_step() / recipe().seq_length());
    if (rollback_) rollback_->command = {state_.step - steps_of_command(state_.step), seconds};
    return rollback_.has_value();
  }

  void agree_on(const Cut& own) {
    Cut::Agreed all = agree(host(), own, std::max(signal_number_, StopSignal::signal_number()));
    signal_number_ = all.signal;
    if (all.error) end_ = RunEnd::data, data_error_ = all.error;
  }

  void save_at_end() {
    save_now();
    if (state_.last_good == state_.step) saver_->prune();
    saver_->finish();
    if (data_error_ && files_->on_disk()) data_error_ = report_.unreadable(data_error_, state_.step);
  }

  // Queues the next step before taking the current results, if the device is asynchronous and
  // nothing comes between the two.
  void train_step() {
    if (engine_->queued_steps() == 0) queue_step();
    if (engine_->queued_steps() <= engine_->steps_ahead() && !stops_after(queued_until())) queue_step();
    take_step();
  }
  int64_t queued_until() const { return state_.step + engine_->queued_steps(); }
  void queue_step() {
    int64_t step = queued_until();
    doing(fmt::format("step {}", step + 1), true);
    engine_->queue_step(step, schedule_->rate(step), state_.seed, data_.training(), stages().times(step));
  }
  StageWatch stages() const { return {recipe(), start_step_}; }
  // Whether something needs the state after `steps` steps, or the run ends there.
  bool stops_after(int64_t steps) const {
    return steps >= schedule_->steps() || schedule_->validates_at(steps) || schedule_->saves_at(steps) ||
           (o_.sample_every && steps % o_.sample_every == 0) ||
           (o_.stop_after && steps_of_command(steps) >= o_.stop_after) || compares_at(steps) ||
           (schedule_->fitting() && steps - start_step_ == RunSchedule::fit_after);
  }
  void take_step() {
    double lr = schedule_->rate(state_.step);
    StepResult r = engine_->take_step();
    ++state_.step;
    record(r, lr);
    count_bad(r);
    if (!r.skipped) state_.last_good = state_.step;
    saver_->poll();
    if (state_.last_good > saver_->saved_step() && !saver_->busy()) saver_->prune();
  }

  // The number of steps in --max-seconds, from the median of the first ones.
  void fit(double spent) {
    double median = of_first(report_.median_step_ms() / 1e3);  // before the next step, on all ranks
    double begun = of_first(spent);
    schedule_->fit(state_.step, median, begun);
    write_config();
    report_.message(fmt::format("steps    {} fit into {}", schedule_->steps(), format_duration(o_.max_seconds)));
    describe_plan();
  }

  void record(const StepResult& r, double lr) {
    StepRow row = step_row(r, state_.step, lr, recipe().tokens_per_step());
    if (device_watch_) {
      const DeviceState device = device_watch_->now();
      row.watts = device.watts, row.clock_mhz = device.clock_mhz, row.memory_bytes = device.memory_bytes;
    }
    files_->add(row);
    if (o_.on_step) o_.on_step(row);
    record_.add(row);
    if (auto grown = fp8_.add(row)) report_.warning(*grown);
    spikes_.add(state_.step, r.loss);
    if (!r.skipped) last_loss_ = r.loss, last_loss_step_ = state_.step;
    report_.step(row, schedule_->fitting() ? -1 : schedule_->steps(), *engine_);
  }

  // Steps skipped above the smallest loss scale are part of the search for a scale. Any other
  // skipped step is a bad sign.
  void count_bad(const StepResult& r) {
    const CompiledSession& session = engine_->session();
    bool scaled = session.programs[size_t(session.find("update"))].program.properties.has("loss_scale");
    bool searching = scaled && r.loss_scale > 1;
    if (!searching) state_.bad_steps = r.skipped ? state_.bad_steps + 1 : 0;
    if (!r.skipped) return;
    report_.skipped(state_.step, r, searching);
    if (state_.bad_steps >= most_bad_steps) stop_bad_run();
  }

  // Rank 0 reports the underlying error.
  [[noreturn]] void throw_ended_by_first() const {
    throw PeerLost(0, "rank 0 ended the run", fmt::format("step {}", state_.step));
  }

  [[noreturn]] void stop_bad_run() {
    report_.end_steps();
    files_->flush();
    saver_->settle();
    const std::string kept = files_->on_disk() ? keep_good_checkpoints(files_->checkpoints(), state_.last_good, o_.out)
                                               : "the run saves no files";
    wait_for_first();
    if (!leads()) throw_ended_by_first();
    fail(fmt::format("{} steps in a row had gradients that are not finite", state_.bad_steps),
         fmt::format("step {}", state_.step),
         fmt::format("Training stopped; {}. Lower --lr or raise --warmup{}.", kept,
                     recipe().precision == "fp32" ? "" : ", or use --precision fp32"));
  }

  void validate_first() {
    if (!schedule_->validates_at(state_.step) || of_first(validated()) != 0) return;
    validate_now();
    if (validations_.is_best()) save_timed();
  }

  // In a continued run, a signal may have prevented the validation.
  bool validated() const { return !files_->validations().empty() && files_->validations().back().step == state_.step; }

  void validate_now() {
    if (!data_.validates()) return;
    const ValidationRow row = validations_.measure(*engine_);
    if (o_.on_validation) o_.on_validation(row);
    files_->add(row);
    record_.add(row);
    report_.validation(row, validations_.size(*engine_).batches);
  }

  void sample_now() {
    Timer timer;
    const std::optional<std::string> text = sample_of_run(*engine_, data_, o_, state_.step, state_.seed);
    sampling_seconds_ += timer.seconds();
    if (!text) return;
    files_->add_sample(state_.step, *text);
    report_.sample(state_.step, *text);
  }

  bool compares_ranks() const { return engine_->ranks() > 1 && o_.check_ranks > 0; }
  bool compares_at(int64_t step) const { return compares_ranks() && step % o_.check_ranks == 0; }
  void check_weights() {
    if (!compares_ranks() || checked_step_ == state_.step) return;
    checked_step_ = state_.step;
    check_same_weights(*engine_, fmt::format("step {}", state_.step));
  }

  void save_timed() {
    Timer saving;
    save_now();
    saving_seconds_ += saving.seconds();
  }
  void save_now() {
    doing(fmt::format("saving after step {}", state_.step));
    check_weights();
    if (o_.out.empty()) return;
    engine_->with_states([&] {
      if (!files_->on_disk()) return;
      files_->check_folder();
      files_->flush();  // the logs include every step of a checkpoint
      state_.total_steps = schedule_->fitting() ? 0 : schedule_->steps();
      saver_->save(*engine_, state_, config_, data_.model_text(), state_.last_good, validations_.is_best());
    });
  }

  // Ends this part of the run. The next part opens the folder again, as a resumed run does.
  TrainOutcome go_back() {
    files_->flush();
    if (leads()) reject_newer(files_->checkpoints(), rollback_->to_step);
    record_.finish("interrupted", nullptr);
    wait_for_first();
    TrainOutcome outcome;
    outcome.rollback = rollback_;
    return outcome;
  }

  TrainOutcome finish() {
    report_.end_steps();
    files_->flush();
    RunReport::Summary end{};
    end.step = state_.step, end.total_steps = schedule_->fitting() ? 0 : schedule_->steps();
    end.end = end_, end.signal = signal_, end.saved = files_->on_disk();
    end.loss = last_loss_, end.loss_step = last_loss_step_;
    end.rows_left =
        end_ == RunEnd::stream ? stream_rows_ - state_.step * recipe().batch * recipe().grad_accumulation : 0;
    if (Samples ms(times_of_rows(after_warmup(files_->steps()))); !ms.empty()) end.step_ms_median = ms.median();
    const double epoch = data_.epoch(recipe());
    end.passes = data_.passes(recipe()), end.skipped_samples = state_.skipped_samples;
    validations_.add_to(end, *files_, recipe().tokens_per_step());
    end.epochs = epoch > 0 ? double(state_.step) / epoch : NAN;
    end.seconds = seconds_, end.saving_seconds = saving_seconds_;
    end.sampling_seconds = sampling_seconds_, end.last_save_seconds = last_save_seconds_;
    if (files_->on_disk() && state_.step > 0 && !data_error_) report_.not_finite(files_->checkpoints(), state_.step);
    end.pipeline = pipeline_, end.curve = files_->draw_loss(std::min(terminal_width(2), 100));
    TrainOutcome outcome;
    outcome.interrupted = end_ == RunEnd::signal;
    if (!data_error_) record_.finish(outcome.interrupted ? "interrupted" : "done", report_.result(end));
    report_.finish(end);
    outcome.held_bytes = engine_->rank(0).held_bytes();
    outcome.device_bytes = outcome.held_bytes + engine_->rank(0).runtime().other_bytes();
    return outcome;
  }

  const TrainOptions& o_;
  RankGroup* group_;
  RunReport report_;
  RunData data_;
  TrainingRecord record_;
  Fp8Watch fp8_;
  Spikes spikes_{o_, report_};
  std::optional<Rollback> rollback_;
  std::optional<Engine>& engine_;
  std::optional<RunFiles> files_;
  std::optional<DeviceWatch> device_watch_;  // of rank 0
  std::optional<RunSchedule> schedule_;
  std::optional<Saver> saver_;
  RunState state_;
  Validations validations_{o_, data_, state_};
  int64_t start_step_ = 0, checked_step_ = -1, last_loss_step_ = 0, stream_rows_ = 0;
  RunEnd end_ = RunEnd::steps;
  int signal_number_ = 0;
  std::exception_ptr data_error_;
  double last_loss_ = NAN, seconds_ = 0, saving_seconds_ = 0, last_save_seconds_ = 0, sampling_seconds_ = 0;
  std::string config_, signal_;
  std::optional<PipelineTimes> pipeline_;
};

}  // namespace

TrainOutcome run_training(const TrainOptions& options) {
  TrainOptions o = options;
  o.recipe.lr = options.lr;
  std::optional<Engine> engine;
  for (;;) {
    TrainOutcome outcome = Training(o, engine).run();
    if (!outcome.rollback) return outcome;
    o.rolled_back = outcome.rollback, o.restarted = outcome.rollback->command;
    o.resume = true;
  }
}

}  // namespace crest
