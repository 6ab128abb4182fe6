// The elementary pointwise operations, for what fusion leaves alone.
#include "backend/cuda/device/pointwise.h"

#include "backend/cuda/device/activation.h"

namespace crest::cuda {

namespace {

struct Add {
  static constexpr bool binary = true;
  __device__ float operator()(float a, float b) const { return a + b; }
};
struct Mul {
  static constexpr bool binary = true;
  __device__ float operator()(float a, float b) const { return a * b; }
};
struct Scale {
  static constexpr bool binary = false;
  float value;
  __device__ float operator()(float a, float) const { return a * value; }
};
struct AddScalar {
  static constexpr bool binary = false;
  float value;
  __device__ float operator()(float a, float) const { return a + value; }
};
struct Tanh {
  static constexpr bool binary = false;
  __device__ float operator()(float a, float) const { return tanhf(a); }
};
struct TanhGrad {
  static constexpr bool binary = true;
  __device__ float operator()(float dy, float y) const { return tanh_grad(dy, y); }
};
struct Gelu {
  static constexpr bool binary = false;
  __device__ float operator()(float a, float) const { return gelu(a); }
};
struct GeluGrad {
  static constexpr bool binary = true;
  __device__ float operator()(float dy, float x) const { return gelu_grad(dy, x); }
};
struct GeluErf {
  static constexpr bool binary = false;
  __device__ float operator()(float a, float) const { return gelu_erf(a); }
};
struct GeluErfGrad {
  static constexpr bool binary = true;
  __device__ float operator()(float dy, float x) const { return gelu_erf_grad(dy, x); }
};
struct Silu {
  static constexpr bool binary = false;
  __device__ float operator()(float a, float) const { return silu(a); }
};
struct SiluGrad {
  static constexpr bool binary = true;
  __device__ float operator()(float dy, float x) const { return silu_grad(dy, x); }
};

template <class F>
void launch_op(const KernelCall& c) {
  F f{};
  if constexpr (requires { f.value; }) f.value = float(c.instr.attrs.number("value"));
  with_type(c.in_value(0).dtype, [&](auto t) {
    using T = decltype(t);
    const T* b = nullptr;
    if constexpr (F::binary) b = c.input<T>(1);
    launch_pointwise<F::binary>(c, c.input<T>(0), b, c.output<T>(0), c.in_value(0).numel(), f);
  });
}

template <class F>
Kernel kernel(const char* op, const char* name) {
  return {op, name, reject_unless_float, nullptr, nullptr, launch_op<F>};
}

}  // namespace

Kernel add_kernel() { return kernel<Add>("add", "cuda.add.vector"); }
Kernel mul_kernel() { return kernel<Mul>("mul", "cuda.mul.vector"); }
Kernel scale_kernel() { return kernel<Scale>("scale", "cuda.scale.vector"); }
Kernel add_scalar_kernel() { return kernel<AddScalar>("add_scalar", "cuda.add_scalar.vector"); }
Kernel tanh_kernel() { return kernel<Tanh>("tanh", "cuda.tanh.vector"); }
Kernel tanh_grad_kernel() { return kernel<TanhGrad>("tanh_grad", "cuda.tanh_grad.vector"); }
Kernel gelu_kernel() { return kernel<Gelu>("gelu", "cuda.gelu.vector"); }
Kernel gelu_grad_kernel() { return kernel<GeluGrad>("gelu_grad", "cuda.gelu_grad.vector"); }
Kernel gelu_erf_kernel() { return kernel<GeluErf>("gelu_erf", "cuda.gelu_erf.vector"); }
Kernel gelu_erf_grad_kernel() { return kernel<GeluErfGrad>("gelu_erf_grad", "cuda.gelu_erf_grad.vector"); }
Kernel silu_kernel() { return kernel<Silu>("silu", "cuda.silu.vector"); }
Kernel silu_grad_kernel() { return kernel<SiluGrad>("silu_grad", "cuda.silu_grad.vector"); }

}  // namespace crest::cuda
