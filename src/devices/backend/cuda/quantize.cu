// quantize and quantize_columns, the same in blocks, and norm_quantize_columns: quantization of
// tensors in memory, in tiles.
#include "backend/cuda/quantize.h"
#include "ops/index.h"
#include "ops/quantized_norms.h"

namespace crest::cuda {

namespace {

// A tensor as it is.
template <class T, bool E5m2, bool Vectors>
struct Copy {
  using Type = T;
  static constexpr bool vectors = Vectors, exact = true;
  static constexpr int values = 1;
  __host__ __device__ static constexpr bool e5m2(int) { return E5m2; }
  using Row = Eight<T, Vectors>;
  struct Columns {};
  const T* x;
  __device__ Columns columns(int64_t, int64_t) const { return {}; }
  __device__ void load(Row& row, int64_t index, int64_t column, int64_t width) const {
    row.load(x + index * width, column, width);
  }
  static constexpr int packs = 8 / Pack<T>::size;
  __device__ const T* address(int pack, int64_t index, int64_t column, int64_t width) const {
    return x + index * width + column + pack * Pack<T>::size;
  }
  __device__ static void take(Row& row, int pack, const Pack<T>& value) { row.pack[pack] = value; }
  __device__ static const Eight<T, Vectors>& whole(const Row& row) { return row; }
  __device__ static void rest(Row&, int64_t) {}
  __device__ void compute(const Row& row, const Columns&, float (&y)[1][8]) const { row.widen_to(y[0]); }
};

// A norm of rows with given statistics.
struct Normalized {
  using T = bfloat16;
  using Type = T;
  static constexpr bool vectors = true, exact = false;
  static constexpr int values = 1;
  __host__ __device__ static constexpr bool e5m2(int) { return false; }
  struct Row {
    Eight<T, true> x;
    float mean, rstd;
  };
  struct Columns {
    float gamma[8], beta[8];
  };
  const T *x, *gamma, *beta;  // gamma and beta may be null
  const float *rstd, *mean;   // mean: null for rms
  __device__ Columns columns(int64_t column, int64_t width) const {
    Columns c = {};
    Eight<T, true> weights = {};
    if (gamma)
      weights.load(gamma, column, width), weights.widen_to(c.gamma);
    else
      for (float& one : c.gamma) one = 1.f;
    weights = {};
    if (beta) weights.load(beta, column, width), weights.widen_to(c.beta);
    return c;
  }
  static constexpr int packs = 1;
  __device__ const T* address(int, int64_t index, int64_t column, int64_t width) const {
    return x + index * width + column;
  }
  __device__ static void take(Row& row, int, const Pack<T>& value) { row.x.pack[0] = value; }
  __device__ void rest(Row& row, int64_t index) const { row.mean = mean ? mean[index] : 0.f, row.rstd = rstd[index]; }
  __device__ void compute(const Row& row, const Columns& of, float (&y)[1][8]) const {
    row.x.widen_to(y[0]);
#pragma unroll
    for (int i = 0; i < 8; ++i) y[0][i] = (y[0][i] - row.mean) * row.rstd * of.gamma[i] + of.beta[i];
  }
};

// Whether tiles of this type with such scales are read ahead in vectors. Blocks of f32, which no
// training Program quantizes, would need too much shared memory.
template <class T, class Scales>
constexpr bool may_read_vectors = sizeof(T) == 2 || std::is_same_v<Scales, Quantizer>;

// body(source): a tensor of type t, optionally read in vectors.
template <class Scales, class Body>
auto with_copy(DType t, bool e5m2, bool vectors, Body body) {
  return with_type(t, [&](auto type) {
    using T = decltype(type);
    if constexpr (may_read_vectors<T, Scales>) {
      if (vectors && e5m2) return body(Copy<T, true, true>());
      if (vectors) return body(Copy<T, false, true>());
    }
    return e5m2 ? body(Copy<T, true, false>()) : body(Copy<T, false, false>());
  });
}

bool whole_vectors(const Value& x) { return x.shape.back() % tile_vector == 0; }

// start(a) with the tiles of input 0 as they are; q: how they are quantized.
template <class Scales, class Start>
void copy_tiles(const KernelCall& c, const Scales& q, Start start) {
  const Value& x = c.in_value(0);
  const bool vectors = whole_vectors(x) && aligned({c.in[0]}) && (!q.rows || aligned({q.rows}, 8));
  with_copy<Scales>(x.dtype, c.out_value(0).dtype == DType::e5m2, vectors, [&](auto source) {
    source.x = static_cast<decltype(source.x)>(c.in[0]);
    Tiles<decltype(source), Scales> a = {};
    a.source = source, a.quantizers[0] = q;
    start(a);
  });
}

void with_scale(const KernelCall& c, const Quantizer& q) {
  copy_tiles(c, q, [&](const auto& a) { start_tiles(c, a, c.in_value(0)); });
}

void launch_quantize(const KernelCall& c) {
  namespace to = out::quantize;
  Quantizer q = quantizer_of(c, c.instr.attrs, in::quantize::amax, to::q);
  if (c.instr.out.size() > to::t) q.columns = c.output<uint8_t>(to::t);
  with_scale(c, q);
}

void launch_columns(const KernelCall& c) {
  Quantizer q;
  q.columns = c.output<uint8_t>(out::quantize_columns::t);
  q.given_scale = c.input<float>(in::quantize_columns::scale);
  with_scale(c, q);
}

void with_blocks(const KernelCall& c, const BlockQuantizer& q) {
  const Value& x = c.in_value(0);
  copy_tiles(c, q, [&](const auto& a) {
    using Source = decltype(a.source);
    if (fp8_blocks(c.instr.attrs) == Fp8Blocks::squares) return start_tiles<Source, true>(c, a, x);
    start_tiles(c, a, x);
  });
}

void launch_blocks(const KernelCall& c) {
  namespace to = out::quantize_blocks;
  BlockQuantizer q = block_quantizer(c.in_value(0), c.instr.attrs);
  set_rows(q, c.instr.attrs, c.out[to::q], c.out[to::scale], c.out[to::counts]);
  if (c.instr.out.size() > to::t) set_columns(q, c.out[to::t], c.out[to::t_scale]);
  with_blocks(c, q);
}

void launch_blocks_columns(const KernelCall& c) {
  namespace to = out::quantize_blocks_columns;
  BlockQuantizer q = block_quantizer(c.in_value(0), c.instr.attrs);
  set_columns(q, c.out[to::t], c.out[to::scale]);
  with_blocks(c, q);
}

void launch_norm_columns(const KernelCall& c) {
  namespace at = in::norm_quantize_columns;
  namespace to = out::norm_quantize_columns;
  using T = bfloat16;
  Normalized n = {};
  n.x = c.input<T>(at::x), n.rstd = c.input<float>(at::rstd);
  if (c.has(at::gamma)) n.gamma = c.input<T>(at::gamma);
  if (c.has(at::beta)) n.beta = c.input<T>(at::beta);
  if (c.has(at::mean)) n.mean = c.input<float>(at::mean);
  const Value& x = c.in_value(at::x);
  if (fp8_blocks(c.instr.attrs) != Fp8Blocks::none) {
    Tiles<Normalized, BlockQuantizer> a = {};
    a.source = n, a.quantizers[0] = block_quantizer(x, c.instr.attrs);
    set_columns(a.quantizers[0], c.out[to::t], c.out[to::scale]);
    return start_tiles(c, a, x);
  }
  Tiles<Normalized, Quantizer> a = {};
  a.source = n;
  a.quantizers[0].columns = c.output<uint8_t>(to::t);
  a.quantizers[0].given_scale = c.input<float>(at::scale);
  start_tiles<Normalized, false>(c, a, x);
}

template <class Scales>
std::string reject_tensor(const KernelQuery& q, std::initializer_list<size_t> scales) {
  const Value& x = q.in(0);
  if (std::string why = reject_value(x); !why.empty()) return why;
  if (x.numel() == 0) return "an empty operand";
  if (std::string why = reject_scales(q, scales); !why.empty()) return why;
  return with_copy<Scales>(x.dtype, q.out(0).dtype == DType::e5m2, whole_vectors(x),
                           [&](auto source) { return reject_tiles<decltype(source), Scales>(q); });
}
std::string reject_quantize(const KernelQuery& q) {
  return reject_tensor<Quantizer>(q, {in::quantize::amax, in::quantize::record});
}
std::string reject_columns(const KernelQuery& q) { return reject_tensor<Quantizer>(q, {in::quantize_columns::scale}); }
std::string reject_blocks(const KernelQuery& q) { return reject_tensor<BlockQuantizer>(q, {}); }
std::string reject_norm_columns(const KernelQuery& q) {
  namespace at = in::norm_quantize_columns;
  if (std::string why = reject_norm_of_rows(q, {at::x, at::gamma, at::beta}); !why.empty()) return why;
  if (std::string why = reject_scales(q, {at::scale, at::rstd, at::mean}); !why.empty()) return why;
  if (fp8_blocks(q.instr.attrs) != Fp8Blocks::none) return reject_tiles<Normalized, BlockQuantizer>(q);
  return reject_tiles<Normalized, Quantizer>(q);
}

}  // namespace

Kernel quantize_kernel() {
  return {"quantize", "cuda.quantize.tiles", reject_quantize, nullptr, nullptr, CREST_DEVICE_CODE(launch_quantize)};
}
Kernel quantize_columns_kernel() {
  return {"quantize_columns",
          "cuda.quantize_columns.tiles",
          reject_columns,
          nullptr,
          nullptr,
          CREST_DEVICE_CODE(launch_columns)};
}
Kernel quantize_blocks_kernel() {
  return {"quantize_blocks", "cuda.quantize_blocks.tiles",    reject_blocks, nullptr,
          nullptr,           CREST_DEVICE_CODE(launch_blocks)};
}
Kernel quantize_blocks_columns_kernel() {
  return {"quantize_blocks_columns",
          "cuda.quantize_blocks_columns.tiles",
          reject_blocks,
          nullptr,
          nullptr,
          CREST_DEVICE_CODE(launch_blocks_columns)};
}
Kernel norm_quantize_columns_kernel() {
  return {"norm_quantize_columns",
          "cuda.norm_quantize_columns.tiles",
          reject_norm_columns,
          nullptr,
          nullptr,
          CREST_DEVICE_CODE(launch_norm_columns)};
}

}  // namespace crest::cuda
