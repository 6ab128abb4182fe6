// gemm_sm90_pingpong.h, gemm_sm90_gelu_grad.h and gemm_sm90_weight.h in the emulation of Hopper
// (device/hopper_emulated.h): right against double precision, and bitwise identical with every
// timing of copies and products, and with any number of blocks.
#if !CREST_HAVE_CUDA
#include "backend/cuda/gemm_sm90_gelu_grad.h"
#include "backend/cuda/gemm_sm90_pingpong.h"
#include "backend/cuda/gemm_sm90_weight.h"

#include <gtest/gtest.h>

#include <cmath>
#include <cstring>
#include <random>
#include <set>
#include <vector>

namespace crest::cuda::sm90 {
namespace {

using hopper::emulated::Timing;

struct Case {
  int m, n, k;
  int pitch = 0;    // of the results; 0: n
  int a_pitch = 0;  // of a; 0: its width
};

template <class T>
struct Results {
  std::vector<T> c, second, third;
  std::vector<float> partial;
};

template <class T>
bool same(const Results<T>& a, const Results<T>& b) {
  auto equal = [](auto& x, auto& y) { return std::memcmp(x.data(), y.data(), x.size() * sizeof x[0]) == 0; };
  return equal(a.c, b.c) && equal(a.second, b.second) && equal(a.third, b.third) && equal(a.partial, b.partial);
}

// Aligned to 64 bytes, as storages are.
template <class T>
class Numbers {
 public:
  Numbers(size_t size, float deviation, unsigned seed) : memory_(size + 32) {
    size_t skip = (64 - reinterpret_cast<uintptr_t>(memory_.data()) % 64) / sizeof(T);
    data_ = memory_.data() + skip % 32;
    std::mt19937 random(seed);
    std::normal_distribution<float> normal(0, deviation);
    for (size_t i = 0; i < size; ++i) data_[i] = narrow<T>(normal(random));
  }
  // NaN behind the first `width` of each row.
  void spoil(int64_t rows, int64_t width, int64_t pitch) {
    for (int64_t i = 0; i < rows; ++i)
      for (int64_t j = width; j < pitch; ++j) data_[i * pitch + j] = narrow<T>(NAN);
  }
  T* data() { return data_; }
  double operator[](int64_t i) const { return double(widen(data_[i])); }

 private:
  std::vector<T> memory_;
  T* data_;
};

double gelu_of(double x) { return x / 2 * (1 + std::tanh(std::sqrt(2 / M_PI) * (x + 0.044715 * x * x * x))); }
double silu_of(double x) { return x / (1 + std::exp(-x)); }
double silu_slope_of(double x) { return (silu_of(x + 1e-4) - silu_of(x - 1e-4)) / 2e-4; }
double slope_of(double x) { return (gelu_of(x + 1e-4) - gelu_of(x - 1e-4)) / 2e-4; }
template <class T>
double rounded(double x) {
  return double(widen(narrow<T>(float(x))));
}

// A tile and its kernel. products: summands of y.
template <class Tile_, void (*kernel_)(GemmArgs), After after_ = After::plain, bool gelu_grad_ = false,
          bool swiglu_grad_ = false, int products_ = 1>
struct Variant {
  using Tile = Tile_;
  static constexpr auto kernel = kernel_;
  static constexpr After after = after_;
  static constexpr bool gelu_grad = gelu_grad_, swiglu_grad = swiglu_grad_, swiglu = after == After::swiglu;
  static constexpr int products = products_;
};
template <class T, After after, bool AT = false, bool BT = false, int products = 1>
using PingPong = Variant<PingPongTile<T, after, AT, BT, products>,
                         pingpong_kernel<PingPongTile<T, after, AT, BT, products>>, after, false, false, products>;
template <class T>
using Deep = Variant<DeepTile<T>, deep_kernel<DeepTile<T>>, After::plain, true>;
template <class T>
using Shallow = Variant<ShallowTile<T>, shallow_kernel<ShallowTile<T>>, After::plain, true>;
template <class T>
using SwigluGrad = Variant<DeepTile<T, true>, deep_kernel<DeepTile<T, true>>, After::plain, false, true>;

// The differences of a run from the others.
struct Options {
  bool without_second = false;
  bool over_x = false;  // c is where x is
};

template <class V>
class Problem {
  using Tile = typename V::Tile;
  using T = typename Tile::T;
  static constexpr bool AT = Tile::AT, BT = Tile::BT;

