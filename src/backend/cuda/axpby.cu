// x = a x + b y z + c, and square roots.
#include <cmath>

#include "backend/cuda/device/any_float.h"
#include "backend/cuda/kernel.h"
#include "core/step_factor.h"

namespace crest::cuda {

namespace {

constexpr int threads = 256, unroll = 2;  // vectors a thread
constexpr int quad = 4;

struct Coefficients {
  double a, b, decay, log_beta;
  float c;
  StepFactor a_by, b_by;
  bool divide;
};

struct Operand {
  const void* data;  // null: absent
  DType dtype;
};

template <int V>
__global__ void __launch_bounds__(threads)
    axpby_step(void* x, DType x_dtype, Operand y, Operand z, int64_t n, Coefficients k, const Scalars* scalars) {
  __shared__ float factor[2];
  if (scalars->found_inf) return;
  if (threadIdx.x == 0) {
    factor[0] = float(k.a * step_factor(k.a_by, k.log_beta, *scalars) - double(scalars->lr) * k.decay);
    factor[1] = float(k.b * step_factor(k.b_by, k.log_beta, *scalars));
  }
  __syncthreads();
  float a = factor[0], b = factor[1];
  int64_t first = int64_t(blockIdx.x) * (threads * unroll) + threadIdx.x;
#pragma unroll
  for (int u = 0; u < unroll; ++u) {
    int64_t i = (first + u * threads) * V;
    if (i >= n) continue;
    float r[V] = {}, other[V] = {}, by[V] = {};
    if (a != 0) load_any(x, x_dtype, i, r);  // what is overwritten is not read: it may be NaN
    if (y.data) load_any(y.data, y.dtype, i, other);
    if (z.data) load_any(z.data, z.dtype, i, by);
#pragma unroll
    for (int e = 0; e < V; ++e) {
      r[e] = k.c + r[e] * a;
      if (!y.data) continue;
      if (z.data) other[e] = k.divide ? other[e] / by[e] : other[e] * by[e];
      r[e] += other[e] * b;
    }
    store_any(x, x_dtype, i, r);
  }
}

// Whether n elements at each of these addresses can be taken four at a time.
bool in_quads(const KernelCall& c, std::initializer_list<size_t> inputs, std::initializer_list<size_t> outputs,
              int64_t n) {
  bool fits = n % quad == 0;
  for (size_t i : inputs)
    if (c.has(i)) fits &= aligned({c.in[i]}, quad * size_of(c.in_value(i).dtype));
  for (size_t o : outputs) fits &= aligned({c.out[o]}, quad * size_of(c.out_value(o).dtype));
  return fits;
}

void launch_axpby(const KernelCall& c) {
  const Attrs& attrs = c.instr.attrs;
  auto by = [&](const char* key) { return attrs.has(key) ? *parse_step_factor(attrs.word(key)) : StepFactor::one; };
  Coefficients k = {attrs.number("a"),
                    attrs.number("b", 0.0),
                    attrs.number("decay", 0.0),
                    std::log(attrs.number("beta", 0.0)),
                    float(attrs.number("c", 0.0)),
                    by("a_by"),
                    by("b_by"),
                    attrs.integer("divide", 0) != 0};
  auto operand = [&](size_t i) {
    return c.has(i) ? Operand{c.in[i], c.in_value(i).dtype} : Operand{nullptr, DType::f32};
  };
  int64_t n = c.in_value(1).numel();
  bool quads = in_quads(c, {2, 3}, {0}, n);
  launch(c, quads ? axpby_step<quad> : axpby_step<1>, blocks_for(n, threads * unroll * (quads ? quad : 1)), threads, 0,
         c.out[0], c.in_value(1).dtype, operand(2), operand(3), n, k, c.input<Scalars>(0));
}

template <int V>
__global__ void __launch_bounds__(threads) square_roots(const void* x, void* y, DType t, int64_t n) {
  int64_t first = int64_t(blockIdx.x) * (threads * unroll) + threadIdx.x;
#pragma unroll
  for (int u = 0; u < unroll; ++u) {
    int64_t i = (first + u * threads) * V;
    if (i >= n) continue;
    float r[V];
    load_any(x, t, i, r);
#pragma unroll
    for (int e = 0; e < V; ++e) r[e] = sqrtf(r[e]);
    store_any(y, t, i, r);
  }
}

void launch_sqrt(const KernelCall& c) {
  int64_t n = c.in_value(0).numel();
  bool quads = in_quads(c, {0}, {0}, n);
  launch(c, quads ? square_roots<quad> : square_roots<1>, blocks_for(n, threads * unroll * (quads ? quad : 1)), threads,
         0, c.in[0], c.out[0], c.in_value(0).dtype, n);
}

}  // namespace

Kernel axpby_kernel() { return {"axpby", "cuda.axpby", reject_unless_float, nullptr, nullptr, launch_axpby}; }
Kernel sqrt_kernel() { return {"sqrt", "cuda.sqrt", reject_unless_float, nullptr, nullptr, launch_sqrt}; }

}  // namespace crest::cuda
