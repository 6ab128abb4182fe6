// linear, linear_gelu, linear_dx, linear_dw, linear_fp8 and matmul as one thing: a product of
// strided matrices, repeated over batches, and the work on its result. Read by both
// implementations: cuBLASLt (cublaslt.h) and the tiled kernel.
#pragma once
#include "backend/backend.h"
#include "ops/fp8.h"

namespace crest::cuda {

// A matrix in memory: element (i, j) is at i * row + j * col. Strides count elements.
struct Strided {
  DType dtype = DType::f32;
  int64_t row = 0, col = 1;
};

// c[m,n] = sum over `sum` of a[m,k] b[k,n] (+ acc) (+ bias[n]), for every
// index of the batch dimensions. Of the call: a, b are inputs 0 and 1;
// bias or the accumulator is input `third`; c is output 0. scaled: 8-bit
// operands, with their scales in inputs 2 and 3; blocks: of b. gelu: c =
// gelu(h), h = the above; keep: h, laid out as c, is output 1.
struct Contraction {
  int64_t m = 0, n = 0, k = 0;
  Strided a, b, c;
  // Strides from one product to the next, in elements.
  struct Dim {
    int64_t size = 1, a = 0, b = 0, c = 0;
  };
  Dim batch[3];  // outermost first
  Dim sum;       // products in the sum: c stays
  bool bias = false, gelu = false, keep = false, accumulate = false;
  bool tf32 = false;  // f32 operands may be rounded to TF32
  bool scaled = false;
  bool fast_sums = false;  // of 8-bit products: in fewer bits than f32
  Fp8Blocks blocks = Fp8Blocks::none;
  size_t third = 2;

  int64_t batches() const { return batch[0].size * batch[1].size * batch[2].size; }
};

// Of linear, linear_gelu, linear_dx, linear_dw, linear_fp8 or matmul.
Contraction contraction_of(const Program& program, const Instr& instr);

// The tiled kernel: any strides, any mixture of f32, bf16 and f16. Reads the call as described
// above.
void launch_tiled(const KernelCall& call, const Contraction& what);
// Why the tiled kernel cannot run the instruction: a dtype other than f32, bf16 and f16.
std::string reject_tiled(const KernelQuery& query);
// y[i] = gelu(x[i]) (tanh form) for n elements; y may be x.
void launch_gelu(const KernelCall& call, DType dtype, const void* x, void* y, int64_t n);
// Fills n elements with normally distributed numbers for timing algorithms: the power of a product,
// and with it the clock, depends on the data.
void launch_normal(const KernelCall& call, DType dtype, void* x, int64_t n, uint32_t seed);

}  // namespace crest::cuda
