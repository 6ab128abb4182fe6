// Quantization to 8-bit floats, bit for bit as on a GPU: quantize and quantize_columns, with a
// scale of the tensor; quantize_blocks and quantize_blocks_columns, with a scale for each block;
// norm_quantize and norm_quantize_columns, which quantize a norm's output in either way.
#include <cfloat>
#include <cmath>
#include <cstring>
#include <vector>

#include "backend/cpu/common.h"
#include "backend/cpu/dropout.h"
#include "backend/cpu/fp8.h"
#include "backend/cpu/simd/norm.h"
#include "core/float8.h"
#include "ops/fp8.h"
#include "ops/index.h"
#include "ops/quantized_norms.h"
#include "program/op.h"

namespace crest::cpu {
namespace {

constexpr int64_t quantize_grain = 1 << 14;
constexpr int64_t rows_at_once = 32;  // transposed by a thread
constexpr int64_t side = fp8_block;

// A tensor in memory, and room for a row of floats for each thread.
struct Unquantized {
  const void* data;
  const Value& value;
  int threads;
  float* scratch;
};

Unquantized input_to_quantize(const KernelCall& c) {
  return {c.in[0], c.in_value(0), c.threads, static_cast<float*>(c.workspace)};
}

bool usable(float amax) { return amax > 0 && amax <= FLT_MAX; }

template <class F>
float scale_of(float amax, int margin = 0) {
  return power_of_two(usable(amax) ? scale_exponent<F>(amax, margin) : 0);
}

struct LostNumbers {
  int64_t saturated = 0, vanished = 0;
  void operator+=(const LostNumbers& o) { saturated += o.saturated, vanished += o.vanished; }

  template <class F>
  F code(float x, float inverse) {
    const float scaled = x * inverse;
    const F code = to_float8<F>(scaled);
    saturated += saturates<F>(scaled), vanished += vanishes(x, code);
    return code;
  }
  void add_to(int64_t* counts) const { counts[0] += saturated, counts[1] += vanished; }
};

// Calls row(r, floats, thread) for all rows of x, in parallel over groups of rows.
template <class Row>
void each_row(const Unquantized& x, Row row) {
  const int64_t rows = x.value.shape.rows(), columns = x.value.shape.back(),
                groups = (rows + rows_at_once - 1) / rows_at_once;
  const int threads = threads_for(x.threads, x.value.numel(), quantize_grain);
#pragma omp parallel for num_threads(threads) schedule(static) if (threads > 1)
  for (int t = 0; t < threads; ++t)
    for (int64_t r = part_begin(groups, t, threads) * rows_at_once;
         r < std::min(rows, part_begin(groups, t + 1, threads) * rows_at_once); ++r) {
      const char* from = static_cast<const char*>(x.data) + r * columns * int64_t(size_of(x.value.dtype));
      row(r, floats_of(from, x.value.dtype, columns, x.scratch + t * columns), t);
    }
}

float amax_of(const Unquantized& x) {
  std::vector<float> most(size_t(std::max(x.threads, 1)));
  each_row(x, [&](int64_t, const float* row, int t) {
    float m = most[size_t(t)];
    for (int64_t i = 0; i < x.value.shape.back(); ++i) {
      float a = std::fabs(row[i]);
      m = a > m ? a : m;  // false for NaN
    }
    most[size_t(t)] = m;
  });
  return *std::max_element(most.begin(), most.end());
}

struct FoundNumbers {
  float amax = 0;
  LostNumbers lost;
};

// rows: q; columns: its transpose, padded with zeros. Either may be null.
template <class F>
FoundNumbers convert(const Unquantized& x, float scale, F* rows, F* columns) {
  const int64_t width = x.value.shape.back(), height = x.value.shape.rows(), pitch = fp8_padded(height);
  const float inverse = 1 / scale;
  std::vector<FoundNumbers> parts(size_t(std::max(x.threads, 1)));
  each_row(x, [&](int64_t r, const float* row, int t) {
    FoundNumbers f = parts[size_t(t)];
    for (int64_t i = 0; i < width; ++i) {
      float a = std::fabs(row[i]);
      f.amax = a > f.amax ? a : f.amax;
      F code = f.lost.code<F>(row[i], inverse);
      if (rows) rows[r * width + i] = code;
      if (columns) columns[i * pitch + r] = code;
    }
    parts[size_t(t)] = f;
  });
  if (columns && pitch > height)
    for (int64_t i = 0; i < width; ++i) std::memset(columns + i * pitch + height, 0, size_t(pitch - height));
  FoundNumbers all;
  for (auto& f : parts) all.amax = std::max(all.amax, f.amax), all.lost += f.lost;
  return all;
}

// quantize of x. The inputs from `amax` on and the outputs from `q` on belong to it.
void with_scale(const KernelCall& c, const Unquantized& x, size_t amax, size_t q, void* columns) {
  const Attrs& attrs = c.instr.attrs;
  int64_t slot = attrs.integer("slot"), ranks = c.in_value(amax + 1).shape[1];
  with_float8(c.out_value(q).dtype, [&](auto format) {
    using F = decltype(format);
    float& record = c.output<float>(q + 2)[slot * ranks + c.index()];
    const float before = c.input<float>(amax)[slot];
    const float scale =
        usable(before) ? scale_of<F>(before, int(attrs.integer("margin"))) : scale_of<F>(std::max(record, amax_of(x)));
    *c.output<float>(q + 1) = scale;
    FoundNumbers f = convert(x, scale, c.output<F>(q), static_cast<F*>(columns));
    record = std::max(record, f.amax);
    f.lost.add_to(c.output<int64_t>(q + 3) + 2 * slot);
  });
}

void with_given_scale(const KernelCall& c, const Unquantized& x, float scale) {
  with_float8(c.out_value(0).dtype, [&](auto format) {
    using F = decltype(format);
    convert<F>(x, scale, nullptr, c.output<F>(0));
  });
}

// Either of q and its transpose t may be absent.
template <class F>
struct BlockedForms {
  F *q, *t;
  float *scale, *t_scale;
};

// 128 x 128 numbers, zeros behind the last.
template <class F>
struct BlockTile {
  float x[side * side] = {};
  float rows[side], columns[side];  // the largest magnitude, then the scale

