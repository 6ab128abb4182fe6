// Shared by tests of training with --precision fp8.
#pragma once
#include <gtest/gtest.h>

#include <cmath>
#include <functional>

#include "core/error.h"
#include "program/op.h"
#include "train/harness.h"

namespace crest::test {

inline Recipe fp8_recipe(bool llama = false) {
  Recipe r = tiny_recipe(llama);
  r.precision = "fp8";
  return r;
}

inline SampleSource source_of(const Recipe& r) {
  return [&r](uint64_t g, int32_t* x, int32_t* y, int32_t*) { synthetic(r, g, x, y); };
}

// An engine without an update: a step ends with its gradients in memory.
inline Engine without_update(const Recipe& r) {
  SessionUse use;
  use.train = true;
  Engine e(compile(r, crest::test::test_device(2), session_programs(r, use)));
  e.initialize_weights(3);
  return e;
}

inline std::vector<float> floats(Engine& e, const char* program, const std::string& value) {
  return e.rank(0).tensor(e.session().find(program), value).floats();
}

inline double cosine(const std::vector<float>& a, const std::vector<float>& b) {
  double ab = 0, aa = 0, bb = 0;
  for (size_t i = 0; i < a.size(); ++i) ab += double(a[i]) * b[i], aa += double(a[i]) * a[i], bb += double(b[i]) * b[i];
  return ab / std::sqrt(aa * bb);
}

inline bool on_gpu() { return crest::test::test_device(1).kind == "cuda"; }

// Also in bodies.
inline int count(const Program& p, const std::string& op) {
  int n = 0;
  for (auto& i : p.code) n += (op == i.op->name) + (i.body ? count(*i.body, op) : 0);
  return n;
}

// The problem in a usage error.
inline std::string problem(const std::function<void()>& f) {
  try {
    f();
  } catch (const Error& e) {
    EXPECT_EQ(e.code(), Exit::usage);
    return e.problem();
  }
  return "";
}

// The late losses of a run of 200 steps: the mean of its last 50.
inline double late_loss(const Trained& t) {
  double sum = 0;
  for (size_t s = t.losses.size() - 50; s < t.losses.size(); ++s) sum += t.losses[s] / 50;
  return sum;
}

}  // namespace crest::test
