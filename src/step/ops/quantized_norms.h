// Norms with 8-bit results, rows of these results, and the update that quantizes weights: OP(x,
// inputs, outputs) as in ops/index.h, in a separate file because few files need them.
#pragma once
#include "ops/index.h"

#define CREST_QUANTIZED_NORMS(OP)                                                                                  \
  OP(norm_quantize, (a, gamma, amax, record, counts, b, beta, scalars), (q, scale, record, counts, rstd, mean, s)) \
  OP(norm_quantize_columns, (x, gamma, rstd, scale, mean, beta), (t, scale))                                       \
  OP(quantize_rows, (x), (q, scale))                                                                               \
  OP(fused_update, (xs), (ys))                                                                                     \
  OP(member, (x), (y))

namespace crest {

#define CREST_DECLARE_OP(name, inputs, outputs) extern const OpDef op_##name;
CREST_QUANTIZED_NORMS(CREST_DECLARE_OP)
#undef CREST_DECLARE_OP

#define CREST_LIST(...) __VA_ARGS__
#define CREST_TEXT(...) #__VA_ARGS__
#define CREST_NAME_OPERANDS(op, inputs, outputs)           \
  namespace in::op {                                       \
  enum : size_t { CREST_LIST inputs, count };              \
  inline constexpr const char* names = CREST_TEXT inputs;  \
  }                                                        \
  namespace out::op {                                      \
  enum : size_t { CREST_LIST outputs, count };             \
  inline constexpr const char* names = CREST_TEXT outputs; \
  }
CREST_QUANTIZED_NORMS(CREST_NAME_OPERANDS)
#undef CREST_NAME_OPERANDS
#undef CREST_TEXT
#undef CREST_LIST

// The position of norm_quantize's output rstd: with scales of blocks there is no record before it.
inline size_t norm_quantize_rstd(const Attrs& attrs) {
  return size_t(out::norm_quantize::rstd) - (attrs.has("blocks") ? 1 : 0);
}

}  // namespace crest
