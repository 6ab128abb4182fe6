// What crest bench and crest profile measure: a phase of a training step on random tokens, run
// repeatedly.
#pragma once
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "measure/cache_flush.h"
#include "plan/recipe_settings.h"
#include "profile/profile.h"
#include "stats/samples.h"
#include "train/engine.h"

namespace crest {

class RankGroup;

// forward: inference, nothing saved; forward_saved: the forward half of a micro step, which keeps
// what a backward pass needs; backward: forward and backward of all micro steps; step: the whole
// step; decode: a token after others, as crest sample computes it.
enum class BenchPhase : uint8_t { forward, forward_saved, backward, step, decode };
const char* name(BenchPhase);
const std::vector<BenchPhase>& bench_phases();
// Usage error for an unknown name; others: what the option takes besides.
BenchPhase parse_phase(const std::string& text, const std::vector<std::string>& others = {});
// Whether a phase is one forward pass.
bool is_forward(BenchPhase phase);
// A recipe as a phase uses it: a token is decoded for one sequence. Usage error if `given` asks for
// what the phase does not have.
Recipe phase_recipe(Recipe resolved, BenchPhase phase, const RecipeOptions& given);
// The Programs of a phase.
SessionUse phase_use(BenchPhase phase);

// Compiles only the Programs that a phase needs.
CompiledSession compile_phase(const Recipe& recipe, const Device& device, BenchPhase phase,
                              const CompileOptions& options = {});

// Tokens per run of the phase, on all ranks.
int64_t phase_tokens(const Recipe& recipe, BenchPhase phase);

enum class FlopsConvention : uint8_t { palm, executed };
// Usage error for an unknown name.
FlopsConvention parse_flops_convention(const std::string& text);
// What the FLOP figure counts; printed with it.
std::string describe(FlopsConvention convention, const Recipe& recipe, BenchPhase phase);
// FLOPs per run. palm: flops_per_token, a third of it for a forward pass (it has a
// third of the matmul FLOPs of forward and backward); executed: sum of the costs of the
// instructions.
double phase_flops(const CompiledSession& session, BenchPhase phase, FlopsConvention convention);
// palm, from the recipe.
double palm_flops(const Recipe& recipe, BenchPhase phase);
// Index of the Program of each call of the phase, in order.
std::vector<int> phase_calls(const CompiledSession& session, BenchPhase phase);

// One profiled run: wall time and a trace for each call.
struct ProfiledRun {
  double seconds = 0;
  std::vector<StepTrace> traces;
};

// All ranks call it before they make a PhaseRunner; throws as check_same_rows().
void check_ranks(RankGroup& group, const CompiledSession& session, BenchPhase phase, uint64_t seed, bool flush);

class PhaseRunner {
 public:
  // Allocates memory and fills the weights from `seed`; runs nothing yet. Inputs are tokens uniform
  // over the vocabulary, a pure function of (seed, sample, position). flush: empties the caches
  // before every run, outside its time.
  // group: the processes of recipe.ranks > 1. Every run of rank 0's runner is a run of the others'
  // runners (follow).
  PhaseRunner(CompiledSession session, BenchPhase phase, uint64_t seed, bool flush = false, RankGroup* group = nullptr);
  ~PhaseRunner();
  // On the other ranks: runs whenever rank 0's runner does, until that one goes away.
  void follow();

  const CompiledSession& session() const { return engine_.session(); }
  BenchPhase phase() const { return phase_; }
  // Runs the phase once and returns the seconds. Fails when the loss is not finite.
  double run();
  // The same with a trace of rank 0 of this process for each of phase_calls. records: from the
  // device's own records, if it has them.
  ProfiledRun run_profiled(bool records);
  // What the processes did in `runs`, the last profiled ones, and in the last `plain` others.
  // Rank 0 calls it. Empty: there is one process.
  std::vector<ProfileRank> rank_times(const std::vector<ProfiledRun>& runs, size_t plain, bool records);
  // Runs the phase as training does: on a device that works by itself the next step is queued
  // before this one ends. Seconds since the step before ended. settle() ends what is queued; other
  // calls come after it.
  double run_in_sequence();
  void settle();
  // Executor::launch_seconds of rank 0, over all runs.
  double launch_seconds() { return engine_.rank(0).launch_seconds(); }
  // Whether the device records its work by itself (Runtime::record_work). Throws why it cannot.
  bool has_records();
  // Bytes of the arenas of one rank.
  int64_t held_bytes() { return engine_.rank(0).held_bytes(); }
  // On a GPU: device memory in use by arenas, code, library handles and graphs, without the CUDA
  // context itself.
  int64_t device_bytes();

 private:
  void check_loss(double loss) const;
  double run(std::vector<StepTrace>* traces);
  double decode(std::vector<StepTrace>* traces);
  // Of rank 0, for the others; from `run` on, runs.
  enum class Call { end, settle, rank_times, run, run_in_sequence, run_timed, run_recorded };
  void lead(Call call);
  void begin(Call call);
  std::vector<ProfileRank> exchange_times(const std::vector<ProfiledRun>& runs, std::vector<double> plain,
                                          bool records);

  RankGroup* group_;
  std::vector<double> plain_;          // seconds of all runs without a trace, of a process of several
  std::vector<ProfiledRun> followed_;  // on ranks that follow
  Engine engine_;
  BenchPhase phase_;
  uint64_t seed_;
  int64_t steps_ = 0;
  SampleSource source_;
  std::optional<CacheFlush> flush_;
  TensorRef token_, logits_;  // of phase decode
};

}  // namespace crest
