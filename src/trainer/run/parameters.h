// An executor's parameters as logical fp32 tensors.
#pragma once
#include <memory>
#include <string>
#include <vector>

#include "run/executor.h"

namespace crest {

// `PARAMETER.NAME` in the update Program: moments, scales, statistics.
struct StateRef {
  std::string name;  // "m"
  TensorRef tensor;
  bool padded;  // has the weight's shape, with padding last
};

struct ParameterRef {
  std::string name;
  Shape shape;       // logical (unpadded)
  TensorRef weight;  // as read by the model, with padding rows last
  TensorRef scale;   // f32[rows] for an 8-bit weight (core/int8.h); else no data
  // The fp32 values: the weight itself if it is fp32. u16: the low halves of a split master weight
  // (core/split_float.h); the weight is the high halves. No data in sessions without an update
  // Program.
  TensorRef master;
  std::vector<StateRef> states;  // the optimizer's, without the master; empty without an update Program
  const Param* info;
  Axes cut;  // axes of its division among ranks

  int64_t numel() const { return shape.numel(); }
  bool in_halves() const { return master.data && master.dtype == DType::u16; }
  // Copy numel() fp32 values out of or into the parameter (weight and master; padding is zeroed).
  // bf16 weights are rounded as in every update (core/split_float.h), also in sessions without
  // masters. 8-bit weights are quantized.
  void get(float* to) const { get(to, 0, numel()); }
  void set(const float* from) const { set(from, 0, numel()), zero_padding(); }
  // `count` elements from `first`; whole rows for 8-bit weights. If the host can access the memory,
  // several threads may copy parts at once.
  void get(float* to, int64_t first, int64_t count) const;
  void set(const float* from, int64_t first, int64_t count) const;
  void zero_padding() const;
};

// Tensors divided among ranks appear as whole tensors on the host: zeros, except for readers and
// writers of ShardedStates (run/sharded_states.h).
std::vector<ParameterRef> parameters(const Executor& executor);
// This rank's memory only: no divided states, and the rank's part of other tensors.
std::vector<ParameterRef> own_parameters(const Executor& executor);

// A host copy of the executor's current trained parameters and states, made within
// Engine::with_states().
// Any thread may read it while the executor runs.
class ParameterCopy {
 public:
  explicit ParameterCopy(const Executor& executor);
  const std::vector<ParameterRef>& parameters() const { return parameters_; }

 private:
  std::vector<ParameterRef> parameters_;
  std::unique_ptr<Device> device_;
  std::unique_ptr<Runtime> host_;
  std::shared_ptr<char> memory_;  // released by host_
};

// GPT-2's initialization from counter-based random numbers: the same weights for any precision,
// batch or thread count. period (a power of two; 0: never): in larger models the random numbers
// repeat after this many elements, and every tensor starts at another one. Measurements need only
// the distribution of the weights, and drawing 3.4 billion numbers takes longer than measuring a
// step. rank: this rank; it keeps its part of each tensor before the next is drawn.
// trained_only: leaves frozen weights as they are.
void initialize(const Executor& executor, int rank, uint64_t seed, int64_t period = 0, bool trained_only = false);

}  // namespace crest
