// norm_grad: dx and the column sums dgamma, dbeta and, with attribute `bias`, dbias (of dx as it is
// stored) in one pass over dy and x. Every group of threads walks over many rows and keeps its
// columns' sums in registers; blocks leave partial sums in the workspace, a second kernel adds
// those up in a fixed order. With n = (x - mean) rstd and g = dy gamma: dx = rstd (g - mean(g) - n
// mean(g n)); rms: without mean(g). With attribute `keep` y = n gamma + beta, too.
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
  const T *dres, *beta;      // may be null; dx may lie over dy or dres
  T *dx, *y;                 // y: null without `keep`
  float* partial;            // [blocks][2 or 3][cols]: dgamma, dbeta and, with Bias, dbias of the block's rows
  int64_t rows;
  int cols;
  float inverse_cols;
};

// Sums of both over the threads of a row, bitwise identical in each of them.
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

// A group of `Threads` threads (a warp, or the block) handles rows first, first + step, .. A thread
// copies its vectors of the next row (dy, x, dres) to its own places in shared memory while it
// works on the present row: no barrier but those of the sums, and the copies in flight cost no
// registers. The first Sure of the K vectors of a thread always exist.
template <class T, int K, int Sure, int Threads, int MaxThreads, bool Bias>
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
  for (int v = int(threadIdx.x); v < vectors; v += int(blockDim.x)) {
    shared[v] = load_pack(p.gamma + v * N);
    if (p.y) shared[vectors + v] = p.beta ? load_pack(p.beta + v * N) : Pack<T>{};
  }
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
      const Pack<T> stored = Pack<T>::narrowed(dx);
      if (has(k)) store_pack(p.dx + row * p.cols + (index + k * Threads) * N, stored);
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
        if (has(k)) store_pack(p.y + row * p.cols + (index + k * Threads) * N, Pack<T>::narrowed(y));
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

// Any width and alignment, two kernels. First the column sums of a block's rows (blockIdx.x) for 32
// columns (blockIdx.y), because dx may lie over dy.
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

// The column sums of an instruction, in the order of their partial sums; null: not wanted. acc: of
// the sum so far.
template <class G>
struct ColumnSums {
  G* out[3];
  const G* acc[3];
};

// Adds up the blocks' partial sums and the accumulators, 32 columns of `kinds` times `cols` a
// block.
template <class G>
__global__ void __launch_bounds__(512)
    norm_grad_finish(const float* partial, int blocks, int cols, int kinds, ColumnSums<G> sums) {
  wait_for_predecessors();
  __shared__ float parts[16][32];
  int lane = int(threadIdx.x % 32), warp = int(threadIdx.x / 32);
  int c = int(blockIdx.x) * 32 + lane, columns = kinds * cols, kind = c / cols;
  float sum = 0;
  if (c < columns) {
#pragma unroll 8
    for (int b = warp; b < blocks; b += 16) sum += partial[int64_t(b) * columns + c];
  }
  parts[warp][lane] = sum;
  __syncthreads();
  if (warp || c >= columns) return;
  sum = 0;
#pragma unroll
  for (int i = 0; i < 16; ++i) sum += parts[i][lane];
  G* out = kind == 0 ? sums.out[0] : kind == 1 ? sums.out[1] : sums.out[2];
  const G* acc = kind == 0 ? sums.acc[0] : kind == 1 ? sums.acc[1] : sums.acc[2];
  c -= kind * cols;
  if (out) out[c] = narrow<G>(sum + (acc ? widen(acc[c]) : 0.f));
}

// The widest block of a warp-per-row kernel whose lanes hold `units` times 8 columns: two or three
// sums of each in registers.
constexpr int max_threads(int units, bool bias) { return units <= 2 ? 512 : units <= (bias ? 4 : 5) ? 384 : 256; }

struct Plan {
  int threads = 0;  // of a row: a warp, a block of 256 or 512, or 0 for the kernels that take anything
  int units = 0;    // of 8 columns that a thread holds
  int blocks = 0;   // that leave partial sums
  int groups = 1;   // rows that a block works on at once
};

// What is optional of an instruction.
struct Options {
  bool dres, bias, y;
  bool any_row() const { return !bias && !y; }  // whether there are kernels for rows of any width and alignment
  explicit Options(const Instr& i)
      : dres(i.in.size() > in::norm_grad::dres && i.in[in::norm_grad::dres] != no_value),
        bias(i.attrs.integer("bias", 0) != 0),
        y(i.attrs.integer("keep", 0) != 0) {}
  int kinds() const { return bias ? 3 : 2; }   // of column sums
  int arrays() const { return dres ? 3 : 2; }  // of rows that are staged
  int weights() const { return y ? 2 : 1; }    // gamma, beta
};

// As many blocks as multiprocessors; few rows are spread over all of them before a block gets a
// second warp.
Plan plan_for(const Value& x, const Options& options, const Device& device) {
  const int64_t rows = x.shape.rows(), cols = x.shape.back(), size = int64_t(size_of(x.dtype));
  const int64_t processors = std::max(device.multiprocessors, 1);
  const int64_t stages = 2 * options.arrays() * cols * size;  // bytes of shared memory for a row in work
  auto spread = [&](Plan p, int64_t most_groups, int64_t most_blocks) {
    p.groups = int(std::clamp<int64_t>((rows + processors - 1) / processors, 1, most_groups));
    p.blocks = int(std::min((rows + p.groups - 1) / p.groups, most_blocks));
    return p;
  };
  auto units = [&](int64_t threads) { return int((cols + threads * 8 - 1) / (threads * 8)); };
  const int64_t room = device.shared_per_block - 1024 - options.weights() * cols * size;  // some is static
  if (cols * size % 16 == 0 && stages <= room) {
    if (units(32) <= 8)
      return spread({32, units(32)}, std::min<int64_t>(room / stages, max_threads(units(32), options.bias) / 32),
                    processors);
    if (units(256) <= 2) return spread({256, units(256)}, 1, 2 * processors);
    if (units(256) <= 4) return spread({256, units(256)}, 1, processors);
    if (units(512) <= 4) return spread({512, units(512)}, 1, processors);
  }
  return spread({}, 8, processors);
}

