// rope: rotary position embedding (Su et al., "RoFormer", 2021), half-split pairs, with
// rescaled frequencies.
#include "backend/cuda/device/numeric.h"
#include "backend/cuda/kernel.h"
#include "core/scalars.h"
#include "ops/index.h"

namespace crest::cuda {

namespace {

struct RopeArgs {
  int batch, tokens, rotated, heads, dim;  // rotated: query and key heads; heads: with the value heads
  int part;                                // elements of a head that are rotated
  int batch_per_block;
  double log2_theta;
  double factor;  // 0 = plain frequencies
  // Share of the slowed frequency: 0 at `none`, 1 at `whole`. By number of the pair (linear, YaRN),
  // or (Llama 3) by its turns within the original context.
  double none, whole, original_context;  // original_context 0: by pair
  float cosine_scale, sine_scale;        // sine_scale: negative if inverse
};

// Angle of a position per unit of the position for pair i, as the CPU kernel computes it.
__device__ double rope_frequency(const RopeArgs& a, int i) {
  double f = exp2(-2.0 * i / a.part * a.log2_theta);
  if (a.factor == 0) return f;
  double at = a.original_context == 0 ? double(i) : a.original_context * f / 6.283185307179586477;
  double slowed = fmin(fmax((at - a.none) / (a.whole - a.none), 0.0), 1.0);
  return slowed * f / a.factor + (1 - slowed) * f;
}

// Cosine and sine of a large angle to float accuracy: reduced to [-pi/4, pi/4] in double (pi/2 in
// two parts: exact products up to 2^20 quarter turns), the rest in float.
__device__ float2 cosine_sine(double angle) {
  double quarters = rint(angle * 0.63661977236758134308);
  double r = fma(-quarters, 1.57079632679489655800, angle);
  r = fma(-quarters, 6.12323399573676603587e-17, r);
  float c = cosf(float(r)), s = sinf(float(r));
  int quadrant = int(static_cast<long long>(quarters) & 3);
  if (quadrant & 1) {
    float old = c;
    c = -s, s = old;
  }
  return quadrant & 2 ? float2{-c, -s} : float2{c, s};
}

// A block rotates token blockIdx.x of batch_per_block samples: cosines and sines are computed once
// for all of them. positions (may be null): [batch, tokens], with one sample a block.
// x and y may be the same memory: a pair is read and written by one thread.
template <class T, int N>
__global__ void __launch_bounds__(256)
    rotate(const T* x, T* y, RopeArgs a, const Scalars* scalars, const int32_t* positions) {
  wait_for_predecessors();
  CREST_DYNAMIC_SHARED(float2, table);  // [part / 2]
  int half = a.part / 2, token = int(blockIdx.x);
  double position = double(token) + (scalars ? double(scalars->position) : 0.0);
  if (positions) position = double(positions[int64_t(blockIdx.y) * a.tokens + token]);
  for (int i = int(threadIdx.x); i < half; i += 256) {
    float2 cs = cosine_sine(position * rope_frequency(a, i));
    table[i] = {cs.x * a.cosine_scale, cs.y * a.sine_scale};
  }
  __syncthreads();
  int first = int(blockIdx.y) * a.batch_per_block, samples = min(a.batch_per_block, a.batch - first);
  int per_head = half / N, pairs = a.rotated * per_head;
  // Copied: the value heads, and what is left of the rotated ones.
  int values = x == y ? 0 : (a.heads - a.rotated) * (a.dim / N), left = x == y ? 0 : (a.dim - a.part) / N;
  int work = pairs + values + a.rotated * left;
  int64_t width = int64_t(a.heads) * a.dim;
  for (int i = int(threadIdx.x); i < samples * work; i += 256) {
    int sample = i / work, item = i - sample * work;
    int64_t row = (int64_t(first + sample) * a.tokens + token) * width;
    if (item >= pairs) {
      int copy = item - pairs, rest = copy - values;
      int64_t e = row;
      if (rest < 0)
        e += int64_t(a.rotated) * a.dim + int64_t(copy) * N;
      else
        e += int64_t(rest / left) * a.dim + a.part + int64_t(rest % left) * N;
      store_vec(y + e, load_vec<N>(x + e));
      continue;
    }
    int head = item / per_head, j = (item - head * per_head) * N;
    int64_t e = row + int64_t(head) * a.dim + j;
    Vec<T, N> u = load_vec<N>(x + e), v = load_vec<N>(x + e + half);
#pragma unroll
    for (int k = 0; k < N; ++k) {
      float p = widen(u.x[k]), q = widen(v.x[k]);
      float2 cs = table[j + k];
      u.x[k] = narrow<T>(p * cs.x - q * cs.y);
      v.x[k] = narrow<T>(q * cs.x + p * cs.y);
    }
    store_vec(y + e, u);
    store_vec(y + e + half, v);
  }
}

void launch_rope(const KernelCall& c) {
  const Value& qkv = c.in_value(in::rope::qkv);
  const Attrs& attrs = c.instr.attrs;
  int64_t heads = attrs.integer("heads"), kv_heads = attrs.integer("kv_heads");
  RopeArgs a = {};
  a.batch = int(qkv.shape[0]), a.tokens = int(qkv.shape[1]);
  a.rotated = int(heads + kv_heads), a.heads = int(heads + 2 * kv_heads);
  a.dim = int(qkv.shape[2]) / a.heads;
  a.part = int(attrs.integer("rotary_dim", a.dim));
  a.log2_theta = std::log2(attrs.number("theta"));
  if (attrs.has("factor")) {
    bool by_pair = attrs.has("first_pair");
    a.factor = attrs.number("factor");
    a.none = attrs.number(by_pair ? "first_pair" : "high_freq_factor");
    a.whole = attrs.number(by_pair ? "last_pair" : "low_freq_factor");
    if (!by_pair) a.original_context = attrs.number("original_context");
  }
  a.cosine_scale = float(attrs.number("attention_factor", 1));
  a.sine_scale = attrs.integer("inverse", 0) ? -a.cosine_scale : a.cosine_scale;
  // A few dozen blocks a multiprocessor hide the tail; fewer compute the same angles less often.
  int64_t wanted = 32 * std::max(1, c.device ? c.device->multiprocessors : 1);
  int64_t groups = std::clamp<int64_t>((wanted + a.tokens - 1) / a.tokens, 1, std::min(a.batch, 65535));
  a.batch_per_block = c.has(in::rope::positions) ? 1 : int((a.batch + groups - 1) / groups);
  dim3 grid(unsigned(a.tokens), blocks_for(a.batch, a.batch_per_block));
  size_t shared = size_t(a.part / 2) * sizeof(float2);
  with_type(qkv.dtype, [&](auto t) {
    using T = decltype(t);
    constexpr int N = Vec<T>::size;
    auto start = [&](auto kernel) {
      launch(c, kernel, grid, 256, shared, c.input<T>(in::rope::qkv), c.output<T>(out::rope::y), a,
             c.has(in::rope::scalars) ? c.input<Scalars>(in::rope::scalars) : nullptr,
             c.has(in::rope::positions) ? c.input<int32_t>(in::rope::positions) : nullptr);
    };
    if (a.part / 2 % N == 0 && a.dim % N == 0 && aligned({c.in[in::rope::qkv], c.out[out::rope::y]}))
      start(rotate<T, N>);
    else
      start(rotate<T, 1>);
  });
}

std::string reject(const KernelQuery& q) {
  if (q.has(in::rope::positions) && q.in(in::rope::qkv).shape[0] > 65535)
    return "takes positions of up to 65535 samples";
  return reject_unless_float(q);
}

}  // namespace

Kernel rope_kernel() { return {"rope", "cuda.rope", reject, nullptr, nullptr, CREST_DEVICE_CODE(launch_rope)}; }

}  // namespace crest::cuda
