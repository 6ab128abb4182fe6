// Host side of quantizing kernels (device/quantize_tiles.h).
#pragma once
#include "backend/cuda/device/quantize_tiles.h"
#include "backend/cuda/flash.h"
#include "backend/cuda/kernel.h"
#include "ops/fp8.h"

namespace crest::cuda {

// A quantize with a call's inputs from `amax` on as tables and its outputs from `q` on as results;
// attrs: its own.
inline Quantizer quantizer_of(const KernelCall& c, const Attrs& attrs, size_t amax, size_t q) {
  const int64_t slot = attrs.integer("slot"), ranks = c.in_value(amax + 1).shape[1];
  Quantizer z;
  z.rows = c.output<uint8_t>(q);
  z.history = c.input<float>(amax) + slot;
  z.margin = int(attrs.integer("margin"));
  z.scale = c.output<float>(q + 1);
  z.record = c.output<float>(q + 2) + slot * ranks + c.index();
  z.counts = c.output<unsigned long long>(q + 3) + 2 * slot;
  return z;
}

// For a tensor like x, with attributes `blocks` and, for rows, `slot`. The following calls set the
// places of its forms and scales.
inline BlockQuantizer block_quantizer(const Value& x, const Attrs& attrs) {
  const Fp8Blocks blocks = fp8_blocks(attrs);
  const int64_t height = x.shape.rows(), width = x.shape.back();
  const Shape of_rows = fp8_scales(blocks, height, width), of_columns = fp8_scales(blocks, width, height);
  BlockQuantizer z;
  z.row_place = {blocks, of_rows}, z.column_place = {blocks, of_columns};
  z.row_blocks = of_rows[1], z.column_blocks = of_columns[1];
  return z;
}
inline void set_rows(BlockQuantizer& z, const Attrs& attrs, void* q, void* scales, void* counts) {
  z.rows = static_cast<uint8_t*>(q), z.row_scales = static_cast<float*>(scales);
  z.counts = static_cast<unsigned long long*>(counts) + 2 * attrs.integer("slot");
}
inline void set_columns(BlockQuantizer& z, void* t, void* scales) {
  z.columns = static_cast<uint8_t*>(t), z.column_scales = static_cast<float*>(scales);
}

// The scale of a tensor is in memory as f32.
inline std::string reject_scales(const KernelQuery& q, std::initializer_list<size_t> inputs) {
  for (size_t i : inputs)
    if (q.has(i) && q.in(i).dtype != DType::f32) return "takes scales of f32";
  return "";
}

// Why a kernel cannot read the rows of these inputs (the first is x) as whole vectors of bf16, or
// make e4m3 of them.
inline std::string reject_norm_of_rows(const KernelQuery& q, std::initializer_list<size_t> inputs) {
  for (size_t i : inputs) {
    if (!q.has(i)) continue;
    if (std::string why = reject_value(q.in(i)); !why.empty()) return why;
    if (q.in(i).dtype != DType::bf16 || q.in(i).shape.back() % 8 || q.in(i).layout.offset % 8)
      return "takes bf16 in rows that are whole vectors of 16 bytes";
  }
  if (q.out(0).dtype != DType::e4m3) return "makes e4m3";
  return q.in(0).numel() == 0 ? "an empty operand" : "";
}

// Why a device has no room for the tiles of a source.
template <class Source, class Scales>
std::string reject_tiles(const KernelQuery& q) {
  using Shape = ShapeOf<Scales>;
  size_t bytes = CopiesAhead<Source, Scales>::bytes + sizeof(TurnedCodes<Shape>) + sizeof(ColumnParts<Shape>);
  if (std::is_same_v<Scales, BlockQuantizer>) bytes += sizeof(BlockScales<Shape>);
  return reject_shared_memory(q, bytes);
}

// x: with the shape of the source's values.
template <class Source, class Scales>
void set_tiles(Tiles<Source, Scales>& a, const Value& x) {
  using Shape = ShapeOf<Scales>;
  a.height = x.shape.rows(), a.width = x.shape.back(), a.pitch = fp8_padded(a.height);
  a.tiles_across = (a.width + Shape::columns - 1) / Shape::columns;
  a.tiles = a.tiles_across * ((a.height + tile_rows - 1) / tile_rows);
}

// As many blocks as are resident at once, with as many tiles each.
template <class Source, class Scales>
void launch_tiles(const KernelCall& c, void (*kernel)(Tiles<Source, Scales>), int resident_each,
                  const Tiles<Source, Scales>& a) {
  const int64_t resident = int64_t(std::max(c.device->multiprocessors, 1)) * resident_each;
  const int64_t rounds = (a.tiles + resident - 1) / resident;
  launch(c, kernel, unsigned((a.tiles + rounds - 1) / rounds), ShapeOf<Scales>::threads,
         CopiesAhead<Source, Scales>::bytes, a);
}

template <class Source, bool Records = true>
void start_tiles(const KernelCall& c, Tiles<Source, Quantizer> a, const Value& x) {
  set_tiles(a, x);
  if constexpr (Records) {  // returns at once in all steps but the first
    bool records = false;
    for (const Quantizer& q : a.quantizers) records |= q.history != nullptr;
    const int64_t processors = std::max(c.device->multiprocessors, 1);
    if (records)
      launch(c, record_tiles<Source>, unsigned(std::clamp<int64_t>(a.tiles, 1, processors)),
             ShapeOf<Quantizer>::threads, 0, a);
  }
  launch_tiles(c, quantize_tiles<Source>, tiles_resident<Source>, a);
}

// Squares: blocks of 128 x 128.
template <class Source, bool Squares = false>
void start_tiles(const KernelCall& c, Tiles<Source, BlockQuantizer> a, const Value& x) {
  set_tiles(a, x);
  launch_tiles(c, quantize_blocks<Source, Squares>, blocks_resident<Source>, a);
}

}  // namespace crest::cuda