 public:
  explicit Problem(const Case& of)
      : s(of),
        a(size_t(AT ? s.k : s.m) * size_t(a_pitch()), 1, 1),
        b(size_t(s.n) * size_t(s.k), 1 / std::sqrt(float(s.k)), 2),
        x(size_t(s.m) * size_t(s.n), 1.5f, 3),
        bias(size_t(s.n), 1, 4),
        a_2(size_t(s.m) * size_t(s.k), 1, 5),
        b_2(size_t(s.n) * size_t(s.k), 1 / std::sqrt(float(s.k)), 6),
        x_2(size_t(s.m) * size_t(s.n), 1, 7) {
    a.spoil(AT ? s.k : s.m, AT ? s.m : s.k, a_pitch());
  }

  // How a kernel is started.
  using Start = int (*)(const GemmCall&, int, int, int, int, EncodeTiled, int, const LaunchOn&);
  static int start(const GemmCall& call, int m, int n, int k, int group, EncodeTiled encode, int blocks,
                   const LaunchOn& on) {
    return start_gemm<Tile>(V::kernel, call, m, n, k, group, encode, blocks, on);
  }

  Results<T> run(int blocks, int group, Options options = {}, Start by = start) {
    const size_t size = size_t(s.m) * size_t(pitch());
    Numbers<T> c(size, 0, 0), second(size, 0, 0), third(size, 0, 0);
    if (options.over_x) std::copy(x.data(), x.data() + size, c.data());
    if (options.over_x && V::swiglu_grad) std::copy(x_2.data(), x_2.data() + size, second.data());
    Results<T> r;
    if (V::gelu_grad) r.partial.assign(size_t(gelu_grad_row_tiles(s.m)) * size_t(s.n), NAN);
    GemmCall call = {a.data(),         b.data(), options.over_x ? c.data() : x.data(),
                     bias.data(),      c.data(), options.without_second ? nullptr : second.data(),
                     r.partial.data(), s.pitch,  s.a_pitch};
    if (V::products == 2) call.a_2 = a_2.data();
    if (V::products == 2 || V::swiglu) call.b_2 = b_2.data();
    if (V::swiglu_grad) {
      call.x_2 = options.over_x ? second.data() : x_2.data(), call.second = second.data();
      call.third = options.without_second ? nullptr : third.data();
    }
    if (V::swiglu && !options.without_second) call.third = third.data();
    EXPECT_EQ(by(call, s.m, s.n, s.k, group, nullptr, blocks, {}), 0);
    r.c.assign(c.data(), c.data() + size), r.second.assign(second.data(), second.data() + size);
    r.third.assign(third.data(), third.data() + size);
    return r;
  }

  void compare(const Results<T>& r) {
    double worst = 0, worst_second = 0, worst_sum = 0;
    auto beside = [](double got, double wanted) {
      const double error = std::abs(got - wanted) / (1 + std::abs(wanted));
      return std::isnan(error) ? INFINITY : error;
    };
    std::vector<double> sums(size_t(s.n), 0.0), got(size_t(s.n), 0.0);
    for (int64_t i = 0; i < s.m; ++i)
      for (int64_t j = 0; j < s.n; ++j) {
        double y = 0, up = 0;
        for (int64_t l = 0; l < s.k; ++l) {
          const int64_t at_b = BT ? l * s.n + j : j * s.k + l;
          const double factor = a[AT ? l * a_pitch() + i : i * a_pitch() + l];
          y += factor * b[at_b];
          if (V::products == 2) y += a_2[i * s.k + l] * b_2[at_b];
          if (V::swiglu) up += factor * b_2[at_b];
        }
        const int64_t at = i * pitch() + j;
        double c = y, second = 0, third = 0;
        if (V::swiglu) second = y, third = up, c = silu_of(rounded<T>(y)) * rounded<T>(up);
        if (V::swiglu_grad) {
          const double da = rounded<T>(y), u = x_2[at];
          c = da * u * silu_slope_of(x[at]), second = da * silu_of(x[at]), third = silu_of(x[at]) * u;
        }
        if (V::after == After::bias) c = y + bias[j];
        if (V::after == After::bias_gelu) second = y + bias[j], c = gelu_of(rounded<T>(second));
        if (V::gelu_grad) c = rounded<T>(y) * slope_of(x[at]), second = gelu_of(x[at]);
        worst = std::max(worst, beside(widen(r.c[size_t(at)]), c));
        worst_second = std::max(worst_second, beside(widen(r.second[size_t(at)]), second));
        worst_second = std::max(worst_second, beside(widen(r.third[size_t(at)]), third));
        sums[size_t(j)] += c;
      }
    EXPECT_LT(worst, 1.2e-2);
    EXPECT_LT(worst_second, 1.2e-2);
    if (!V::gelu_grad) return;
    for (size_t i = 0; i < r.partial.size(); ++i) got[i % size_t(s.n)] += double(r.partial[i]);
    for (size_t j = 0; j < got.size(); ++j) worst_sum = std::max(worst_sum, std::abs(got[j] - sums[j]));
    EXPECT_LT(worst_sum, 5e-3 * std::sqrt(double(s.m)) + 1e-3);
  }

