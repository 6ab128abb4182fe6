// Shared by the kernels of linear layers: the product of an instruction.
#pragma once
#include <string>

#include "backend/backend.h"
#include "backend/product_detail.h"

namespace crest::cpu {

enum class LinearKind : uint8_t { forward, dx, dw };

// x[rows,k], w[n,k], y or dy[rows,n], all of `dtype`; dw[n,k] and the bias[n] are f32 or of it.
struct LinearShape {
  LinearKind kind = LinearKind::forward;
  int64_t rows = 0, n = 0, k = 0;
  DType dtype = DType::f32;
  bool has_bias = false, gelu = false;  // forward
  DType bias = DType::f32, dw = DType::f32;
  bool accumulate = false;  // dw += instead of dw =
  int64_t pitch = 0;        // elements from row to row of y or dy
};

LinearShape linear_shape(const KernelQuery&);
// Why the operands are none of the above; empty when they are. `any_pitch`: rows of y or dy may be
// further apart than they are wide.
std::string check_linear(const KernelQuery&, bool any_pitch = false);
// Whether the class of processors multiplies this
// dtype natively (the library is another question).
bool multiplied_directly(const Device&, DType);
// Why oneDNN does not run a linear layer's product on the operands as they are; empty when it does.
std::string refusal_of_onednn(const KernelQuery&);
// oneDNN's implementation and its workspace.
void describe_onednn(const KernelQuery&, ProductDetail&);

}  // namespace crest::cpu
