// AdamW with moments in 8 bits (Dettmers et al. 2022). A warp takes a quantization block: numbers
// from codes, the step, the new scale by shuffles, codes at this scale; the new moments wait in
// registers. Thread blocks stay and take one quantization block after the other, so the table of
// numbers for dynamic codes comes to shared memory once.
#include "backend/cuda/device/quantize.h"
#include "backend/cuda/device/update.h"
#include "core/dynamic_code.h"
#include "core/float8_moment.h"
#include "ops/index.h"

namespace crest::cuda {

namespace {

using AdamW = update_rules::adamw<ScalarMath<float>>;

constexpr int threads = 256, warps = threads / 32, blocks_per_multiprocessor = 6;
constexpr int quad = 4, chunk = 32 * quad;  // elements of a lane, of a warp at once
constexpr int64_t most_block = 4096;

struct DynamicTables {
  float signed_value[256], unsigned_value[256];
  DynamicDecades signed_decades, unsigned_decades;
};
constexpr DynamicTables dynamic_tables() {
  DynamicTables c = {};
  for (int i = 0; i < 256; ++i) {
    c.signed_value[i] = float(dynamic_value(uint8_t(i), true));
    c.unsigned_value[i] = float(dynamic_value(uint8_t(i), false));
  }
  c.signed_decades = dynamic_decades(true), c.unsigned_decades = dynamic_decades(false);
  return c;
}

// The code nearest to the magnitude y in [0, 1]; `first`: position of the leading one of the first
// decade.
__device__ inline uint32_t nearest_code(const DynamicDecades& d, int first, float y) {
  float low = 0, scale = 0;
  uint32_t base = 0;
#pragma unroll
  for (int i = 0; i < 7; ++i)
    if (y >= d.from[i]) low = d.low[i], scale = d.scale[i], base = 1u << (i + first);
  if (base == 0) return 0;
  uint32_t part = uint32_t((y - low) * scale);
  return base + (part < base ? part : base - 1);
}
__device__ inline uint8_t signed_code(const DynamicDecades& d, float x) {
  if (x >= d.one) return 0x80;
  uint32_t code = nearest_code(d, 0, fabsf(x));
  return uint8_t(code == 0 || x > 0 ? code : code | 0x80u);
}
__device__ inline uint8_t unsigned_code(const DynamicDecades& d, float y) {
  return uint8_t(y >= d.one ? 1 : nearest_code(d, 1, y));
}
static_assert(dynamic_decades(true).count == 7 && dynamic_decades(false).count == 7);

// The codes of a block: numbers from codes, and codes from numbers. most: the largest magnitude of
// the block, as `kept`.
struct Dynamic {
  struct Given {
    DynamicTables tables;
  };
  static Given given() {
    static constexpr DynamicTables tables = dynamic_tables();
    return {tables};
  }
  struct Shared {
    float signed_value[256], unsigned_value[256];
  };
  const Given& g;
  const Shared& s;
  // All threads of the block call it; a barrier follows.
  __device__ Dynamic(const Given& given, Shared& shared) : g(given), s(shared) {
    for (int i = int(threadIdx.x); i < 256; i += threads) {
      shared.signed_value[i] = g.tables.signed_value[i];
      shared.unsigned_value[i] = g.tables.unsigned_value[i];
    }
  }
  __device__ static float kept(float most) { return most; }
  __device__ static float inverse(float most) { return most > 0 ? 1 / most : 0.f; }
  __device__ float first(uint8_t code, float most) const { return s.signed_value[code] * most; }
  __device__ float second(uint8_t code, float most) const { return s.unsigned_value[code] * most; }
  __device__ Vec<uint8_t, quad> first_codes(const float (&m)[quad], float most) const {
    Vec<uint8_t, quad> codes;
#pragma unroll
    for (int k = 0; k < quad; ++k) codes.x[k] = signed_code(g.tables.signed_decades, m[k] * inverse(most));
    return codes;
  }
  __device__ Vec<uint8_t, quad> second_codes(const float (&v)[quad], float most) const {
    Vec<uint8_t, quad> codes;
#pragma unroll
    for (int k = 0; k < quad; ++k) codes.x[k] = unsigned_code(g.tables.unsigned_decades, v[k] * inverse(most));
    return codes;
  }
};

// core/float8_moment.h.
struct Float8 {
  struct Given {};
  static Given given() { return {}; }
  struct Shared {};
  __device__ Float8(const Given&, Shared&) {}
  static constexpr float largest = float8_moment_largest, squared = largest * largest;

