// Element types and the conversions between half-precision formats and float.
#pragma once
#include <bit>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <string_view>

namespace crest {

// e4m3, e5m2: 8-bit floats (core/float8.h), operands of scaled matmuls only. i8: weights with
// scales (core/int8.h).
enum class DType : uint8_t { f64, f32, bf16, f16, i64, i32, u16, u8, e4m3, e5m2, i8 };

constexpr size_t size_of(DType t) {
  switch (t) {
    case DType::f64:
    case DType::i64: return 8;
    case DType::f32:
    case DType::i32: return 4;
    case DType::bf16:
    case DType::f16:
    case DType::u16: return 2;
    case DType::u8:
    case DType::e4m3:
    case DType::e5m2:
    case DType::i8: return 1;
  }
  return 0;
}
// Floats for the arithmetic of any operation: not the 8-bit ones.
constexpr bool is_float(DType t) { return t <= DType::f16; }
constexpr bool is_fp8(DType t) { return t == DType::e4m3 || t == DType::e5m2; }
constexpr bool is_half(DType t) { return t == DType::bf16 || t == DType::f16; }

// "f32", "bf16", ...
std::string_view name(DType t);
std::optional<DType> parse_dtype(std::string_view text);

// Storage of a 16-bit float; arithmetic is done in float.
struct bfloat16 {
  uint16_t bits;
};
struct float16 {
  uint16_t bits;
};

inline float to_float(bfloat16 x) { return std::bit_cast<float>(uint32_t(x.bits) << 16); }
// Round to nearest even; NaN stays NaN.
inline bfloat16 to_bfloat16(float x) {
  uint32_t u = std::bit_cast<uint32_t>(x);
  if ((u & 0x7fffffffu) > 0x7f800000u) return {uint16_t((u >> 16) | 0x40)};
  return {uint16_t((u + 0x7fffu + ((u >> 16) & 1)) >> 16)};
}
float to_float(float16 x);
// Rounds to nearest even; values above the largest finite one become infinity.
float16 to_float16(float x);

// Reads or writes element i of an array of type t as double (writing rounds to nearest).
double load_element(const void* data, DType t, int64_t i);
void store_element(void* data, DType t, int64_t i, double value);

}  // namespace crest
