// Adafactor's factored second moment and the step that it makes. Sums have a fixed order: a block adds up its rows, and
// a second launch adds up the blocks.
#include "backend/cuda/device/any_float.h"
#include "backend/cuda/kernel.h"
#include "core/scalars.h"

namespace crest::cuda {

namespace {

constexpr int threads = 256;

struct Matrix {
  const void* g;
  DType dtype;
  int64_t rows, cols, rows_a_block;
};

// Enough blocks to fill the device, few enough that their column sums are small.
int64_t row_blocks(const Value& g, const Device& device) {
  return std::clamp<int64_t>(g.shape[0], 1, int64_t(device.multiprocessors) * 2);
}
Matrix matrix(const KernelCall& c, size_t i) {
  const Value& g = c.in_value(i);
  int64_t blocks = row_blocks(g, *c.device);
  return {c.in[i], g.dtype, g.shape[0], g.shape[1], (g.shape[0] + blocks - 1) / blocks};
}
unsigned blocks_of(const Matrix& m) { return blocks_for(m.rows, m.rows_a_block); }

__device__ inline float keep_factor(float rate, const Scalars* s) {
  return float(1 - pow(double(s->adam_step + 1), -double(rate)));
}

// Means of the block's rows into `row`; sums of its part of each column into part[block, :].
__global__ void __launch_bounds__(threads)
    row_moments(Matrix m, float* row, float* part, float rate, float eps, const Scalars* scalars) {
  if (scalars->found_inf) return;
  float keep = keep_factor(rate, scalars), factor = scalars->grad_factor;
  float* mine = part + blockIdx.x * m.cols;
  int64_t begin = blockIdx.x * m.rows_a_block, end = begin + m.rows_a_block < m.rows ? begin + m.rows_a_block : m.rows;
  for (int64_t j = threadIdx.x; j < m.cols; j += threads) mine[j] = 0;
  for (int64_t i = begin; i < end; ++i) {
    float sum = 0;
    for (int64_t j = threadIdx.x; j < m.cols; j += threads) {  // a column is always the same thread's
      float x = load_any(m.g, m.dtype, i * m.cols + j) * factor;
      mine[j] += x * x;
      sum += x * x;
    }
    sum = block_sum<threads>(sum);
    if (threadIdx.x == 0) row[i] = keep * row[i] + (1 - keep) * (sum / float(m.cols) + eps);
  }
}

__global__ void __launch_bounds__(threads)
    column_moments(Matrix m, int blocks, float* col, const float* part, float rate, float eps, const Scalars* scalars) {
  int64_t j = int64_t(blockIdx.x) * threads + threadIdx.x;
  if (scalars->found_inf || j >= m.cols) return;
  float keep = keep_factor(rate, scalars);
  double sum = 0;
  for (int b = 0; b < blocks; ++b) sum += double(part[b * m.cols + j]);
  col[j] = keep * col[j] + (1 - keep) * (float(sum / double(m.rows)) + eps);
}

size_t moments_workspace(const KernelQuery& q) {
  return size_t(row_blocks(q.in(1), q.device)) * size_t(q.in(1).shape[1]) * sizeof(float);
}

void launch_moments(const KernelCall& c) {
  Matrix m = matrix(c, 1);
  auto* part = static_cast<float*>(c.workspace);
  auto rate = float(c.instr.attrs.number("decay_rate")), eps = float(c.instr.attrs.number("eps"));
  auto* scalars = c.input<Scalars>(0);
  launch(c, row_moments, blocks_of(m), threads, 0, m, c.output<float>(0), part, rate, eps, scalars);
  launch(c, column_moments, blocks_for(m.cols, threads), threads, 0, m, int(blocks_of(m)), c.output<float>(1), part,
         rate, eps, scalars);
}

// One block: out[0] = mean of n numbers.
__global__ void __launch_bounds__(threads) mean_of(const float* x, int64_t n, float* out) {
  float sum = 0;
  for (int64_t i = threadIdx.x; i < n; i += threads) sum += x[i];
  sum = block_sum<threads>(sum);
  if (threadIdx.x == 0) out[0] = sum / float(n);
}

// Of element j of a row: g / sqrt(row col / mean).
__device__ inline float direction(const Matrix& m, int64_t i, int64_t j, float row_factor, const float* col) {
  return load_any(m.g, m.dtype, i * m.cols + j) * row_factor / sqrtf(col[j]);
}

__global__ void __launch_bounds__(threads) direction_squares(Matrix m, const float* row, const float* col,
                                                             const float* mean, float* part, const Scalars* scalars) {
  if (scalars->found_inf) return;
  int64_t begin = blockIdx.x * m.rows_a_block, end = begin + m.rows_a_block < m.rows ? begin + m.rows_a_block : m.rows;
  float sum = 0;
  for (int64_t i = begin; i < end; ++i) {
    float factor = scalars->grad_factor / sqrtf(row[i] / mean[0]);
    for (int64_t j = threadIdx.x; j < m.cols; j += threads) {
      float x = direction(m, i, j, factor, col);
      sum += x * x;
    }
  }
  sum = block_sum<threads>(sum);
  if (threadIdx.x == 0) part[blockIdx.x] = sum;
}

struct Target {
  float* p;
  void* w;  // null: no copy
  DType w_dtype;
};

// part[0 .. blocks - 1] are the sums of direction_squares, which every block adds up in the same order.
__global__ void __launch_bounds__(threads)
    factored_step(Matrix m, Target t, const float* row, const float* col, const float* mean, const float* part,
                  int blocks, float clip, float weight_decay, const Scalars* scalars) {
  if (scalars->found_inf) return;
  float sum = 0;
  for (int b = int(threadIdx.x); b < blocks; b += threads) sum += part[b];
  sum = block_sum<threads>(sum);
  float divisor = fmaxf(1.f, sqrtf(sum / (float(m.rows) * float(m.cols))) / clip);
  float lr = scalars->lr / divisor, decay = scalars->lr * weight_decay;
  int64_t begin = blockIdx.x * m.rows_a_block, end = begin + m.rows_a_block < m.rows ? begin + m.rows_a_block : m.rows;
  for (int64_t i = begin; i < end; ++i) {
    float factor = scalars->grad_factor / sqrtf(row[i] / mean[0]);
    for (int64_t j = threadIdx.x; j < m.cols; j += threads) {
      int64_t e = i * m.cols + j;
      float p = t.p[e];
      p = p - p * decay - direction(m, i, j, factor, col) * lr;
      t.p[e] = p;
      if (t.w) store_any(t.w, t.w_dtype, e, p);
    }
  }
}

// The mean of the rows, then a sum a block.
size_t update_workspace(const KernelQuery& q) { return size_t(1 + row_blocks(q.in(2), q.device)) * sizeof(float); }

void launch_update(const KernelCall& c) {
  Matrix m = matrix(c, 2);
  auto *mean = static_cast<float*>(c.workspace), *part = mean + 1;
  auto *row = c.input<float>(3), *col = c.input<float>(4);
  auto* scalars = c.input<Scalars>(0);
  Target t = {c.output<float>(0), c.has(5) ? c.out[1] : nullptr, c.has(5) ? c.in_value(5).dtype : DType::f32};
  launch(c, mean_of, 1, threads, 0, row, m.rows, mean);
  launch(c, direction_squares, blocks_of(m), threads, 0, m, row, col, mean, part, scalars);
  launch(c, factored_step, blocks_of(m), threads, 0, m, t, row, col, mean, part, int(blocks_of(m)),
         float(c.instr.attrs.number("clip")), float(c.instr.attrs.number("weight_decay")), scalars);
}

}  // namespace

Kernel factored_moments_kernel() {
  return {"factored_moments", "cuda.factored_moments", reject_unless_float, moments_workspace, nullptr, launch_moments};
}
Kernel factored_update_kernel() {
  return {"factored_update", "cuda.factored_update", reject_unless_float, update_workspace, nullptr, launch_update};
}

}  // namespace crest::cuda
