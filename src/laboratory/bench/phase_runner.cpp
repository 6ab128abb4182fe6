#include "bench/phase_runner.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <numeric>

#include "bench/ranks_profile.h"
#include "comm/rank_group.h"
#include "core/error.h"
#include "core/random.h"
#include "core/text.h"
#include "model/parameters.h"
#include "plan/step_flops.h"
#include "profile/profile_rows.h"
#include "program/op.h"
#include "train/same_program.h"

namespace crest {

namespace {

constexpr int most_timed_runs = 10;

bool has_stages(const Recipe& r) { return r.layout().size(Axis::pipeline) > 1; }

constexpr double bench_lr = 1e-4;                    // any rate takes the same time; this one keeps weights finite
constexpr int64_t weight_period = int64_t(1) << 22;  // number of distinct random weights

// Tokens [0 .. seq] are uniform over the vocabulary; the targets are the next tokens. A row is one
// document.
SampleSource random_tokens(uint64_t seed, int64_t seq, int64_t vocab) {
  return [=](uint64_t sample, int32_t* tokens, int32_t* targets, int32_t* positions) {
    if (positions) std::iota(positions, positions + seq, 0);
    auto token = [&](int64_t i) {
      return int32_t(uint64_t(random_bits(seed, mix(sample), uint64_t(i))) * uint64_t(vocab) >> 32);
    };
    int32_t next = token(0);
    for (int64_t i = 0; i < seq; ++i) {
      tokens[i] = next;
      targets[i] = next = token(i + 1);
    }
  };
}

}  // namespace

const char* name(BenchPhase phase) {
  static constexpr const char* names[] = {"forward", "forward-saved", "backward", "step", "decode"};
  return names[size_t(phase)];
}

const std::vector<BenchPhase>& bench_phases() {
  static const std::vector<BenchPhase> phases = {BenchPhase::forward, BenchPhase::forward_saved, BenchPhase::backward,
                                                 BenchPhase::step, BenchPhase::decode};
  return phases;
}

BenchPhase parse_phase(const std::string& text, const std::vector<std::string>& others) {
  std::vector<std::string> values;
  for (BenchPhase phase : bench_phases()) {
    if (text == name(phase)) return phase;
    values.emplace_back(name(phase));
  }
  values.insert(values.end(), others.begin(), others.end());
  fail_usage(fmt::format("'{}' is not a value of --phase", printable(text)), "--phase",
             fmt::format("{} Values: {}.", did_you_mean(text, values), join(values, ", ")));
}

bool is_forward(BenchPhase phase) {
  return phase == BenchPhase::forward || phase == BenchPhase::forward_saved || phase == BenchPhase::decode;
}

Recipe phase_recipe(Recipe r, BenchPhase phase, const RecipeOptions& given) {
  if (phase != BenchPhase::decode) return r;
  if (r.all_ranks() > 1) fail_usage("one rank decodes", "--ranks, --data-parallel", "Omit them.");
  if (given.has("batch") && r.batch != 1)
    fail_usage("decode takes a single sequence", fmt::format("--batch {}", r.batch), "Omit it.");
  r.batch = r.grad_accumulation = 1;
  return r;
}

SessionUse phase_use(BenchPhase phase) {
  SessionUse use;
  use.validation = phase == BenchPhase::forward;
  use.forward_saved = phase == BenchPhase::forward_saved;
  use.train = !is_forward(phase);
  use.update = phase == BenchPhase::step;
  use.sampling = phase == BenchPhase::decode;
  return use;
}

CompiledSession compile_phase(const Recipe& recipe, const Device& device, BenchPhase phase,
                              const CompileOptions& options) {
  return compile(recipe, device, session_programs(recipe, phase_use(phase)), options);
}

int64_t phase_tokens(const Recipe& r, BenchPhase phase) {
  if (phase == BenchPhase::decode) return 1;
  return is_forward(phase) ? r.tokens_per_step() / r.grad_accumulation : r.tokens_per_step();
}

FlopsConvention parse_flops_convention(const std::string& text) {
  if (text == "palm") return FlopsConvention::palm;
  if (text == "executed") return FlopsConvention::executed;
  fail_usage(fmt::format("'{}' is not a value of --flops-convention", printable(text)), "--flops-convention",
             did_you_mean(text, {"palm", "executed"}) + " Values: palm, executed.");
}

std::string describe(FlopsConvention convention, const Recipe& recipe, BenchPhase phase) {
  if (convention == FlopsConvention::executed)
    return "executed: sum over the instructions, including padding and recompute";
  return palm_convention(recipe, is_forward(phase));
}

double palm_flops(const Recipe& r, BenchPhase phase) {
  const int64_t seq = r.seq_length();
  return (is_forward(phase) ? forward_flops_per_token(r.model, seq) : flops_per_token(r.model, seq)) *
         double(phase_tokens(r, phase));
}

std::vector<int> phase_calls(const CompiledSession& s, BenchPhase phase) {
  if (phase == BenchPhase::decode) return {s.find("decode")};
  std::vector<int> calls;
  for (auto& call : phase == BenchPhase::forward ? forward_calls(s, "validation") : training_step(s))
    calls.push_back(call.segment);
  return calls;
}

double phase_flops(const CompiledSession& s, BenchPhase phase, FlopsConvention convention) {
  if (convention == FlopsConvention::palm) return palm_flops(s.recipe, phase);
  double sum = 0;
  auto add = [&](const CompiledSession& of_rank) {
    for (int call : phase_calls(of_rank, phase)) {
      const Program& p = of_rank.programs[size_t(call)].program;
      for (auto& instr : p.code) sum += instr.op->cost(p, instr).flops;
    }
  };
  const int stages = s.recipe.layout().size(Axis::pipeline);
  for (int stage = 0; stage < stages; ++stage) stage == s.stage ? add(s) : add(for_stage(s, stage, {.verify = false}));
  return sum * double(s.recipe.all_ranks()) / stages;
}

void check_ranks(RankGroup& group, const CompiledSession& session, BenchPhase phase, uint64_t seed, bool flush) {
  std::vector<std::string> rows = {"Crest " CREST_VERSION,
                                   fmt::format("--phase {}, --seed {}, --flush-cache {}", name(phase), seed, flush)};
  const std::vector<std::string> more = recipe_rows(session.recipe, group.options());
  rows.insert(rows.end(), more.begin(), more.end());
  check_same_session(group.host(), rows, session);
}

PhaseRunner::PhaseRunner(CompiledSession session, BenchPhase phase, uint64_t seed, bool flush, RankGroup* group)
    : group_(group),
      engine_(std::move(session), {}, group ? &group->communicator() : nullptr, group ? &group->host() : nullptr),
      phase_(phase),
      seed_(seed) {
  const Recipe& r = engine_.session().recipe;
  source_ = random_tokens(seed, r.seq_length(), r.model.vocab);
  engine_.initialize_weights(seed, weight_period);
  if (flush) flush_.emplace(engine_.session().device, engine_.rank(0).runtime());
  if (phase == BenchPhase::decode) {
    int program = engine_.session().find("decode");
    token_ = engine_.rank(0).tensor(program, "tokens"), logits_ = engine_.rank(0).tensor(program, "logits");
  }
}

PhaseRunner::~PhaseRunner() {
  try {
    lead(Call::end);
  } catch (const std::exception&) {  // a lost rank: the measuring code already reported it
  }
}

// Tells the other ranks what to do. They all know before the timed run starts.
void PhaseRunner::lead(Call call) {
  if (group_ && group_->leads()) group_->from_first(double(call));
  begin(call);
}

// Untimed preparation of a run, on every rank.
void PhaseRunner::begin(Call call) {
  if (call == Call::run_recorded) engine_.rank(0).runtime().record_work(true);
  if (group_ && call >= Call::run) group_->host().barrier();
}

void PhaseRunner::follow() {
  for (;;) {
    auto call = Call(int(group_->from_first(0.0)));
    switch (call) {
      case Call::end: return;
      case Call::settle: settle(); break;
      case Call::run: run(); break;
      case Call::run_in_sequence: run_in_sequence(); break;
      case Call::run_timed:
      case Call::run_recorded: followed_.push_back(run_profiled(call == Call::run_recorded)); break;
      case Call::stage_times: measure_stages(0); break;
      case Call::rank_times: exchange_times(followed_, plain_, false); break;
    }
  }
}

// The token at position seq - 1, with a cache of zeros: its content does not affect the time.
// Returns the first logit of the next token, once all have arrived.
double PhaseRunner::decode(std::vector<StepTrace>* traces) {
  Executor& executor = engine_.rank(0);
  Scalars inputs = {};
  inputs.position = int32_t(session().recipe.seq_length() - 1), inputs.length = 1;
  const int32_t token = int32_t(random_bits(seed_, 0, uint64_t(steps_)) % uint64_t(session().recipe.model.vocab));
  token_.write(&token);
  executor.set_inputs(inputs);
  executor.run(session().find("decode"), traces ? &traces->emplace_back() : nullptr);
  double logit = logits_.floats(session().recipe.model.vocab)[0];
  if (traces) executor.runtime().synchronize();
  return logit;
}

double PhaseRunner::run(std::vector<StepTrace>* traces) {
  if (flush_) (*flush_)();
  double loss = 0;
  double seconds = time_once([&] {
    if (phase_ == BenchPhase::decode)
      loss = decode(traces);
    else if (phase_ == BenchPhase::forward)
      loss = engine_.validate(1, source_, traces);
    else
      loss = engine_.step(steps_, bench_lr, seed_, source_, traces).loss;
  });
  ++steps_;
  check_loss(loss);
  return seconds;
}

double PhaseRunner::run() {
  lead(Call::run);
  double seconds = run(nullptr);
  if (group_) plain_.push_back(seconds);
  return seconds;
}

ProfiledRun PhaseRunner::run_profiled(bool records) {
  lead(records ? Call::run_recorded : Call::run_timed);
  ProfiledRun result;
  result.seconds = run(&result.traces);
  if (records) engine_.rank(0).runtime().record_work(false);
  return result;
}

bool PhaseRunner::has_records() {
  Runtime& runtime = engine_.rank(0).runtime();
  bool found = runtime.record_work(true);
  runtime.record_work(false);
  return found;
}

std::vector<ProfileRank> PhaseRunner::rank_times(const std::vector<ProfiledRun>& runs, size_t plain, bool records) {
  if (!group_ || has_stages(session().recipe)) return {};  // stages have no collectives in common
  lead(Call::rank_times);
  return exchange_times(runs, {plain_.end() - std::ptrdiff_t(plain), plain_.end()}, records);
}

std::vector<ProfileRank> PhaseRunner::exchange_times(const std::vector<ProfiledRun>& runs, std::vector<double> plain,
                                                     bool records) {
  auto last = [&](auto& list) {  // rank 0 gives the number
    auto n = size_t(group_->from_first(double(list.size())));
    return std::decay_t<decltype(list)>(list.end() - std::ptrdiff_t(std::min(n, list.size())), list.end());
  };
  std::vector<ProfiledRun> counted = last(runs);
  plain = last(plain);
  records = group_->from_first(double(records)) != 0;
  Profile rows;
  describe_session(rows, session(), phase_calls(session(), phase_));
  return times_of_ranks(group_->host(), rows, counted, plain, records);
}

std::optional<PipelineTimes> PhaseRunner::stage_times(int runs) {
  if (!has_stages(session().recipe) || is_forward(phase_)) return {};
  lead(Call::stage_times);
  return measure_stages(std::min(runs, most_timed_runs));
}

// Every rank runs and gives its times.
PipelineTimes PhaseRunner::measure_stages(int runs) {
  if (group_) runs = int(group_->from_first(double(runs)));
  std::vector<double> seconds;
  std::vector<Engine::CallTimes> stamps;  // by run
  for (int i = 0; i < runs; ++i) {
    if (flush_) (*flush_)();
    if (group_) group_->host().barrier();
    double loss = 0;
    seconds.push_back(
        time_once([&] { loss = engine_.timed_step(steps_++, bench_lr, seed_, source_, stamps.emplace_back()).loss; }));
    check_loss(loss);
  }
  std::vector<std::vector<RankCalls>> own(stamps[0].size());  // by local rank
  for (size_t i = 0; i < seconds.size(); ++i)
    for (size_t r = 0; r < own.size(); ++r) own[r].push_back({seconds[i], stamps[i][r]});
  return measured_pipeline(engine_, own, group_);
}

double PhaseRunner::run_in_sequence() {
  if (flush_ || phase_ == BenchPhase::forward || phase_ == BenchPhase::decode) return run();
  lead(Call::run_in_sequence);
  while (engine_.queued_steps() <= engine_.steps_ahead()) engine_.queue_step(steps_++, bench_lr, seed_, source_);
  StepResult result = engine_.take_step();
  check_loss(result.loss);
  return result.seconds;
}

void PhaseRunner::settle() {
  if (engine_.queued_steps()) lead(Call::settle);
  while (engine_.queued_steps()) check_loss(engine_.take_step().loss);
}

void PhaseRunner::check_loss(double loss) const {
  if (!std::isfinite(loss))
    fail(fmt::format("the loss of run {} is not finite", steps_), fmt::format("phase {}", name(phase_)),
         "Such a time is meaningless; please report the recipe.");
}

// The driver counts all processes. If others gave memory back meanwhile, the rest is negative.
int64_t PhaseRunner::device_bytes() {
  return held_bytes() + std::max<int64_t>(0, engine_.rank(0).runtime().other_bytes());
}

}  // namespace crest
