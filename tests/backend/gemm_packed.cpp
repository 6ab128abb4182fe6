// Crest's own matmuls on sizes across their panels (the cases of tests/ops are smaller than one
// panel): packed into floats, on matrix units, and emulated on machines without them.
#include "backend/cpu/gemm_packed.h"

#include <fmt/format.h>
#include <gtest/gtest.h>

#include <cmath>
#include <cstring>
#include <random>
#include <vector>

#include "backend/cpu/gemm_amx.h"
#include "core/dtype.h"
#include "host/isa.h"

namespace crest::cpu {
namespace {

// Elements of a dtype with their values after rounding.
struct Elements {
  DType type;
  std::vector<char> bytes;
  Elements(DType t, int64_t n, unsigned seed) : type(t), bytes(size_t(n) * size_of(t)) {
    std::mt19937 rng(seed);
    for (int64_t i = 0; i < n; ++i) store_element(bytes.data(), t, i, double(int32_t(rng())) * 0x1p-31);
  }
  double at(int64_t i) const { return load_element(bytes.data(), type, i); }
};

struct Size {
  int64_t m, n, k;
};

struct Unit {
  const char* name;
  bool amx, emulated;
  // Small panels, so moderate sizes cross them.
  AmxBlocking blocking() const { return {64, 96, 3, 128 << 10, emulated}; }
};

class OwnGemm : public testing::TestWithParam<std::tuple<Unit, Size>> {
 protected:
  std::vector<char> run(const PackedShape& s, const PackedOperands& o, int threads) {
    Unit u = std::get<0>(GetParam());
    size_t bytes = u.amx ? amx_gemm_workspace(s, threads, u.blocking()) : packed_gemm_workspace(s);
    std::vector<char> workspace(bytes + 64, char(0xff));
    auto* aligned = reinterpret_cast<void*>((reinterpret_cast<uintptr_t>(workspace.data()) + 63) / 64 * 64);
    std::vector<char> c(size_t(s.m * s.n) * size_of(s.c), char(0xff));
    PackedOperands to = o;
    to.c = c.data();
    u.amx ? amx_gemm(s, to, aligned, threads, u.blocking()) : packed_gemm(s, to, aligned, threads);
    return c;
  }
};

double gelu(double x) { return 0.5 * x * (1 + std::tanh(0.7978845608028654 * (x + 0.044715 * x * x * x))); }

TEST_P(OwnGemm, AgreesWithSumsInDoubleForAnyThreads) {
  auto [unit, size] = GetParam();
  if (unit.amx && !unit.emulated && active_isa() != Isa::amx) GTEST_SKIP() << "this process has no AMX";
  for (DType type : unit.amx ? std::vector{DType::bf16} : std::vector{DType::f32, DType::bf16, DType::f16})
    for (int orientation = 0; orientation < 3; ++orientation) {
      PackedShape s{size.m, size.n, size.k, orientation == 2, orientation == 0, type, type};
      if (orientation == 2) s.c = DType::f32;
      Elements a(type, s.m * s.k, 1), b(type, s.k * s.n, 2), add(s.c, s.m * s.n, 3), bias(DType::f32, s.n, 4);
      PackedOperands o;
      o.a = a.bytes.data(), o.b = b.bytes.data();
      if (orientation == 0) o.bias = reinterpret_cast<const float*>(bias.bytes.data()), o.gelu = true;
      if (orientation == 2) o.add = add.bytes.data();
      std::vector<char> c = run(s, o, 1), d = run(s, o, 3);
      EXPECT_EQ(c, d) << "depends on the number of threads";
      double unit = s.c == DType::f32 ? 1e-6 : s.c == DType::bf16 ? 0x1p-8 : 0x1p-11;
      // Every column of some rows and every row of some columns, edges of panels among them.
      auto check = [&](int64_t i, int64_t j) {
        double sum = orientation == 0 ? bias.at(j) : orientation == 2 ? add.at(i * s.n + j) : 0;
        for (int64_t p = 0; p < s.k; ++p)
          sum += a.at(s.a_transposed ? p * s.m + i : i * s.k + p) * b.at(s.b_transposed ? j * s.k + p : p * s.n + j);
        double want = o.gelu ? gelu(sum) : sum;
        ASSERT_NEAR(load_element(c.data(), s.c, i * s.n + j), want, unit * std::fabs(want) + 1e-6 * double(s.k))
            << name(type) << " orientation " << orientation << " at " << i << "," << j;
      };
      for (int64_t i : {int64_t(0), s.m / 2, s.m - 1})
        for (int64_t j = 0; j < s.n; ++j) check(i, j);
      for (int64_t j : {int64_t(0), s.n - 1})
        for (int64_t i = 0; i < s.m; ++i) check(i, j);
    }
}

INSTANTIATE_TEST_SUITE_P(Sizes, OwnGemm,
                         testing::Combine(testing::Values(Unit{"floats", false, false}, Unit{"amx", true, false},
                                                          Unit{"emulated", true, true}),
                                          testing::Values(Size{1, 1, 1}, Size{13, 33, 5}, Size{1501, 70, 9},
                                                          Size{40, 1601, 7}, Size{130, 260, 1027}, Size{25, 65, 2051},
                                                          Size{1450, 1570, 3})),
                         [](const auto& info) {
                           const Size& s = std::get<1>(info.param);
                           return std::get<0>(info.param).name + fmt::format("_{}_{}_{}", s.m, s.n, s.k);
                         });

}  // namespace
}  // namespace crest::cpu
