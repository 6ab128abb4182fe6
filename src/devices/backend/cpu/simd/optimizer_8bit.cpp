// AdamW with block-wise quantized moments: a block becomes floats, makes its step, and is quantized
// at its new scale.
#include "backend/cpu/simd/optimizer.h"
#include "backend/cpu/simd/optimizer_rules.h"
#include "core/dynamic_code.h"
#include "core/float8_moment.h"

namespace crest::cpu::CREST_ISA {
namespace {

typedef uint8_t Vb __attribute__((vector_size(CREST_LANES)));
typedef uint8_t VbMemory __attribute__((vector_size(CREST_LANES), aligned(1), may_alias));

struct Table {
  float x[256];
};
constexpr Table table(bool is_signed) {
  Table t{};
  for (int i = 0; i < 256; ++i) t.x[i] = float(dynamic_value(uint8_t(i), is_signed));
  return t;
}
constexpr Table float8_table() {
  Table t{};
  for (int i = 0; i < 256; ++i) t.x[i] = float8_moment_number(uint8_t(i));
  return t;
}
constexpr Table signed_table = table(true), unsigned_table = table(false), e4m3_table = float8_table();
constexpr DynamicDecades signed_decades = dynamic_decades(true), unsigned_decades = dynamic_decades(false);

CREST_INLINE Vu load_codes(const uint8_t* p, int64_t n) {
  if (n == lanes) return __builtin_convertvector((Vb) * (const VbMemory*)p, Vu);
  Vu r{};
  for (int64_t i = 0; i < n; ++i) r[i] = p[i];
  return r;
}
CREST_INLINE void store_codes(uint8_t* p, Vu codes, int64_t n) {
  if (n == lanes)
    *(VbMemory*)p = __builtin_convertvector(codes, Vb);
  else
    for (int64_t i = 0; i < n; ++i) p[i] = uint8_t(codes[i]);
}

CREST_INLINE Vf look_up(const float* values, Vu index) {
#if CREST_LANES == 16
  return (Vf)_mm512_mask_i32gather_ps((__m512)Vf{}, 0xffff, (__m512i)index, values, 4);
#elif CREST_LANES == 8
  return (Vf)_mm256_mask_i32gather_ps((__m256)Vf{}, values, (__m256i)index, (__m256)as_float(splat_u(~0u)), 4);
#else
  Vf r{};
  for (int i = 0; i < lanes; ++i) r[i] = values[index[i]];
  return r;
#endif
}

// The code nearest to the magnitude y in [0, 1], without sign.
template <bool is_signed>
CREST_INLINE Vu nearest_code(Vf y) {
  constexpr const DynamicDecades& d = is_signed ? signed_decades : unsigned_decades;
  constexpr int first = is_signed ? 0 : 1;  // position of the leading one of the first decade
  Vf low{}, scale{};
  Vu base{};
#pragma GCC unroll 8
  for (int i = 0; i < d.count; ++i) {
    auto inside = y >= d.from[i];
    low = inside ? splat(d.low[i]) : low;
    scale = inside ? splat(d.scale[i]) : scale;
    base = inside ? splat_u(1u << (i + first)) : base;
  }
  Vu part = (Vu) __builtin_convertvector((y - low) * scale, Vi), last = base - 1u;
  part = part < base ? part : last;
  return base == 0u ? base : base + part;
}
CREST_INLINE Vu signed_code(Vf x) {
  Vu negative = as_bits(x) >> 31;
  Vf y = as_float(as_bits(x) & 0x7fffffffu);
  Vu code = nearest_code<true>(y);
  Vu with_sign = code == 0u ? code : code | (negative << 7);
  auto one = (y >= signed_decades.one) & (negative == 0u);
  return one ? splat_u(0x80u) : with_sign;
}
CREST_INLINE Vu unsigned_code(Vf y) {
  Vu code = nearest_code<false>(y);
  return y >= unsigned_decades.one ? splat_u(1u) : code;
}

CREST_INLINE Vf magnitude(Vf x) { return as_float(as_bits(x) & 0x7fffffffu); }

// The codes of a block: numbers from codes, and codes from numbers. most: the largest magnitude of
// the block, as `kept`.
struct Dynamic {
  static CREST_INLINE float kept(float most) { return most; }
  static CREST_INLINE float inverse(float most) { return most > 0.0f ? 1.0f / most : 0.0f; }
  static CREST_INLINE Vf first(Vu codes, float most) { return look_up(signed_table.x, codes) * most; }
  static CREST_INLINE Vf second(Vu codes, float most) { return look_up(unsigned_table.x, codes) * most; }
  static CREST_INLINE Vu first_codes(Vf m, float most) { return signed_code(m * inverse(most)); }
  static CREST_INLINE Vu second_codes(Vf v, float most) { return unsigned_code(v * inverse(most)); }
};

// core/float8_moment.h.
struct Float8 {
  static constexpr float largest = float8_moment_largest, squared = largest * largest;
  static CREST_INLINE float kept(float most) { return most >= float8_moment_least ? most : 0.0f; }
  static CREST_INLINE Vf first(Vu codes, float most) { return look_up(e4m3_table.x, codes) * (most / largest); }
  static CREST_INLINE Vf second(Vu codes, float most) {
    Vf root = look_up(e4m3_table.x, codes);
    return root * root * (most / squared);
  }
  static CREST_INLINE Vu first_codes(Vf m, float most) {
    if (most == 0.0f) return Vu{};
    return code(magnitude(m) * (largest / most)) | ((as_bits(m) >> 24) & 0x80u);
  }
  static CREST_INLINE Vu second_codes(Vf v, float most) {
    if (most == 0.0f) return Vu{};
    Vu c = code(square_root(v * (squared / most)));
    return ((v > 0.0f) & (c == 0u)) ? splat_u(1) : c;
  }

