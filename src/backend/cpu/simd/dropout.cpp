#include "backend/cpu/simd/dropout.h"

#include "backend/cpu/simd/dropout_row.h"

namespace crest::cpu::CREST_ISA {
namespace {

void apply(const void* x, void* y, DType t, int64_t begin, int64_t end, double p, uint64_t seed, uint64_t stream) {
  auto with = [&](auto* from) {
    auto* to = (decltype(from))y;
    drop_elements(from + begin, to + begin, begin, end - begin, p, seed, stream);
  };
  if (t == DType::f32)
    with((float*)x);
  else if (t == DType::bf16)
    with((bfloat16*)x);
  else
    with((float16*)x);
}

void row(const DropoutRows& d, int64_t r, const void* x, void* y, DType t, int64_t n) {
  if (t == DType::f32)
    drop_row(d, r, (const float*)x, (float*)y, n);
  else if (t == DType::bf16)
    drop_row(d, r, (const bfloat16*)x, (bfloat16*)y, n);
  else
    drop_row(d, r, (const float16*)x, (float16*)y, n);
}

}  // namespace

const DropoutFunctions dropout_functions = {apply, row};

}  // namespace crest::cpu::CREST_ISA
