// The state of a training session as bytes: to compare two equal ones.
#pragma once
#include <gtest/gtest.h>

#include "checkpoint/checkpoint.h"
#include "core/io.h"
#include "train/harness.h"
#include "train/run_state.h"

namespace crest {

inline void steps(Engine& e, int from, int to) {
  const Recipe& r = e.session().recipe;
  SampleSource source = [&](uint64_t g, int32_t* x, int32_t* y, int32_t* positions) {
    synthetic(r, g, x, y);
    for (int64_t t = 0; positions && t < r.seq_length(); ++t) positions[t] = int32_t(t % 5);
  };
  for (int s = from; s < to; ++s) e.step(s, 1e-2, 11, source);
}

// Weights, masters and states of rank 0, each as bytes; the weights of all ranks must be equal.
inline std::vector<std::string> bytes_of(Engine& e) {
  std::vector<std::string> all;
  auto add = [](std::vector<std::string>& list, const TensorRef& t) {
    list.emplace_back(size_t(t.bytes()), 0);
    t.read(list.back().data());
  };
  for (int r = 1; r < e.local_ranks(); ++r) {
    std::vector<std::string> a, b;
    for (auto& p : own_parameters(e.rank(0)))
      if (p.weight.data) add(a, p.weight);
    for (auto& p : own_parameters(e.rank(r)))
      if (p.weight.data) add(b, p.weight);
    EXPECT_TRUE(a == b) << "rank " << r << " has other weights";
  }
  with_parameters(e, [&](const ParameterRef& p) {
    add(all, p.weight);
    if (p.master.data != p.weight.data) add(all, p.master);
    for (auto& s : p.states) add(all, s.tensor);
  });
  Scalars s = e.rank(0).scalars();
  all.push_back(std::to_string(s.grad_norm) + " " + std::to_string(s.loss_scale) + " " + std::to_string(s.adam_step));
  return all;
}

// Of bytes_of(): the norm, a sum over tensors in another order, may differ in its last bits.
inline void expect_same_but_norm(std::vector<std::string> a, std::vector<std::string> b) {
  ASSERT_EQ(a.size(), b.size());
  const double norm = std::stod(b.back());
  EXPECT_NEAR(std::stod(a.back()), norm, 1e-5 * norm);
  for (auto* list : {&a, &b}) list->back() = list->back().substr(list->back().find(' '));
  EXPECT_TRUE(a == b);
}

inline std::vector<std::string> trained(const Recipe& r, const Device& device = crest::test::test_device(2),
                                        int count = 3) {
  Engine e = make_engine(r, device);
  steps(e, 0, count);
  return bytes_of(e);
}

inline void save(Engine& e, const std::string& root) {
  RunState state;
  state.step = 3, state.seed = 11, state.threads = 2;
  e.with_states(
      [&] { EXPECT_TRUE(save_checkpoint(contents_to_save(e, state, "", nullptr, false), root, 0).warnings.empty()); });
}

// Hashes of all tensors and files.
inline std::string hashes_of(const std::string& root) {
  return read_file(root + "/step-000003/manifest.json", 1 << 20);
}

}  // namespace crest
