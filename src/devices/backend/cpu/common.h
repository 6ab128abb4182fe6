// Shared by the host entries of the fast CPU kernels: reasons to reject, thread counts, splitting
// of ranges.
#pragma once
#include <algorithm>
#include <string>

#include "backend/backend.h"
#include "backend/cpu/simd/pick.h"

namespace crest::cpu {

// Why the vector kernels cannot take these values: an absent value is fine. Empty when they can.
// `check_float`: contiguous f32, bf16 or f16. `check_float_rows`: or with a pitch (Value::pitch).
// `check_same`: of the dtype of `like` too.
std::string check_float(const Value& v);
std::string check_float_rows(const Value& v);
std::string check_same(const Value& v, const Value& like);
std::string check_same_rows(const Value& v, const Value& like);
// Every present input and output but the step's scalars is a contiguous f32, bf16 or f16 value.
std::string check_all_float(const KernelQuery& q);

// One thread for less than two `grain` units of work, since waking others would cost more; else
// all. Teams have one size: libgomp ends threads for a smaller team and starts new ones afterwards,
// up to a millisecond (docs/results/cpu/cores.md).
inline int threads_for(int threads, int64_t work, int64_t grain) {
  return work / grain >= 2 ? std::max(threads, 1) : 1;
}
// Bounds of part i of n of [0, size).
inline int64_t part_begin(int64_t size, int64_t i, int64_t n) { return size / n * i + std::min(i, size % n); }

// f(begin, end, thread) for one part of the rows of input 0 per thread, in parallel; a thread for
// `grain` elements.
template <class F>
void over_rows(const KernelCall& c, int64_t grain, F f) {
  const Value& x = c.in_value(0);
  int64_t rows = x.shape.rows();
  int threads = threads_for(c.threads, x.numel(), grain);
#pragma omp parallel for num_threads(threads) schedule(static) if (threads > 1)
  for (int t = 0; t < threads; ++t) f(part_begin(rows, t, threads), part_begin(rows, t + 1, threads), t);
}

// The class of processors a device is planned for
// (by default this process'), and its vectors.
Isa isa_of(const Device&);
inline Isa vectors_of(const Device& d) { return vector_isa(isa_of(d)); }

// Sizes of workspace regions are multiples of a cache line.
inline size_t lines(size_t bytes) { return (bytes + 63) / 64 * 64; }
inline size_t float_lines(int64_t floats) { return lines(size_t(floats) * 4); }

// Converts n elements of dtype t at p to floats (the pointer itself for f32, else `scratch` is
// filled).
const float* floats_of(const void* p, DType t, int64_t n, float* scratch);
// The same of n factors as input `i`; ones in scratch where it is absent.
const float* factors_of(const KernelCall& c, size_t i, int64_t n, float* scratch);
// Stores n floats as dtype t, plus the values at `acc` (same dtype, may be null or p itself).
void store_floats(void* p, DType t, int64_t begin, int64_t end, const float* from, const void* acc);

}  // namespace crest::cpu
