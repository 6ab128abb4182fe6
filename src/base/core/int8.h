// Weights as 8-bit integers: each row of a matrix (the weights of one output) has one scale, its
// largest magnitude over 127, and number i is q[i] times it. Symmetric, so zero stays zero.
#pragma once
#include <cstdint>

namespace crest {

inline constexpr int int8_largest = 127;
// In a Program the scales of weight W, f32[rows], are called W.scale.
inline constexpr const char* int8_scale = ".scale";

// Quantizes a row of n numbers, rounding to nearest: |x[i] - q[i] scale| is at most half a scale,
// except for float rounding. A row of zeros (or of magnitudes too small for a normal float as
// scale) has the scale 0. The scale of a row with NaN or infinity is NaN, so nobody mistakes its
// results for numbers.
void quantize_row(const float* x, int64_t n, int8_t* q, float& scale);
// x[i] = q[i] scale.
void dequantize_row(const int8_t* q, float scale, int64_t n, float* x);

}  // namespace crest
