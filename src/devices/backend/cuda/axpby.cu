// x = a x + b y z + c, and square roots.
#include <cmath>

#include "backend/cuda/device/any_float.h"
#include "backend/cuda/device/update.h"
#include "backend/cuda/kernel.h"
#include "core/step_factor.h"
#include "ops/index.h"

namespace crest::cuda {

namespace {

constexpr int threads = 256, unroll = 2;  // vectors a thread
constexpr int quad = 4;

struct Coefficients {
  double a, b, decay, log_beta;
  float c;
  StepFactor a_by, b_by;
  bool divide;
  bool weights;  // x takes weights in bf16 of masters (core/split_float.h)
};

struct Operand {
  const void* data;  // null: absent
  DType dtype;
};

template <int V>
__global__ void __launch_bounds__(threads)
    axpby_step(void* x, DType x_dtype, Operand y, Operand z, int64_t n, Coefficients k, const Scalars* scalars) {
  wait_for_predecessors();
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
    if (a != 0) load_any(x, x_dtype, i, r);  // not read before it is overwritten: it may be NaN
    if (y.data) load_any(y.data, y.dtype, i, other);
    if (z.data) load_any(z.data, z.dtype, i, by);
#pragma unroll
    for (int e = 0; e < V; ++e) {
      r[e] = a != 0 ? k.c + r[e] * a : k.c;
      if (!y.data) continue;
      if (z.data) other[e] = k.divide ? other[e] / by[e] : other[e] * by[e];
      r[e] += other[e] * b;
    }
    if (k.weights)
      store_weights(static_cast<bfloat16*>(x) + i, r);
    else
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
  auto by = [&](const char* key) { return attrs.has(key) ? *parse_step_factor(attrs.text(key)) : StepFactor::one; };
  Coefficients k = {attrs.number("a"),
                    attrs.number("b", 0.0),
                    attrs.number("decay", 0.0),
                    std::log(attrs.number("beta", 0.0)),
                    float(attrs.number("c", -0.0)),  // -0 + x is x also for -0
                    by("a_by"),
                    by("b_by"),
                    attrs.integer("divide", 0) != 0,
                    attrs.integer("weights", 0) != 0 && c.in_value(in::axpby::x).dtype == DType::bf16};
  auto operand = [&](size_t i) {
    return c.has(i) ? Operand{c.in[i], c.in_value(i).dtype} : Operand{nullptr, DType::f32};
  };
  int64_t n = c.in_value(in::axpby::x).numel();
  bool quads = in_quads(c, {in::axpby::y, in::axpby::z}, {out::axpby::x}, n);
  launch(c, quads ? axpby_step<quad> : axpby_step<1>, blocks_for(n, threads * unroll * (quads ? quad : 1)), threads, 0,
         c.out[out::axpby::x], c.in_value(in::axpby::x).dtype, operand(in::axpby::y), operand(in::axpby::z), n, k,
         c.input<Scalars>(in::axpby::scalars));
}

template <int V>
__global__ void __launch_bounds__(threads) square_roots(const void* x, void* y, DType t, int64_t n) {
  wait_for_predecessors();
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
  int64_t n = c.in_value(in::sqrt::x).numel();
  bool quads = in_quads(c, {in::sqrt::x}, {out::sqrt::y}, n);
  launch(c, quads ? square_roots<quad> : square_roots<1>, blocks_for(n, threads * unroll * (quads ? quad : 1)), threads,
         0, c.in[in::sqrt::x], c.out[out::sqrt::y], c.in_value(in::sqrt::x).dtype, n);
}

}  // namespace

Kernel axpby_kernel() {
  return {"axpby", "cuda.axpby", reject_unless_float, nullptr, nullptr, CREST_DEVICE_CODE(launch_axpby)};
}
Kernel sqrt_kernel() {
  return {"sqrt", "cuda.sqrt", reject_unless_float, nullptr, nullptr, CREST_DEVICE_CODE(launch_sqrt)};
}

}  // namespace crest::cuda