  void load(const Unquantized& from, int64_t top, int64_t left, int64_t height, int64_t width) {
    const DType t = from.value.dtype;
    if (height < side || width < side) std::memset(x, 0, sizeof x);
    for (int64_t r = 0; r < side; ++r) rows[r] = columns[r] = 0;
    for (int64_t r = 0; r < height; ++r) {
      const int64_t begin = (top + r) * from.value.shape.back() + left;
      float* row = x + r * side;
      const float* floats = floats_of(static_cast<const char*>(from.data) + begin * int64_t(size_of(t)), t, width, row);
      if (floats != row) std::memcpy(row, floats, size_t(width) * sizeof(float));
      for (int64_t c = 0; c < width; ++c) {
        const float a = std::fabs(row[c]);
        if (a > rows[r]) rows[r] = a;  // false for NaN
        if (a > columns[c]) columns[c] = a;
      }
    }
  }
  void find_scales(bool square) {
    float most = 0;
    for (float a : rows) most = std::max(most, a);
    for (int64_t i = 0; i < side; ++i)
      rows[i] = scale_of<F>(square ? most : rows[i]), columns[i] = scale_of<F>(square ? most : columns[i]);
  }
  LostNumbers write(const BlockedForms<F>& to, int64_t top, int64_t left, int64_t height, int64_t width, int64_t pitch,
                    int64_t t_pitch) const {
    LostNumbers lost;
    for (int64_t r = 0; to.q && r < height; ++r) {
      const float inverse = 1 / rows[r];
      F* row = to.q + (top + r) * pitch + left;
      for (int64_t c = 0; c < width; ++c) row[c] = lost.code<F>(x[r * side + c], inverse);
    }
    const int64_t end = std::min(side, t_pitch - top);
    for (int64_t c = 0; to.t && c < width; ++c) {
      const float inverse = 1 / columns[c];
      F* row = to.t + (left + c) * t_pitch + top;
      for (int64_t r = 0; r < end; ++r) row[r] = to_float8<F>(x[r * side + c] * inverse);
    }
    return lost;
  }
};

void clear_behind(float* scales, const Shape& s, int64_t blocks) {
  for (int64_t r = 0; r < s[0]; ++r)
    for (int64_t i = blocks; i < s[1]; ++i) scales[r * s[1] + i] = 0;
}

template <class F>
LostNumbers convert_blocks(const Unquantized& x, const BlockedForms<F>& to, Fp8Blocks blocks) {
  const int64_t height = x.value.shape.rows(), width = x.value.shape.back(), across = fp8_blocks_of(width),
                tiles = across * fp8_blocks_of(height);
  const Shape scales = fp8_scales(blocks, height, width), t_scales = fp8_scales(blocks, width, height);
  const Fp8ScalePlace place(blocks, scales), t_place(blocks, t_scales);
  const bool square = blocks == Fp8Blocks::squares;
  const int threads = threads_for(x.threads, x.value.numel(), quantize_grain);
  std::vector<LostNumbers> parts{size_t(threads)};
#pragma omp parallel for num_threads(threads) schedule(static) if (threads > 1)
  for (int t = 0; t < threads; ++t) {
    BlockTile<F> tile;
    for (int64_t i = part_begin(tiles, t, threads); i < part_begin(tiles, t + 1, threads); ++i) {
      const int64_t top = i / across * side, left = i % across * side;
      const int64_t rows = std::min(side, height - top), columns = std::min(side, width - left);
      tile.load(x, top, left, rows, columns);
      tile.find_scales(square);
      parts[size_t(t)] += tile.write(to, top, left, rows, columns, width, fp8_padded(height));
      for (int64_t r = 0; to.scale && r < (square ? 1 : rows); ++r) to.scale[place(top + r, left)] = tile.rows[r];
      for (int64_t k = 0; to.t_scale && k < (square ? 1 : columns); ++k)
        to.t_scale[t_place(left + k, top)] = tile.columns[k];
    }
  }
  if (square && to.scale) clear_behind(to.scale, scales, fp8_blocks_of(width));
  if (square && to.t_scale) clear_behind(to.t_scale, t_scales, fp8_blocks_of(height));
  LostNumbers all;
  for (auto& p : parts) all += p;
  return all;
}

// quantize_blocks of x; the first outputs of the call belong to it.
void with_blocks(const KernelCall& c, const Unquantized& x, bool columns) {
  namespace to = out::quantize_blocks;
  with_float8(c.out_value(to::q).dtype, [&](auto format) {
    using F = decltype(format);
    BlockedForms<F> written = {c.output<F>(to::q), columns ? c.output<F>(to::t) : nullptr, c.output<float>(to::scale),
                               columns ? c.output<float>(to::t_scale) : nullptr};
    convert_blocks(x, written, fp8_blocks(c.instr.attrs))
        .add_to(c.output<int64_t>(to::counts) + 2 * c.instr.attrs.integer("slot"));
  });
}

void with_blocks_of_columns(const KernelCall& c, const Unquantized& x) {
  namespace to = out::quantize_blocks_columns;
  with_float8(c.out_value(to::t).dtype, [&](auto format) {
    using F = decltype(format);
    convert_blocks<F>(x, {nullptr, c.output<F>(to::t), nullptr, c.output<float>(to::scale)}, fp8_blocks(c.instr.attrs));
  });
}

void launch_quantize(const KernelCall& c) {
  namespace to = out::quantize;
  with_scale(c, input_to_quantize(c), in::quantize::amax, to::q, c.instr.out.size() > to::t ? c.out[to::t] : nullptr);
}
void launch_columns(const KernelCall& c) {
  with_given_scale(c, input_to_quantize(c), *c.input<float>(in::quantize_columns::scale));
}
void launch_blocks(const KernelCall& c) { with_blocks(c, input_to_quantize(c), c.instr.attrs.integer("columns", 0)); }
void launch_blocks_columns(const KernelCall& c) { with_blocks_of_columns(c, input_to_quantize(c)); }

// A norm's output in the workspace, quantized from there: the bits of norm, then of the quantizing
// operation.
size_t norm_floats(const Value& x) { return float_lines(2 * x.shape.back()); }

size_t norm_workspace(const KernelQuery& q) {
  const Value& x = q.in(0);
  return lines(size_t(x.bytes())) + norm_floats(x) * size_t(q.device.threads + 1) +
         quantize_scratch(x, q.device.threads);
}

// The norm of input 0, with gamma and beta, by one of the functions, and the work after it.
Unquantized normalize(const KernelCall& c, NormArgs a, size_t beta,
                      void (*rows)(const NormArgs&, int64_t, int64_t, float*)) {
  const Value& x = c.in_value(0);
  auto* y = static_cast<char*>(c.workspace);
  auto* weights = reinterpret_cast<float*>(y + lines(size_t(x.bytes())));
  char* scratch = reinterpret_cast<char*>(weights) + norm_floats(x);
  a.x = c.in[0], a.y = y;
  a.cols = x.shape.back();
  a.dtype = x.dtype;
  a.gamma = factors_of(c, 1, a.cols, weights);
  a.beta = c.has(beta) ? floats_of(c.in[beta], x.dtype, a.cols, weights + a.cols) : nullptr;
  const int64_t height = x.shape.rows();
  const int threads = threads_for(c.threads, height * a.cols, 8192);
#pragma omp parallel for num_threads(threads) schedule(static)
  for (int t = 0; t < threads; ++t)
    rows(a, part_begin(height, t, threads), part_begin(height, t + 1, threads),
         reinterpret_cast<float*>(scratch + size_t(t) * norm_floats(x)));
  scratch += size_t(c.device->threads) * norm_floats(x);
  return {y, x, c.threads, reinterpret_cast<float*>(scratch)};
}

void launch_norm_rows(const KernelCall& c) {
  namespace at = in::norm_quantize;
  static_assert(at::gamma == 1 && in::norm_quantize_columns::gamma == 1);
  NormArgs a{};
  if (c.has(at::b)) a.b = c.in[at::b], a.s = c.out[c.instr.out.size() - 1];
  a.dropout = dropout_rows(c, at::scalars, c.in_value(at::a));
  const size_t rstd = norm_quantize_rstd(c.instr.attrs);
  a.rstd = c.output<float>(rstd);
  if (c.instr.attrs.text("kind") == "layer") a.mean = c.output<float>(rstd + 1);
  a.eps = float(c.instr.attrs.number("eps"));
  const Unquantized y = normalize(c, a, at::beta, CREST_SIMD_PICK(norm_functions).forward);
  if (fp8_blocks(c.instr.attrs) != Fp8Blocks::none) return with_blocks(c, y, false);
  with_scale(c, y, at::amax, out::norm_quantize::q, nullptr);
}

void launch_norm_columns(const KernelCall& c) {
  namespace at = in::norm_quantize_columns;
  NormArgs a{};
  a.rstd = const_cast<float*>(c.input<float>(at::rstd));
  if (c.has(at::mean)) a.mean = const_cast<float*>(c.input<float>(at::mean));
  const Unquantized y = normalize(c, a, at::beta, CREST_SIMD_PICK(norm_functions).apply);
  if (fp8_blocks(c.instr.attrs) != Fp8Blocks::none) return with_blocks_of_columns(c, y);
  with_given_scale(c, y, *c.input<float>(at::scale));
}

// Inputs before `floats` are numbers, `scales` are f32 where they are there.
std::string reject_any(const KernelQuery& q, size_t floats, std::initializer_list<size_t> scales) {
  for (size_t i = 0; i < floats; ++i)
    if (std::string why = !q.has(i) ? "" : check_float(q.in(i)); !why.empty()) return why;
  for (size_t i : scales)
    if (q.has(i) && q.in(i).dtype != DType::f32) return "takes scales of f32";
  return q.in(0).numel() == 0 ? "an empty operand" : "";
}
std::string reject_quantize(const KernelQuery& q) {
  return reject_any(q, 1, {in::quantize::amax, in::quantize::record});
}
std::string reject_columns(const KernelQuery& q) { return reject_any(q, 1, {in::quantize_columns::scale}); }
std::string reject_blocks(const KernelQuery& q) { return reject_any(q, 1, {}); }
std::string reject_norm_rows(const KernelQuery& q) {
  return reject_any(q, 2, {in::norm_quantize::amax, in::norm_quantize::record});
}
std::string reject_norm_columns(const KernelQuery& q) { return reject_any(q, 2, {in::norm_quantize_columns::scale}); }

size_t scratch_bytes(const KernelQuery& q) { return quantize_scratch(q.in(0), q.device.threads); }

}  // namespace

size_t quantize_scratch(const Value& x, int threads) { return float_lines(x.shape.back() * threads); }

void launch_quantizer(const KernelCall& c) {
  if (c.instr.op == &op_quantize) return launch_quantize(c);
  if (c.instr.op == &op_quantize_columns) return launch_columns(c);
  if (c.instr.op == &op_quantize_blocks) return launch_blocks(c);
  launch_blocks_columns(c);
}

Kernel quantize_kernel() {
  return {"quantize", "cpu.quantize.rows", reject_quantize, scratch_bytes, nullptr, launch_quantize};
}
Kernel quantize_columns_kernel() {
  return {"quantize_columns", "cpu.quantize_columns.rows", reject_columns, scratch_bytes, nullptr, launch_columns};
}
Kernel quantize_blocks_kernel() {
  return {"quantize_blocks", "cpu.quantize_blocks.tiles", reject_blocks, nullptr, nullptr, launch_blocks};
}
Kernel quantize_blocks_columns_kernel() {
  return {"quantize_blocks_columns", "cpu.quantize_blocks_columns.tiles", reject_blocks, nullptr, nullptr,
          launch_blocks_columns};
}
Kernel norm_quantize_kernel() {
  return {"norm_quantize", "cpu.norm_quantize.simd", reject_norm_rows, norm_workspace, nullptr, launch_norm_rows};
}
Kernel norm_quantize_columns_kernel() {
  return {"norm_quantize_columns", "cpu.norm_quantize_columns.simd", reject_norm_columns, norm_workspace, nullptr,
          launch_norm_columns};
}

}  // namespace crest::cpu