  __device__ static float kept(float most) { return most >= float8_moment_least ? most : 0.f; }
  // The fields of e4m3 at the places of f32's; 2^120 corrects the other bias, also below 2^-6.
  __device__ static float magnitude(uint8_t code) { return __uint_as_float(uint32_t(code & 0x7f) << 20) * 0x1p120f; }
  __device__ static float first(uint8_t code, float most) {
    float x = magnitude(code) * (most / largest);
    return code & 0x80 ? -x : x;
  }
  __device__ static float second(uint8_t code, float most) {
    float root = magnitude(code);
    return root * root * (most / squared);
  }
  __device__ static Vec<uint8_t, quad> first_codes(const float (&m)[quad], float most) {
    float factor = most > 0 ? largest / most : 0.f;
    Vec<uint8_t, quad> codes;
#pragma unroll
    for (int k = 0; k < quad; k += 2) put(codes, k, to_codes(false, m[k] * factor, m[k + 1] * factor));
    return codes;
  }
  __device__ static Vec<uint8_t, quad> second_codes(const float (&v)[quad], float most) {
    constexpr float least = 0x1p-9f;  // the number of code 1
    float factor = most > 0 ? squared / most : 0.f, y[quad];
#pragma unroll
    for (int k = 0; k < quad; ++k) {
      float root = sqrtf(v[k] * factor);
      y[k] = root > 0 && root < least ? least : root;
    }
    Vec<uint8_t, quad> codes;
#pragma unroll
    for (int k = 0; k < quad; k += 2) put(codes, k, to_codes(false, y[k], y[k + 1]));
    return codes;
  }

