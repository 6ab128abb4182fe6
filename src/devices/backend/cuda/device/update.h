// One step of an element-wise optimizer in one launch (ops/update.h); a Rule is one of
// ops/update_rules.h.
#pragma once
#include "backend/cuda/device/words.h"
#include "backend/cuda/kernel.h"
#include "core/scalars.h"
#include "core/split_float.h"
#include "core/stochastic_rounding.h"
#include "ops/update.h"

namespace crest::cuda {

// Arguments of a kernel; scalars on the device add the rest.
struct UpdateFactors {
  explicit UpdateFactors(const UpdateRates& r)
      : fixed(r.fixed<float>()),
        weight_decay(float(r.weight_decay)),
        lr_factor(float(r.lr_factor)),
        log_beta1(r.log_beta1),
        log_beta2(r.log_beta2) {}

  // All threads of the block call it: two of them compute the corrections, in double.
  template <class Rule>
  __device__ UpdateStep<float> step(const Scalars* scalars) const {
    UpdateStep<float> s = fixed;
    s.gradient_factor = scalars->grad_factor, s.lr = scalars->lr * lr_factor, s.decay = s.lr * weight_decay;
    if constexpr (Rule::bias_corrected) {
      __shared__ float correction[2];
      if (threadIdx.x < 2)
        correction[threadIdx.x] =
            float(1 / bias_correction(threadIdx.x == 0 ? log_beta1 : log_beta2, scalars->adam_step));
      __syncthreads();
      s.correction1 = correction[0], s.correction2 = correction[1];
    }
    return s;
  }

