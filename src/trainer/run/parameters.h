// The parameters of an executor as others see them: logical tensors in fp32.
#pragma once
#include <memory>
#include <string>
#include <vector>

#include "run/executor.h"

namespace crest {

// `PARAMETER.NAME` of the update Program: moments, scales, statistics.
struct StateRef {
  std::string name;  // "m"
  TensorRef tensor;
  bool padded;  // has the weight's shape, so its padding comes last
};

struct ParameterRef {
  std::string name;
  Shape shape;       // logical (unpadded)
  TensorRef weight;  // read by the model; padding rows come last
  TensorRef scale;   // f32[rows], of a weight of 8 bits (core/int8.h); else no data
  // The fp32 values: the weight itself if it is fp32. u16: the low halves of a split master weight
  // (core/split_float.h), with the weight as the high halves. No data in sessions without an update
  // Program.
  TensorRef master;
  std::vector<StateRef> states;  // of the optimizer, without the master; empty without an update Program
  const Param* info;
  Axes cut;  // the axes along which ranks have other parts of it

  int64_t numel() const { return shape.numel(); }
  bool in_halves() const { return master.data && master.dtype == DType::u16; }
  // Copy numel() fp32 values out of or into the parameter (weight and master; padding is zeroed).
  // bf16 weights are rounded as every update rounds them (core/split_float.h), also in sessions
  // without masters. Weights of 8 bits are quantized.
  void get(float* to) const { get(to, 0, numel()); }
  void set(const float* from) const { set(from, 0, numel()), zero_padding(); }
  // `count` elements from `first`; of a weight of 8 bits, whole rows. If the host can reach the
  // memory, several threads may copy parts at once.
  void get(float* to, int64_t first, int64_t count) const;
  void set(const float* from, int64_t first, int64_t count) const;
  void zero_padding() const;
};

// Tensors kept in parts are whole tensors on the host: zeros, but for readers and writers of
// ShardedStates (run/sharded_states.h).
std::vector<ParameterRef> parameters(const Executor& executor);
// In the memory of this rank: without those states, and of others the rank's part.
std::vector<ParameterRef> own_parameters(const Executor& executor);

// A copy on the host of the executor's current parameters and states, within Engine::with_states().
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
// batch or thread count. period (a power of two; 0: never): the random numbers of a model with more
// elements repeat after so many, and every tensor begins at another one. Measurements need the
// distribution of the weights only; drawing 3.4 billion numbers takes longer than measuring a step.
// rank: this one, which keeps its part of each tensor before the next one is drawn.
void initialize(const Executor& executor, int rank, uint64_t seed, int64_t period = 0);

}  // namespace crest
