// dequantize and embedding_int8: rows of 8-bit weights as floats. Products of a few rows are in
// linear_few_rows.cpp.
#include "backend/cpu/simd/int8.h"

#include <cstring>

#include "backend/cpu/common.h"
#include "ops/index.h"

namespace crest::cpu {
namespace {

constexpr int64_t grain = 1 << 15;

std::string reject(const KernelQuery& q, size_t scale) {
  if (q.in(scale).dtype != DType::f32) return "takes scales of f32";
  return check_float(q.out(0));
}
std::string reject_dequantize(const KernelQuery& q) {
  return q.in(in::dequantize::q).dtype != DType::i8 ? "takes i8" : reject(q, in::dequantize::scale);
}
std::string reject_embedding(const KernelQuery& q) { return reject(q, in::embedding_int8::scale); }

void launch_dequantize(const KernelCall& c) {
  namespace at = in::dequantize;
  const Value &q = c.in_value(at::q), &x = c.out_value(out::dequantize::x);
  const auto* from = c.input<int8_t>(at::q);
  const auto* scale = c.input<float>(at::scale);
  int64_t rows = q.shape[0], columns = q.shape[1], pitch = columns * int64_t(size_of(x.dtype));
  const Int8Functions& f = CREST_SIMD_PICK(int8_functions);
  int threads = threads_for(c.threads, q.numel(), grain);
#pragma omp parallel for num_threads(threads) schedule(static) if (threads > 1)
  for (int64_t r = 0; r < rows; ++r)
    f.dequantize(c.output<char>(0) + r * pitch, x.dtype, from + r * columns, scale[r], columns);
}

void launch_embedding(const KernelCall& c) {
  namespace at = in::embedding_int8;
  const Value &table = c.in_value(at::table), &y = c.out_value(out::embedding_int8::y);
  const auto* ids = c.input<int32_t>(at::ids);
  const auto* from = c.input<int8_t>(at::table);
  const auto* scale = c.input<float>(at::scale);
  int64_t rows = c.in_value(at::ids).numel(), vocab = table.shape[0], columns = table.shape[1];
  int64_t pitch = columns * int64_t(size_of(y.dtype));
  const Int8Functions& f = CREST_SIMD_PICK(int8_functions);
  int threads = threads_for(c.threads, rows * columns, grain);
#pragma omp parallel for num_threads(threads) schedule(static) if (threads > 1)
  for (int64_t r = 0; r < rows; ++r) {
    char* to = c.output<char>(0) + r * pitch;
    if (ids[r] < 0 || ids[r] >= vocab)
      std::memset(to, 0, size_t(pitch));
    else
      f.dequantize(to, y.dtype, from + ids[r] * columns, scale[ids[r]], columns);
  }
}

}  // namespace

Kernel dequantize_kernel() {
  return {"dequantize", "cpu.dequantize.simd", reject_dequantize, nullptr, nullptr, launch_dequantize};
}
Kernel embedding_int8_kernel() {
  return {"embedding_int8", "cpu.embedding_int8.simd", reject_embedding, nullptr, nullptr, launch_embedding};
}

}  // namespace crest::cpu
