// AdamW with moments in 8 bits (Dettmers et al. 2022). A thread block takes a quantization block: numbers out of codes,
// the step, the new scale, codes at that scale; the new moments wait in shared memory for the scale.
#include "backend/cuda/device/adamw.h"
#include "backend/cuda/device/update.h"
#include "core/dynamic_code.h"

namespace crest::cuda {

namespace {

constexpr int threads = 256;

struct Codes {
  float signed_value[256], unsigned_value[256];
  DynamicDecades signed_decades, unsigned_decades;
};
constexpr Codes make_codes() {
  Codes c = {};
  for (int i = 0; i < 256; ++i) {
    c.signed_value[i] = float(dynamic_value(uint8_t(i), true));
    c.unsigned_value[i] = float(dynamic_value(uint8_t(i), false));
  }
  c.signed_decades = dynamic_decades(true), c.unsigned_decades = dynamic_decades(false);
  return c;
}

// The code nearest to the magnitude y in [0, 1]; `first`: position of the leading one of the first decade.
__device__ inline uint32_t nearest_code(const DynamicDecades& d, int first, float y) {
  float low = 0, scale = 0;
  uint32_t base = 0;
  for (int i = 0; i < d.count; ++i)
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

template <class G, class W>
struct Tensors {
  float* p;
  uint8_t *m, *v;
  float *m_max, *v_max;
  const G* g;
  W* w;
};

template <class G, class W>
__global__ void __launch_bounds__(threads)
    quantized_step(Tensors<G, W> t, int64_t n, int block, AdamW rule, Codes codes, const Scalars* scalars) {
  CREST_DYNAMIC_SHARED(float, moments);
  __shared__ float signed_value[256], unsigned_value[256];
  if (scalars->found_inf) return;
  for (int i = int(threadIdx.x); i < 256; i += threads)
    signed_value[i] = codes.signed_value[i], unsigned_value[i] = codes.unsigned_value[i];
  AdamW::Factors f = rule.factors(scalars);  // with a barrier
  int64_t begin = int64_t(blockIdx.x) * block;
  int count = int(n - begin < block ? n - begin : block);
  float m_scale = t.m_max[blockIdx.x], v_scale = t.v_max[blockIdx.x], m_most = 0, v_most = 0;
  for (int i = int(threadIdx.x); i < count; i += threads) {
    int64_t e = begin + i;
    float state[2] = {signed_value[t.m[e]] * m_scale, unsigned_value[t.v[e]] * v_scale}, p = t.p[e];
    AdamW::apply(f, widen(t.g[e]), p, state);
    t.p[e] = p;
    if constexpr (!std::is_same_v<W, NoCopy>) t.w[e] = narrow<W>(p);
    moments[i] = state[0], moments[block + i] = state[1];
    m_most = fmaxf(m_most, fabsf(state[0])), v_most = fmaxf(v_most, state[1]);
  }
  // Every thread reads the old scales above; the barriers of the maxima come before the new ones are written.
  m_most = block_max<threads>(m_most), v_most = block_max<threads>(v_most);
  if (threadIdx.x == 0) t.m_max[blockIdx.x] = m_most, t.v_max[blockIdx.x] = v_most;
  float m_factor = m_most > 0 ? 1 / m_most : 0.f, v_factor = v_most > 0 ? 1 / v_most : 0.f;
  for (int i = int(threadIdx.x); i < count; i += threads) {
    t.m[begin + i] = signed_code(codes.signed_decades, moments[i] * m_factor);
    t.v[begin + i] = unsigned_code(codes.unsigned_decades, moments[block + i] * v_factor);
  }
}

template <class G, class W>
void launch_typed(const KernelCall& c, W* w) {
  static constexpr Codes codes = make_codes();
  Tensors<G, W> t = {c.output<float>(0),
                     c.output<uint8_t>(1),
                     c.output<uint8_t>(3),
                     c.output<float>(2),
                     c.output<float>(4),
                     c.input<G>(6),
                     w};
  int64_t n = c.in_value(1).numel(), block = c.instr.attrs.integer("block");
  launch(c, quantized_step<G, W>, blocks_for(n, block), threads, size_t(2 * block) * sizeof(float), t, n, int(block),
         adamw_rule(c.instr.attrs), codes, c.input<Scalars>(0));
}

void launch_8bit(const KernelCall& c) {
  with_type(c.in_value(6).dtype, [&](auto g) {
    using G = decltype(g);
    if (!c.has(7)) return launch_typed<G, NoCopy>(c, nullptr);
    with_type(c.in_value(7).dtype, [&](auto w) { launch_typed<G>(c, c.output<decltype(w)>(5)); });
  });
}

std::string reject(const KernelQuery& q) {
  for (size_t i : {1, 6, 7})
    if (q.has(i))
      if (std::string why = reject_value(q.in(i)); !why.empty()) return why;
  if (q.in(1).dtype != DType::f32) return q.in(1).name + ": takes f32";
  if (q.instr.attrs.integer("block") > 4096) return "takes blocks of up to 4096 elements";
  return {};
}

}  // namespace

Kernel adamw_8bit_kernel() { return {"adamw_8bit", "cuda.adamw_8bit", reject, nullptr, nullptr, launch_8bit}; }

}  // namespace crest::cuda
