// Runs a phase of a training step on random tokens, again and again, for crest bench and crest
// profile.
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
#include "train/pipeline_times.h"

namespace crest {

class RankGroup;

// forward: inference, nothing saved; forward_saved: the forward half of a micro step, with
// activations saved for a backward pass; backward: forward and backward of all micro steps; step:
// the whole step; decode: one more token of a sequence, as in crest sample.
enum class BenchPhase : uint8_t { forward, forward_saved, backward, step, decode };
const char* name(BenchPhase);
const std::vector<BenchPhase>& bench_phases();
// Usage error for an unknown name. others: further names that the option accepts.
BenchPhase parse_phase(const std::string& text, const std::vector<std::string>& others = {});
// Whether a phase is one forward pass.
bool is_forward(BenchPhase phase);
// The recipe of a phase: decode takes a single sequence. Usage error if `given` has a setting
// without a meaning in the phase.
Recipe phase_recipe(Recipe resolved, BenchPhase phase, const RecipeOptions& given);
// The Programs of a phase.
SessionUse phase_use(BenchPhase phase);

// Compiles only the Programs of the phase.
CompiledSession compile_phase(const Recipe& recipe, const Device& device, BenchPhase phase,
                              const CompileOptions& options = {});

// Tokens per run of the phase, on all ranks.
int64_t phase_tokens(const Recipe& recipe, BenchPhase phase);

enum class FlopsConvention : uint8_t { palm, executed };
// Usage error for an unknown name.
FlopsConvention parse_flops_convention(const std::string& text);
// The convention of the FLOPs, for printing.
std::string describe(FlopsConvention convention, const Recipe& recipe, BenchPhase phase);
// FLOPs per run. palm: flops_per_token, or a third of it for a forward pass with its third of the
// matmul FLOPs. executed: the sum over all instructions.
double phase_flops(const CompiledSession& session, BenchPhase phase, FlopsConvention convention);
// palm, from the recipe alone.
double palm_flops(const Recipe& recipe, BenchPhase phase);
// For each call of the phase in order, the index of its Program.
std::vector<int> phase_calls(const CompiledSession& session, BenchPhase phase);

// One profiled run: wall time and a trace for each call.
struct ProfiledRun {
  double seconds = 0;
  std::vector<StepTrace> traces;
};

// All ranks call it before they make a PhaseRunner. Throws as check_same_rows() does.
void check_ranks(RankGroup& group, const CompiledSession& session, BenchPhase phase, uint64_t seed, bool flush);

class PhaseRunner {
 public:
  // Allocates memory and fills the weights from `seed`; runs nothing yet. Input tokens are uniform
  // over the vocabulary and depend only on (seed, sample, position). flush: empties the caches
  // before every run, untimed. group: the processes of recipe.ranks > 1. The other ranks follow
  // every run of rank 0 (follow).
  PhaseRunner(CompiledSession session, BenchPhase phase, uint64_t seed, bool flush = false, RankGroup* group = nullptr);
  ~PhaseRunner();
  // On the other ranks: repeats every run of rank 0's runner, until it is destroyed.
  void follow();

  const CompiledSession& session() const { return engine_.session(); }
  BenchPhase phase() const { return phase_; }
  // One run in seconds. Fails if the loss is not finite.
  double run();
  // The same, with a trace of this process's rank 0 for each of phase_calls. records: use the
  // device's own records if it has them.
  ProfiledRun run_profiled(bool records);
  // Times of all processes in `runs` (the last profiled ones) and in the last `plain` others. Rank
  // 0 calls it. Empty with a single process.
  std::vector<ProfileRank> rank_times(const std::vector<ProfiledRun>& runs, size_t plain, bool records);
  // Runs a step of pipeline stages `runs` times, at most 10, and measures each call of every rank.
  // Rank 0 calls it. Empty for other meshes and phases.
  std::optional<PipelineTimes> stage_times(int runs);
  // One run as in training: an asynchronous device gets the next step before this one ends. Returns
  // the seconds since the step before ended. Call settle() before anything else, to end queued
  // work.
  double run_in_sequence();
  void settle();
  // Executor::launch_seconds of rank 0, over all runs.
  double launch_seconds() { return engine_.rank(0).launch_seconds(); }
  // Whether the device can record its own work (Runtime::record_work). Throws the reason if not.
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
  // From rank 0 to the others. `run` and all after it are runs.
  enum class Call { end, settle, rank_times, stage_times, run, run_in_sequence, run_timed, run_recorded };
  void lead(Call call);
  void begin(Call call);
  PipelineTimes measure_stages(int runs);
  std::vector<ProfileRank> exchange_times(const std::vector<ProfiledRun>& runs, std::vector<double> plain,
                                          bool records);

  RankGroup* group_;
  std::vector<double> plain_;          // seconds of untraced runs, if there are several processes
  std::vector<ProfiledRun> followed_;  // on ranks other than 0
  Engine engine_;
  BenchPhase phase_;
  uint64_t seed_;
  int64_t steps_ = 0;
  SampleSource source_;
  std::optional<CacheFlush> flush_;
  TensorRef token_, logits_;  // of phase decode
};

}  // namespace crest
