// norm_grad of rows in whole vectors of 16 bytes: the kernel and its
// launch. The instances with dropout are in norm_grad_dropout.cu,
// the others in norm_grad.cu, with the description.
#pragma once
#include "backend/cuda/device/dropout.h"
#include "backend/cuda/device/rows_copy.h"
#include "backend/cuda/device/rows_pack.h"
#include "backend/cuda/dropout.h"
#include "backend/cuda/rows.h"
#include "ops/index.h"

namespace crest::cuda {

template <class T>
struct NormGrad {
  const T *dy, *x, *gamma;   // gamma may be null: ones
  const float *rstd, *mean;  // mean is null for rms
  const T *dres, *beta;      // may be null; dx may lie over dy or dres
  T *dx, *y;                 // y: null without `keep`
  T* dropped;                // null: with dropout dx itself is dropped out
  float* partial;            // [blocks][2 or 3][cols]: dgamma, dbeta and, with Bias, dbias of the block's rows
  int64_t rows;
  int cols;
  float inverse_cols;
  DropoutRows dropout;
};

// Sums of both over the threads of a row, bitwise identical in each of them.
template <int Threads>
__device__ inline void row_sums(float& a, float& b) {
  a = warp_sum(a), b = warp_sum(b);
  if constexpr (Threads > 32) {
    __shared__ float2 part[Threads / 32];
    __syncthreads();  // the row before may still be read
    if (threadIdx.x % 32 == 0) part[threadIdx.x / 32] = {a, b};
    __syncthreads();
    a = b = 0;
    for (int i = 0; i < Threads / 32; ++i) a += part[i].x, b += part[i].y;
  }
}

// A group of `Threads` threads (a warp, or the block) handles rows first, first + step, .. A thread
// copies its vectors of the next row (dy, x, dres) to its own places in shared memory while it
// works on the present row: the only barriers are in the sums, and the copies in flight cost no
// registers. The first Sure of the K vectors of a thread always exist.
template <class T, int K, int Sure, int Threads, int MaxThreads, bool Bias, bool Drop>
__global__ void __launch_bounds__(MaxThreads, 1) norm_grad_rows(NormGrad<T> p) {
  wait_for_predecessors();
  constexpr int N = Pack<T>::size;
  CREST_DYNAMIC_SHARED(Pack<T>, shared);
  const int index = int(threadIdx.x % Threads), group = int(threadIdx.x / Threads), groups = int(blockDim.x / Threads);
  const int vectors = p.cols / N, arrays = p.dres ? 3 : 2;
  Pack<T>* const gamma = shared + index;                                             // [vectors]
  Pack<T>* const beta = gamma + vectors;                                             // the same, for y
  Pack<T>* stage = shared + ((p.y ? 2 : 1) + group * 2 * arrays) * vectors + index;  // [2][arrays][vectors]
  const int other_stage = arrays * vectors;
  auto has = [&](int k) { return k < Sure || index + k * Threads < vectors; };

  float dgamma[K][N] = {}, dbeta[K][N] = {}, dbias[Bias ? K : 1][N] = {};

  // Blocks differ in the fastest index, so a last incomplete round is spread over all of them.
  const int64_t step = int64_t(gridDim.x) * groups;
  int64_t row = int64_t(group) * gridDim.x + blockIdx.x;
  float next_mean = 0, next_rstd = 0;
  auto fetch = [&](int64_t r, Pack<T>* to) {
    if (r < p.rows) {
      int64_t at = r * p.cols + index * N;
#pragma unroll
      for (int k = 0; k < K; ++k)
        if (has(k)) {
          copy_async(to + k * Threads, p.dy + at + k * Threads * N);
          copy_async(to + k * Threads + vectors, p.x + at + k * Threads * N);
          if (p.dres) copy_async(to + k * Threads + 2 * vectors, p.dres + at + k * Threads * N);
        }
      if (p.mean) next_mean = p.mean[r];
      next_rstd = p.rstd[r];
    }
    commit_copies();
  };
  fetch(row, stage);
  for (int v = int(threadIdx.x); v < vectors; v += int(blockDim.x)) {
    shared[v] = p.gamma ? load_pack(p.gamma + v * N) : pack_of<T>(1.f);
    if (p.y) shared[vectors + v] = p.beta ? load_pack(p.beta + v * N) : Pack<T>{};
  }
  __syncthreads();
  for (int odd = 0; row < p.rows; row += step, odd ^= 1) {
    const Pack<T>* now = stage + (odd ? other_stage : 0);
    const float mean = next_mean, rstd = next_rstd;
    fetch(row + step, stage + (odd ? 0 : other_stage));
    wait_copies<1>();

    auto take = [&](int k, const Pack<T>* from) {
      Pack<T> v = {};  // a missing vector counts as zeros
      if (has(k)) v = from[k * Threads];
      return v;
    };
    float sum_g = 0, sum_gn = 0;
#pragma unroll
    for (int k = 0; k < K; ++k) {
      float d[N], x[N], w[N], part_g = 0, part_gn = 0;
      take(k, now).widen_to(d);
      take(k, now + vectors).widen_to(x);
      take(k, gamma).widen_to(w);
#pragma unroll
      for (int j = 0; j < N; ++j) {
        float n = (x[j] - mean) * rstd, g = d[j] * w[j];
        part_g += g, part_gn += g * n;
        dgamma[k][j] += d[j] * n, dbeta[k][j] += d[j];
      }
      sum_g += part_g, sum_gn += part_gn;
    }
    row_sums<Threads>(sum_g, sum_gn);
    const float mean_g = p.mean ? sum_g * p.inverse_cols : 0.f, mean_gn = sum_gn * p.inverse_cols;
    const DropoutSpan span(p.dropout, row, p.cols);
    __syncwarp();  // read again from shared memory: kept, the row would cost too many registers
#pragma unroll
    for (int k = 0; k < K; ++k) {
      float d[N], x[N], w[N], dx[N], dres[N] = {};
      take(k, now).widen_to(d);
      take(k, now + vectors).widen_to(x);
      take(k, gamma).widen_to(w);
      if (p.dres) take(k, now + 2 * vectors).widen_to(dres);
#pragma unroll
      for (int j = 0; j < N; ++j) dx[j] = rstd * (d[j] * w[j] - mean_g - (x[j] - mean) * (rstd * mean_gn)) + dres[j];
      Pack<T> stored = Pack<T>::narrowed(dx);
      const int64_t place = row * p.cols + (index + k * Threads) * N;
      if constexpr (Drop) {
        if (has(k)) {
          if (p.dropped) store_pack(p.dx + place, stored);
          stored.widen_to(dx);
          span.drop(dx, unsigned(index + k * Threads) * N);
          stored = Pack<T>::narrowed(dx);
          store_pack((p.dropped ? p.dropped : p.dx) + place, stored);
        }
      } else {
        if (has(k)) store_pack(p.dx + place, stored);
      }
      if constexpr (Bias) {
        stored.widen_to(dx);
#pragma unroll
        for (int j = 0; j < N; ++j) dbias[k][j] += dx[j];
      }
      if (p.y) {
        float y[N];
        take(k, beta).widen_to(y);
#pragma unroll
        for (int j = 0; j < N; ++j) y[j] = (x[j] - mean) * rstd * w[j] + y[j];
        if (has(k)) store_pack(p.y + place, Pack<T>::narrowed(y));
      }
    }
  }

  // The groups of the block, added up in order, one kind of sum after the other. Shared memory has
  // room: a float for at least two stages of two arrays of at least two bytes.
  wait_copies<0>();
  float* const sums = reinterpret_cast<float*>(shared);
  auto leave = [&](const float(&from)[K][N], int kind) {
    float* const to = p.partial + (int64_t(blockIdx.x) * (Bias ? 3 : 2) + kind) * p.cols;
    float* const mine = groups == 1 ? to : sums + group * p.cols;
    __syncthreads();  // shared memory is still read
#pragma unroll
    for (int k = 0; k < K; ++k)
      if (has(k))
#pragma unroll
        for (int j = 0; j < N; j += 4)
          *reinterpret_cast<float4*>(mine + (index + k * Threads) * N + j) = {from[k][j], from[k][j + 1],
                                                                              from[k][j + 2], from[k][j + 3]};
    if (groups == 1) return;
    __syncthreads();
    for (int c = int(threadIdx.x); c < p.cols; c += int(blockDim.x)) {
      float sum = 0;
      for (int g = 0; g < groups; ++g) sum += sums[g * p.cols + c];
      to[c] = sum;
    }
  };
  leave(dgamma, 0), leave(dbeta, 1);
  if constexpr (Bias) leave(dbias, 2);
}

// The widest block of a warp-per-row kernel with `units` times 8 columns in a lane: two or three
// sums of each in registers.
constexpr int norm_grad_threads(int units, bool bias) { return units <= 2 ? 512 : units <= (bias ? 4 : 5) ? 384 : 256; }

struct NormGradPlan {
  int threads = 0;  // of a row: a warp, a block of 256 or 512, or 0 for the general kernels
  int units = 0;    // of 8 columns in a thread
  int blocks = 0;   // with partial sums
  int groups = 1;   // rows of a block at once
};

// The optional parts of an instruction.
struct NormGradOptions {
  bool dres, bias, y, drop, apart;
  bool any_row() const { return !bias && !y; }  // whether there are kernels for rows of any width and alignment
  explicit NormGradOptions(const Instr& i)
      : dres(i.in.size() > in::norm_grad::dres && i.in[in::norm_grad::dres] != no_value),
        bias(i.attrs.integer("bias", 0) != 0),
        y(i.attrs.integer("keep", 0) != 0),
        drop(i.attrs.has("p")),
        apart(i.attrs.integer("apart", 0) != 0) {}
  int kinds() const { return bias ? 3 : 2; }   // of column sums
  int arrays() const { return dres ? 3 : 2; }  // of staged rows
  int weights() const { return y ? 2 : 1; }    // gamma, beta
};

// Starts the plan's kernel.
template <bool Bias, bool Drop, class T>
void launch_norm_grad_rows(const KernelCall& c, const NormGrad<T>& p, const NormGradPlan& plan,
                           const NormGradOptions& options) {
  size_t rows = size_t(options.weights()) + size_t(plan.groups) * 2 * size_t(options.arrays());
  size_t shared = rows * size_t(p.cols) * sizeof(T);
  constexpr int vectors = 8 / Pack<T>::size;  // of a unit
  bool done = false;
  if (plan.threads == 32)
    done = with_at_least<1, 2, 3, 4, 5, 6, 7, 8>(plan.units, [&](auto units) {
      constexpr int Units = decltype(units)::value, K = Units * vectors;
      launch(c, norm_grad_rows<T, K, K - vectors, 32, norm_grad_threads(Units, Bias), Bias, Drop>, plan.blocks,
             plan.groups * 32, shared, p);
    });
  else if (plan.threads == 256)
    done = with_at_least<2, 4>(plan.units, [&](auto units) {
      launch(c, norm_grad_rows<T, decltype(units)::value * vectors, 0, 256, 256, Bias, Drop>, plan.blocks, 256, shared,
             p);
    });
  else if (plan.threads == 512)
    done = with_at_least<4>(plan.units, [&](auto units) {
      launch(c, norm_grad_rows<T, decltype(units)::value * vectors, 0, 512, 512, Bias, Drop>, plan.blocks, 512, shared,
             p);
    });
  if (!done) fail_internal("norm_grad: a plan without a kernel");
}

// The same with dropout and, if options say so, the bias gradient.
template <class T>
void launch_norm_grad_dropout(const KernelCall& c, const NormGrad<T>& p, const NormGradPlan& plan,
                              const NormGradOptions& options);

}  // namespace crest::cuda
