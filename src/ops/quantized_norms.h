// The norms whose results are 8-bit floats, and rows of those: OP(x, inputs, outputs) as in
// ops/index.h, apart from it because few files know them.
#pragma once
#include "ops/index.h"

#define CREST_QUANTIZED_NORMS(OP)                                                                                  \
  OP(norm_quantize, (a, gamma, amax, record, counts, b, beta, scalars), (q, scale, record, counts, rstd, mean, s)) \
  OP(norm_quantize_columns, (x, gamma, rstd, scale, mean, beta), (t))                                              \
  OP(quantize_rows, (x), (q, scale))

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

}  // namespace crest