 private:
  __device__ static void put(Vec<uint8_t, quad>& codes, int k, uint32_t two) {
    codes.x[k] = uint8_t(two), codes.x[k + 1] = uint8_t(two >> 8);
  }
};

template <class P, class G, class W>
struct Tensors {
  P* p;
  uint8_t *m, *v;
  float *m_max, *v_max;
  const G* g;
  W* w;
};

// Four elements, the first `count` of them valid; loaded at once if aligned.
template <class T>
__device__ inline Vec<T, quad> load_quad(const T* from, int64_t count, bool aligned) {
  if (aligned && count >= quad) return load_vec<quad>(from);
  Vec<T, quad> x = {};
  for (int k = 0; k < quad && k < count; ++k) x.x[k] = from[k];
  return x;
}
template <class T>
__device__ inline void store_quad(T* to, const Vec<T, quad>& x, int64_t count, bool aligned) {
  if (aligned && count >= quad) return store_vec(to, x);
  for (int k = 0; k < quad && k < count; ++k) to[k] = x.x[k];
}

// One step of the quad at e; leaves its new moments in m and v.
template <class Codes, class P, class G, class W>
__device__ inline void step_quad(const Tensors<P, G, W>& t, int64_t e, int64_t count, bool aligned,
                                 const UpdateStep<float>& f, const Codes& codes, float m_scale, float v_scale,
                                 float (&m)[quad], float (&v)[quad]) {
  Vec<uint8_t, quad> m_code = load_quad(t.m + e, count, aligned), v_code = load_quad(t.v + e, count, aligned);
  Vec<float, quad> p = {};
  if constexpr (is_split<P>) {
    Vec<LowHalf, quad> low = load_quad(t.p + e, count, aligned);
    Vec<bfloat16, quad> high = load_quad(t.w + e, count, aligned);
#pragma unroll
    for (int k = 0; k < quad; ++k) p.x[k] = join(high.x[k], low.x[k]);
  } else {
    p = load_quad(t.p + e, count, aligned);
  }
  Vec<G, quad> g = load_quad(t.g + e, count, aligned);
#pragma unroll
  for (int k = 0; k < quad; ++k) {
    float state[2] = {codes.first(m_code.x[k], m_scale), codes.second(v_code.x[k], v_scale)};
    AdamW::apply(f, widen(g.x[k]) * f.gradient_factor, p.x[k], state);
    m[k] = state[0], v[k] = state[1];
  }
  if constexpr (is_split<P>) {
    Vec<LowHalf, quad> low;
    Vec<bfloat16, quad> high;
    split(p.x, high, low);
    store_quad(t.p + e, low, count, aligned), store_quad(t.w + e, high, count, aligned);
    return;
  } else {
    store_quad(t.p + e, p, count, aligned);
  }
  if constexpr (!std::is_same_v<W, NoCopy>) {
    Vec<W, quad> w;
#pragma unroll
    for (int k = 0; k < quad; ++k) w.x[k] = weight_of_master<W>(p.x[k]);
    store_quad(t.w + e, w, count, aligned);
  }
}

// block: elements of a quantization block, at most Chunks * chunk. Few chunks stay in registers.
template <class Codes, int Chunks, class P, class G, class W>
__global__ void __launch_bounds__(threads)
    quantized_step(Tensors<P, G, W> t, int64_t n, int block, bool aligned, UpdateFactors factors,
                   typename Codes::Given given, const Scalars* scalars) {
  wait_for_predecessors();
  [[maybe_unused]] constexpr int unroll = Chunks <= 4 ? Chunks : 1;
  __shared__ typename Codes::Shared shared;
  if (scalars->found_inf) return;
  Codes codes(given, shared);
  UpdateStep<float> f = factors.step<AdamW>(scalars);  // with a barrier
  int lane = int(threadIdx.x) % 32;
  int64_t blocks = (n + block - 1) / block;
  for (int64_t q = int64_t(blockIdx.x) * warps + threadIdx.x / 32; q < blocks; q += int64_t(gridDim.x) * warps) {
    int64_t begin = q * block, end = begin + block < n ? begin + block : n;
    float m_scale = t.m_max[q], v_scale = t.v_max[q], m_most = 0, v_most = 0;
    float m[Chunks][quad], v[Chunks][quad];
#pragma unroll unroll
    for (int c = 0; c < Chunks; ++c) {
      int64_t e = begin + c * chunk + lane * quad;
      if (e >= end) continue;
      step_quad(t, e, end - e, aligned, f, codes, m_scale, v_scale, m[c], v[c]);
#pragma unroll
      for (int k = 0; k < quad; ++k)
        if (k < end - e) m_most = fmaxf(m_most, fabsf(m[c][k])), v_most = fmaxf(v_most, v[c][k]);
    }
    // All lanes read the old scales above: the shuffles come before the new ones are written.
    m_most = Codes::kept(warp_max(m_most)), v_most = Codes::kept(warp_max(v_most));
    if (lane == 0) t.m_max[q] = m_most, t.v_max[q] = v_most;
#pragma unroll unroll
    for (int c = 0; c < Chunks; ++c) {
      int64_t e = begin + c * chunk + lane * quad;
      if (e >= end) continue;
      store_quad(t.m + e, codes.first_codes(m[c], m_most), end - e, aligned);
      store_quad(t.v + e, codes.second_codes(v[c], v_most), end - e, aligned);
    }
  }
}

template <class Codes, class P, class G, class W>
void launch_typed(const KernelCall& c, W* w) {
  Tensors<P, G, W> t = {c.output<P>(out::adamw_8bit::master),
                        c.output<uint8_t>(out::adamw_8bit::m),
                        c.output<uint8_t>(out::adamw_8bit::v),
                        c.output<float>(out::adamw_8bit::m_max),
                        c.output<float>(out::adamw_8bit::v_max),
                        c.input<G>(in::adamw_8bit::g),
                        w};
  int64_t n = c.in_value(in::adamw_8bit::master).numel(), block = c.instr.attrs.integer("block");
  size_t copy = std::is_same_v<W, NoCopy> ? 1 : sizeof(Vec<W, quad>);
  bool fits = aligned({t.p}, sizeof(Vec<P, quad>)) && aligned({t.m, t.v}, quad) &&
              aligned({t.g}, sizeof(Vec<G, quad>)) && aligned({t.w}, copy);
  auto kernel =
      block <= 2 * chunk ? quantized_step<Codes, 2, P, G, W> : quantized_step<Codes, most_block / chunk, P, G, W>;
  unsigned most = unsigned(c.device->multiprocessors * blocks_per_multiprocessor);
  launch(c, kernel, std::min(blocks_for(n, block * warps), most), threads, 0, t, n, int(block), fits,
         UpdateFactors(UpdateRates(c.instr.attrs)), Codes::given(), c.input<Scalars>(in::adamw_8bit::scalars));
}

template <class Codes>
void launch_codes(const KernelCall& c) {
  with_type(c.in_value(in::adamw_8bit::g).dtype, [&](auto g) {
    using G = decltype(g);
    if (!c.has(in::adamw_8bit::w)) return launch_typed<Codes, float, G, NoCopy>(c, nullptr);
    if (c.in_value(in::adamw_8bit::master).dtype == DType::u16)
      return launch_typed<Codes, LowHalf, G>(c, c.output<bfloat16>(out::adamw_8bit::w));
    with_type(c.in_value(in::adamw_8bit::w).dtype,
              [&](auto w) { launch_typed<Codes, float, G>(c, c.output<decltype(w)>(out::adamw_8bit::w)); });
  });
}

void launch_8bit(const KernelCall& c) {
  if (c.instr.attrs.has("codes")) return launch_codes<Float8>(c);
  launch_codes<Dynamic>(c);
}

std::string reject(const KernelQuery& q) {
  for (size_t i : {in::adamw_8bit::g, in::adamw_8bit::w})
    if (q.has(i))
      if (std::string why = reject_value(q.in(i)); !why.empty()) return why;
  if (q.in(in::adamw_8bit::m_max).dtype != DType::f32) return q.in(in::adamw_8bit::m_max).name + ": takes f32";
  if (q.instr.attrs.integer("block") > most_block)
    return "takes blocks of up to " + std::to_string(most_block) + " elements";
  return {};
}

}  // namespace

Kernel adamw_8bit_kernel() {
  return {"adamw_8bit", "cuda.adamw_8bit", reject, nullptr, nullptr, CREST_DEVICE_CODE(launch_8bit)};
}

}  // namespace crest::cuda
