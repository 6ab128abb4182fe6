// Crest's own matrix product: takes every contraction, and is fast only compared with other simple
// kernels. It multiplies in f32 without matrix units. cuBLASLt does the work wherever it can
// (cublaslt.h).
#include "backend/cuda/contraction.h"
#include "backend/cuda/device/numeric.h"
#include "backend/cuda/kernel.h"
#include "ops/index.h"

namespace crest::cuda {

namespace {

constexpr int tile = 64, depth = 16, threads = 256;
constexpr int per_thread = tile * depth / threads;  // elements of each operand loaded by a thread per step

struct TiledArgs {
  int64_t m, n, k;
  int64_t a_row, a_col, b_row, b_col, c_row, c_col;
  Contraction::Dim batch[3], sum;
  int64_t tiles_m, tiles_n, steps_k;
  bool gelu;
};

// tanh form, as x sigmoid(2 u) with u = sqrt(2/pi) (x + 0.044715 x^3): (1 + tanh u) / 2 = 1 / (1 +
// exp(-2 u)). The exponential is kept below 2^126, where __fdividef ends.
__device__ inline float gelu(float x) {
  float u = 0.7978845608f * x * fmaf(0.044715f * x, x, 1.f);
  return __fdividef(x, 1.f + __expf(fminf(-2.f * u, 80.f)));
}

// Element e of a thread's share of an operand tile of `depth` x `tile`: its place in the tile. The
// fastest index follows the dense direction in memory, so a warp reads whole sectors.
struct Share {
  int deep, wide;
};
__device__ inline Share share(int e, bool deep_is_dense) {
  int i = int(threadIdx.x) + e * threads;
  return deep_is_dense ? Share{i % depth, i / depth} : Share{i / tile, i % tile};
}

// One block makes a tile x tile part of c; a thread 4 x 4 of it. Operand tiles pass through shared
// memory as f32.
template <class T, class C>
__global__ void __launch_bounds__(threads)
    gemm(TiledArgs g, const T* a, const T* b, const C* bias, const C* acc, C* c, C* h) {
  wait_for_predecessors();
  __shared__ Vec<float, 4> as[depth][tile / 4 + 1], bs[depth][tile / 4 + 1];
  int64_t block = blockIdx.x;
  int64_t n0 = block % g.tiles_n * tile, m0 = block / g.tiles_n % g.tiles_m * tile;
  int64_t index = block / (g.tiles_n * g.tiles_m), c_at = 0;
  for (int d = 2; d >= 0; --d) {
    int64_t i = index % g.batch[d].size;
    index /= g.batch[d].size;
    a += i * g.batch[d].a, b += i * g.batch[d].b, c_at += i * g.batch[d].c;
  }

  bool a_deep = g.a_col == 1, b_deep = g.b_row == 1;
  int64_t steps = g.steps_k * g.sum.size;
  float next_a[per_thread], next_b[per_thread];
  auto fetch = [&](int64_t step) {
    int64_t s = step / g.steps_k, k0 = step % g.steps_k * depth;
    for (int e = 0; e < per_thread; ++e) {
      Share x = share(e, a_deep), y = share(e, b_deep);
      int64_t i = m0 + x.wide, ka = k0 + x.deep, j = n0 + y.wide, kb = k0 + y.deep;
      next_a[e] = i < g.m && ka < g.k ? widen(a[s * g.sum.a + i * g.a_row + ka * g.a_col]) : 0.f;
      next_b[e] = j < g.n && kb < g.k ? widen(b[s * g.sum.b + kb * g.b_row + j * g.b_col]) : 0.f;
    }
  };

  int ty = int(threadIdx.x) / (tile / 4), tx = int(threadIdx.x) % (tile / 4);
  float sums[4][4] = {};
  if (steps > 0) fetch(0);
  for (int64_t step = 0; step < steps; ++step) {
    for (int e = 0; e < per_thread; ++e) {
      Share x = share(e, a_deep), y = share(e, b_deep);
      as[x.deep][x.wide / 4].x[x.wide % 4] = next_a[e];
      bs[y.deep][y.wide / 4].x[y.wide % 4] = next_b[e];
    }
    __syncthreads();
    if (step + 1 < steps) fetch(step + 1);  // on its way while this step is computed
#pragma unroll
    for (int k = 0; k < depth; ++k) {
      Vec<float, 4> x = as[k][ty], y = bs[k][tx];
#pragma unroll
      for (int i = 0; i < 4; ++i)
#pragma unroll
        for (int j = 0; j < 4; ++j) sums[i][j] = fmaf(x.x[i], y.x[j], sums[i][j]);
    }
    __syncthreads();  // before the tiles are overwritten
  }

#pragma unroll
  for (int i = 0; i < 4; ++i) {
#pragma unroll
    for (int j = 0; j < 4; ++j) {
      int64_t row = m0 + ty * 4 + i, col = n0 + tx * 4 + j;
      if (row >= g.m || col >= g.n) continue;
      int64_t at = c_at + row * g.c_row + col * g.c_col;
      float y = sums[i][j];
      if (bias) y += widen(bias[col]);
      if (acc) y += widen(acc[at]);
      if (h) h[at] = narrow<C>(y);
      c[at] = narrow<C>(g.gelu ? gelu(y) : y);
    }
  }
}

constexpr int vectors = 4;  // loads of 16 bytes in flight in a thread

template <class T>
__global__ void __launch_bounds__(256) gelu_vectors(const T* x, T* y, int64_t n) {
  wait_for_predecessors();
  constexpr int N = Vec<T>::size;
  int64_t first = (int64_t(blockIdx.x) * vectors * blockDim.x + threadIdx.x) * N, stride = int64_t(blockDim.x) * N;
  Vec<T> v[vectors];
#pragma unroll
  for (int k = 0; k < vectors; ++k)
    if (int64_t i = first + k * stride; i + N <= n) v[k] = load_vec<N>(x + i);
#pragma unroll
  for (int k = 0; k < vectors; ++k) {
    int64_t i = first + k * stride;
    if (i + N <= n) {
#pragma unroll
      for (int e = 0; e < N; ++e) v[k].x[e] = narrow<T>(gelu(widen(v[k].x[e])));
      store_vec(y + i, v[k]);
    } else {
#pragma unroll 1
      for (; i < n; ++i) y[i] = narrow<T>(gelu(widen(x[i])));
    }
  }
}

template <class T>
__global__ void gelu_scalar(const T* x, T* y, int64_t n) {
  wait_for_predecessors();
  int64_t i = int64_t(blockIdx.x) * blockDim.x + threadIdx.x;
  if (i < n) y[i] = narrow<T>(gelu(widen(x[i])));
}

__device__ inline uint32_t mixed(uint32_t x) {
  x = (x ^ (x >> 16)) * 0x21f0aaadu;
  x = (x ^ (x >> 15)) * 0x735a2d97u;
  return x ^ (x >> 15);
}

// Box and Muller's transform: two numbers a thread.
template <class T>
__global__ void fill_normal(T* x, int64_t n, uint32_t seed) {
  wait_for_predecessors();
  int64_t i = (int64_t(blockIdx.x) * blockDim.x + threadIdx.x) * 2;
  uint32_t bits = mixed(uint32_t(i) ^ mixed(seed ^ uint32_t(i >> 32)));
  float radius = sqrtf(-2.f * __logf(float((bits >> 8) + 1) * 0x1p-24f));
  float angle = 6.2831853f * (float(mixed(bits + 0x9e3779b9u) >> 8) * 0x1p-24f);
  if (i < n) x[i] = narrow<T>(radius * __cosf(angle));
  if (i + 1 < n) x[i + 1] = narrow<T>(radius * __sinf(angle));
}

}  // namespace

#if CREST_HAS_DEVICE_CODE
void launch_tiled(const KernelCall& call, const Contraction& what) {
  if (what.m == 0 || what.n == 0 || what.batches() == 0) return;
  TiledArgs g = {};
  g.m = what.m, g.n = what.n, g.k = what.k;
  g.a_row = what.a.row, g.a_col = what.a.col, g.b_row = what.b.row, g.b_col = what.b.col;
  g.c_row = what.c.row, g.c_col = what.c.col;
  for (int d = 0; d < 3; ++d) g.batch[d] = what.batch[d];
  g.sum = what.sum;
  g.tiles_m = (g.m + tile - 1) / tile, g.tiles_n = (g.n + tile - 1) / tile, g.steps_k = (g.k + depth - 1) / depth;
  g.gelu = what.gelu;
  with_type(what.a.dtype, [&](auto t) {
    with_type(what.c.dtype, [&](auto u) {
      using T = decltype(t);
      using C = decltype(u);
      launch(call, gemm<T, C>, unsigned(g.tiles_m * g.tiles_n * what.batches()), threads, 0, g, call.input<T>(0),
             call.input<T>(1), what.bias ? call.input<C>(in::linear::b) : nullptr,
             what.accumulate ? call.input<C>(in::linear_dw::acc) : nullptr, call.output<C>(0),
             what.keep ? call.output<C>(out::linear_gelu::h) : nullptr);
    });
  });
}

void launch_gelu(const KernelCall& call, DType dtype, const void* x, void* y, int64_t n) {
  if (n == 0) return;
  with_type(dtype, [&](auto t) {
    using T = decltype(t);
    auto from = static_cast<const T*>(x);
    auto to = static_cast<T*>(y);
    if (aligned({x, y}))
      launch(call, gelu_vectors<T>, blocks_for(n, 256 * vectors * Vec<T>::size), 256, 0, from, to, n);
    else
      launch(call, gelu_scalar<T>, blocks_for(n, 256), 256, 0, from, to, n);
  });
}

void launch_normal(const KernelCall& call, DType dtype, void* x, int64_t n, uint32_t seed) {
  if (n == 0) return;
  with_type(dtype, [&](auto t) {
    using T = decltype(t);
    launch(call, fill_normal<T>, blocks_for(n, 512), 256, 0, static_cast<T*>(x), n, seed);
  });
}
#endif

std::string reject_tiled(const KernelQuery& q) {
  for (auto* list : {&q.instr.in, &q.instr.out})
    for (ValueId id : *list)
      if (id != no_value && q.program.at(id).dtype != DType::f32 && !is_half(q.program.at(id).dtype))
        return q.program.at(id).name + ": takes f32, bf16 or f16";
  return "";
}

static Kernel tiled(const char* op, const char* name) {
  return {op,
          name,
          reject_tiled,
          nullptr,
          nullptr,
          CREST_DEVICE_CODE([](const KernelCall& c) {
            launch_tiled(c, contraction_of(c.program, c.instr)); })};
}

Kernel linear_tiled_kernel() { return tiled("linear", "cuda.linear.tiled"); }
Kernel linear_gelu_tiled_kernel() { return tiled("linear_gelu", "cuda.linear_gelu.tiled"); }
Kernel linear_dx_tiled_kernel() { return tiled("linear_dx", "cuda.linear_dx.tiled"); }
Kernel linear_dw_tiled_kernel() { return tiled("linear_dw", "cuda.linear_dw.tiled"); }
Kernel matmul_tiled_kernel() { return tiled("matmul", "cuda.matmul.tiled"); }

}  // namespace crest::cuda