size_t grad_workspace(const KernelQuery& q) {
  const Value& x = q.in(in::norm_grad::x);
  const Options options(q.instr);
  return size_t(plan_for(x, options, q.device).blocks) * size_t(options.kinds()) * size_t(x.shape.back()) *
         sizeof(float);
}

std::string reject(const KernelQuery& q) {
  const Options options(q.instr);
  if (std::string why = reject_unless_float(q); !why.empty() || options.any_row()) return why;
  if (!plan_for(q.in(in::norm_grad::x), options, q.device).threads)
    return "with 'bias' or 'keep' takes rows that are whole vectors of 16 bytes and fit into shared memory";
  for (auto* list : {&q.instr.in, &q.instr.out})
    for (ValueId id : *list)
      if (id != no_value && q.program.at(id).layout.offset * int64_t(size_of(q.program.at(id).dtype)) % 16)
        return "%" + q.program.at(id).name + " is a view that does not begin at a multiple of 16 bytes";
  return "";
}

// Starts the kernel that the plan names.
template <bool Bias, class T>
void launch_rows(const KernelCall& c, const NormGrad<T>& p, const Plan& plan, const Options& options) {
  size_t rows = size_t(options.weights()) + size_t(plan.groups) * 2 * size_t(options.arrays());
  size_t shared = rows * size_t(p.cols) * sizeof(T);
  constexpr int vectors = 8 / Pack<T>::size;  // of a unit
  bool done = false;
  if (plan.threads == 32)
    done = with_at_least<1, 2, 3, 4, 5, 6, 7, 8>(plan.units, [&](auto units) {
      constexpr int Units = decltype(units)::value, K = Units * vectors;
      launch(c, norm_grad_rows<T, K, K - vectors, 32, max_threads(Units, Bias), Bias>, plan.blocks, plan.groups * 32,
             shared, p);
    });
  else if (plan.threads == 256)
    done = with_at_least<2, 4>(plan.units, [&](auto units) {
      launch(c, norm_grad_rows<T, decltype(units)::value * vectors, 0, 256, 256, Bias>, plan.blocks, 256, shared, p);
    });
  else if (plan.threads == 512)
    done = with_at_least<4>(plan.units, [&](auto units) {
      launch(c, norm_grad_rows<T, decltype(units)::value * vectors, 0, 512, 512, Bias>, plan.blocks, 512, shared, p);
    });
  if (!done) fail_internal("norm_grad: a plan without a kernel");
}

void launch_grad(const KernelCall& c) {
  namespace from = in::norm_grad;
  namespace to = out::norm_grad;
  const Value& x = c.in_value(from::x);
  const Options options(c.instr);
  const bool beta = c.instr.attrs.integer("beta") != 0;
  Plan plan = plan_for(x, options, *c.device);
  with_type(x.dtype, [&](auto t) {
    using T = decltype(t);
    NormGrad<T> p = {};
    p.dy = c.input<T>(from::dy), p.x = c.input<T>(from::x);
    p.gamma = c.input<T>(from::gamma);
    p.rstd = c.input<float>(from::rstd);
    if (c.instr.attrs.text("kind") == "layer") p.mean = c.input<float>(from::mean);
    if (c.has(from::dres)) p.dres = c.input<T>(from::dres);
    p.dx = c.output<T>(to::dx);
    if (options.y) p.y = c.output<T>(c.instr.out.size() - 1);
    if (c.has(from::beta)) p.beta = c.input<T>(from::beta);
    p.partial = static_cast<float*>(c.workspace);
    p.rows = x.shape.rows(), p.cols = int(x.shape.back());
    p.inverse_cols = 1.f / float(p.cols);
    if (options.bias) {
      launch_rows<true>(c, p, plan, options);
    } else if (options.y || (plan.threads && aligned({p.dy, p.x, p.gamma, p.dres, p.dx}))) {
      launch_rows<false>(c, p, plan, options);
    } else {
      launch(c, norm_grad_columns_any<T>, dim3(unsigned(plan.blocks), blocks_for(p.cols, 32)), 256, 0, p);
      launch(c, norm_grad_dx_any<T>, unsigned(p.rows), 256, 0, p);
    }
    with_type(c.out_value(to::dgamma).dtype, [&](auto g) {
      using G = decltype(g);
      auto acc = [&](size_t i) { return c.has(i) ? c.input<G>(i) : nullptr; };
      ColumnSums<G> sums = {{c.output<G>(to::dgamma), beta ? c.output<G>(to::dbeta) : nullptr,
                             options.bias ? c.output<G>(to::dbias) : nullptr},
                            {acc(from::acc_gamma), acc(from::acc_beta), acc(from::acc_bias)}};
      const int kinds = options.kinds();
      launch(c, norm_grad_finish<G>, blocks_for((beta ? kinds : 1) * p.cols, 32), 512, 0, p.partial, plan.blocks,
             p.cols, kinds, sums);
    });
  });
}

}  // namespace

Kernel norm_grad_kernel() {
  return {"norm_grad", "cuda.norm_grad", reject, grad_workspace, nullptr, CREST_DEVICE_CODE(launch_grad)};
}

}  // namespace crest::cuda
