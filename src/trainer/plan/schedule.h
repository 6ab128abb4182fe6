// When each rank of a pipeline runs its part of each micro step and passes tensors on. Stage s is
// chunk s / ranks of rank s % ranks.
#pragma once
#include <cstdint>
#include <string>
#include <vector>

#include "passes/stages.h"

namespace crest {

// A stage's forward pass, its backward pass, and the gradients of its weights, if they are
// separate.
enum class StagePart : uint8_t { forward, backward, weights };
std::string_view name(StagePart part);

struct Pipeline {
  // one_f_one_b, interleaved: Narayanan et al. 2021. zero_bubble: ZB-H1 of Qi et al. 2024.
  using Kind = PipelineKind;
  Kind kind = Kind::one_f_one_b;
  int ranks = 1, chunks = 1;
  int64_t micro_steps = 1;

  int stages() const { return ranks * chunks; }
  bool splits_weights() const { return kind == Kind::zero_bubble; }
};

// For one micro step, in any unit. A transfer occupies both of its ranks.
struct PartTimes {
  std::vector<double> forward, backward, weights;  // by stage
  double transfer = 0;
  std::vector<double>& list(StagePart part) { return this->*member(part); }
  const std::vector<double>& list(StagePart part) const { return this->*member(part); }
  double of(StagePart part, int stage) const;

 private:
  static std::vector<double> PartTimes::*member(StagePart part) {
    return part == StagePart::forward    ? &PartTimes::forward
           : part == StagePart::backward ? &PartTimes::backward
                                         : &PartTimes::weights;
  }
};
// Usage error if the schedule cannot divide the micro steps.
Pipeline pipeline_of(const Recipe& recipe);
// In FLOPs, so all ranks get the same result.
PartTimes times_by_flops(const Recipe& recipe);
// Equally slow stages, with backward passes twice as long as forward passes.
PartTimes equal_times(const Pipeline& pipeline, double transfer = 0);

struct PipelineCall {
  enum class Action : uint8_t { run, send, receive };
  Action action = Action::run;
  StagePart part = StagePart::forward;  // of a transfer: its reader on the other stage
  int chunk = 0;                        // on this rank
  int64_t micro_step = 0;
  int slot = 0;   // index in the chunk: memory for one micro step
  int peer = -1;  // the other rank of a transfer
  double start = 0, seconds = 0;
};

struct PipelineSchedule {
  Pipeline pipeline;
  std::vector<std::vector<PipelineCall>> calls;  // by rank
  std::vector<std::vector<int>> slots;           // by rank and chunk
  double seconds = 0;                            // end of the last rank
};

// Simulates the schedule with these times and records the order of all calls. All ranks order
// transfers alike, so no two ranks wait for each other, even if a send waits for its receive.
PipelineSchedule make_schedule(const Pipeline& pipeline, const PartTimes& times);

// The same calls in the same order, with new times.
PipelineSchedule with_times(PipelineSchedule schedule, const PartTimes& times);

// Throws an internal error unless the calls finish when each transfer needs both ranks at once,
// every stage runs each part of each micro step once and after its inputs arrive, and no slot has
// two micro steps at a time.
void verify_schedule(const PipelineSchedule& schedule);

// equal_times() with the same total work.
PartTimes balanced(const Pipeline& pipeline, const PartTimes& times);

// Why a pipeline takes longer than its work divided by its ranks.
struct Bubble {
  double ideal = 0;      // seconds of work, divided by the ranks
  double warm_up = 0;    // with balanced stages: until the last rank starts
  double drain = 0;      // with balanced stages: all other waiting
  double imbalance = 0;  // additional time because stages are not balanced
  double transfers = 0;  // additional time for transfers
  double seconds() const { return warm_up + drain + imbalance + transfers; }
  double fraction() const { return ideal > 0 ? seconds() / ideal : 0; }
};
// For the schedule's order of calls.
Bubble bubble_of(const PipelineSchedule& schedule, const PartTimes& times);
Bubble bubble_of(const Pipeline& pipeline, const PartTimes& times);

}  // namespace crest