  void check() {
    hopper::emulated::set_timing(Timing::early, 1);
    const Results<T> first = run(1, 4);
    compare(first);
    for (uint64_t seed : {1, 2}) {
      hopper::emulated::set_timing(Timing::late, seed);
      EXPECT_TRUE(same(first, run(1 + int(seed), int(seed)))) << "seed " << seed;
    }
    Results<T> alone = run(2, 4, {.without_second = true});
    if (V::gelu_grad || V::after == After::bias_gelu || V::swiglu) alone.second = first.second;
    if (V::swiglu || V::swiglu_grad) alone.third = first.third;
    EXPECT_TRUE(same(first, alone)) << "without the results that may be absent";
    if (V::gelu_grad || V::swiglu_grad) {
      EXPECT_TRUE(same(first, run(2, 4, {.over_x = true}))) << "in place";
    }
  }

 private:
  int pitch() const { return s.pitch ? s.pitch : s.n; }
  int a_pitch() const { return s.a_pitch ? s.a_pitch : AT ? s.m : s.k; }

  const Case s;
  Numbers<T> a, b, x, bias, a_2, b_2, x_2;
};

class Sm90Gemm : public testing::TestWithParam<Case> {};

template <class V>
void check(const Case& c) {
  Problem<V>(c).check();
}
TEST_P(Sm90Gemm, GeluGradientOfSmallKIsRightAndAlwaysTheSame) { check<Shallow<bfloat16>>(GetParam()); }
TEST_P(Sm90Gemm, GeluGradientOfLargeKIsRightAndAlwaysTheSame) { check<Deep<bfloat16>>(GetParam()); }
TEST_P(Sm90Gemm, BiasAndGeluAreRightAndAlwaysTheSame) { check<PingPong<bfloat16, After::bias_gelu>>(GetParam()); }
TEST_P(Sm90Gemm, BiasIsRightAndAlwaysTheSame) { check<PingPong<bfloat16, After::bias>>(GetParam()); }
TEST_P(Sm90Gemm, PlainResultIsRightAndAlwaysTheSame) { check<PingPong<bfloat16, After::plain>>(GetParam()); }
TEST_P(Sm90Gemm, OtherLayoutsAreRightAndAlwaysTheSame) {
  check<PingPong<bfloat16, After::plain, false, true>>(GetParam());
  check<PingPong<bfloat16, After::plain, true, true>>(GetParam());
}

TEST_P(Sm90Gemm, SwigluIsRightAndAlwaysTheSame) { check<PingPong<bfloat16, After::swiglu>>(GetParam()); }
TEST_P(Sm90Gemm, SwigluGradientIsRightAndAlwaysTheSame) { check<SwigluGrad<bfloat16>>(GetParam()); }

TEST(Sm90GemmOfTwoProducts, IsRightAndAlwaysTheSame) {
  for (const Case& c : {Case{8, 8, 8}, {136, 264, 72}, {64, 200, 136}})
    check<PingPong<bfloat16, After::plain, false, true, 2>>(c);
}

TEST(Sm90GemmOfFloat16, IsRightAndAlwaysTheSame) {
  const Case c = {136, 264, 72};
  check<PingPong<float16, After::swiglu>>(c);
  check<SwigluGrad<float16>>(c);
  check<Shallow<float16>>(c);
  check<Deep<float16>>(c);
  check<PingPong<float16, After::bias_gelu>>(c);
  check<PingPong<float16, After::bias>>(c);
  check<PingPong<float16, After::plain>>(c);
}

// An odd vocabulary: columns not divisible by 8, rows at multiples of 8.
TEST(Sm90GemmWithPitch, IsRightAndAlwaysTheSame) {
  for (const Case& c : {Case{136, 257, 72, 320}, {64, 7, 40, 8}, {200, 193, 64, 200}}) {
    SCOPED_TRACE(c.n);
    check<PingPong<bfloat16, After::plain>>(c);
    check<PingPong<bfloat16, After::bias>>(c);
    check<PingPong<float16, After::bias_gelu>>(c);
  }
}

// The input gradient of such logits: a K not divisible by 8, in rows of a; values between them have
// no effect.
TEST(Sm90GemmWithPitch, OddSumsAreRightAndAlwaysTheSame) {
  for (const Case& c : {Case{136, 264, 57, 0, 64}, {200, 72, 129, 0, 136}, {8, 8, 1, 0, 8}, {64, 200, 64, 0, 72}}) {
    SCOPED_TRACE(c.k);
    check<PingPong<bfloat16, After::plain, false, true>>(c);
    check<PingPong<float16, After::plain, false, true>>(c);
  }
}

// Weight gradients. The differences of a run: the summand, and its place.
enum class Add { nothing, other, in_place };

template <class T, class C>
class WeightProblem {
 public:
  explicit WeightProblem(const Case& of)
      : s(of),
        a(size_t(s.k) * size_t(pitch()), 1, 1),
        b(size_t(s.k) * size_t(s.n), 1 / std::sqrt(float(s.k)), 2),
        before(size(), 1, 3) {
    a.spoil(s.k, s.m, pitch());
  }

