// The parameters of an executor as the outside sees them: logical tensors in fp32.
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
  bool padded;  // of the weight's shape, so what belongs to its padding comes last
};

struct ParameterRef {
  std::string name;
  Shape shape;       // logical (unpadded)
  TensorRef weight;  // what the model reads; padding rows come last
  // fp32 truth: the weight itself when that is fp32; u16: the low halves of what is in two (core/split_float.h), with
  // the weight as the high ones; no data in sessions without an update Program.
  TensorRef master;
  std::vector<StateRef> states;  // of the optimizer but for the master; none without an update Program
  const Param* info;

  int64_t numel() const { return shape.numel(); }
  bool in_halves() const { return master.data && master.dtype == DType::u16; }
  // Copies numel() fp32 numbers out of or into the parameter (weight and master; padding is zeroed). Weights in bf16
  // are rounded as every update rounds them (core/split_float.h), in sessions without masters too.
  void get(float* to) const { get(to, 0, numel()); }
  void set(const float* from) const { set(from, 0, numel()), zero_padding(); }
  // `count` elements from `first` on. Where the host reaches the memory, parts may be copied in several threads at
  // once.
  void get(float* to, int64_t first, int64_t count) const;
  void set(const float* from, int64_t first, int64_t count) const;
  void zero_padding() const;
};

std::vector<ParameterRef> parameters(const Executor& executor);

// The parameters and states of an executor as they are now, copied to the host: any thread may read them while the
// executor runs on.
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

// GPT-2's initialisation from counter-based random numbers: the same weights for any precision, batch or thread count.
void initialize(const Executor& executor, uint64_t seed);

}  // namespace crest
