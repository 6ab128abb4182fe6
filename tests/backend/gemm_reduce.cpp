// bias_grad, sum_loss, grad_norm, cast and the embedding family against plain loops.
#include <cmath>

#include "backend/gemm_harness.h"
#include "core/scalars.h"

using namespace crest;

namespace {

Array scalars_array(const Scalars& s) {
  Array a(DType::u8, {int64_t(sizeof(Scalars))});
  std::memcpy(a.data(), &s, sizeof s);
  return a;
}
Scalars scalars_of(Array& a) {
  Scalars s;
  std::memcpy(&s, a.data(), sizeof s);
  return s;
}
std::vector<double> values(Array& a) {
  std::vector<double> v;
  for (int64_t i = 0; i < a.shape.numel(); ++i) v.push_back(a.at(i));
  return v;
}

TEST(GemmReduce, BiasGradient) {
  for (DType t : float_types())
    for (DType out : {DType::f32, t})
      for (bool accumulate : {false, true})
        for (auto [rows, cols] : {std::pair<int64_t, int64_t>{1, 3}, {37, 300}, {1024, 70}, {2000, 513}}) {
          Array dy(t, {rows, cols}, 1), db(out, {cols});
          dy.random(1), db.random(2);
          std::vector<double> before = values(db);
          KernelRun r;
          r.op = "bias_grad", r.in = {&dy}, r.out = {&db};
          if (accumulate) r.in.push_back(&db);
          r.run();
          ASSERT_EQ(r.rejected, "");
          for (int64_t c = 0; c < cols; ++c) {
            double want = accumulate ? before[size_t(c)] : 0, magnitude = std::abs(want);
            for (int64_t i = 0; i < rows; ++i) want += dy.at(i * cols + c), magnitude += std::abs(dy.at(i * cols + c));
            // Pairs of partial sums in float: a few roundings of the magnitude, and one to the
            // storage.
            ASSERT_NEAR(db.at(c), want, 4 * 0x1p-24 * magnitude + 1.01 * roundoff(out) * std::abs(want));
          }
        }
}

TEST(GemmReduce, SumLoss) {
  Array loss(DType::f32, {1000}), sum(DType::f32, {1});
  loss.random(1);
  sum.set(0, 2.5);
  double want = 0;
  for (double x : values(loss)) want += x;
  KernelRun r;
  r.op = "sum_loss", r.in = {&loss, &sum}, r.out = {&sum}, r.attrs.set("scale", 0.125);
  r.run();
  EXPECT_EQ(sum.at(0), double(float(want * 0.125 + 2.5)));
  r.in = {&loss};
  r.run();
  EXPECT_EQ(sum.at(0), double(float(want * 0.125)));
}

Scalars norm_of(std::vector<Array*> gradients, double clip, float loss_scale, int threads) {
  Scalars s{};
  s.loss_scale = loss_scale;
  Array scalars = scalars_array(s);
  KernelRun r;
  r.op = "grad_norm", r.in = {&scalars}, r.out = {&scalars}, r.device.threads = threads, r.attrs.set("clip", clip);
  for (Array* g : gradients) r.in.push_back(g);
  r.run();
  EXPECT_EQ(r.rejected, "");
  return scalars_of(scalars);
}

TEST(GemmReduce, GradientNorm) {
  Array a(DType::f32, {100001}), b(DType::bf16, {7, 33}), c(DType::f16, {70000}, 1);
  a.random(1), b.random(2), c.random(3);
  double squares = 0;
  for (Array* g : {&a, &b, &c})
    for (double x : values(*g)) squares += x * x;
  double n = std::sqrt(squares) / 8;
  Scalars s = norm_of({&a, &b, &c}, 1.0, 8, 2);
  EXPECT_NEAR(s.grad_norm, n, 1e-7 * n);
  EXPECT_NEAR(s.grad_factor, 1 / (n + 1e-6) / 8, 1e-7);
  EXPECT_EQ(s.found_inf, 0);
  EXPECT_EQ(norm_of({&a, &b, &c}, 0, 8, 2).grad_factor, 0.125f);
  EXPECT_EQ(norm_of({&a, &b, &c}, 1e9, 8, 2).grad_factor, 0.125f);
  // The same bits for any number of threads.
  for (int threads : {1, 3, 7}) EXPECT_EQ(norm_of({&a, &b, &c}, 1.0, 8, threads).grad_norm, s.grad_norm);
  a.set(5, 1e25);  // finite, though its square is not a float
  EXPECT_EQ(norm_of({&a, &b}, 1.0, 8, 2).found_inf, 0);
  for (double bad : {double(INFINITY), double(-INFINITY), double(NAN)}) {
    c.set(69999, bad);
    EXPECT_EQ(norm_of({&b, &c}, 1.0, 8, 2).found_inf, 1);
  }
}

TEST(GemmReduce, CastOfEveryPair) {
  for (DType from : {DType::f64, DType::f32, DType::bf16, DType::f16})
    for (DType to : {DType::f64, DType::f32, DType::bf16, DType::f16})
      for (int64_t n : {1, 31, 100003}) {
        Array x(from, {n}, 1), y(to, {n}, 3), want(to, {n});
        x.random(1, 100);
        if (n > 3) x.set(0, 1e30), x.set(1, -1e-7), x.set(2, -INFINITY), x.set(n - 1, 65519.9);
        KernelRun r;
        r.op = "cast", r.in = {&x}, r.out = {&y};
        r.run();
        for (int64_t i = 0; i < n; ++i) {
          want.set(i, x.at(i));
          ASSERT_EQ(y.at(i), want.at(i)) << name(from) << " to " << name(to) << " " << i;
        }
      }
}

TEST(GemmEmbedding, LookupAndScatter) {
  int64_t batch = 3, length = 50, vocab = 40, cols = 77, rows = batch * length;
  for (DType t : float_types())
    for (DType other : {DType::f32, t})
      for (bool accumulate : {false, true}) {
        Array ids(DType::i32, {batch, length}), table(other, {vocab, cols}), y(t, {batch, length, cols});
        table.random(1);
        for (int64_t i = 0; i < rows; ++i) ids.set(i, double(i * i * 31 % 45 - 2));  // some outside
        KernelRun r;
        r.op = "embedding", r.in = {&ids, &table}, r.out = {&y};
        r.run();
        ASSERT_EQ(r.rejected, "");
        Array one(t, {1});
        for (int64_t i = 0; i < rows * cols; ++i) {
          auto id = int64_t(ids.at(i / cols));
          one.set(0, id < 0 || id >= vocab ? 0 : table.at(id * cols + i % cols));
          ASSERT_EQ(y.at(i), one.at(0)) << i;
        }
        Array dy(t, {batch, length, cols}), dt(other, {vocab, cols});
        dy.random(2), dt.random(3);
        std::vector<double> want = values(dt), magnitude(want.size(), 0);
        for (size_t i = 0; i < want.size(); ++i) want[i] *= accumulate, magnitude[i] = std::abs(want[i]);
        for (int64_t i = 0; i < rows * cols; ++i) {
          auto id = int64_t(ids.at(i / cols));
          if (id < 0 || id >= vocab) continue;
          want[size_t(id * cols + i % cols)] += dy.at(i);
          magnitude[size_t(id * cols + i % cols)] += std::abs(dy.at(i));
        }
        r.op = "embedding_grad", r.in = {&ids, &dy}, r.out = {&dt};
        if (accumulate) r.in.push_back(&dt);
        r.attrs.set("rows", vocab);
        r.run();
        ASSERT_EQ(r.rejected, "");
        for (size_t i = 0; i < want.size(); ++i)
          ASSERT_NEAR(dt.at(int64_t(i)), want[i],
                      8 * 0x1p-24 * magnitude[i] + 1.01 * roundoff(other) * std::abs(want[i]));
      }
}

TEST(GemmEmbedding, Positions) {
  int64_t batch = 3, length = 5, rows = 8, cols = 19;
  for (DType t : float_types())
    for (bool accumulate : {false, true}) {
      Array x(t, {batch, length, cols}), table(t, {rows, cols}), y(t, {batch, length, cols}), dt(t, {rows, cols});
      x.random(1), table.random(2), dt.random(3);
      Scalars s{};
      s.position = 2, s.length = 4;
      Array scalars = scalars_array(s), last(t, {batch, 1, cols});
      KernelRun r;
      r.op = "add_position", r.in = {&x, &table}, r.out = {&y};
      if (accumulate) r.in.push_back(&scalars);  // with the offset of decoding
      r.run();
      ASSERT_EQ(r.rejected, "");
      Array one(t, {1});
      for (int64_t i = 0; i < batch * length * cols; ++i) {
        int64_t position = i / cols % length + (accumulate ? 2 : 0);
        one.set(0, x.at(i) + table.at(position * cols + i % cols));
        ASSERT_EQ(y.at(i), one.at(0));
      }
      std::vector<double> want = values(dt);
      for (double& w : want) w *= accumulate;
      for (int64_t i = 0; i < batch * length * cols; ++i) want[size_t(i / cols % length * cols + i % cols)] += x.at(i);
      r.op = "position_grad", r.in = {&x}, r.out = {&dt};
      if (accumulate) r.in.push_back(&dt);
      r.attrs.set("rows", rows);
      r.run();
      ASSERT_EQ(r.rejected, "");
      for (size_t i = 0; i < want.size(); ++i)
        ASSERT_NEAR(dt.at(int64_t(i)), want[i], 1e-6 + 1.01 * roundoff(t) * std::abs(want[i]));
      r.op = "take_row", r.in = {&x, &scalars}, r.out = {&last};
      r.run();
      for (int64_t i = 0; i < batch * cols; ++i) ASSERT_EQ(last.at(i), x.at((i / cols * length + 3) * cols + i % cols));
    }
}

}  // namespace