  std::vector<C> run(Add add, int blocks, Timing timing, uint64_t seed) {
    hopper::emulated::set_timing(timing, seed);
    const size_t floats = size_t(weight_workspace(weight_plan(s.m, s.n, s.k, blocks)));
    std::vector<float> parts(floats + 1, NAN);
    Numbers<C> c(size(), 0, 0);
    for (size_t i = 0; i < size(); ++i) c.data()[i] = add == Add::in_place ? before.data()[i] : narrow<C>(NAN);
    const void* added = add == Add::nothing ? nullptr : add == Add::other ? before.data() : c.data();
    parts[floats] = 7;
    const WeightCall call = {a.data(), b.data(), added, c.data(), parts.data(), s.a_pitch};
    EXPECT_EQ((start_weight<T, C>(call, s.m, s.n, s.k, nullptr, blocks, {})), 0);
    EXPECT_EQ(parts[floats], 7) << "behind the workspace";
    return std::vector<C>(c.data(), c.data() + size());
  }

  void compare(const std::vector<C>& c, bool added) {
    // Rounding to C, of 8 or 11 bits.
    const double step = sizeof(C) == 4 ? 0 : std::is_same_v<C, bfloat16> ? 1. / 256 : 1. / 2048;
    double worst = 0;
    for (int64_t i = 0; i < s.m; ++i)
      for (int64_t j = 0; j < s.n; ++j) {
        double y = added ? before[i * s.n + j] : 0;
        for (int64_t l = 0; l < s.k; ++l) y += a[l * pitch() + i] * b[l * s.n + j];
        const double error = std::abs(double(widen(c[size_t(i * s.n + j)])) - y) - step * std::abs(y);
        worst = error < 99 ? std::max(worst, error) : 99;
      }
    EXPECT_LT(worst, 1e-4);
  }

  void check(int blocks) {
    SCOPED_TRACE(testing::Message() << s.m << " x " << s.n << " x " << s.k << ", blocks " << blocks);
    const std::vector<C> plain = run(Add::nothing, blocks, Timing::early, 1);
    const std::vector<C> sum = run(Add::other, blocks, Timing::early, 1);
    compare(plain, false), compare(sum, true);
    auto same = [](auto& x, const auto& y) { return std::memcmp(x.data(), y.data(), x.size() * sizeof x[0]) == 0; };
    EXPECT_TRUE(same(sum, run(Add::in_place, blocks, Timing::late, 1))) << "in place";
    for (uint64_t seed : {1, 2}) EXPECT_TRUE(same(plain, run(Add::nothing, blocks, Timing::late, seed))) << seed;
  }

 private:
  int pitch() const { return s.a_pitch ? s.a_pitch : s.m; }
  size_t size() const { return size_t(s.m) * size_t(s.n); }

