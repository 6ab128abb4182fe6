// norm_grad: dx and the column sums dgamma, dbeta in one pass over dy and x. Every group of threads walks over many
// rows and keeps its columns' sums in registers; blocks leave partial sums in the workspace, a second kernel adds those
// up in a fixed order. With n = (x - mean) rstd and g = dy gamma: dx = rstd (g - mean(g) - n mean(g n)); rms: without
// mean(g).
#include "backend/cuda/device/platform.h"
#include "backend/cuda/device/rows_copy.h"
#include "backend/cuda/device/rows_pack.h"
#include "backend/cuda/rows.h"
#include "ops/index.h"

namespace crest::cuda {

namespace {

template <class T>
struct NormGrad {
  const T *dy, *x, *gamma;
  const float *rstd, *mean;  // mean is null for rms
  const T* dres;             // may be null; dx may lie over dy or dres
  T* dx;
  float* partial;  // [blocks][2][cols]: dgamma and dbeta of the block's rows
  int64_t rows;
  int cols;
  float inverse_cols;
};

// Sums of both over the threads of a row, the same bits in each of them.
template <int Threads>
__device__ inline void row_sums(float& a, float& b) {
  a = warp_sum(a), b = warp_sum(b);
  if constexpr (Threads > 32) {
    __shared__ float2 part[Threads / 32];
    __syncthreads();  // those of the row before may still be read
    if (threadIdx.x % 32 == 0) part[threadIdx.x / 32] = {a, b};
    __syncthreads();
    a = b = 0;
    for (int i = 0; i < Threads / 32; ++i) a += part[i].x, b += part[i].y;
  }
}

// A group of `Threads` threads (a warp, or the block) handles rows first, first + step, .. A thread copies its vectors
// of the next row (dy, x, dres) to its own places in shared memory while it works on the present row: no barrier but
// those of the sums, and the copies in flight cost no registers. The first Sure of the K vectors of a thread always
// exist.
template <class T, int K, int Sure, int Threads, int MaxThreads>
__global__ void __launch_bounds__(MaxThreads, 1) norm_grad_rows(NormGrad<T> p) {
  wait_for_predecessors();
  constexpr int N = Pack<T>::size;
  CREST_DYNAMIC_SHARED(Pack<T>, shared);
  const int index = int(threadIdx.x % Threads), group = int(threadIdx.x / Threads), groups = int(blockDim.x / Threads);
  const int vectors = p.cols / N, arrays = p.dres ? 3 : 2;
  Pack<T>* const gamma = shared + index;                                 // [vectors]
  Pack<T>* stage = shared + (1 + group * 2 * arrays) * vectors + index;  // [2][arrays][vectors]
  const int other_stage = arrays * vectors;
  auto has = [&](int k) { return k < Sure || index + k * Threads < vectors; };

  float dgamma[K][N] = {}, dbeta[K][N] = {};

  // Blocks differ in the fastest index, so that a last incomplete round is spread over all of them.
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
  for (int v = int(threadIdx.x); v < vectors; v += int(blockDim.x)) shared[v] = load_pack(p.gamma + v * N);
  __syncthreads();
  for (int odd = 0; row < p.rows; row += step, odd ^= 1) {
    const Pack<T>* now = stage + (odd ? other_stage : 0);
    const float mean = next_mean, rstd = next_rstd;
    fetch(row + step, stage + (odd ? 0 : other_stage));
    wait_copies<1>();

    auto take = [&](int k, const Pack<T>* from) {
      Pack<T> v = {};  // a vector that does not exist counts as zeros
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
      if (has(k)) store_pack(p.dx + row * p.cols + (index + k * Threads) * N, Pack<T>::narrowed(dx));
    }
  }

  // The groups of the block, added up in order. Shared memory has room: a float of two sums for at least two stages of
  // two arrays of at least two bytes.
  float* to = p.partial + int64_t(blockIdx.x) * 2 * p.cols;
  auto leave = [&](float* sums) {
#pragma unroll
    for (int k = 0; k < K; ++k)
      if (has(k)) {
        float* at = sums + (index + k * Threads) * N;
#pragma unroll
        for (int j = 0; j < N; j += 4) {
          *reinterpret_cast<float4*>(at + j) = {dgamma[k][j], dgamma[k][j + 1], dgamma[k][j + 2], dgamma[k][j + 3]};
          *reinterpret_cast<float4*>(at + p.cols + j) = {dbeta[k][j], dbeta[k][j + 1], dbeta[k][j + 2],
                                                         dbeta[k][j + 3]};
        }
      }
  };
  if (groups == 1) return leave(to);
  float* sums = reinterpret_cast<float*>(shared);
  wait_copies<0>();
  __syncthreads();
  leave(sums + group * 2 * p.cols);
  __syncthreads();
  for (int c = int(threadIdx.x); c < 2 * p.cols; c += int(blockDim.x)) {
    float sum = 0;
    for (int g = 0; g < groups; ++g) sum += sums[g * 2 * p.cols + c];
    to[c] = sum;
  }
}

// Any width and alignment, two kernels. First the column sums of a block's rows (blockIdx.x) for 32 columns
// (blockIdx.y), because dx may lie over dy.
template <class T>
__global__ void __launch_bounds__(256) norm_grad_columns_any(NormGrad<T> p) {
  wait_for_predecessors();
  __shared__ float sums[2][8][32];
  int lane = int(threadIdx.x % 32), warp = int(threadIdx.x / 32);
  int c = int(blockIdx.y) * 32 + lane;
  float dgamma = 0, dbeta = 0;
  if (c < p.cols)
    for (int64_t row = int64_t(warp) * gridDim.x + blockIdx.x; row < p.rows; row += int64_t(gridDim.x) * 8) {
      float d = widen(p.dy[row * p.cols + c]), mean = p.mean ? p.mean[row] : 0.f;
      dgamma += d * ((widen(p.x[row * p.cols + c]) - mean) * p.rstd[row]);
      dbeta += d;
    }
  sums[0][warp][lane] = dgamma, sums[1][warp][lane] = dbeta;
  __syncthreads();
  if (warp < 2 && c < p.cols) {
    float sum = 0;
    for (int i = 0; i < 8; ++i) sum += sums[warp][i][lane];
    p.partial[(int64_t(blockIdx.x) * 2 + warp) * p.cols + c] = sum;
  }
}
// Then dx, a block per row.
template <class T>
__global__ void __launch_bounds__(256) norm_grad_dx_any(NormGrad<T> p) {
  wait_for_predecessors();
  int64_t row = blockIdx.x, begin = row * p.cols;
  float mean = p.mean ? p.mean[row] : 0.f, rstd = p.rstd[row], sum_g = 0, sum_gn = 0;
  for (int c = int(threadIdx.x); c < p.cols; c += 256) {
    float g = widen(p.dy[begin + c]) * widen(p.gamma[c]);
    sum_g += g, sum_gn += g * ((widen(p.x[begin + c]) - mean) * rstd);
  }
  row_sums<256>(sum_g, sum_gn);
  float mean_g = p.mean ? sum_g * p.inverse_cols : 0.f, mean_gn = sum_gn * p.inverse_cols;
  for (int c = int(threadIdx.x); c < p.cols; c += 256) {
    float g = widen(p.dy[begin + c]) * widen(p.gamma[c]), n = (widen(p.x[begin + c]) - mean) * rstd;
    float dres = p.dres ? widen(p.dres[begin + c]) : 0.f;
    p.dx[begin + c] = narrow<T>(rstd * (g - mean_g - n * mean_gn) + dres);
  }
}

// Adds up the blocks' partial sums and the accumulators (null: none), 32 columns of [dgamma, dbeta] a block.
template <class G>
__global__ void __launch_bounds__(512) norm_grad_finish(const float* partial, int blocks, int cols, int columns,
                                                        const G* acc_gamma, const G* acc_beta, G* dgamma, G* dbeta) {
  wait_for_predecessors();
  __shared__ float sums[16][32];
  int lane = int(threadIdx.x % 32), warp = int(threadIdx.x / 32);
  int c = int(blockIdx.x) * 32 + lane;
  float sum = 0;
  if (c < columns) {
#pragma unroll 8
    for (int b = warp; b < blocks; b += 16) sum += partial[int64_t(b) * 2 * cols + c];
  }
  sums[warp][lane] = sum;
  __syncthreads();
  if (warp || c >= columns) return;
  sum = 0;
#pragma unroll
  for (int i = 0; i < 16; ++i) sum += sums[i][lane];
  const G* acc = c < cols ? acc_gamma : acc_beta;
  G* out = c < cols ? dgamma : dbeta;
  c -= c < cols ? 0 : cols;
  out[c] = narrow<G>(sum + (acc ? widen(acc[c]) : 0.f));
}

// The widest block of a warp-per-row kernel whose lanes hold `units` times 8 columns: two sums of each in registers.
constexpr int max_threads(int units) { return units <= 2 ? 512 : units <= 5 ? 384 : 256; }

struct Plan {
  int threads = 0;  // of a row: a warp, a block of 256 or 512, or 0 for the kernels that take anything
  int units = 0;    // of 8 columns that a thread holds
  int blocks = 0;   // that leave partial sums
  int groups = 1;   // rows that a block works on at once
};

// As many blocks as multiprocessors; few rows are spread over all of them before a block gets a second warp.
Plan plan_for(const Value& x, bool dres, const Device& device) {
  const int64_t rows = x.shape.rows(), cols = x.shape.back(), size = int64_t(size_of(x.dtype));
  const int64_t processors = std::max(device.multiprocessors, 1);
  const int64_t stages = 2 * (dres ? 3 : 2) * cols * size;  // bytes of shared memory for a row in work
  auto spread = [&](Plan p, int64_t most_groups, int64_t most_blocks) {
    p.groups = int(std::clamp<int64_t>((rows + processors - 1) / processors, 1, most_groups));
    p.blocks = int(std::min((rows + p.groups - 1) / p.groups, most_blocks));
    return p;
  };
  auto units = [&](int64_t threads) { return int((cols + threads * 8 - 1) / (threads * 8)); };
  const int64_t room = device.shared_per_block - 1024 - cols * size;  // for gamma, and some is static
  if (cols * size % 16 == 0 && stages <= room) {
    if (units(32) <= 8)
      return spread({32, units(32)}, std::min<int64_t>(room / stages, max_threads(units(32)) / 32), processors);
    if (units(256) <= 2) return spread({256, units(256)}, 1, 2 * processors);
    if (units(256) <= 4) return spread({256, units(256)}, 1, processors);
    if (units(512) <= 4) return spread({512, units(512)}, 1, processors);
  }
  return spread({}, 8, processors);
}

size_t grad_workspace(const KernelQuery& q) {
  const Value& x = q.in(in::norm_grad::x);
  return size_t(plan_for(x, q.has(in::norm_grad::dres), q.device).blocks) * 2 * size_t(x.shape.back()) * sizeof(float);
}

// Starts the kernel that the plan names.
template <class T>
void launch_rows(const KernelCall& c, const NormGrad<T>& p, const Plan& plan) {
  size_t shared = (1 + size_t(plan.groups) * 2 * (p.dres ? 3 : 2)) * size_t(p.cols) * sizeof(T);
  constexpr int vectors = 8 / Pack<T>::size;  // of a unit
  bool done = false;
  if (plan.threads == 32)
    done = with_at_least<1, 2, 3, 4, 5, 6, 7, 8>(plan.units, [&](auto units) {
      constexpr int Units = decltype(units)::value, K = Units * vectors;
      launch(c, norm_grad_rows<T, K, K - vectors, 32, max_threads(Units)>, plan.blocks, plan.groups * 32, shared, p);
    });
  else if (plan.threads == 256)
    done = with_at_least<2, 4>(plan.units, [&](auto units) {
      launch(c, norm_grad_rows<T, decltype(units)::value * vectors, 0, 256, 256>, plan.blocks, 256, shared, p);
    });
  else if (plan.threads == 512)
    done = with_at_least<4>(plan.units, [&](auto units) {
      launch(c, norm_grad_rows<T, decltype(units)::value * vectors, 0, 512, 512>, plan.blocks, 512, shared, p);
    });
  if (!done) fail_internal("norm_grad: a plan without a kernel");
}

void launch_grad(const KernelCall& c) {
  const Value& x = c.in_value(in::norm_grad::x);
  const bool beta = c.instr.attrs.integer("beta") != 0;
  Plan plan = plan_for(x, c.has(in::norm_grad::dres), *c.device);
  with_type(x.dtype, [&](auto t) {
    using T = decltype(t);
    NormGrad<T> p = {};
    p.dy = c.input<T>(in::norm_grad::dy), p.x = c.input<T>(in::norm_grad::x);
    p.gamma = c.input<T>(in::norm_grad::gamma);
    p.rstd = c.input<float>(in::norm_grad::rstd);
    if (c.instr.attrs.text("kind") == "layer") p.mean = c.input<float>(in::norm_grad::mean);
    if (c.has(in::norm_grad::dres)) p.dres = c.input<T>(in::norm_grad::dres);
    p.dx = c.output<T>(out::norm_grad::dx);
    p.partial = static_cast<float*>(c.workspace);
    p.rows = x.shape.rows(), p.cols = int(x.shape.back());
    p.inverse_cols = 1.f / float(p.cols);
    if (plan.threads && aligned({p.dy, p.x, p.gamma, p.dres, p.dx})) {
      launch_rows(c, p, plan);
    } else {
      launch(c, norm_grad_columns_any<T>, dim3(unsigned(plan.blocks), blocks_for(p.cols, 32)), 256, 0, p);
      launch(c, norm_grad_dx_any<T>, unsigned(p.rows), 256, 0, p);
    }
    with_type(c.out_value(out::norm_grad::dgamma).dtype, [&](auto g) {
      using G = decltype(g);
      int columns = beta ? 2 * p.cols : p.cols;
      launch(c, norm_grad_finish<G>, blocks_for(columns, 32), 512, 0, p.partial, plan.blocks, p.cols, columns,
             c.has(in::norm_grad::acc_gamma) ? c.input<G>(in::norm_grad::acc_gamma) : nullptr,
             c.has(in::norm_grad::acc_beta) ? c.input<G>(in::norm_grad::acc_beta) : nullptr,
             c.output<G>(out::norm_grad::dgamma), beta ? c.output<G>(out::norm_grad::dbeta) : nullptr);
    });
  });
}

}  // namespace

Kernel norm_grad_kernel() {
  return {"norm_grad", "cuda.norm_grad", reject_unless_float, grad_workspace, nullptr, CREST_DEVICE_CODE(launch_grad)};
}

}  // namespace crest::cuda
