// quantize_rows, and dequantize of its results: a block takes a row.
#include "backend/cuda/device/numeric.h"
#include "backend/cuda/device/quantize.h"
#include "backend/cuda/kernel.h"
#include "core/float8.h"
#include "ops/index.h"
#include "ops/quantized_norms.h"

namespace crest::cuda {

namespace {

constexpr int threads = 256, at_once = 8;

// Eight codes of a row, from `column` on.
template <bool Vectors>
__device__ inline void store_codes(uint8_t* row, const uint32_t (&codes)[2], int64_t column, int64_t width) {
  if constexpr (Vectors) {
    *reinterpret_cast<uint2*>(row + column) = make_uint2(codes[0], codes[1]);
  } else {
    for (int i = 0; i < at_once && column + i < width; ++i) row[column + i] = uint8_t(codes[i / 4] >> (i % 4 * 8));
  }
}
template <bool Vectors>
__device__ inline void load_codes(const uint8_t* row, uint32_t (&codes)[2], int64_t column, int64_t width) {
  codes[0] = codes[1] = 0;
  if constexpr (Vectors) {
    const uint2 both = *reinterpret_cast<const uint2*>(row + column);
    codes[0] = both.x, codes[1] = both.y;
  } else {
    for (int i = 0; i < at_once && column + i < width; ++i) codes[i / 4] |= uint32_t(row[column + i]) << (i % 4 * 8);
  }
}

template <class T, bool Vectors>
__global__ void __launch_bounds__(threads) quantize_row(const T* x, uint8_t* q, float* scale, int64_t width) {
  wait_for_predecessors();
  x += int64_t(blockIdx.x) * width, q += int64_t(blockIdx.x) * width;
  float most = 0, y[at_once];
  for (int64_t c = threadIdx.x * at_once; c < width; c += threads * at_once) {
    Eight<T, Vectors> eight = {};
    eight.load(x, c, width), eight.widen_to(y);
#pragma unroll
    for (int i = 0; i < at_once; ++i) most = fmaxf(most, fabsf(y[i]));  // not NaN
  }
  most = block_max<threads>(most);
  const int e = exponent_for(false, most, 0);
  const float inverse = power_of_two(-e);
  if (threadIdx.x == 0) scale[blockIdx.x] = power_of_two(e);
  for (int64_t c = threadIdx.x * at_once; c < width; c += threads * at_once) {
    Eight<T, Vectors> eight = {};
    eight.load(x, c, width), eight.widen_to(y);
    uint32_t codes[2] = {};
#pragma unroll
    for (int i = 0; i < at_once; i += 2)
      codes[i / 4] |= to_codes(false, y[i] * inverse, y[i + 1] * inverse) << (i % 4 * 8);
    store_codes<Vectors>(q, codes, c, width);
  }
}

template <class T, bool Vectors>
__global__ void __launch_bounds__(threads) dequantize_row(const uint8_t* q, const float* scale, T* x, int64_t width) {
  wait_for_predecessors();
  x += int64_t(blockIdx.x) * width, q += int64_t(blockIdx.x) * width;
  const float factor = scale[blockIdx.x];
  for (int64_t c = threadIdx.x * at_once; c < width; c += threads * at_once) {
    uint32_t codes[2];
    load_codes<Vectors>(q, codes, c, width);
    float y[at_once];
#pragma unroll
    for (int i = 0; i < at_once; ++i) y[i] = to_float(float8_e4m3{uint8_t(codes[i / 4] >> (i % 4 * 8))}) * factor;
    Eight<T, Vectors> eight = {};
    eight.narrow_from(y), eight.store(x, c, width);
  }
}

// body(T(), whether rows are whole vectors)
template <class Body>
void with_rows(DType t, int64_t width, const void* numbers, const void* codes, Body body) {
  with_type(t, [&](auto number) {
    if (width % at_once == 0 && aligned({numbers}) && aligned({codes}, at_once))
      body(number, std::true_type());
    else
      body(number, std::false_type());
  });
}

void launch_rows(const KernelCall& c) {
  const Value& x = c.in_value(in::quantize_rows::x);
  auto* q = c.output<uint8_t>(out::quantize_rows::q);
  with_rows(x.dtype, x.shape.back(), c.in[in::quantize_rows::x], q, [&](auto t, auto vectors) {
    using T = decltype(t);
    launch(c, quantize_row<T, decltype(vectors)::value>, unsigned(x.shape.rows()), threads, 0,
           c.input<T>(in::quantize_rows::x), q, c.output<float>(out::quantize_rows::scale), x.shape.back());
  });
}

void launch_floats(const KernelCall& c) {
  namespace at = in::dequantize;
  const Value& x = c.out_value(out::dequantize::x);
  const auto* q = c.input<uint8_t>(at::q);
  with_rows(x.dtype, x.shape.back(), c.out[out::dequantize::x], q, [&](auto t, auto vectors) {
    using T = decltype(t);
    launch(c, dequantize_row<T, decltype(vectors)::value>, unsigned(x.shape.rows()), threads, 0, q,
           c.input<float>(at::scale), c.output<T>(out::dequantize::x), x.shape.back());
  });
}

std::string reject_rows(const KernelQuery& q) {
  if (q.in(in::quantize_rows::x).numel() == 0) return "an empty operand";
  return reject_value(q.in(in::quantize_rows::x));
}
std::string reject_floats(const KernelQuery& q) {
  namespace at = in::dequantize;
  if (q.in(at::q).dtype != DType::e4m3) return "takes e4m3";
  if (q.in(at::q).numel() == 0) return "an empty operand";
  if (q.in(at::scale).dtype != DType::f32) return "takes scales of f32";
  return reject_value(q.out(0));
}

}  // namespace

Kernel quantize_rows_kernel() {
  return {"quantize_rows", "cuda.quantize_rows.block", reject_rows, nullptr, nullptr, CREST_DEVICE_CODE(launch_rows)};
}
Kernel dequantize_e4m3_kernel() {
  return {"dequantize", "cuda.dequantize.e4m3", reject_floats, nullptr, nullptr, CREST_DEVICE_CODE(launch_floats)};
}

}  // namespace crest::cuda