 private:
  // The code of a magnitude of at most 448, to nearest even.
  static CREST_INLINE Vu code(Vf y) {
    constexpr float unit = 0x1p14f;  // its last place equals the last place of numbers below 2^-6
    Vu u = as_bits(y), tiny = as_bits(y + unit) - as_bits(splat(unit));
    Vu normal = (u + 0x7ffffu + ((u >> 20) & 1u) - (120u << 23)) >> 20;
    return y < 0x1p-6f ? tiny : normal;
  }
};

template <class Codes>
void adamw_block(const QuantizedArgs& q, int64_t begin, int64_t n) {
  const UpdateArgs& a = q.update;
  float m[largest_block], v[largest_block], gradient[largest_block];
  const float* g = as_floats(row_of(a.gradient, a.gradient_dtype, begin), a.gradient_dtype, n, gradient);
  bool halves = a.dtype == DType::u16;
  float joined[largest_block], *p = halves ? joined : (float*)a.p + begin;
  if (halves) join_halves((uint16_t*)a.copy + begin, (uint16_t*)a.p + begin, p, n);
  float &m_max = q.m_max[begin / q.block], &v_max = q.v_max[begin / q.block];
  Vf m_most{}, v_most{};
  for_vectors(n, [&](int64_t i, int64_t k) {
    Vf state[2] = {Codes::first(load_codes(q.m + begin + i, k), m_max),
                   Codes::second(load_codes(q.v + begin + i, k), v_max)};
    Vf x = load_some(p + i, k);
    update_rules::adamw<VectorMath>::apply(a.step, load_some(g + i, k) * a.step.gradient_factor, x, state);
    store_some(p + i, x, k);
    store_some(m + i, state[0], k);
    store_some(v + i, state[1], k);
    m_most = max(m_most, magnitude(state[0]));
    v_most = max(v_most, state[1]);
  });
  m_max = Codes::kept(max_of(m_most)), v_max = Codes::kept(max_of(v_most));
  for_vectors(n, [&](int64_t i, int64_t k) {
    store_codes(q.m + begin + i, Codes::first_codes(load_some(m + i, k), m_max), k);
    store_codes(q.v + begin + i, Codes::second_codes(load_some(v + i, k), v_max), k);
  });
  if (halves) return split_halves(p, (uint16_t*)a.copy + begin, (uint16_t*)a.p + begin, n);
  if (a.copy) weights_of_masters(row_of(a.copy, a.copy_dtype, begin), a.copy_dtype, p, n);
}

void adamw(const QuantizedArgs& q, int64_t begin, int64_t end) {
  auto block = q.float8 ? adamw_block<Float8> : adamw_block<Dynamic>;
  for (int64_t i = begin; i < end; i += q.block) block(q, i, end - i < q.block ? end - i : q.block);
}

}  // namespace

const QuantizedFunctions quantized_functions = {adamw};

}  // namespace crest::cpu::CREST_ISA
