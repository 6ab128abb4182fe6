// quantize_rows, and dequantize of its results.
#include <algorithm>
#include <cfloat>
#include <cmath>

#include "backend/cpu/common.h"
#include "backend/cpu/fp8.h"
#include "core/float8.h"
#include "ops/index.h"
#include "ops/quantized_norms.h"

namespace crest::cpu {
namespace {

constexpr int64_t rows_grain = 1 << 15;

// Calls row(r, thread) for all rows of a tensor.
template <class Row>
void each(const KernelCall& c, const Value& x, Row row) {
  const int64_t rows = x.shape.rows();
  const int threads = threads_for(c.threads, x.numel(), rows_grain);
#pragma omp parallel for num_threads(threads) schedule(static) if (threads > 1)
  for (int t = 0; t < threads; ++t)
    for (int64_t r = part_begin(rows, t, threads); r < part_begin(rows, t + 1, threads); ++r) row(r, t);
}

size_t row_scratch(const KernelQuery& q) { return quantize_scratch(q.in(0), q.device.threads); }

std::string reject_rows(const KernelQuery& q) {
  if (q.in(in::quantize_rows::x).numel() == 0) return "an empty operand";
  return check_float(q.in(in::quantize_rows::x));
}

void launch_rows(const KernelCall& c) {
  const Value& x = c.in_value(in::quantize_rows::x);
  const int64_t width = x.shape.back(), pitch = width * int64_t(size_of(x.dtype));
  each(c, x, [&](int64_t r, int t) {
    float* scratch = static_cast<float*>(c.workspace) + t * width;
    const float* row = floats_of(c.input<char>(in::quantize_rows::x) + r * pitch, x.dtype, width, scratch);
    float most = 0;
    for (int64_t i = 0; i < width; ++i) most = std::fabs(row[i]) > most ? std::fabs(row[i]) : most;  // not NaN
    const int e = most > 0 && most <= FLT_MAX ? scale_exponent<float8_e4m3>(most, 0) : 0;
    const float inverse = power_of_two(-e);
    c.output<float>(out::quantize_rows::scale)[r] = power_of_two(e);
    auto* q = c.output<float8_e4m3>(out::quantize_rows::q) + r * width;
    for (int64_t i = 0; i < width; ++i) q[i] = to_float8<float8_e4m3>(row[i] * inverse);
  });
}

std::string reject_floats(const KernelQuery& q) {
  namespace at = in::dequantize;
  if (q.in(at::q).dtype != DType::e4m3) return "takes e4m3";
  if (q.in(at::q).numel() == 0) return "an empty operand";
  if (q.in(at::scale).dtype != DType::f32) return "takes scales of f32";
  return check_float(q.out(0));
}

void launch_floats(const KernelCall& c) {
  namespace at = in::dequantize;
  const Value& q = c.in_value(at::q);
  const int64_t width = q.shape.back();
  float numbers[256];
  for (int i = 0; i < 256; ++i) numbers[i] = to_float(float8_e4m3{uint8_t(i)});
  each(c, q, [&](int64_t r, int t) {
    const auto* codes = c.input<uint8_t>(at::q) + r * width;
    const float scale = c.input<float>(at::scale)[r];
    float* row = static_cast<float*>(c.workspace) + t * width;
    for (int64_t i = 0; i < width; ++i) row[i] = numbers[codes[i]] * scale;
    auto* to = c.output<char>(0) + r * width * int64_t(size_of(c.out_value(0).dtype));
    store_floats(to, c.out_value(0).dtype, 0, width, row, nullptr);
  });
}

}  // namespace

Kernel quantize_rows_kernel() {
  return {"quantize_rows", "cpu.quantize_rows", reject_rows, row_scratch, nullptr, launch_rows};
}
Kernel dequantize_e4m3_kernel() {
  return {"dequantize", "cpu.dequantize.e4m3", reject_floats, row_scratch, nullptr, launch_floats};
}

}  // namespace crest::cpu
