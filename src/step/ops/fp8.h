// What passes and kernels of 8-bit matmuls share.
#pragma once
#include <cstdint>

#include "core/host_device.h"
#include "core/shape.h"
#include "program/attrs.h"

namespace crest {

// Rows of operands begin at multiples of 16 bytes (cuBLASLt requires it), so the features of a
// linear layer that runs in fp8 are multiples of 16. Rows of tokens need not be: transposes are
// padded with zeros.
inline constexpr int64_t fp8_multiple = 16;
int64_t fp8_padded(int64_t rows);

// What shares a scale: the whole tensor, 128 numbers of a row, or 128 rows of 128 numbers. The last
// block of a dimension may have fewer.
enum class Fp8Blocks { none, rows, squares };
inline constexpr int64_t fp8_block = 128;
constexpr const char* name_of(Fp8Blocks b) { return b == Fp8Blocks::rows ? "1x128" : "128x128"; }
// Attribute `blocks`: 1x128 or 128x128; absent: the whole tensor. Of linear_fp8 it is that of w; x
// then has rows.
Fp8Blocks fp8_blocks(const Attrs& attrs);
// Of linear_fp8: whether tensor cores may keep sums in fewer bits than f32.
bool fp8_fast_accumulation(const Attrs& attrs);
inline Fp8Blocks fp8_blocks_of_x(Fp8Blocks of_w) { return of_w == Fp8Blocks::none ? of_w : Fp8Blocks::rows; }
int64_t fp8_blocks_of(int64_t n);  // that n numbers have

// Scales of a [rows,columns], as cuBLASLt reads them: of rows [blocks of columns,rows]; of squares
// [blocks of rows, blocks of columns rounded up to 4], where those behind the last are 0.
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