  UpdateStep<float> fixed;
  float weight_decay, lr_factor;
  double log_beta1, log_beta2;
};

constexpr int update_threads = 256, update_blocks_per_multiprocessor = 6;

struct NoCopy {};  // there is no copy of the parameter in another dtype

// The low half of an f32 parameter; the high half is the bf16 copy (core/split_float.h).
struct LowHalf {
  uint16_t bits;
};
__device__ inline float widen(LowHalf x) { return __uint_as_float(uint32_t(x.bits) << 16); }
__device__ inline float join(bfloat16 high, LowHalf low) { return __uint_as_float(join_bits(high.bits, low.bits)); }
template <int V>
__device__ inline void split(const float (&x)[V], Vec<bfloat16, V>& high, Vec<LowHalf, V>& low) {
#pragma unroll
  for (int e = 0; e < V; ++e) {
    SplitBits s = split_bits(__float_as_uint(x[e]));
    high.x[e] = {s.high}, low.x[e] = {s.low};
  }
}

// The weight of a whole master.
template <class W>
__device__ inline W weight_of_master(float x) {
  if constexpr (std::is_same_v<W, bfloat16>)
    return {weight_bits(__float_as_uint(x))};
  else
    return narrow<W>(x);
}
template <int V, class W>
__device__ inline void store_weights(W* to, const float (&x)[V]) {
  Vec<W, V> v;
#pragma unroll
  for (int e = 0; e < V; ++e) v.x[e] = weight_of_master<W>(x[e]);
  store_vec(to, v);
}

template <class P>
constexpr bool is_split = std::is_same_v<P, LowHalf>;
// Of the states of a parameter stored as P.
template <class P>
using StateOf = std::conditional_t<is_split<P>, float, P>;

// N parameters as they were loaded.
template <class P, int N>
struct Parameters {
  Words<P, N> x;
  __device__ float operator[](int i) const { return x[i]; }
};
template <int N>
struct Parameters<LowHalf, N> {
  Words<LowHalf, N> low;
  Words<bfloat16, N> high;
  __device__ float operator[](int i) const {
    return __uint_as_float(
        join_bits(uint16_t(__float_as_uint(high[i]) >> 16), uint16_t(__float_as_uint(low[i]) >> 16)));
  }
};
template <int states, class P, class G, class W>
struct UpdateTensors {
  P* p;
  StateOf<P>* state[states];
  const G* g;
  W* w;
  bfloat16* c;    // rounding kahan
  int64_t first;  // rounding stochastic: place of p in its group, and the group's stream
  int64_t rng_id;
};

template <int states, class P, class G, int V>
struct UpdateLoaded {
  Parameters<P, V> p;
  Words<StateOf<P>, V> state[states];
  Words<G, V> g;
};

template <int V, int states, class P, class G, class W>
__device__ inline UpdateLoaded<states, P, G, V> load_update(const UpdateTensors<states, P, G, W>& t, int64_t i) {
  UpdateLoaded<states, P, G, V> x = {};
  if constexpr (is_split<P>)
    x.p = {load_words<V>(t.p + i), load_words<V>(t.w + i)};
  else
    x.p = {load_words<V>(t.p + i)};
#pragma unroll
  for (int s = 0; s < states; ++s) x.state[s] = load_words<V>(t.state[s] + i);
  x.g = load_words<V>(t.g + i);
  return x;
}

template <int V, class T>
__device__ inline void store_rounded(T* to, const float (&x)[V]) {
  Vec<T, V> v;
#pragma unroll
  for (int e = 0; e < V; ++e) v.x[e] = narrow<T>(x[e]);
  store_vec(to, v);
}

// Parameters to their memory, rounded where they have fewer bits there, and to their copy.
template <int V, int states, class P, class G, class W>
__device__ inline void store_parameters(const UpdateTensors<states, P, G, W>& t, int64_t i, const float (&x)[V]) {
  if constexpr (is_split<P>) {
    Vec<LowHalf, V> low;
    Vec<bfloat16, V> high;
    split(x, high, low);
    store_vec(t.p + i, low), store_vec(t.w + i, high);
  } else {
    store_rounded(t.p + i, x);
    if constexpr (!std::is_same_v<W, NoCopy>) store_weights(t.w + i, x);
  }
}

// The words of elements first .. first + V - 1; with V = 4, first is a multiple of 4.
template <int V>
__device__ inline void update_words(uint64_t seed, uint64_t stream, uint64_t first, uint32_t (&words)[V]) {
  Random4 r = philox(seed, stream, first >> 2);
#pragma unroll
  for (int e = 0; e < V; ++e) words[e] = V == 4 ? r.x[e] : r.x[(first + e) & 3];
}

template <int V>
__device__ inline void store_stochastic(bfloat16* to, const float (&x)[V], const uint32_t (&words)[V], int state) {
  Vec<bfloat16, V> v;
#pragma unroll
  for (int e = 0; e < V; ++e)
    v.x[e] = {round_bits_stochastically(__float_as_uint(x[e]), state < 0 ? words[e] : state_word(words[e], state))};
  store_vec(to, v);
}

// p: the parameters before they are rounded to P (with rounding kahan, after).
template <class Rule, Rounding rounding, class P, class G, class W, int V>
__device__ inline void update_at(const UpdateTensors<Rule::states, P, G, W>& t, int64_t i,
                                 const UpdateLoaded<Rule::states, P, G, V>& x, const UpdateStep<float>& f,
                                 const Scalars* scalars, float (&p)[V]) {
  float state[Rule::states][V];
#pragma unroll
  for (int e = 0; e < V; ++e) {
    float s[Rule::states];
#pragma unroll
    for (int k = 0; k < Rule::states; ++k) s[k] = x.state[k][e];
    p[e] = x.p[e];
    Rule::apply(f, x.g[e] * f.gradient_factor, p[e], s);
#pragma unroll
    for (int k = 0; k < Rule::states; ++k) state[k][e] = s[k];
  }
  if constexpr (rounding == Rounding::stochastic) {
    uint32_t words[V];
    update_words(scalars->seed, update_stream(scalars->adam_step, t.rng_id), uint64_t(t.first + i), words);
    store_stochastic(t.p + i, p, words, -1);
#pragma unroll
    for (int k = 0; k < Rule::states; ++k) store_stochastic(t.state[k] + i, state[k], words, k);
    return;
  }
  if constexpr (rounding == Rounding::kahan) {
    Words<bfloat16, V> before = load_words<V>(t.c + i);
    float lost[V];
#pragma unroll
    for (int e = 0; e < V; ++e) {
      float wanted = p[e] + before[e];
      p[e] = widen(narrow<bfloat16>(wanted));
      lost[e] = wanted - p[e];
    }
    store_rounded(t.c + i, lost);
  }
  store_parameters(t, i, p);
#pragma unroll
  for (int k = 0; k < Rule::states; ++k) store_rounded(t.state[k] + i, state[k]);
}

// Blocks stride over n elements, V a thread; the first threads of all take the remaining n % V.
template <class Rule, Rounding rounding, class P, class G, class W, int V>
__global__ void __launch_bounds__(update_threads, update_blocks_per_multiprocessor)
    update_step(UpdateTensors<Rule::states, P, G, W> t, int64_t n, UpdateFactors factors, const Scalars* scalars) {
  wait_for_predecessors();
  int64_t id = int64_t(blockIdx.x) * update_threads + threadIdx.x, stride = int64_t(gridDim.x) * update_threads * V;
  int64_t i = id * V;
  // The first loads are independent: they run while the factors are computed.
  UpdateLoaded<Rule::states, P, G, V> x = {};
  if (i + V <= n) x = load_update<V>(t, i);
  if (scalars->found_inf) return;
  UpdateStep<float> f = factors.step<Rule>(scalars);
  while (i + V <= n) {
    float p[V];
    update_at<Rule, rounding, P, G, W, V>(t, i, x, f, scalars, p);
    i += stride;
    if (i + V <= n) x = load_update<V>(t, i);
  }
  if (V > 1 && id < n % V) {
    UpdateLoaded<Rule::states, P, G, 1> last = load_update<1>(t, n - n % V + id);
    float p[1];
    update_at<Rule, rounding, P, G, W, 1>(t, n - n % V + id, last, f, scalars, p);
  }
}

// The update of n elements.
template <class Rule, Rounding rounding, class P, class G, class W>
void launch_update_of(const KernelCall& c, const UpdateTensors<Rule::states, P, G, W>& t, int64_t n,
                      const UpdateRates& rates, const Scalars* scalars) {
  constexpr int states = Rule::states;
  constexpr bool copies = !std::is_same_v<W, NoCopy>;
  bool fits = aligned({t.p}, 4 * sizeof(P)) && aligned({t.state[0], t.state[states - 1]}, 4 * sizeof(StateOf<P>)) &&
              aligned({t.g}, 4 * sizeof(G)) && aligned({t.w}, copies ? 4 * sizeof(W) : 1) && aligned({t.c}, 8) &&
              t.first % 4 == 0;
  unsigned most = unsigned(c.device->multiprocessors * update_blocks_per_multiprocessor);
  unsigned blocks = std::min(blocks_for(n, update_threads * (fits ? 4 : 1)), most);
  launch(c, fits ? update_step<Rule, rounding, P, G, W, 4> : update_step<Rule, rounding, P, G, W, 1>, blocks,
         update_threads, 0, t, n, UpdateFactors(rates), scalars);
}

template <class Rule, Rounding rounding, class P, class G, class W>
void launch_update_typed(const KernelCall& c) {
  constexpr int states = Rule::states;
  constexpr bool copies = !std::is_same_v<W, NoCopy>;
  UpdateTensors<states, P, G, W> t = {};
  t.p = c.output<P>(parameter_output);
  for (int s = 0; s < states; ++s) t.state[s] = c.output<StateOf<P>>(state_output + size_t(s));
  t.g = c.input<G>(gradient_input(states));
  if constexpr (copies) t.w = c.output<W>(copy_output(states));
  if (rounding == Rounding::kahan) t.c = c.output<bfloat16>(compensation_output(states));
  t.first = c.in_value(parameter_input).layout.offset;
  if (int64_t share = c.instr.attrs.integer("share", 0)) t.first += c.index() * share;
  t.rng_id = c.instr.attrs.integer("rng_id", 0);
  launch_update_of<Rule, rounding, P, G, W>(c, t, c.in_value(parameter_input).numel(), UpdateRates(c.instr.attrs),
                                            c.input<Scalars>(scalars_input));
}

// f32 parameters, with or without a copy or in two halves, and f32 states.
template <class Rule>
void launch_update(const KernelCall& c) {
  constexpr size_t w = copy_input(Rule::states);
  with_type(c.in_value(gradient_input(Rule::states)).dtype, [&](auto g) {
    using G = decltype(g);
    if (!c.has(w)) return launch_update_typed<Rule, Rounding::nearest, float, G, NoCopy>(c);
    if (c.in_value(parameter_input).dtype == DType::u16)
      return launch_update_typed<Rule, Rounding::nearest, LowHalf, G, bfloat16>(c);
    with_type(c.in_value(w).dtype,
              [&](auto copy) { launch_update_typed<Rule, Rounding::nearest, float, G, decltype(copy)>(c); });
  });
}

// bf16 parameters and states.
template <class Rule>
void launch_bf16_update(const KernelCall& c) {
  with_type(c.in_value(gradient_input(Rule::states)).dtype, [&](auto g) {
    using G = decltype(g);
    switch (rounding_of(c.instr.attrs)) {
      case Rounding::nearest: return launch_update_typed<Rule, Rounding::nearest, bfloat16, G, NoCopy>(c);
      case Rounding::kahan: return launch_update_typed<Rule, Rounding::kahan, bfloat16, G, NoCopy>(c);
      case Rounding::stochastic: return launch_update_typed<Rule, Rounding::stochastic, bfloat16, G, NoCopy>(c);
    }
  });
}

}  // namespace crest::cuda
