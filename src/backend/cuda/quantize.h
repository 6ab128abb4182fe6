// Host side of kernels over tiles that quantize (device/quantize.h).
#pragma once
#include "backend/cuda/device/quantize.h"
#include "backend/cuda/kernel.h"
#include "comm/comm.h"
#include "ops/fp8.h"

namespace crest::cuda {

// A quantize whose tables are a call's inputs from `amax` on, and whose results its outputs from
// `q` on; attrs: its own.
inline Quantizer quantizer_of(const KernelCall& c, const Attrs& attrs, size_t amax, size_t q) {
  const int64_t slot = attrs.integer("slot"), ranks = c.in_value(amax + 1).shape[1];
  Quantizer z;
  z.rows = c.output<uint8_t>(q);
  z.history = c.input<float>(amax) + slot;
  z.margin = int(attrs.integer("margin"));
  z.scale = c.output<float>(q + 1);
  z.record = c.output<float>(q + 2) + slot * ranks + (c.communicator ? c.communicator->rank() : 0);
  z.counts = c.output<unsigned long long>(q + 3) + 2 * slot;
  return z;
}

// The scale of a tensor is in memory as f32.
inline std::string reject_scales(const KernelQuery& q, std::initializer_list<size_t> inputs) {
  for (size_t i : inputs)
    if (q.has(i) && q.in(i).dtype != DType::f32) return "takes scales of f32";
  return "";
}

// Why a kernel cannot read the rows of these inputs, whose first is x, as whole vectors of bf16, or
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

// x: of the shape of what the source makes.
template <class Source, bool Records = true>
void start_tiles(const KernelCall& c, Tiles<Source> a, const Value& x) {
  a.height = x.shape.rows(), a.width = x.shape.back(), a.pitch = fp8_padded(a.height);
  a.tiles_across = (a.width + tile_columns - 1) / tile_columns;
  a.tiles = a.tiles_across * ((a.height + tile_rows - 1) / tile_rows);
  const int64_t processors = std::max(c.device->multiprocessors, 1);
  if constexpr (Records) {  // returns at once in all steps but the first
    bool records = false;
    for (const Quantizer& q : a.quantizers) records |= q.history != nullptr;
    if (records)
      launch(c, record_tiles<Source>, unsigned(std::clamp<int64_t>(a.tiles, 1, processors)), tile_threads, 0, a);
  }
  // As many blocks as are resident at once, with as many tiles each.
  const int64_t resident = processors * tiles_resident<Source>, rounds = (a.tiles + resident - 1) / resident;
  const size_t shared = Source::vectors ? size_t(2 * tile_pack * Source::packs * tile_threads) * 16 : 0;
  launch(c, quantize_tiles<Source>, unsigned((a.tiles + rounds - 1) / rounds), tile_threads, shared, a);
}

}  // namespace crest::cuda
