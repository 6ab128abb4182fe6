// gemm_sm90.h in the emulation of Hopper (device/hopper_emulated.h): against double precision, and the same bits
// whenever copies and products happen and however many blocks share the work.
#if !CREST_HAVE_CUDA
#include "backend/cuda/gemm_sm90.h"

#include <gtest/gtest.h>

#include <cmath>
#include <cstring>
#include <random>
#include <vector>

namespace crest::cuda::sm90 {
namespace {

using hopper::emulated::Timing;

struct Case {
  int m, n, k;
};

struct Results {
  std::vector<bfloat16> c, second;
  std::vector<float> partial;
};

bool same(const Results& a, const Results& b) {
  auto equal = [](auto& x, auto& y) { return std::memcmp(x.data(), y.data(), x.size() * sizeof x[0]) == 0; };
  return equal(a.c, b.c) && equal(a.second, b.second) && equal(a.partial, b.partial);
}

// Aligned to 64 bytes, as storages are.
class Halves {
 public:
  Halves(size_t size, float deviation, unsigned seed) : memory_(size + 32) {
    size_t skip = (64 - reinterpret_cast<uintptr_t>(memory_.data()) % 64) / sizeof(bfloat16);
    data_ = memory_.data() + skip % 32;
    std::mt19937 random(seed);
    std::normal_distribution<float> normal(0, deviation);
    for (size_t i = 0; i < size; ++i) data_[i] = to_bfloat16(normal(random));
  }
  bfloat16* data() { return data_; }
  double operator[](int64_t i) const { return double(to_float(data_[i])); }

 private:
  std::vector<bfloat16> memory_;
  bfloat16* data_;
};

double gelu_of(double x) { return x / 2 * (1 + std::tanh(std::sqrt(2 / M_PI) * (x + 0.044715 * x * x * x))); }
double slope_of(double x) { return (gelu_of(x + 1e-4) - gelu_of(x - 1e-4)) / 2e-4; }
double rounded(double x) { return double(to_float(to_bfloat16(float(x)))); }

template <After after, bool AT, bool BT>
class Problem {
 public:
  explicit Problem(const Case& of)
      : s(of),
        a(size_t(s.m) * size_t(s.k), 1, 1),
        b(size_t(s.n) * size_t(s.k), 1 / std::sqrt(float(s.k)), 2),
        x(size_t(s.m) * size_t(s.n), 1.5f, 3),
        bias(size_t(s.n), 1, 4) {}

  Results run(int blocks, int group) {
    using Tile = GemmTile<bfloat16, after, AT, BT>;
    size_t size = size_t(s.m) * size_t(s.n);
    Halves c(size, 0, 0), second(size, 0, 0);
    Results r;
    r.partial.assign(size_t(gemm_partial_rows<Tile>(s.m)) * size_t(s.n), NAN);
    GemmCall call = {a.data(), b.data(), x.data(), bias.data(), c.data(), second.data(), r.partial.data()};
    EXPECT_EQ(start_gemm<Tile>(call, s.m, s.n, s.k, group, nullptr, blocks, {}), 0);
    r.c.assign(c.data(), c.data() + size), r.second.assign(second.data(), second.data() + size);
    return r;
  }

  void compare(const Results& r) {
    double worst = 0, worst_second = 0, worst_sum = 0;
    auto beside = [](double got, double wanted) { return std::abs(got - wanted) / (1 + std::abs(wanted)); };
    std::vector<double> sums(size_t(s.n), 0.0), got(size_t(s.n), 0.0);
    for (int64_t i = 0; i < s.m; ++i)
      for (int64_t j = 0; j < s.n; ++j) {
        double y = 0;
        for (int64_t l = 0; l < s.k; ++l) y += a[AT ? l * s.m + i : i * s.k + l] * b[BT ? l * s.n + j : j * s.k + l];
        const int64_t at = i * s.n + j;
        double c = y, second = 0;
        if (after == After::bias) c = y + bias[j];
        if (after == After::bias_gelu) second = y + bias[j], c = gelu_of(rounded(second));
        if (after == After::add) c = rounded(y) + x[at];
        if (after == After::gelu_grad) c = rounded(y) * slope_of(x[at]), second = gelu_of(x[at]);
        worst = std::max(worst, beside(to_float(r.c[size_t(at)]), c));
        worst_second = std::max(worst_second, beside(to_float(r.second[size_t(at)]), second));
        sums[size_t(j)] += c;
      }
    EXPECT_LT(worst, 1.2e-2);
    EXPECT_LT(worst_second, 1.2e-2);
    if (after != After::gelu_grad) return;
    for (size_t i = 0; i < r.partial.size(); ++i) got[i % size_t(s.n)] += double(r.partial[i]);
    for (size_t j = 0; j < got.size(); ++j) worst_sum = std::max(worst_sum, std::abs(got[j] - sums[j]));
    EXPECT_LT(worst_sum, 5e-3 * std::sqrt(double(s.m)) + 1e-3);
  }

  void check() {
    hopper::emulated::set_timing(Timing::early, 1);
    Results first = run(1, 4);
    compare(first);
    for (uint64_t seed : {1, 2}) {
      hopper::emulated::set_timing(Timing::late, seed);
      EXPECT_TRUE(same(first, run(1 + int(seed), int(seed)))) << "seed " << seed;
    }
  }

 private:
  const Case s;
  Halves a, b, x, bias;
};

class Sm90Gemm : public testing::TestWithParam<Case> {};

TEST_P(Sm90Gemm, GeluGradientIsRightAndAlwaysTheSame) { Problem<After::gelu_grad, false, true>(GetParam()).check(); }
TEST_P(Sm90Gemm, BiasAndGeluAreRightAndAlwaysTheSame) { Problem<After::bias_gelu, false, false>(GetParam()).check(); }
TEST_P(Sm90Gemm, BiasIsRightAndAlwaysTheSame) { Problem<After::bias, false, false>(GetParam()).check(); }
TEST_P(Sm90Gemm, SumIsRightAndAlwaysTheSame) { Problem<After::add, false, false>(GetParam()).check(); }
TEST_P(Sm90Gemm, WeightGradientIsRightAndAlwaysTheSame) { Problem<After::plain, true, true>(GetParam()).check(); }

INSTANTIATE_TEST_SUITE_P(Cases, Sm90Gemm,
                         testing::Values(Case{8, 8, 8}, Case{128, 256, 64}, Case{136, 264, 72}, Case{64, 520, 200},
                                         Case{392, 256, 128}, Case{520, 40, 328}));

}  // namespace
}  // namespace crest::cuda::sm90
#endif