  const Case s;
  Numbers<T> a, b;
  Numbers<C> before;
};

// Tiles: more than blocks, as many, fewer, and much fewer.
TEST_P(Sm90Gemm, WeightGradientIsRightAndAlwaysTheSame) {
  for (int blocks : {1, 2, 3, 7}) WeightProblem<bfloat16, float>(GetParam()).check(blocks);
}

// Of an odd vocabulary: an M not divisible by 8, in rows of a.
TEST(Sm90GemmWithPitch, OddWeightGradientsAreRightAndAlwaysTheSame) {
  for (const Case& c : {Case{57, 264, 200, 0, 64}, {129, 72, 136, 0, 136}, {1, 8, 8, 0, 8}, {257, 264, 61, 0, 320}})
    for (int blocks : {1, 3, 5}) WeightProblem<bfloat16, float>(c).check(blocks);
  const Case c = {129, 72, 136, 0, 136};
  WeightProblem<bfloat16, bfloat16>(c).check(3);
  WeightProblem<float16, float>(c).check(3);
  WeightProblem<float16, float16>(c).check(3);
}

// The last round has tiles for nearly all blocks.
TEST(Sm90WeightGradient, FullLastRoundIsNotShared) {
  const Case c = {1930, 8, 24, 0, 1936};
  ASSERT_EQ(weight_plan(c.m, c.n, c.k, 17).shared, 0);
  ASSERT_EQ(weight_plan(c.m, c.n, c.k, 18).shared, 16);
  WeightProblem<bfloat16, float>(c).check(17);
}

// Pieces cover each step of each tile exactly once. A block has its own parts in the workspace.
TEST(Sm90WeightGradient, PlanCoversEveryStepOnce) {
  for (int blocks : {1, 2, 3, 5, 7, 17, 78, 114, 132})
    for (const Case& c : {Case{57, 264, 200},
                          {768, 768, 16384},
                          {2304, 768, 16384},
                          {3072, 768, 4096},
                          {768, 3072, 64},
                          {50257, 768, 8192},
                          {50257, 1600, 1000},
                          {4800, 1600, 1 << 20},
                          {128, 25600, int(most_weight_k)}}) {
      const WeightPlan p = weight_plan(c.m, c.n, c.k, blocks);
      SCOPED_TRACE(testing::Message() << c.m << " x " << c.n << " x " << c.k << ", blocks " << blocks);
      std::vector<std::set<std::pair<int, int>>> runs(size_t(p.tiles()));
      std::set<int> parts;
      for (int block = 0; block < blocks; ++block)
        for (int index = 0;; ++index) {
          const WeightPiece piece = weight_piece(p, block, index);
          if (piece.steps == 0) break;
          ASSERT_TRUE(piece.tile >= 0 && piece.tile < p.tiles());
          EXPECT_TRUE(runs[size_t(piece.tile)].insert({piece.first, piece.steps}).second);
          EXPECT_EQ(piece.part >= 0, p.shared && piece.tile >= p.first_shared());
          if (piece.part < 0) continue;
          EXPECT_LT(piece.part, p.parts());
          EXPECT_TRUE(parts.insert(piece.part).second);
        }
      for (auto& tile : runs) {
        int next = 0;
        for (auto& [first, steps] : tile) {
          EXPECT_EQ(first, next);
          next = first + steps;
        }
        EXPECT_EQ(next, p.steps);
      }
      EXPECT_LE(blocks == 132 ? weight_workspace(p) * 4 : 0, 32 << 20);
      std::set<std::pair<int, int>> places;
      for (int tile = 0; tile < p.tiles(); ++tile) {
        const WeightPlace at = weight_place(p, tile, 0);
        EXPECT_TRUE(at.row < c.m && at.column < c.n);
        EXPECT_TRUE(places.insert({at.row, at.column}).second);
      }
    }
}

// The order of the column sums shows the kernel.
TEST(Sm90GeluGrad, KChoosesTheKernel) {
  hopper::emulated::set_timing(Timing::early, 1);
  for (int k : {1024, 1032}) {
    const Case c = {128, 64, k};
    auto got = Problem<Deep<bfloat16>>(c).run(1, 4, {}, start_gelu_grad<bfloat16>);
    auto deep = Problem<Deep<bfloat16>>(c).run(1, 4);
    auto shallow = Problem<Shallow<bfloat16>>(c).run(1, 4);
    ASSERT_FALSE(same(deep, shallow));
    EXPECT_TRUE(same(got, k <= 1024 ? shallow : deep)) << k;
  }
}

INSTANTIATE_TEST_SUITE_P(Cases, Sm90Gemm,
                         testing::Values(Case{8, 8, 8}, Case{128, 256, 64}, Case{136, 264, 72}, Case{64, 520, 200},
                                         Case{392, 256, 128}, Case{520, 40, 328}));

}  // namespace
}  // namespace crest::cuda::sm90
#endif
