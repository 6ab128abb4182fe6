// cast, and the conversions for other kernels.
#include "backend/cpu/cast.h"

#include "backend/cpu/common.h"
#include "backend/cpu/contraction.h"
#include "backend/cpu/simd/cast.h"
#include "ops/index.h"

namespace crest::cpu {
namespace {

const CastFunctions& functions() { return CREST_SIMD_PICK(cast_functions); }

bool vectorized(DType t) { return t == DType::f32 || is_half(t); }

char* element(void* p, DType t, int64_t i) { return static_cast<char*>(p) + i * int64_t(size_of(t)); }
const char* element(const void* p, DType t, int64_t i) { return static_cast<const char*>(p) + i * int64_t(size_of(t)); }

// Runs f(begin, end) over [0, n) split into multiples of a cache line's elements.
template <class F>
void split(int64_t n, int threads, F f) {
  constexpr int64_t line = 64;
  threads = threads_for(threads, n, 1 << 15);
  int64_t lines_of = (n + line - 1) / line;
#pragma omp parallel for num_threads(threads) schedule(static) if (threads > 1)
  for (int t = 0; t < threads; ++t)
    f(part_begin(lines_of, t, threads) * line, std::min(n, part_begin(lines_of, t + 1, threads) * line));
}

std::string reject(const KernelQuery& q) {
  const Value &x = q.in(in::cast::x), &y = q.out(out::cast::y);
  if (x.contiguous() && y.contiguous()) return {};
  if (!x.pitch() || !y.pitch()) return "takes dense rows at equal distances";
  return vectorized(x.dtype) && vectorized(y.dtype) ? "" : "takes rows with a pitch of f32, bf16 and f16 only";
}

void launch(const KernelCall& c) {
  const Value &x = c.in_value(in::cast::x), &y = c.out_value(out::cast::y);
  DType from = x.dtype, to = y.dtype;
  const void* in = c.in[in::cast::x];
  void* out = c.out[out::cast::y];
  if (!x.contiguous() || !y.contiguous())
    return convert_rows(out, to, y.pitch(), in, from, x.pitch(), x.shape.rows(), x.shape.back(), c.threads);
  const CastFunctions& f = functions();
  split(x.numel(), c.threads, [&](int64_t begin, int64_t end) {
    if (vectorized(from) && vectorized(to))
      f.convert(element(out, to, begin), to, element(in, from, begin), from, end - begin);
    else
      for (int64_t i = begin; i < end; ++i) store_element(out, to, i, load_element(in, from, i));
  });
}

}  // namespace

Kernel cast_kernel() { return {"cast", "cpu.cast.simd", reject, nullptr, nullptr, launch}; }

void convert_rows(void* to, DType to_dtype, int64_t to_ld, const void* from, DType from_dtype, int64_t from_ld,
                  int64_t rows, int64_t cols, int threads) {
  const CastFunctions& f = functions();
  if (to_ld == cols && from_ld == cols) {
    split(rows * cols, threads, [&](int64_t begin, int64_t end) {
      f.convert(element(to, to_dtype, begin), to_dtype, element(from, from_dtype, begin), from_dtype, end - begin);
    });
    return;
  }
  threads = threads_for(threads, rows * cols, 1 << 15);
#pragma omp parallel for num_threads(threads) schedule(static) if (threads > 1)
  for (int64_t r = 0; r < rows; ++r)
    f.convert(element(to, to_dtype, r * to_ld), to_dtype, element(from, from_dtype, r * from_ld), from_dtype, cols);
}

void gelu(void* a, const void* h, DType dtype, int64_t n, int threads) {
  const CastFunctions& f = functions();
  split(n, threads, [&](int64_t begin, int64_t end) {
    f.gelu(element(a, dtype, begin), element(h, dtype, begin), dtype, end - begin);
  });
}

}  // namespace crest::cpu
