// Shared by passes and kernels of 8-bit matmuls.
#pragma once
#include <cstdint>

#include "core/host_device.h"
#include "core/shape.h"
#include "program/attrs.h"

namespace crest {

// Rows of operands begin at multiples of 16 bytes (cuBLASLt requires it), so an fp8 linear layer
// has multiples of 16 features. Rows of tokens may have any number: transposes are padded with
// zeros.
inline constexpr int64_t fp8_multiple = 16;
int64_t fp8_padded(int64_t rows);

// The numbers with a common scale: the whole tensor, 128 numbers of a row, or 128 rows of 128
// numbers. The last block of a dimension may have fewer.
enum class Fp8Blocks { none, rows, squares };
inline constexpr int64_t fp8_block = 128;
constexpr const char* name_of(Fp8Blocks b) { return b == Fp8Blocks::rows ? "1x128" : "128x128"; }
// Attribute `blocks`: 1x128 or 128x128; absent: the whole tensor. In linear_fp8 it describes w; x
// then has rows.
Fp8Blocks fp8_blocks(const Attrs& attrs);
// Of linear_fp8: whether tensor cores may keep sums in fewer bits than f32.
bool fp8_fast_accumulation(const Attrs& attrs);
inline Fp8Blocks fp8_blocks_of_x(Fp8Blocks of_w) { return of_w == Fp8Blocks::none ? of_w : Fp8Blocks::rows; }
int64_t fp8_blocks_of(int64_t n);  // blocks for n numbers

// Scales of a [rows,columns], as cuBLASLt reads them. Rows: [blocks of columns,rows]. Squares:
// [blocks of rows, blocks of columns rounded up to 4], with 0 behind the last.
Shape fp8_scales(Fp8Blocks blocks, int64_t rows, int64_t columns);

// Where the scale of an element is among them.
struct Fp8ScalePlace {
  int shift = 0;                // 2^shift rows share a scale
  int64_t row = 0, column = 0;  // steps to the next block
  Fp8ScalePlace() = default;
  Fp8ScalePlace(Fp8Blocks blocks, const Shape& scales);
  CREST_BOTH int64_t operator()(int64_t r, int64_t c) const { return (r >> shift) * row + c / fp8_block * column; }
};

}  // namespace crest
