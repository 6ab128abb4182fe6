// A tiny model's checkpoint and a temporary folder for the tests of this folder.
#pragma once
#include <gtest/gtest.h>

#include <cstring>
#include <string>
#include <vector>

#include "checkpoint/checkpoint.h"
#include "contains.h"
#include "core/error.h"
#include "core/io.h"
#include "core/random.h"
#include "memory_folder.h"

namespace crest::test {

// Weights and moments as a function of (step, variant), so loaded checkpoints can be told apart
// byte by byte.
class TinyModel {
 public:
  explicit TinyModel(int64_t step, uint64_t variant = 0, int64_t width = 8) : step_(step) {
    add(weights_, "wte.weight", DType::f32, {3, width}, variant);
    add(weights_, "h.0.ln.weight", DType::bf16, {width}, variant);
    add(weights_, "h.0.attn.weight", DType::f32, {width, width}, variant);
    add(weights_, "empty", DType::f32, {0, 4}, variant);
    add(optimizer_, "m.wte.weight", DType::f32, {3, width}, variant);
    add(optimizer_, "v.wte.weight", DType::f32, {3, width}, variant);
    state_ = "{\"position\":" + std::to_string(step * 100) + ",\"variant\":" + std::to_string(variant) + "}";
  }
  CheckpointContents contents() const {
    CheckpointContents c;
    c.step = step_;
    for (auto& t : weights_) c.weights.push_back({t.spec, t.data.data()});
    for (auto& t : optimizer_) c.optimizer.push_back({t.spec, t.data.data()});
    c.state = state_;
    c.files["config.json"] = "{\"model_type\": \"gpt2\"}\n";
    return c;
  }
  // Loads and compares everything.
  ::testing::AssertionResult equals(const Checkpoint& checkpoint) const {
    if (checkpoint.step() != step_) return ::testing::AssertionFailure() << "step " << checkpoint.step();
    if (checkpoint.state() != state_) return ::testing::AssertionFailure() << "state " << checkpoint.state();
    auto weights = weights_, optimizer = optimizer_;
    std::vector<TensorTarget> w, o;
    for (auto& t : weights) t.data.assign(t.data.size(), 0), w.push_back({t.spec, t.data.data()});
    for (auto& t : optimizer) t.data.assign(t.data.size(), 0), o.push_back({t.spec, t.data.data()});
    checkpoint.load_weights(w);
    checkpoint.load_optimizer(o);
    for (size_t i = 0; i < weights.size(); ++i)
      if (weights[i].data != weights_[i].data) return ::testing::AssertionFailure() << weights[i].spec.name;
    for (size_t i = 0; i < optimizer.size(); ++i)
      if (optimizer[i].data != optimizer_[i].data) return ::testing::AssertionFailure() << optimizer[i].spec.name;
    return ::testing::AssertionSuccess();
  }

 private:
  struct Tensor {
    TensorSpec spec;
    std::vector<char> data;
  };
  void add(std::vector<Tensor>& list, const char* name, DType dtype, std::vector<int64_t> shape, uint64_t variant) {
    Tensor t{{name, dtype, std::move(shape)}, {}};
    t.data.resize(size_t(byte_count(t.spec)));
    for (size_t i = 0; i < t.data.size(); ++i)
      t.data[i] = char(random_bits(variant, mix(uint64_t(step_)) + weights_.size() * 16 + optimizer_.size(), i));
    list.push_back(std::move(t));
  }
  int64_t step_;
  std::vector<Tensor> weights_, optimizer_;
  std::string state_;
};

inline std::string error_of(const std::function<void()>& action) {
  try {
    action();
  } catch (const Error& e) {
    return e.what();
  }
  return "";
}

// How often a test repeats: `variable` of the environment (scripts/reliability.sh sets it), else
// `otherwise`.
inline int64_t count_from(const char* variable, int64_t otherwise) {
  const char* text = std::getenv(variable);
  return text ? std::atoll(text) : otherwise;
}

}  // namespace crest::test
