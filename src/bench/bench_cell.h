// What crest bench and crest profile measure: a phase of a training step on random tokens, run again and again.
#pragma once
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "measure/cache_flush.h"
#include "stats/samples.h"
#include "train/engine.h"

namespace crest {

// forward: inference without anything saved; backward: forward and backward of all micro steps; step: all of it.
enum class BenchPhase : uint8_t { forward, backward, step };
const char* name(BenchPhase);

// The Programs that a phase needs, and nothing else.
CompiledSession compile_phase(const Recipe& recipe, const Device& device, BenchPhase phase,
                              const CompileOptions& options = {});

// Tokens that one run of the phase reads on all ranks.
int64_t phase_tokens(const Recipe& recipe, BenchPhase phase);

enum class FlopsConvention : uint8_t { palm, executed };
// Usage error for an unknown name.
FlopsConvention parse_flops_convention(const std::string& text);
// What the figure counts, in words, printed beside it.
std::string describe(FlopsConvention convention, BenchPhase phase);
// FLOPs of one run. palm: ModelConfig::flops_per_token, a third of it for the forward phase (its matrix products are a
// third of those of forward and backward); executed: sum of the costs of the instructions.
double phase_flops(const CompiledSession& session, BenchPhase phase, FlopsConvention convention);
// palm, from the recipe alone.
double palm_flops(const Recipe& recipe, BenchPhase phase);
// Index of the Program of each call of the phase, in order.
std::vector<int> phase_calls(const CompiledSession& session, BenchPhase phase);

class BenchCell {
 public:
  // Takes the memory, fills weights from `seed` and runs nothing yet. Inputs are tokens uniform over the vocabulary, a
  // pure function of (seed, sample, position).
  // flush: the caches are emptied before every run, outside of its time.
  BenchCell(CompiledSession session, BenchPhase phase, uint64_t seed, bool flush = false);

  const CompiledSession& session() const { return engine_.session(); }
  BenchPhase phase() const { return phase_; }
  int ranks() const { return engine_.ranks(); }
  // Runs the phase once; seconds. Fails when the loss is not finite: such a run measures something else.
  // With traces: one for each of phase_calls (rank 0).
  double run(std::vector<StepTrace>* traces = nullptr);
  // Runs the phase as training does: on a device that works by itself the next step is queued before this one ends.
  // Seconds since the step before ended. settle() ends what is queued; other calls come after it.
  double run_in_sequence();
  void settle();
  // Of rank 0, all runs together (Executor::launch_seconds).
  double launch_seconds() { return engine_.rank(0).launch_seconds(); }
  // Runtime::record_work of rank 0.
  bool record_work(bool on) { return engine_.rank(0).runtime().record_work(on); }
  // Bytes of the arenas that all ranks hold, or one.
  int64_t held_bytes();
  int64_t held_bytes(int rank) { return engine_.rank(rank).held_bytes(); }
  // On a GPU: what it takes of the device: arenas, code, library handles and graphs; not the CUDA context itself.
  int64_t device_bytes();

 private:
  void check_loss(double loss) const;

  Engine engine_;
  BenchPhase phase_;
  uint64_t seed_;
  int64_t steps_ = 0;
  SampleSource source_;
  std::optional<CacheFlush> flush_;
};

}  // namespace crest
