// When each rank of a pipeline runs its part of each micro step, and when it passes tensors on.
// Stage s is chunk s / ranks of rank s % ranks.
#pragma once
#include <cstdint>
#include <string>
#include <vector>

#include "passes/stages.h"

namespace crest {

// forward and backward pass of a stage; weights: the gradients of its weights, if they are a part
// of their own.
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

// Of one micro step, in any unit. A transfer keeps both of its ranks busy.
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
// A usage error for micro steps that the schedule cannot share.
Pipeline pipeline_of(const Recipe& recipe);
// By FLOPs: every rank finds the same.
PartTimes times_by_flops(const Recipe& recipe);
// Stages that take equally long: a backward pass takes twice a forward pass.
PartTimes equal_times(const Pipeline& pipeline, double transfer = 0);

struct PipelineCall {
  enum class Action : uint8_t { run, send, receive };
  Action action = Action::run;
  StagePart part = StagePart::forward;  // of a transfer: what this part of another stage reads
  int chunk = 0;                        // of this rank
  int64_t micro_step = 0;
  int slot = 0;   // of the chunk: memory of one micro step
  int peer = -1;  // the other rank of a transfer
  double start = 0, seconds = 0;
};

struct PipelineSchedule {
  Pipeline pipeline;
  std::vector<std::vector<PipelineCall>> calls;  // by rank
  std::vector<std::vector<int>> slots;           // by rank and chunk
  double seconds = 0;                            // until the last rank has ended
};

// Runs the schedule with these times, and keeps the order of everything. All transfers have one
// order for all ranks, so no two ranks wait for each other, even if a send waits for its receive.
PipelineSchedule make_schedule(const Pipeline& pipeline, const PartTimes& times);

// The same calls in the same order, with other times.
PipelineSchedule with_times(PipelineSchedule schedule, const PartTimes& times);

// Throws an internal error unless: the calls end if a transfer needs both of its ranks at once;
// every stage runs each part of each micro step once, after its inputs have arrived; and no slot
// has two micro steps at a time.
void verify_schedule(const PipelineSchedule& schedule);

// equal_times() with the same work in all.
PartTimes balanced(const Pipeline& pipeline, const PartTimes& times);

// Why a pipeline takes longer than its work divided by its ranks.
struct Bubble {
  double ideal = 0;      // seconds of work, divided by the ranks
  double warm_up = 0;    // of balanced stages: until the last rank begins
  double drain = 0;      // of balanced stages: all other waiting
  double imbalance = 0;  // beyond the time of balanced stages
  double transfers = 0;  // beyond the time without transfers
  double seconds() const { return warm_up + drain + imbalance + transfers; }
  double fraction() const { return ideal > 0 ? seconds() / ideal : 0; }
};
// In the order of a schedule.
Bubble bubble_of(const PipelineSchedule& schedule, const PartTimes& times);
Bubble bubble_of(const Pipeline& pipeline, const PartTimes& times);

}  // namespace crest
