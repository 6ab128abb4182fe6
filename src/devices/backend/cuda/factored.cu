// Adafactor's factored second moment and its step. A thread block takes a tile of the matrix, a
// warp its rows, a lane the same few columns of each. Sums over rows are shuffles, sums over
// columns stay in registers, and every sum has a fixed order (parts in the workspace, added up by a
// second launch).
#include "backend/cuda/device/update.h"
#include "ops/index.h"

namespace crest::cuda {

namespace {

constexpr int threads = 256, warps = threads / 32, blocks_per_multiprocessor = 8;

// Tiles of 32 * V columns by `rows_a_tile` rows: blockIdx.x counts along the columns, blockIdx.y
// along the rows.
struct Tiling {
  int64_t rows, cols, rows_a_tile;
  unsigned across, down;
};
// V: 4, or 1 for unaligned rows. The workspace is made for V = 1, which has the most tiles.
Tiling tiling(int64_t rows, int64_t cols, int V, const Device& device) {
  Tiling t = {rows, cols, 0, blocks_for(cols, 32 * V), 1};
  int64_t wanted = std::max<int64_t>(1, device.multiprocessors * blocks_per_multiprocessor / int64_t(t.across));
  int64_t warp_rows = (rows + warps - 1) / warps;  // a warp of a tile has at least one row
  t.rows_a_tile = (warp_rows + wanted - 1) / wanted * warps;
  t.down = blocks_for(rows, t.rows_a_tile);
  return t;
}
Tiling tiling(const Value& g, int V, const Device& device) { return tiling(g.shape[0], g.shape[1], V, device); }

// A lane's place: its first column and how many of V exist.
template <int V>
struct Place {
  int64_t column, row, end;
  int count;
  __device__ explicit Place(const Tiling& t) {
    column = (int64_t(blockIdx.x) * 32 + threadIdx.x % 32) * V;
    row = int64_t(blockIdx.y) * t.rows_a_tile + threadIdx.x / 32;
    end = int64_t(blockIdx.y + 1) * t.rows_a_tile;
    if (end > t.rows) end = t.rows;
    count = column + V <= t.cols ? V : 0;  // V divides the columns
  }
};

__device__ inline float keep_factor(float rate, const Scalars* s) {
  return float(1 - pow(double(s->adam_step + 1), -double(rate)));
}

// Sums of squares: of a tile's part of each row into row_part[tile across, row], of each column
// into column_part[tile down, column].
template <int V, class G>
__global__ void __launch_bounds__(threads)
    tile_squares(Tiling t, const G* g, float* row_part, float* column_part, const Scalars* scalars) {
  wait_for_predecessors();
  __shared__ float shared[warps][32 * V];
  if (scalars->found_inf) return;
  Place<V> at(t);
  float factor = scalars->grad_factor, columns[V] = {};
  for (int64_t i = at.row; i < at.end; i += warps) {
    float x[V] = {}, sum = 0;
    if (at.count) load_floats<V>(g + i * t.cols + at.column, x);
#pragma unroll
    for (int k = 0; k < V; ++k) {
      x[k] *= factor;
      columns[k] += x[k] * x[k];
      sum += x[k] * x[k];
    }
    sum = warp_sum(sum);
    if (threadIdx.x % 32 == 0) row_part[blockIdx.x * t.rows + i] = sum;
  }
#pragma unroll
  for (int k = 0; k < V; ++k) shared[threadIdx.x / 32][threadIdx.x % 32 * V + k] = columns[k];
  __syncthreads();
  for (int j = int(threadIdx.x); j < 32 * V; j += threads) {
    float sum = 0;
    for (int w = 0; w < warps; ++w) sum += shared[w][j];
    int64_t column = int64_t(blockIdx.x) * 32 * V + j;
    if (column < t.cols) column_part[blockIdx.y * t.cols + column] = sum;
  }
}

// The state of a row or a column: its mean square. Thread id is a row, or behind all rows a column.
__global__ void __launch_bounds__(threads)
    keep_moments(Tiling t, float* row, float* col, const float* row_part, const float* column_part, float rate,
                 float eps, const Scalars* scalars) {
  wait_for_predecessors();
  int64_t id = int64_t(blockIdx.x) * threads + threadIdx.x;
  if (scalars->found_inf || id >= t.rows + t.cols) return;
  bool is_row = id < t.rows;
  int64_t j = is_row ? id : id - t.rows, stride = is_row ? t.rows : t.cols;
  const float* part = is_row ? row_part : column_part;
  float* moment = is_row ? row : col;
  double sum = 0;
  for (unsigned b = 0; b < (is_row ? t.across : t.down); ++b) sum += double(part[b * stride + j]);
  float keep = keep_factor(rate, scalars), mean = float(sum / double(is_row ? t.cols : t.rows));
  moment[j] = keep * moment[j] + (1 - keep) * (mean + eps);
}

// Rows of all tiles across, columns of all tiles down.
int64_t moment_parts(const Tiling& t) { return t.across * t.rows + t.down * t.cols; }
size_t moments_workspace(const KernelQuery& q) {
  const Value& g = q.in(in::factored_moments::g);
  return size_t(std::max(moment_parts(tiling(g, 1, q.device)), moment_parts(tiling(g, 4, q.device)))) * sizeof(float);
}

template <int V, class G>
void launch_moments_typed(const KernelCall& c) {
  Tiling t = tiling(c.in_value(in::factored_moments::g), V, *c.device);
  auto* row_part = static_cast<float*>(c.workspace);
  auto* column_part = row_part + t.across * t.rows;
  auto rate = float(c.instr.attrs.number("decay_rate")), eps = float(c.instr.attrs.number("eps"));
  auto* scalars = c.input<Scalars>(in::factored_moments::scalars);
  launch(c, tile_squares<V, G>, dim3(t.across, t.down), threads, 0, t, c.input<G>(in::factored_moments::g), row_part,
         column_part, scalars);
  launch(c, keep_moments, blocks_for(t.rows + t.cols, threads), threads, 0, t,
         c.output<float>(out::factored_moments::row), c.output<float>(out::factored_moments::col), row_part,
         column_part, rate, eps, scalars);
}

void launch_moments(const KernelCall& c) {
  with_type(c.in_value(in::factored_moments::g).dtype, [&](auto g) {
    using G = decltype(g);
    bool fits = c.in_value(in::factored_moments::g).shape[1] % 4 == 0 &&
                aligned({c.in[in::factored_moments::g]}, 4 * sizeof(G));
    fits ? launch_moments_typed<4, G>(c) : launch_moments_typed<1, G>(c);
  });
}

// One block: out[0] = mean of n numbers.
constexpr int mean_threads = 1024;
__global__ void __launch_bounds__(mean_threads) mean_of(const float* x, int64_t n, float* out) {
  wait_for_predecessors();
  float sum = 0;
  for (int64_t i = threadIdx.x; i < n; i += mean_threads) sum += x[i];
  sum = block_sum<mean_threads>(sum);
  if (threadIdx.x == 0) out[0] = sum / float(n);
}

// g / sqrt(row col / mean) of a lane's columns: the factor of the column is computed once.
template <int V, class G>
struct Direction {
  const float *row, *mean;
  const G* g;
  float factor, columns[V];
  __device__ Direction(const Place<V>& at, const G* g_, const float* row_, const float* col, const float* mean_,
                       const Scalars* scalars)
      : row(row_), mean(mean_), g(g_), factor(scalars->grad_factor), columns{} {
    for (int k = 0; k < at.count; ++k) columns[k] = 1 / sqrtf(col[at.column + k]);
  }
  // `e`: place of the row's first of these columns.
  __device__ void load(int64_t i, int64_t e, float (&x)[V]) const {
    float f = factor / sqrtf(row[i] / mean[0]);
    load_floats<V>(g + e, x);
#pragma unroll
    for (int k = 0; k < V; ++k) x[k] *= f * columns[k];
  }
};

template <int V, class G>
__global__ void __launch_bounds__(threads) direction_squares(Tiling t, const G* g, const float* row, const float* col,
                                                             const float* mean, float* part, const Scalars* scalars) {
  wait_for_predecessors();
  if (scalars->found_inf) return;
  Place<V> at(t);
  Direction<V, G> direction(at, g, row, col, mean, scalars);
  float sum = 0;
  if (at.count)
    for (int64_t i = at.row; i < at.end; i += warps) {
      float x[V];
      direction.load(i, i * t.cols + at.column, x);
#pragma unroll
      for (int k = 0; k < V; ++k) sum += x[k] * x[k];
    }
  sum = block_sum<threads>(sum);
  if (threadIdx.x == 0) part[blockIdx.y * gridDim.x + blockIdx.x] = sum;
}

// part: the sums of direction_squares, added up in the same order by every block.
template <int V, class G, class W>
__global__ void __launch_bounds__(threads)
    factored_step(Tiling t, float* parameter, W* copy, const G* g, const float* row, const float* col,
                  const float* mean, const float* part, float clip, float weight_decay, float lr_factor, float momentum,
                  const Scalars* scalars) {
  wait_for_predecessors();
  if (scalars->found_inf) return;
  float sum = 0;
  for (unsigned b = threadIdx.x; b < t.across * t.down; b += threads) sum += part[b];
  sum = block_sum<threads>(sum);
  float divisor = fmaxf(1.f, sqrtf(sum / (float(t.rows) * float(t.cols))) / clip);
  // A step of the weights, or of a mean of updates.
  const float rate = scalars->lr * lr_factor;
  float lr = (momentum > 0 ? momentum - 1 : rate) / divisor;
  float decay = momentum > 0 ? 1 - momentum : rate * weight_decay;
  Place<V> at(t);
  if (!at.count) return;
  Direction<V, G> direction(at, g, row, col, mean, scalars);
  for (int64_t i = at.row; i < at.end; i += warps) {
    int64_t e = i * t.cols + at.column;
    float x[V], p[V];
    direction.load(i, e, x);
    load_floats<V>(parameter + e, p);
#pragma unroll
    for (int k = 0; k < V; ++k) p[k] = p[k] - p[k] * decay - x[k] * lr;
    store_floats<V>(parameter + e, p);
    if constexpr (!std::is_same_v<W, NoCopy>) store_weights(copy + e, p);
  }
}

// The mean of the rows, then a sum a tile.
size_t update_workspace(const KernelQuery& q) {
  Tiling one = tiling(q.in(in::factored_update::g), 1, q.device),
         four = tiling(q.in(in::factored_update::g), 4, q.device);
  return size_t(1 + std::max(one.across * one.down, four.across * four.down)) * sizeof(float);
}

template <int V, class G, class W>
void launch_update_typed(const KernelCall& c, W* copy) {
  Tiling t = tiling(c.in_value(in::factored_update::g), V, *c.device);
  auto *mean = static_cast<float*>(c.workspace), *part = mean + 1;
  auto *row = c.input<float>(in::factored_update::row), *col = c.input<float>(in::factored_update::col);
  auto* scalars = c.input<Scalars>(in::factored_update::scalars);
  auto* g = c.input<G>(in::factored_update::g);
  launch(c, mean_of, 1, mean_threads, 0, row, t.rows, mean);
  launch(c, direction_squares<V, G>, dim3(t.across, t.down), threads, 0, t, g, row, col, mean, part, scalars);
  launch(c, factored_step<V, G, W>, dim3(t.across, t.down), threads, 0, t,
         c.output<float>(out::factored_update::master), copy, g, row, col, mean, part,
         float(c.instr.attrs.number("clip")), float(c.instr.attrs.number("weight_decay")),
         float(c.instr.attrs.number("lr_factor", 1.0)), float(c.instr.attrs.number("momentum", 0)), scalars);
}

template <class G, class W>
void launch_update_of(const KernelCall& c, W* copy) {
  size_t copied = std::is_same_v<W, NoCopy> ? 1 : 4 * sizeof(W);
  bool fits = c.in_value(in::factored_update::g).shape[1] % 4 == 0 &&
              aligned({c.out[out::factored_update::master]}, 4 * sizeof(float)) &&
              aligned({c.in[in::factored_update::g]}, 4 * sizeof(G)) && aligned({copy}, copied);
  fits ? launch_update_typed<4, G, W>(c, copy) : launch_update_typed<1, G, W>(c, copy);
}

void launch_update(const KernelCall& c) {
  with_type(c.in_value(in::factored_update::g).dtype, [&](auto g) {
    using G = decltype(g);
    if (!c.has(in::factored_update::w)) return launch_update_of<G, NoCopy>(c, nullptr);
    with_type(c.in_value(in::factored_update::w).dtype,
              [&](auto w) { launch_update_of<G>(c, c.output<decltype(w)>(out::factored_update::w)); });
  });
}

}  // namespace

Kernel factored_moments_kernel() {
  return {"factored_moments",
          "cuda.factored_moments",
          reject_unless_float,
          moments_workspace,
          nullptr,
          CREST_DEVICE_CODE(launch_moments)};
}
Kernel factored_update_kernel() {
  return {"factored_update", "cuda.factored_update",          reject_unless_float, update_workspace,
          nullptr,           CREST_DEVICE_CODE(launch_update)};
}

}  // namespace crest::cuda
