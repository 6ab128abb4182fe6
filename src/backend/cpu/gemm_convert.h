// Linear layers of a dtype that the machine does not multiply (f16; bf16 without native support): operands become f32 a
// block of output features at a time, so that the workspace stays small next to the operands.
#pragma once
#include <compare>
#include <cstddef>
#include <cstdint>
#include <memory>

#include "core/dtype.h"

namespace crest::cpu {

enum class LinearKind : uint8_t { forward, forward_gelu, dx, dw };

// x[rows,k], w[n,k], y or dy[rows,n], all of `dtype`; dw[n,k] of dtype `dw`.
struct LinearShape {
  LinearKind kind = LinearKind::forward;
  int64_t rows = 0, n = 0, k = 0;
  DType dtype = DType::f32;
  bool has_bias = false;
  DType bias = DType::f32;
  bool keep = false;  // forward_gelu: h is an output too
  DType dw = DType::f32;
  bool accumulate = false;  // dw += instead of dw =
  int threads = 1;
  auto operator<=>(const LinearShape&) const = default;
};

class ConvertedLinear {
 public:
  virtual ~ConvertedLinear() = default;
  virtual size_t workspace() const = 0;
  // forward: a = x, b = w, out = y. forward_gelu: out = gelu(y), h = y or null. dx: a = dy, b = w. dw: a = dy, b = x.
  virtual void run(const void* a, const void* b, const void* bias, void* out, void* h, void* workspace) const = 0;
};

std::shared_ptr<const ConvertedLinear> find_converted_linear(const LinearShape&);

}  // namespace crest::cpu
