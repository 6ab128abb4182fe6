// One AdamW step over a tensor or a flat group (Loshchilov & Hutter 2019, algorithm 2), in one launch.
#include <cmath>

#include "backend/cuda/device/words.h"
#include "backend/cuda/kernel.h"
#include "core/scalars.h"

namespace crest::cuda {

namespace {

constexpr int threads = 256, blocks_per_multiprocessor = 6;

struct NoWeight {};  // there is no copy of the weights in another dtype

struct Constants {
  float beta1, beta2, one_minus_beta1, one_minus_beta2, eps, weight_decay;
  double log_beta1, log_beta2;  // natural logarithms
};

template <class G, class W>
struct Tensors {
  float *master, *m, *v;
  const G* g;
  W* w;
};

// What one step multiplies with.
struct Factors {
  float gradient, correction1, correction2, lr, decay;
};

template <class G, int V>
struct Loaded {
  Vec<float, V> master, m, v;
  Words<G, V> g;
};

template <class G, class W, int V>
__device__ inline Loaded<G, V> load_at(const Tensors<G, W>& t, int64_t i) {
  return {load_vec<V>(t.master + i), load_vec<V>(t.m + i), load_vec<V>(t.v + i), load_words<V>(t.g + i)};
}

template <class G, class W, int V>
__device__ inline void update_at(const Tensors<G, W>& t, int64_t i, Loaded<G, V>& x, const Constants& k,
                                 const Factors& f) {
#pragma unroll
  for (int e = 0; e < V; ++e) {
    float g = x.g[e] * f.gradient;
    float m = x.m.x[e] = k.beta1 * x.m.x[e] + k.one_minus_beta1 * g;
    float v = x.v.x[e] = k.beta2 * x.v.x[e] + k.one_minus_beta2 * g * g;
    float step = m * f.correction1 / (sqrtf(v * f.correction2) + k.eps);
    x.master.x[e] = x.master.x[e] - x.master.x[e] * f.decay - step * f.lr;
  }
  store_vec(t.master + i, x.master);
  store_vec(t.m + i, x.m);
  store_vec(t.v + i, x.v);
  if constexpr (!std::is_same_v<W, NoWeight>) {
    Vec<W, V> w;
#pragma unroll
    for (int e = 0; e < V; ++e) w.x[e] = narrow<W>(x.master.x[e]);
    store_vec(t.w + i, w);
  }
}

// Blocks stride over n elements, V a thread; the first threads of all take the n % V that remain.
template <class G, class W, int V>
__global__ void __launch_bounds__(threads, blocks_per_multiprocessor)
    adamw_step(Tensors<G, W> t, int64_t n, Constants k, const Scalars* scalars) {
  __shared__ float correction[2];
  int64_t id = int64_t(blockIdx.x) * threads + threadIdx.x, stride = int64_t(gridDim.x) * threads * V, i = id * V;
  // The first loads need nothing of what follows: they run while the bias corrections are computed.
  Loaded<G, V> x = {};
  if (i + V <= n) x = load_at<G, W, V>(t, i);
  if (scalars->found_inf) return;
  if (threadIdx.x < 2)  // 1 / (1 - beta^t)
    correction[threadIdx.x] =
        float(-1 / expm1(double(scalars->adam_step + 1) * (threadIdx.x == 0 ? k.log_beta1 : k.log_beta2)));
  __syncthreads();
  Factors f = {scalars->grad_factor, correction[0], correction[1], scalars->lr, scalars->lr * k.weight_decay};
  while (i + V <= n) {
    update_at<G, W, V>(t, i, x, k, f);
    i += stride;
    if (i + V <= n) x = load_at<G, W, V>(t, i);
  }
  if (V > 1 && id < n % V) {
    Loaded<G, 1> last = load_at<G, W, 1>(t, n - n % V + id);
    update_at<G, W, 1>(t, n - n % V + id, last, k, f);
  }
}

Constants constants(const Attrs& a) {
  double beta1 = a.number("beta1"), beta2 = a.number("beta2");
  return {float(beta1),     float(beta2),           float(1 - beta1),
          float(1 - beta2), float(a.number("eps")), float(a.number("weight_decay")),
          std::log(beta1),  std::log(beta2)};
}

template <int V, class G, class W>
void launch_step(const KernelCall& c, const Tensors<G, W>& t) {
  int64_t n = c.in_value(1).numel();
  unsigned most = unsigned(c.device->multiprocessors * blocks_per_multiprocessor);
  launch(c, adamw_step<G, W, V>, std::min(blocks_for(n, threads * V), most), threads, 0, t, n, constants(c.instr.attrs),
         c.input<Scalars>(0));
}

template <class G, class W>
void launch_typed(const KernelCall& c, W* w) {
  Tensors<G, W> t = {c.output<float>(0), c.output<float>(1), c.output<float>(2), c.input<G>(4), w};
  if (aligned({t.master, t.m, t.v}, 16) && aligned({t.g}, 4 * sizeof(G)) && aligned({t.w}, w ? 4 * sizeof(W) : 1))
    launch_step<4>(c, t);
  else
    launch_step<1>(c, t);
}

void launch_adamw(const KernelCall& c) {
  with_type(c.in_value(4).dtype, [&](auto g) {
    using G = decltype(g);
    if (!c.has(5)) return launch_typed<G, NoWeight>(c, nullptr);
    with_type(c.in_value(5).dtype, [&](auto w) { launch_typed<G>(c, c.output<decltype(w)>(3)); });
  });
}

}  // namespace

Kernel adamw_kernel() { return {"adamw", "cuda.adamw", reject_unless_float, nullptr, nullptr, launch_adamw}; }

}  // namespace crest::cuda
