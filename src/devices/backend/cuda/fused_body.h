// The flat form of a fused instruction's body: input of both the generated and the interpreting
// CUDA kernel.
#pragma once
#include <string>
#include <vector>

#include "backend/backend.h"
#include "ops/pointwise_ops.h"

namespace crest::cuda {

// Registers hold floats: 0 .. loads-1 the inputs read element by element, then one a step.
struct FusedBody {
#define CREST_NAME_OP(op, inputs, outputs) op,
  enum class Op : uint8_t { CREST_POINTWISE_OPS(CREST_NAME_OP) };
#undef CREST_NAME_OP
  struct Step {
    Op op;
    int a, b;     // registers; b = a where the operation has one input
    float value;  // of scale and add_scalar
  };
  struct Load {
    int input;  // of the instruction
    DType dtype;
  };
  struct Store {
    int output;
    DType dtype;
    int from;  // register
  };
  struct ColumnSum {
    int output;
    DType dtype;
    int acc;  // input with the sum so far, of the output's dtype; -1 for none
    int from;
  };
  std::vector<Load> loads;
  std::vector<Step> steps;
  std::vector<Store> stores;
  std::vector<ColumnSum> sums;
  int64_t numel = 0;    // with the shape of the body's work
  int64_t columns = 0;  // its last dimension
  int64_t rows() const { return numel / columns; }
};

const char* name(FusedBody::Op);

// The body of a fused instruction. Casts vanish: intermediates stay float, whatever their dtype in
// the body. `why`: the part CUDA kernels cannot run; empty on success.
FusedBody flatten_body(const Instr& instr, std::string& why);

// How a kernel with column sums (there must be one) cuts the rows and columns: blocks of tx x ty
// threads, a thread has `width` columns next to one another; block (t, s) handles column tile t of
// rows s * slab .. (s + 1) * slab - 1.
struct ColumnGrid {
  int tx = 0, ty = 0;
  int64_t tiles = 0, slabs = 0, slab = 0;
};
inline constexpr int fused_threads = 256;  // of a block
// Slabs depend on `widest`, not on `width`, so partial sums have one size whatever is chosen at
// launch.
ColumnGrid column_grid(const FusedBody& body, int width, int widest, const Device& device);
// Of partial column sums, float [sums][slabs][columns]; 0 without.
size_t partial_bytes(const FusedBody& body, int widest, const Device& device);

// Columns or elements of a thread at once: a power of two such that no access exceeds 16 bytes and,
// with column sums, every row starts at a whole vector.
int vector_width(const FusedBody& body);

// out[c] = sum over slabs of partials[slab][c] (+ acc[c]); adds in a fixed order. For call.instr's
// column sum `sum`.
void reduce_partials(const KernelCall& call, const FusedBody::ColumnSum& sum, const float* partials, int64_t slabs,
                     int64_t columns);

}  // namespace crest::cuda
