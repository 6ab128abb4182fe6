#pragma once
#include "backend/cpu/simd/pick.h"
#include "core/dtype.h"
#include "ops/update_ops.h"
#include "ops/update_rules.h"

namespace crest::cpu {

#define CREST_NAME_RULE(op, inputs, outputs) op,
enum class UpdateRule { CREST_UPDATE_OPS(CREST_NAME_RULE) };
#undef CREST_NAME_RULE
enum class UpdateRounding { nearest, kahan, stochastic };

// A tensor or a flat group; every array has the same length.
struct UpdateArgs {
  UpdateRule rule;
  UpdateRounding rounding;
  UpdateStep<float> step;
  void* p;
  void* states[2];  // null where the rule has none
  DType dtype;      // of p; u16: the low halves, and copy has the high ones (core/split_float.h)
  DType states_dtype;
  const void* gradient;
  DType gradient_dtype;
  void* copy;  // of p in another dtype, null for none
  DType copy_dtype;
  bfloat16* compensation;  // rounding kahan
  uint64_t seed, stream;   // for stochastic rounding: random numbers, and the index of p's first element
  int64_t first;
};

// AdamW with moments in 8 bits; p is f32, begin a multiple of block.
struct QuantizedArgs {
  UpdateArgs update;  // without states
  uint8_t *m, *v;
  float *m_max, *v_max;
  int64_t block;
  bool float8;  // codes of core/float8_moment.h, not core/dynamic_code.h
};
inline constexpr int64_t largest_block = 4096;

// x = a x + b y z + c
struct AxpbyArgs {
  float a, b, c;
  bool divide;   // y / z
  bool weights;  // x takes weights of masters (core/split_float.h)
  void* x;
  const void *y, *z;  // may be null
  DType x_dtype, y_dtype, z_dtype;
};

struct OptimizerFunctions {
  void (*update)(const UpdateArgs&, int64_t begin, int64_t end);
  void (*axpby)(const AxpbyArgs&, int64_t begin, int64_t end);
  void (*sqrt)(const void* x, void* y, DType, int64_t begin, int64_t end);
  void (*scale)(const void* x, DType, void* y, DType, float factor, int64_t begin, int64_t end);
};
CREST_SIMD_TABLE(OptimizerFunctions, optimizer_functions)

struct QuantizedFunctions {
  void (*adamw)(const QuantizedArgs&, int64_t begin, int64_t end);
};
CREST_SIMD_TABLE(QuantizedFunctions, quantized_functions)

struct FactoredFunctions {
  // Sum of (g factor)^2 over n elements of a row; col[j] += the same of column j.
  double (*row_squares)(const void* g, DType, float factor, int64_t n, float* col);
  // Sum of (g factor col[j])^2.
  double (*direction_squares)(const void* g, DType, float factor, int64_t n, const float* col);
  // p -= g factor col[j] + decay p; `copy` may be null.
  void (*row_update)(float* p, const void* g, DType, float factor, float decay, int64_t n, const float* col, void* copy,
                     DType copy_dtype);
};
CREST_SIMD_TABLE(FactoredFunctions, factored_functions)

}  // namespace crest::cpu
