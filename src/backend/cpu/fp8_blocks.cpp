// quantize_blocks, quantize_blocks_columns and take_counts: exactly as a GPU does them, in tiles of
// 128 x 128 numbers.
#include <cfloat>
#include <cmath>
#include <cstring>
#include <vector>

#include "backend/cpu/common.h"
#include "core/float8.h"
#include "ops/fp8.h"
#include "ops/index.h"

namespace crest::cpu {
namespace {

constexpr int64_t tile_grain = 1 << 14, side = fp8_block;

// Either of q and its transpose t may be absent.
template <class F>
struct BlockedForms {
  F *q, *t;
  float *scale, *t_scale;
};

struct LostOfTile {
  int64_t saturated = 0, vanished = 0;
};

template <class F>
struct BlockTile {
  static constexpr int64_t size = side;
  float x[size * size] = {};
  float rows[size], columns[size];  // the largest magnitude, then the scale

  void load(const void* from, DType t, int64_t top, int64_t left, int64_t height, int64_t width, int64_t pitch) {
    for (int64_t r = 0; r < size; ++r) rows[r] = columns[r] = 0;
    for (int64_t r = 0; r < height; ++r) {
      const char* at = static_cast<const char*>(from) + ((top + r) * pitch + left) * int64_t(size_of(t));
      float* row = x + r * size;
      if (const float* floats = floats_of(at, t, width, row); floats != row)
        std::memcpy(row, floats, size_t(width) * sizeof(float));
      for (int64_t c = 0; c < width; ++c) {
        const float a = std::fabs(row[c]);
        if (a > rows[r]) rows[r] = a;  // false for NaN
        if (a > columns[c]) columns[c] = a;
      }
    }
  }
  static float scale_of(float amax) {
    return power_of_two(amax > 0 && amax <= FLT_MAX ? scale_exponent<F>(amax, 0) : 0);
  }
  void find_scales(bool square) {
    float most = 0;
    for (float a : rows) most = std::max(most, a);
    for (int64_t i = 0; i < size; ++i)
      rows[i] = scale_of(square ? most : rows[i]), columns[i] = scale_of(square ? most : columns[i]);
  }
};

template <class F>
LostOfTile write_tile(const BlockTile<F>& tile, const BlockedForms<F>& to, int64_t top, int64_t left, int64_t height,
                      int64_t width, int64_t all_columns, int64_t t_pitch) {
  LostOfTile lost;
  for (int64_t r = 0; to.q && r < height; ++r) {
    const float inverse = 1 / tile.rows[r];
    const float* row = tile.x + r * side;
    for (int64_t c = 0; c < width; ++c) {
      const float scaled = row[c] * inverse;
      const F code = to_float8<F>(scaled);
      lost.saturated += saturates<F>(scaled), lost.vanished += vanishes(row[c], code);
      to.q[(top + r) * all_columns + left + c] = code;
    }
  }
  const int64_t end = std::min(side, t_pitch - top);  // the tile is 0 below its last row
  for (int64_t c = 0; to.t && c < width; ++c) {
    const float inverse = 1 / tile.columns[c];
    F* row = to.t + (left + c) * t_pitch + top;
    for (int64_t r = 0; r < end; ++r) row[r] = to_float8<F>(tile.x[r * side + c] * inverse);
  }
  return lost;
}

void clear_behind(float* scales, const Shape& s, int64_t blocks) {
  for (int64_t r = 0; r < s[0]; ++r)
    for (int64_t i = blocks; i < s[1]; ++i) scales[r * s[1] + i] = 0;
}

template <class F>
LostOfTile quantize_tiles(const KernelCall& c, const BlockedForms<F>& to, Fp8Blocks blocks) {
  const Value& x = c.in_value(0);
  const int64_t height = x.shape.rows(), width = x.shape.back(), across = fp8_blocks_of(width),
                tiles = across * fp8_blocks_of(height);
  const Shape scales = fp8_scales(blocks, height, width), t_scales = fp8_scales(blocks, width, height);
  const Fp8ScalePlace place(blocks, scales), t_place(blocks, t_scales);
  const bool square = blocks == Fp8Blocks::squares;
  const int threads = threads_for(c.threads, x.numel(), tile_grain);
  std::vector<LostOfTile> parts{size_t(threads)};
#pragma omp parallel for num_threads(threads) schedule(static) if (threads > 1)
  for (int t = 0; t < threads; ++t) {
    BlockTile<F> tile;
    for (int64_t i = part_begin(tiles, t, threads); i < part_begin(tiles, t + 1, threads); ++i) {
      const int64_t top = i / across * side, left = i % across * side;
      const int64_t rows = std::min(side, height - top), columns = std::min(side, width - left);
      if (rows < side || columns < side) std::memset(tile.x, 0, sizeof tile.x);
      tile.load(c.in[0], x.dtype, top, left, rows, columns, width);
      tile.find_scales(square);
      LostOfTile lost = write_tile(tile, to, top, left, rows, columns, width, fp8_padded(height));
      parts[size_t(t)].saturated += lost.saturated, parts[size_t(t)].vanished += lost.vanished;
      for (int64_t r = 0; to.scale && r < (square ? 1 : rows); ++r) to.scale[place(top + r, left)] = tile.rows[r];
      for (int64_t k = 0; to.t_scale && k < (square ? 1 : columns); ++k)
        to.t_scale[t_place(left + k, top)] = tile.columns[k];
    }
  }
  if (square && to.scale) clear_behind(to.scale, scales, fp8_blocks_of(width));
  if (square && to.t_scale) clear_behind(to.t_scale, t_scales, fp8_blocks_of(height));
  LostOfTile all;
  for (auto& p : parts) all.saturated += p.saturated, all.vanished += p.vanished;
  return all;
}

void launch_blocks(const KernelCall& c) {
  namespace to = out::quantize_blocks;
  const bool columns = c.instr.out.size() > to::t;
  with_float8(c.out_value(to::q).dtype, [&](auto format) {
    using F = decltype(format);
    BlockedForms<F> written = {c.output<F>(to::q), columns ? c.output<F>(to::t) : nullptr, c.output<float>(to::scale),
                               columns ? c.output<float>(to::t_scale) : nullptr};
    LostOfTile lost = quantize_tiles(c, written, fp8_blocks(c.instr.attrs));
    auto* counts = c.output<int64_t>(to::counts) + 2 * c.instr.attrs.integer("slot");
    counts[0] += lost.saturated, counts[1] += lost.vanished;
  });
}

void launch_blocks_columns(const KernelCall& c) {
  namespace to = out::quantize_blocks_columns;
  with_float8(c.out_value(to::t).dtype, [&](auto format) {
    using F = decltype(format);
    quantize_tiles<F>(c, {nullptr, c.output<F>(to::t), nullptr, c.output<float>(to::scale)}, fp8_blocks(c.instr.attrs));
  });
}

std::string reject_blocks(const KernelQuery& q) {
  if (std::string why = check_float(q.in(0)); !why.empty()) return why;
  return q.in(0).numel() == 0 ? "an empty operand" : "";
}

void launch_take_counts(const KernelCall& c) {
  const size_t bytes = size_t(c.in_value(in::take_counts::counts).bytes());
  std::memcpy(c.out[out::take_counts::lost], c.out[out::take_counts::counts], bytes);
  std::memset(c.out[out::take_counts::counts], 0, bytes);
}

std::string reject_take_counts(const KernelQuery&) { return ""; }

}  // namespace

Kernel quantize_blocks_kernel() {
  return {"quantize_blocks", "cpu.quantize_blocks.tiles", reject_blocks, nullptr, nullptr, launch_blocks};
}
Kernel quantize_blocks_columns_kernel() {
  return {"quantize_blocks_columns", "cpu.quantize_blocks_columns.tiles", reject_blocks, nullptr, nullptr,
          launch_blocks_columns};
}
Kernel take_counts_kernel() {
  return {"take_counts", "cpu.take_counts", reject_take_counts, nullptr, nullptr, launch_take_counts};
}

}  // namespace crest::cpu
