#include "core/dtype.h"

#include <algorithm>
#include <array>
#include <cmath>

#include "core/float8.h"

namespace crest {

static constexpr std::array<std::string_view, 11> names = {"f64", "f32", "bf16", "f16",  "i64", "i32",
                                                           "u16", "u8",  "e4m3", "e5m2", "i8"};

std::string_view name(DType t) { return names[size_t(t)]; }

std::optional<DType> parse_dtype(std::string_view text) {
  for (size_t i = 0; i < names.size(); ++i)
    if (names[i] == text) return DType(i);
  return std::nullopt;
}

float to_float(float16 x) {
  uint32_t sign = uint32_t(x.bits & 0x8000) << 16, exponent = (x.bits >> 10) & 31, mantissa = x.bits & 0x3ff;
  if (exponent == 0) {
    float tiny = float(mantissa) * 0x1p-24f;
    return sign ? -tiny : tiny;
  }
  if (exponent == 31) return std::bit_cast<float>(sign | 0x7f800000u | (mantissa << 13));
  return std::bit_cast<float>(sign | ((exponent + 112) << 23) | (mantissa << 13));
}

float16 to_float16(float x) {
  uint32_t u = std::bit_cast<uint32_t>(x), sign = (u >> 16) & 0x8000, a = u & 0x7fffffffu;
  if (a > 0x7f800000u) return {uint16_t(sign | 0x7e00 | ((a >> 13) & 0x3ff))};
  if (a >= 0x477ff000u) return {uint16_t(sign | 0x7c00)};  // rounds to 65536 or more
  if (a < 0x38800000u) {                                   // subnormal: align to 2^-24 and round
    float scaled = std::nearbyint(std::bit_cast<float>(a) * 0x1p24f);
    return {uint16_t(sign | uint32_t(scaled))};
  }
  uint32_t rounded = a + 0xfffu + ((a >> 13) & 1);
  return {uint16_t(sign | ((rounded - 0x38000000u) >> 13))};
}

double load_element(const void* data, DType t, int64_t i) {
  switch (t) {
    case DType::f64: return static_cast<const double*>(data)[i];
    case DType::f32: return static_cast<const float*>(data)[i];
    case DType::bf16: return to_float(static_cast<const bfloat16*>(data)[i]);
    case DType::f16: return to_float(static_cast<const float16*>(data)[i]);
    case DType::i64: return double(static_cast<const int64_t*>(data)[i]);
    case DType::i32: return static_cast<const int32_t*>(data)[i];
    case DType::u16: return static_cast<const uint16_t*>(data)[i];
    case DType::u8: return static_cast<const uint8_t*>(data)[i];
    case DType::e4m3: return to_float(static_cast<const float8_e4m3*>(data)[i]);
    case DType::e5m2: return to_float(static_cast<const float8_e5m2*>(data)[i]);
    case DType::i8: return static_cast<const int8_t*>(data)[i];
  }
  return 0;
}

void store_element(void* data, DType t, int64_t i, double value) {
  switch (t) {
    case DType::f64: static_cast<double*>(data)[i] = value; break;
    case DType::f32: static_cast<float*>(data)[i] = float(value); break;
    case DType::bf16: static_cast<bfloat16*>(data)[i] = to_bfloat16(float(value)); break;
    case DType::f16: static_cast<float16*>(data)[i] = to_float16(float(value)); break;
    case DType::i64: static_cast<int64_t*>(data)[i] = int64_t(value); break;
    case DType::i32: static_cast<int32_t*>(data)[i] = int32_t(value); break;
    case DType::u16: static_cast<uint16_t*>(data)[i] = uint16_t(value); break;
    case DType::u8: static_cast<uint8_t*>(data)[i] = uint8_t(value); break;
    case DType::e4m3: static_cast<float8_e4m3*>(data)[i] = to_float8<float8_e4m3>(float(value)); break;
    case DType::e5m2: static_cast<float8_e5m2*>(data)[i] = to_float8<float8_e5m2>(float(value)); break;
    case DType::i8: static_cast<int8_t*>(data)[i] = int8_t(std::clamp(std::nearbyint(value), -128.0, 127.0)); break;
  }
}

}  // namespace crest
