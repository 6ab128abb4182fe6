// How far AdamW with moments in e4m3 is from AdamW, on every kernel, for gradients of different
// sizes within a block of moments.
#include <gtest/gtest.h>

#include <cmath>

#include "core/random.h"
#include "ops/harness.h"
#include "ops/index.h"

namespace crest::test {

namespace {

constexpr double beta1 = 0.9, beta2 = 0.95, eps = 1e-8;

// Root mean square of the difference of all steps from exact ones, relative to the exact ones.
// Sizes of gradients have the standard deviation `spread`, as natural logarithms.
double error_of_steps(const Kernel& kernel, const Device& device, double spread) {
  constexpr int64_t n = 1000, block = 256;
  constexpr int steps = 100, first = 20;
  Arg code = {Arg::Fill::ids, DType::u8, {n}, 1, 1}, most = positive(DType::f32, {(n + block - 1) / block});
  Attrs a = Attrs().set("beta1", beta1).set("beta2", beta2).set("eps", eps).set("weight_decay", 0.0);
  Case c = {"adamw_8bit",
            "error",
            {scalars_arg(), tensor(DType::f32, {n}), code, most, code, most, tensor(DType::f32, {n})},
            a.set("block", block).set("codes", "e4m3"),
            nullptr,
            some_scalars(),
            nullptr};
  c.scalars.lr = 1, c.scalars.grad_factor = 1;
  std::vector<double> m(n), v(n);
  Values values = make_values(c);
  for (size_t i = 1; i < values.size(); ++i) values[i].assign(values[i].size(), 0);
  double squares = 0, exact_squares = 0;
  for (int t = 0; t < steps; ++t) {
    c.scalars.adam_step = t;
    Values now = make_values(c);  // of the new scalars
    values[0] = now[0];
    for (size_t i = 0; i < size_t(n); ++i)
      values[6][i] = float(1e-3 * std::exp(spread * normal(1, 0, i)) * normal(1, uint64_t(t) + 1, i));
    Single s(c);
    Memory memory(s.program);
    s.fill(memory, values);
    BoundKernel(kernel, device, s.program, s.instr(), memory).launch();
    std::vector<double> moved = memory.read(s.instr().out[out::adamw_8bit::master]);
    for (size_t i = 0; i < size_t(n); ++i) {
      m[i] = beta1 * m[i] + (1 - beta1) * values[6][i];
      v[i] = beta2 * v[i] + (1 - beta2) * values[6][i] * values[6][i];
      double step = m[i] / (1 - std::pow(beta1, t + 1)) / (std::sqrt(v[i] / (1 - std::pow(beta2, t + 1))) + eps);
      if (t < first) continue;
      squares += std::pow(moved[i] + step, 2), exact_squares += step * step;
    }
    for (size_t o = 1; o < s.instr().out.size(); ++o) values[o + 1] = memory.read(s.instr().out[o]);
  }
  return std::sqrt(squares / exact_squares);
}

}  // namespace

// A number with three bits of mantissa has an error of at most a 16th. A step is a quotient of two
// such numbers, with errors repeated over some steps, so its error is about a tenth. If sizes in a
// block differ by 10^6 or more, small moments are coarse. If second moments became zero, steps
// would be hundreds of times too long.
TEST(Float8Moments, StepsAreNearExactOnes) {
  int kernels = 0;
  for (const Device& device : devices())
    for (const Kernel* k : kernels_for("adamw_8bit", device)) {
      SCOPED_TRACE(device.kind + " " + k->name);
      EXPECT_LT(error_of_steps(*k, device, 0.5), 0.1);
      EXPECT_LT(error_of_steps(*k, device, 1.5), 0.1);
      EXPECT_LT(error_of_steps(*k, device, 3), 0.4);
      ++kernels;
    }
  EXPECT_GE(kernels, 3);
}

}  // namespace crest::test
