// Element-wise updates in tiles in the first-level cache: values other than f32 are widened into
// scratch, the rule runs on floats, and changed values are rounded back.
#include "backend/cpu/simd/optimizer.h"

#include "backend/cpu/simd/optimizer_rules.h"
#include "backend/cpu/simd/philox.h"

namespace crest::cpu::CREST_ISA {
namespace {

constexpr int64_t tile = 1024;

// n floats of an array from element `begin` on: in place for f32, else through scratch.
struct Floats {
  float scratch[tile];
  float* data;
  CREST_INLINE void read(void* from, DType t, int64_t begin, int64_t n) {
    data = (float*)as_floats(row_of(from, t, begin), t, n, scratch);
  }
  CREST_INLINE void write(void* to, DType t, int64_t begin, int64_t n) {
    from_floats(row_of(to, t, begin), t, n, data);
  }
};

template <class Rule>
void apply(const UpdateStep<float>& step, const float* g, float* p, Floats* states, int64_t n) {
  for_vectors(n, [&](int64_t i, int64_t k) {
    Vf x = load_some(p + i, k), s[2];
    for (int j = 0; j < Rule::states; ++j) s[j] = load_some(states[j].data + i, k);
    Rule::apply(step, load_some(g + i, k) * step.gradient_factor, x, s);
    store_some(p + i, x, k);
    for (int j = 0; j < Rule::states; ++j) store_some(states[j].data + i, s[j], k);
  });
}

// p takes the nearest bf16 of p + c, and c the rounding error.
void compensate(float* p, bfloat16* c, int64_t n) {
  for_vectors(n, [&](int64_t i, int64_t k) {
    Vf wanted = load_some(p + i, k) + load_some(c + i, k);
    Vf rounded = widen_bf16(narrow_bf16(wanted));
    store_some(p + i, rounded, k);
    store_some(c + i, wanted - rounded, k);
  });
}

// core/stochastic_rounding.h: rounds up with the probability of the dropped bits. `shift` picks the
// random bits.
void round_stochastically(const float* x, const uint32_t* words, int shift, bfloat16* to, int64_t n) {
  for_vectors(n, [&](int64_t i, int64_t k) {
    Vu bits = as_bits(load_some(x + i, k)), word = as_bits(load_some((const float*)words + i, k));
    Vu rounded = (bits + ((word >> shift) & 0xffffu)) >> 16;
    Vu special = (bits >> 16) | ((bits & 0x7fffffu) != 0u ? splat_u(0x40u) : splat_u(0u));
    store_bits_some(to + i, __builtin_convertvector((bits & 0x7f800000u) == 0x7f800000u ? special : rounded, Vh), k);
  });
}

void update_tile(const UpdateArgs& a, int64_t i, int64_t n) {
  float gradient[tile];
  Floats p, states[2];
  const float* g = as_floats(row_of(a.gradient, a.gradient_dtype, i), a.gradient_dtype, n, gradient);
  int count = a.states[1] ? 2 : 1;
  bool halves = a.dtype == DType::u16;
  if (halves) {
    p.data = p.scratch;
    join_halves((uint16_t*)a.copy + i, (uint16_t*)a.p + i, p.data, n);
  } else {
    p.read(a.p, a.dtype, i, n);
  }
  for (int s = 0; s < count; ++s) states[s].read(a.states[s], a.states_dtype, i, n);
#define CREST_APPLY(op, inputs, outputs) \
  case UpdateRule::op: apply<update_rules::op<VectorMath>>(a.step, g, p.data, states, n); break;
  switch (a.rule) { CREST_UPDATE_OPS(CREST_APPLY) }
#undef CREST_APPLY
  if (a.rounding == UpdateRounding::stochastic) {
    uint32_t words[tile + 4 * lanes];
    uint64_t first = uint64_t(a.first + i), skip = first % 4;
    philox_words(a.seed, a.stream, first / 4, int64_t(uint64_t(n) + skip + 3) / 4, words);
    round_stochastically(p.data, words + skip, 0, (bfloat16*)a.p + i, n);
    for (int s = 0; s < count; ++s)
      round_stochastically(states[s].data, words + skip, s == 0 ? 16 : 8, (bfloat16*)a.states[s] + i, n);
    return;
  }
  if (a.rounding == UpdateRounding::kahan) compensate(p.data, a.compensation + i, n);
  for (int s = 0; s < count; ++s) states[s].write(a.states[s], a.states_dtype, i, n);
  if (halves) return split_halves(p.data, (uint16_t*)a.copy + i, (uint16_t*)a.p + i, n);
  p.write(a.p, a.dtype, i, n);
  if (a.copy) weights_of_masters(row_of(a.copy, a.copy_dtype, i), a.copy_dtype, p.data, n);
}

void update(const UpdateArgs& a, int64_t begin, int64_t end) {
  for (int64_t i = begin; i < end; i += tile) update_tile(a, i, end - i < tile ? end - i : tile);
}

template <bool with_y, bool with_z>
void axpby_floats(const AxpbyArgs& a, float* x, const float* y, const float* z, int64_t n) {
  for_vectors(n, [&](int64_t i, int64_t k) {
    Vf r = splat(a.c);
    if (a.a != 0.0f) r = r + load_some(x + i, k) * a.a;  // not read before it is overwritten: it may be NaN
    if (with_y) {
      Vf other = load_some(y + i, k);
      if (with_z) other = a.divide ? other / load_some(z + i, k) : other * load_some(z + i, k);
      r = r + other * a.b;
    }
    store_some(x + i, r, k);
  });
}

void axpby(const AxpbyArgs& a, int64_t begin, int64_t end) {
  float scratch_y[tile], scratch_z[tile];
  Floats x;
  for (int64_t i = begin; i < end; i += tile) {
    int64_t n = end - i < tile ? end - i : tile;
    x.read(a.x, a.x_dtype, i, n);
    const float* y = a.y ? as_floats(row_of(a.y, a.y_dtype, i), a.y_dtype, n, scratch_y) : nullptr;
    const float* z = a.z ? as_floats(row_of(a.z, a.z_dtype, i), a.z_dtype, n, scratch_z) : nullptr;
    if (z)
      axpby_floats<true, true>(a, x.data, y, z, n);
    else if (y)
      axpby_floats<true, false>(a, x.data, y, z, n);
    else
      axpby_floats<false, false>(a, x.data, y, z, n);
    if (a.weights)
      weights_of_masters(row_of(a.x, a.x_dtype, i), a.x_dtype, x.data, n);
    else
      x.write(a.x, a.x_dtype, i, n);
  }
}

// y = f(x) of any dtypes; y may be x.
template <class F>
CREST_INLINE void map(const void* x, DType from, void* y, DType to, int64_t begin, int64_t end, F f) {
  float scratch[tile], result[tile];
  for (int64_t i = begin; i < end; i += tile) {
    int64_t n = end - i < tile ? end - i : tile;
    const float* p = as_floats(row_of(x, from, i), from, n, scratch);
    for_vectors(n, [&](int64_t j, int64_t k) { store_some(result + j, f(load_some(p + j, k)), k); });
    from_floats(row_of(y, to, i), to, n, result);
  }
}

void sqrt(const void* x, void* y, DType t, int64_t begin, int64_t end) {
  map(x, t, y, t, begin, end, [](Vf v) { return square_root(v); });
}

void scale(const void* x, DType from, void* y, DType to, float factor, int64_t begin, int64_t end) {
  map(x, from, y, to, begin, end, [=](Vf v) { return v * factor; });
}

}  // namespace

const OptimizerFunctions optimizer_functions = {update, axpby, sqrt, scale};

}  // namespace crest::cpu::CREST_ISA
