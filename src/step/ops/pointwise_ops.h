// The pointwise operations: element i of the output depends only on elements i of the inputs, so
// fused bodies may contain them. OP(x, inputs, outputs) as in ops/index.h. Operands, fused kernels
// (interpreted on a CPU, compiled at run time on a GPU) and kernels of single operations are
// generated from this list. A new one needs its formula in each of: simd/pointwise.cpp,
// cuda/device/activation.h, reference/pointwise.cpp (docs/develop/add-an-op.md).
#pragma once

#define CREST_POINTWISE_OPS(OP)    \
  OP(add, (a, b), (y))             \
  OP(mul, (a, b), (y))             \
  OP(scale, (x), (y))              \
  OP(add_scalar, (x), (y))         \
  OP(tanh, (x), (y))               \
  OP(tanh_grad, (dy, y), (dx))     \
  OP(gelu, (x), (y))               \
  OP(gelu_grad, (dy, x), (dx))     \
  OP(gelu_erf, (x), (y))           \
  OP(gelu_erf_grad, (dy, x), (dx)) \
  OP(silu, (x), (y))               \
  OP(silu_grad, (dy, x), (dx))     \
  OP(relu, (x), (y))               \
  OP(relu_grad, (dy, x), (dx))
