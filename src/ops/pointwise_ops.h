// The pointwise operations: element i of the output depends on elements i of the inputs only, so fused bodies may hold
// them. OP(x, inputs, outputs) as in ops/index.h. From this list come operands, fused kernels (on a CPU, interpreted or
// compiled at run time on a GPU) and kernels of single operations; a new one needs its formula for each of them:
// simd/pointwise.cpp, cuda/device/activation.h, reference/pointwise.cpp (docs/guides/add-an-op.md).
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
  OP(silu_grad, (dy, x), (dx))
