// dropout: the random words of four elements come from one Philox block.
#include "backend/cpu/simd/dropout.h"
#include "backend/cpu/common.h"
#include "backend/dropout_place.h"
#include "core/random.h"
#include "core/scalars.h"
#include "ops/index.h"

namespace crest::cpu {
namespace {

std::string reject(const KernelQuery& q) {
  const Value &x = q.in(in::dropout::x), &y = q.out(out::dropout::y);
  for (const Value* v : {&x, &y})
    if (std::string why = check_float(*v); !why.empty()) return why;
  return is_half(x.dtype) && is_half(y.dtype) ? check_same(y, x) : std::string();
}

void launch(const KernelCall& c) {
  const Value &x = c.in_value(in::dropout::x), &y = c.out_value(out::dropout::y);
  const Scalars& scalars = *c.input<Scalars>(in::dropout::scalars);
  // Ranks may share the rows of a sample: then each row is one by itself.
  const bool by_rows = c.instr.attrs.has("axes");
  const DropoutPlace at = by_rows ? dropout_place(c, x.shape) : DropoutPlace();
  const int64_t samples = by_rows ? x.shape.rows() : x.shape[0], size = samples == 0 ? 0 : x.numel() / samples;
  double p = c.instr.attrs.number("p");
  auto rng_id = uint32_t(c.instr.attrs.integer("rng_id"));
  int64_t pieces = std::max<int64_t>((size + 16383) / 16384, 1);
  int threads = threads_for(c.threads, x.numel(), 8192);
#pragma omp parallel for num_threads(threads) schedule(static)
  for (int64_t item = 0; item < samples * pieces; ++item) {
    int64_t s = item / pieces, begin = item % pieces * 16384, end = std::min(begin + 16384, size);
    // Elements of the sample before this row.
    const int64_t before = at.in_sample(s) * size, start = s * size - before;
    CREST_SIMD_PICK(dropout_functions)
        .apply(c.input<char>(in::dropout::x) + start * int64_t(size_of(x.dtype)), x.dtype,
               c.output<char>(out::dropout::y) + start * int64_t(size_of(y.dtype)), y.dtype, before + begin,
               before + end, p, scalars.seed,
               dropout_stream(uint64_t(scalars.sample_base + (s + at.first) / at.rows), rng_id));
  }
}

}  // namespace

Kernel dropout_kernel() { return {"dropout", "cpu.dropout.simd", reject, nullptr, nullptr, launch}; }

}  // namespace crest::cpu
