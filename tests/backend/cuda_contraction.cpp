// Plans of the CUDA contractions on the host: their BLAS calls, run here as plain loops, and the
// answers about a GPU on a machine without one.
#include <gtest/gtest.h>

#include <array>
#include <cmath>
#include <vector>

#include "backend/cuda/blas_plan.h"
#include "backend/cuda/cublaslt.h"
#include "backend/cuda/index.h"
#include "program/builder.h"

namespace crest::cuda {
namespace {

struct Matmul {
  Program program;
  ValueId a, b;

  Matmul(const Shape& shape_a, const Shape& strides_a, int64_t offset_a, const Shape& shape_b, const Shape& strides_b,
         int64_t offset_b, Attrs attrs) {
    Builder build(program);
    build.origin = Origin("test");
    a = build.declare("a", DType::f32, shape_a, Role::input, Lifetime::micro_step);
    b = build.declare("b", DType::f32, shape_b, Role::input, Lifetime::micro_step);
    program.at(a).layout = {a, offset_a, strides_a};
    program.at(b).layout = {b, offset_b, strides_b};
    build.emit1("matmul", {a, b}, attrs);
  }
  const Instr& instr() const { return program.code[0]; }
};

std::vector<double> numbers(size_t n, unsigned seed) {
  std::vector<double> x(n);
  for (double& v : x) v = double((seed = seed * 1664525u + 1013904223u) >> 24) - 128;  // integers: sums are exact
  return x;
}

double element(const std::vector<double>& x, int64_t at, const BlasMatrix& m, int64_t i, int64_t j) {
  return x[size_t(m.transposed ? at + j * m.ld + i : at + i * m.ld + j)];
}

// The calls of a plan.
std::vector<double> run(const BlasPlan& p, const std::vector<double>& a, const std::vector<double>& b, size_t size,
                        int64_t offset_a, int64_t offset_b) {
  std::vector<double> c(size, 1e30);
  auto step = [](const Contraction::Dim& d, int64_t i) { return std::array{i * d.a, i * d.b, i * d.c}; };
  for (int64_t x = 0; x < p.loops[0].size; ++x)
    for (int64_t y = 0; y < p.loops[1].size; ++y)
      for (int64_t s = 0; s < p.sum.size; ++s)
        for (int64_t z = 0; z < p.batch.size; ++z) {
          auto u = step(p.loops[0], x), v = step(p.loops[1], y), w = step(p.batch, z), t = step(p.sum, s);
          int64_t at_a = offset_a + u[0] + v[0] + w[0] + t[0], at_b = offset_b + u[1] + v[1] + w[1] + t[1];
          for (int64_t i = 0; i < p.m; ++i)
            for (int64_t j = 0; j < p.n; ++j) {
              double sum = 0;
              for (int64_t k = 0; k < p.k; ++k) sum += element(a, at_a, p.a, i, k) * element(b, at_b, p.b, k, j);
              double& to = c[size_t(u[2] + v[2] + w[2] + i * p.c.ld + j)];
              to = s ? to + sum : sum;
            }
        }
  return c;
}

// As docs/reference/ops.md says.
std::vector<double> expected(const Matmul& x, const std::vector<double>& a, const std::vector<double>& b) {
  const Value &va = x.program.at(x.a), &vb = x.program.at(x.b), &vc = x.program.at(x.instr().out[0]);
  bool ta = x.instr().attrs.integer("transpose_a", 0), tb = x.instr().attrs.integer("transpose_b", 0);
  auto at = [](const Value& v, int64_t i, int64_t j, int64_t k, int64_t l) {
    auto& s = v.layout.strides;
    return size_t(v.layout.offset + i * s[0] + j * s[1] + k * s[2] + l * s[3]);
  };
  int64_t heads = va.shape[1], groups = vb.shape[1], summed = heads / vc.shape[1], depth = va.shape[ta ? 2 : 3];
  std::vector<double> c(size_t(vc.numel()), 0);
  for (int64_t s = 0; s < va.shape[0]; ++s)
    for (int64_t h = 0; h < heads; ++h)
      for (int64_t i = 0; i < vc.shape[2]; ++i)
        for (int64_t j = 0; j < vc.shape[3]; ++j)
          for (int64_t k = 0; k < depth; ++k) {
            int64_t g = h * groups / heads;
            c[at(vc, s, h / summed, i, j)] += (ta ? a[at(va, s, h, k, i)] : a[at(va, s, h, i, k)]) *
                                              (tb ? b[at(vb, s, g, j, k)] : b[at(vb, s, g, k, j)]);
          }
  return c;
}

void check(const Matmul& x, int64_t calls) {
  const Value &va = x.program.at(x.a), &vb = x.program.at(x.b), &vc = x.program.at(x.instr().out[0]);
  BlasPlan p = plan_blas(x.program, x.instr());
  ASSERT_EQ(p.problem, "");
  EXPECT_EQ(p.calls(), calls);
  auto a = numbers(4096, 1), b = numbers(4096, 2);
  EXPECT_EQ(run(p, a, b, size_t(vc.numel()), va.layout.offset, vb.layout.offset), expected(x, a, b));
}

// qkv[3,7,W] with 4 query and 2 key/value heads of 6.
constexpr int64_t B = 3, T = 7, H = 4, G = 2, D = 6, W = (H + 2 * G) * D;
const Shape interleaved = {T * W, D, W, 1};
const Shape square = Shape{B, H, T, T}.contiguous_strides();

TEST(BlasPlan, ViewsOfHeadsAreBatchesAndLoops) {
  Attrs transpose_b = Attrs().set("transpose_b", true);
  // All heads share a stride but the samples do not continue it: one call per sample.
  check({{B, H, T, D}, interleaved, 0, {B, H, T, D}, interleaved, 0, transpose_b}, 3);
  // Grouped: the largest of (samples, groups, heads of a group) is the batch, the other two are
  // loops.
  check({{B, H, T, D}, interleaved, 0, {B, G, T, D}, interleaved, H * D, transpose_b}, 4);
  // The heads of a group have one b, and their rows continue: they are one matrix with more rows.
  check({{B, H, T, T}, square, 0, {B, G, T, D}, interleaved, (H + G) * D, Attrs()}, 2);
}

TEST(BlasPlan, SumsOfHeads) {
  Attrs reduce = Attrs().set("transpose_a", true).set("reduce", G);
  check({{B, H, T, T}, square, 0, {B, H, T, D}, interleaved, 0, reduce}, 4);
  // Contiguous heads: their sum is a longer inner dimension.
  check({{B, H, T, T}, square, 0, {B, H, T, D}, Shape{B, H, T, D}.contiguous_strides(), 0, reduce}, 1);
}

TEST(BlasPlan, ContiguousIsOneCall) {
  Shape a = {B, H, 5, 3}, b = {B, H, 3, 8};
  check({a, a.contiguous_strides(), 0, b, b.contiguous_strides(), 0, Attrs()}, 1);
  Shape thin_a = {2, 1, 1, 8}, thin_b = {2, 1, 8, 1};
  check({thin_a, thin_a.contiguous_strides(), 0, thin_b, thin_b.contiguous_strides(), 0, Attrs()}, 1);
}

TEST(BlasPlan, AlignmentIsThatOfEveryCall) {
  Attrs transpose_b = Attrs().set("transpose_b", true);
  Matmul x({B, H, T, D}, interleaved, 0, {B, G, T, D}, interleaved, H * D, transpose_b);
  BlasPlan p = plan_blas(x.program, x.instr());
  EXPECT_EQ(p.alignment_a, 8);  // heads start D * 4 = 24 bytes apart; samples are the batch
  EXPECT_EQ(p.alignment_b, 8);
}

// Of linear and its gradients, with `rows` rows of x, `k` columns of x and `n` of y.
TEST(BlasPlan, OddRowsAreOfDenseDimensions) {
  auto odd = [](const char* op, int64_t rows, int64_t k, int64_t n) {
    Program program;
    Builder build(program);
    build.origin = Origin("test");
    auto declare = [&](const char* name, Shape shape) {
      return build.declare(name, DType::bf16, shape, Role::input, Lifetime::micro_step);
    };
    ValueId x = declare("x", {rows, k}), w = declare("w", {n, k}), dy = declare("dy", {rows, n});
    std::string_view is = op;
    build.emit1(op, is == "linear" ? std::vector{x, w} : is == "linear_dx" ? std::vector{dy, w} : std::vector{dy, x});
    return plan_blas(program, program.code[0]).has_odd_rows();
  };
  for (const char* op : {"linear", "linear_dx", "linear_dw"}) {
    EXPECT_FALSE(odd(op, 24, 16, 40)) << op;
    EXPECT_FALSE(odd(op, 23, 16, 40)) << op;
    EXPECT_TRUE(odd(op, 24, 15, 40)) << op;
    EXPECT_TRUE(odd(op, 24, 16, 39)) << op;
  }
}

TEST(BlasPlan, WithoutADenseDimensionThereIsNone) {
  Shape every_second = {T * D * 2, T * D * 2, D * 2, 2};
  Matmul x({1, 1, T, D}, every_second, 0, {1, 1, D, T}, Shape{1, 1, D, T}.contiguous_strides(), 0, Attrs());
  EXPECT_NE(plan_blas(x.program, x.instr()).problem, "");
}

TEST(CudaContractions, AMachineWithoutAGpuPlansForOneThatHasIt) {
  Matmul x({B, H, T, D}, interleaved, 0, {B, H, T, D}, interleaved, 0, Attrs().set("transpose_b", true));
  Device d;
  d.kind = "cuda";
  std::vector<std::string> takes[2];
  for (bool library : {false, true}) {
    d.cublaslt = library;
    for (const Kernel& k : cuda_kernels())
      if (std::string_view(k.op) == "matmul") {
        std::string why = k.reject({x.program, x.instr(), d});
        if (why.empty())
          takes[library].push_back(k.name);
        else
          EXPECT_NE(why.find("cuBLASLt was not found"), std::string::npos) << why;
      }
  }
  EXPECT_EQ(takes[0], std::vector<std::string>{"cuda.matmul.tiled"});
  EXPECT_EQ(takes[1], (std::vector<std::string>{"cuda.matmul.cublaslt", "cuda.matmul.tiled"}));
  EXPECT_EQ(workspace_cublaslt({x.program, x.instr(), d}), size_t(32) << 20);
}

// Scales of blocks: cuBLASLt multiplies on compute capability 9.0, if 4 divides the rows. Elsewhere
// the operands become bf16, and the plan has memory for both.
TEST(CudaContractions, ScalesOfBlocksAreTheLibrarysOnHopperOnly) {
  auto first = [](int sm, int64_t rows, bool library, size_t* workspace = nullptr) {
    Program program;
    Builder b(program);
    b.origin = Origin("test");
    const int64_t k = 272, n = 144;
    auto input = [&](const char* called, DType t, const Shape& s) {
      return b.declare(called, t, s, Role::input, Lifetime::micro_step);
    };
    ValueId x = input("x", DType::e4m3, {rows, k}), w = input("w", DType::e4m3, {n, k});
    ValueId x_scale = input("x_scale", DType::f32, {3, rows}), w_scale = input("w_scale", DType::f32, {2, 4});
    b.emit1("linear_fp8", {x, w, x_scale, w_scale, no_value, no_value},
            Attrs().set("dtype", "bf16").set("blocks", "128x128"));
    Device d;
    d.kind = "cuda", d.sm = sm, d.cublaslt = library, d.described = true;
    for (const Kernel& kernel : cuda_kernels()) {
      KernelQuery q{program, program.code[0], d};
      if (std::string_view(kernel.op) != "linear_fp8" || !kernel.reject(q).empty()) continue;
      if (workspace) *workspace = kernel.workspace(q);
      return std::string(kernel.name);
    }
    return std::string();
  };
  EXPECT_EQ(first(90, 64, true), "cuda.linear_fp8.cublaslt");
  EXPECT_EQ(first(90, 66, true), "cuda.linear_fp8.dequantized");
  EXPECT_EQ(first(90, 64, false), "cuda.linear_fp8.tiled");
  for (int sm : {89, 100}) {
    size_t workspace = 0;
    EXPECT_EQ(first(sm, 64, true, &workspace), "cuda.linear_fp8.dequantized");
    EXPECT_EQ(workspace, size_t(64 * 272 * 2 + 144 * 272 * 2) + (size_t(32) << 20));
  }
}

// Kernels with sums of fewer bits than f32 have different names, since they take a different time.
TEST(CudaContractions, FastAccumulationHasItsOwnKernel) {
  auto first = [](bool fast, bool library) {
    Program program;
    Builder b(program);
    b.origin = Origin("test");
    auto input = [&](const char* called, DType t, const Shape& s) {
      return b.declare(called, t, s, Role::input, Lifetime::micro_step);
    };
    ValueId x = input("x", DType::e4m3, {64, 272}), w = input("w", DType::e4m3, {144, 272});
    ValueId x_scale = input("x_scale", DType::f32, {1}), w_scale = input("w_scale", DType::f32, {1});
    Attrs attrs = Attrs().set("dtype", "bf16");
    if (fast) attrs.set("fast_accumulation", 1);
    b.emit1("linear_fp8", {x, w, x_scale, w_scale, no_value, no_value}, attrs);
    Device d;
    d.kind = "cuda", d.sm = 90, d.cublaslt = library, d.described = true;
    for (const Kernel& kernel : cuda_kernels())
      if (std::string_view(kernel.op) == "linear_fp8" && kernel.reject({program, program.code[0], d}).empty())
        return std::string(kernel.name);
    return std::string();
  };
  EXPECT_EQ(first(false, true), "cuda.linear_fp8.cublaslt");
  EXPECT_EQ(first(true, true), "cuda.linear_fp8.cublaslt_fast");
  EXPECT_EQ(first(false, false), "cuda.linear_fp8.tiled");
  EXPECT_EQ(first(true, false), "cuda.linear_fp8.tiled");
}

#if !CREST_HAVE_CUDA
// Our GELU kernel behind a product: vectors, their tail, and memory unaligned for them.
TEST(CudaContractions, GeluOfAnyLengthAndAlignment) {
  Program program;
  Instr instr;
  KernelCall call{program, instr, nullptr, nullptr, nullptr, nullptr, 1, nullptr};
  for (int64_t n : {1, 3, 8, 1027, 9001})
    for (int64_t shift : {0, 1}) {
      std::vector<float> x(size_t(n + shift + 4), 7);
      float* first = x.data() + shift;
      for (int64_t i = 0; i < n; ++i) first[i] = float(i % 41 - 20) * 0.5f;
      launch_gelu(call, DType::f32, first, first, n);
      for (int64_t i = 0; i < n; ++i) {
        double v = double(i % 41 - 20) * 0.5;
        double want = v / 2 * (1 + std::tanh(std::sqrt(2 / M_PI) * (v + 0.044715 * v * v * v)));
        ASSERT_NEAR(first[i], want, 1e-6 * (1 + std::abs(want))) << n << " " << i;
      }
      EXPECT_EQ(first[n], 7);
    }
}

TEST(CudaContractions, TimingOperandsAreNormal) {
  Program program;
  Instr instr;
  KernelCall call{program, instr, nullptr, nullptr, nullptr, nullptr, 1, nullptr};
  std::vector<float> x(20001, 0);
  launch_normal(call, DType::f32, x.data(), 20000, 3);
  double sum = 0, squares = 0;
  for (size_t i = 0; i < 20000; ++i) sum += x[i], squares += x[i] * x[i];
  EXPECT_NEAR(sum / 20000, 0, 0.03);
  EXPECT_NEAR(squares / 20000, 1, 0.05);
  EXPECT_EQ(x[20000], 0);
}
#endif

}  // namespace
}  // namespace crest::cuda
