// The parameters of an executor as the outside sees them: logical tensors in fp32.
#pragma once
#include <string>
#include <vector>

#include "run/executor.h"

namespace crest {

// `PARAMETER.NAME` of the update Program: moments, scales, statistics.
struct StateRef {
  std::string name;  // "m"
  TensorRef tensor;
  bool padded;  // of the weight's shape, so what belongs to its padding comes last
};

struct ParameterRef {
  std::string name;
  Shape shape;       // logical (unpadded)
  TensorRef weight;  // what the model reads; padding rows come last
  TensorRef master;  // fp32 truth; the weight itself when that is fp32; no data in sessions without an update Program
  std::vector<StateRef> states;  // of the optimizer but for the master; none without an update Program
  const Param* info;

  int64_t numel() const { return shape.numel(); }
  // Copies numel() fp32 numbers out of or into the parameter (weight and master; padding is zeroed).
  void get(float* to) const;
  void set(const float* from) const;
};

std::vector<ParameterRef> parameters(const Executor& executor);
// GPT-2's initialisation from counter-based random numbers: the same weights for any precision, batch or thread count.
void initialize(const Executor& executor, uint64_t seed);

}  // namespace crest
