// add_position, position_grad, take_row.
#include "backend/cuda/device/dropout.h"
#include "backend/cuda/dropout.h"
#include "ops/index.h"

namespace crest::cuda {

namespace {

constexpr int warps = 8, at_once = 4;

// y = x + table[t], dropped out or not, for t from a position on or (positions is not null) of each
// token; a warp takes a row, W elements at a time. Padding tokens of a decoding call may lie beyond
// the table; their rows are not used, so they read its last row.
template <class T, int W>
__global__ void add_rows(const T* x, const T* table, const Scalars* from, const int32_t* positions, T* y, int64_t rows,
                         int64_t length, int64_t table_rows, int64_t cols, DropoutRows dropout) {
  wait_for_predecessors();
  int64_t row = int64_t(blockIdx.x) * warps + threadIdx.x / 32;
  if (row >= rows) return;
  int64_t position = positions ? positions[row] : row % length + (from ? from->position : 0);
  position = max(int64_t(0), min(position, table_rows - 1));
  const DropoutSpan span(dropout, row, cols);
  for (int64_t first = threadIdx.x % 32 * W; first < cols; first += 32 * W * at_once) {
    Vec<T, W> v[at_once], p[at_once];
#pragma unroll
    for (int k = 0; k < at_once; ++k) {
      int64_t c = first + k * 32 * W;
      if (c < cols) v[k] = load_vec<W>(x + row * cols + c), p[k] = load_vec<W>(table + position * cols + c);
    }
#pragma unroll
    for (int k = 0; k < at_once; ++k) {
      int64_t c = first + k * 32 * W;
      if (c >= cols) continue;
      for (int e = 0; e < W; ++e) v[k].x[e] = narrow<T>(widen(v[k].x[e]) + widen(p[k].x[e]));
      if (span) span.drop(v[k], uint64_t(c));
      store_vec(y + row * cols + c, v[k]);
    }
  }
}

void launch_add(const KernelCall& c) {
  const Value &x = c.in_value(in::add_position::x), &table = c.in_value(in::add_position::table);
  int64_t rows = x.shape.rows(), cols = x.shape.back();
  constexpr size_t at = in::add_position::position;
  const bool given = c.has(at), tokens = given && c.in_value(at).dtype == DType::i32;
  auto* from = given && !tokens ? c.input<Scalars>(at) : nullptr;
  auto* positions = tokens ? c.input<int32_t>(at) : nullptr;
  with_type(x.dtype, [&](auto t) {
    using T = decltype(t);
    constexpr int W = Vec<T>::size;
    auto kernel = cols % W == 0 && aligned({c.in[in::add_position::x], c.in[in::add_position::table],
                                            c.out[out::add_position::y]})
                      ? add_rows<T, W>
                      : add_rows<T, 1>;
    launch(c, kernel, blocks_for(rows, warps), warps * 32, 0, c.input<T>(in::add_position::x),
           c.input<T>(in::add_position::table), from, positions, c.output<T>(out::add_position::y), rows, x.shape[1],
           table.shape[0], cols, dropout_rows(c, in::add_position::scalars, x));
  });
}

// Column sums of dy[batch, n] (n = T C elements of a sample) into the first n of `size` elements of
// out. `slices` warps share a column: warp s takes samples s, s + slices, ..; their sums are added
// in order.
template <class T, class O, int W>
__global__ void __launch_bounds__(warps * 32)
    sum_samples(const T* dy, O* out, bool accumulate, int64_t batch, int64_t n, int64_t size, int slices) {
  wait_for_predecessors();
  __shared__ float part[warps][W][32];
  int lane = int(threadIdx.x % 32), warp = int(threadIdx.x / 32), slice = warp % slices;
  int64_t e = ((int64_t(blockIdx.x) * (warps / slices) + warp / slices) * 32 + lane) * W;
  float sum[W] = {};
  if (e < n)
    for (int64_t first = slice; first < batch; first += slices * 8) {
      Vec<T, W> v[8];
#pragma unroll
      for (int k = 0; k < 8; ++k)
        if (first + k * slices < batch) v[k] = load_vec<W>(dy + (first + k * slices) * n + e);
#pragma unroll
      for (int k = 0; k < 8; ++k)
        if (first + k * slices < batch)
          for (int i = 0; i < W; ++i) sum[i] += widen(v[k].x[i]);
    }
  for (int i = 0; i < W; ++i) part[warp][i][lane] = sum[i];
  __syncthreads();
  if (slice != 0 || e >= (accumulate ? n : size)) return;
  for (int s = 1; s < slices; ++s)
    for (int i = 0; i < W; ++i) sum[i] += part[warp + s][i][lane];
  Vec<O, W> o;
  if (accumulate) {
    o = load_vec<W>(out + e);
    for (int i = 0; i < W; ++i) sum[i] += widen(o.x[i]);
  }
  for (int i = 0; i < W; ++i) o.x[i] = narrow<O>(sum[i]);
  store_vec(out + e, o);
}

void launch_grad(const KernelCall& c) {
  const Value &dy = c.in_value(in::position_grad::dy), &out = c.out_value(out::position_grad::dtable);
  int64_t batch = dy.shape[0], n = dy.numel() / batch, size = out.numel();
  int slices = batch >= 16 ? 8 : batch >= 8 ? 4 : batch >= 4 ? 2 : 1;
  with_type(dy.dtype, [&](auto t) {
    with_type(out.dtype, [&](auto o) {
      using T = decltype(t);
      using O = decltype(o);
      constexpr int W = 16 / int(sizeof(T));
      bool vectors = dy.shape.back() % W == 0 && aligned({c.in[in::position_grad::dy]}) &&
                     aligned({c.out[out::position_grad::dtable]}, W * sizeof(O));
      launch(c, vectors ? sum_samples<T, O, W> : sum_samples<T, O, 1>,
             blocks_for(c.has(in::position_grad::acc) ? n : size, (warps / slices) * 32 * (vectors ? W : 1)),
             warps * 32, 0, c.input<T>(in::position_grad::dy), c.output<O>(out::position_grad::dtable),
             c.has(in::position_grad::acc), batch, n, size, slices);
    });
  });
}

std::string reject_grad(const KernelQuery& q) {
  // The sum starts from the output's content.
  if (q.has(in::position_grad::acc) &&
      q.out(out::position_grad::dtable).layout.storage != q.in(in::position_grad::acc).layout.storage)
    return "adds to the accumulator in place";
  return reject_unless_float(q);
}

// Row length - 1 of every sample of x[B,T,row]; U is the unit of a thread's copies, row and the
// sizes count in U.
template <class U>
__global__ void take_rows(const U* x, const Scalars* scalars, U* y, int64_t length, int64_t row) {
  wait_for_predecessors();
  int64_t t = max(int64_t(0), min(int64_t(scalars->length) - 1, length - 1));
  for (int64_t i = threadIdx.x; i < row; i += blockDim.x)
    y[blockIdx.x * row + i] = x[(blockIdx.x * length + t) * row + i];
}

void launch_take(const KernelCall& c) {
  const Value& x = c.in_value(in::take_row::x);
  int64_t bytes = x.shape.back() * int64_t(size_of(x.dtype));
  bool vectors = bytes % 16 == 0 && aligned({c.in[in::take_row::x], c.out[out::take_row::y]});
  auto batch = unsigned(x.shape[0]);
  if (vectors)
    launch(c, take_rows<uint4>, batch, 128, 0, c.input<uint4>(in::take_row::x), c.input<Scalars>(in::take_row::scalars),
           c.output<uint4>(out::take_row::y), x.shape[1], bytes / 16);
  else
    launch(c, take_rows<uint8_t>, batch, 256, 0, c.input<uint8_t>(in::take_row::x),
           c.input<Scalars>(in::take_row::scalars), c.output<uint8_t>(out::take_row::y), x.shape[1], bytes);
}

std::string reject_take(const KernelQuery& q) {
  if (!q.in(in::take_row::x).contiguous() || !q.out(out::take_row::y).contiguous()) return "takes contiguous values";
  return "";
}

}  // namespace

Kernel add_position_kernel() {
  return {"add_position", "cuda.add_position.warp",     reject_unless_float, nullptr,
          nullptr,        CREST_DEVICE_CODE(launch_add)};
}
Kernel position_grad_kernel() {
  return {"position_grad", "cuda.position_grad.column", reject_grad, nullptr, nullptr, CREST_DEVICE_CODE(launch_grad)};
}
Kernel take_row_kernel() {
  return {"take_row", "cuda.take_row.copy", reject_take, nullptr, nullptr, CREST_DEVICE_CODE(launch_take)};
}

}  // namespace crest::cuda
