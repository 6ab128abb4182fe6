// The element-wise optimizers in double (ops/update.h), and AdamW with its moments in 8 bits.
#include "ops/update.h"

#include <algorithm>
#include <cmath>
#include <vector>

#include "backend/cpu/reference/kernels.h"
#include "backend/cpu/reference/tensor.h"
#include "core/dtype.h"
#include "core/dynamic_code.h"
#include "core/float8.h"
#include "core/float8_moment.h"
#include "core/split_float.h"
#include "core/stochastic_rounding.h"
#include "ops/index.h"

namespace crest::reference {

namespace {

// A block of 8-bit state as numbers.
class Quantized {
 public:
  // Codes are input i, scales input i + 1.
  Quantized(const KernelCall& c, size_t i, int64_t begin, int64_t end, bool first_moment)
      : begin_(begin),
        block_(c.instr.attrs.integer("block")),
        float8_(c.instr.attrs.has("codes")),
        first_(first_moment) {
    double scale = input(c, i + 1)[begin / block_];
    for (int64_t e = begin; e < end; ++e) values_.push_back(scale * part(c.input<uint8_t>(i)[e]));
  }
  double& operator[](int64_t e) { return values_[size_t(e - begin_)]; }
  // Codes to output o, the scale to output o + 1.
  void store(const KernelCall& c, size_t o) const {
    double scale = 0;
    for (double x : values_) scale = std::max(scale, std::fabs(x));
    if (float8_ && scale < float8_moment_least) scale = 0;
    output(c, o + 1).set(begin_ / block_, scale);
    for (size_t i = 0; i < values_.size(); ++i)
      c.output<uint8_t>(o)[size_t(begin_) + i] = scale > 0 ? nearest(values_[i] / scale) : 0;
  }

 private:
  // The number of a code, with a scale of 1.
  double part(uint8_t code) const {
    if (!float8_) return float(dynamic_value(code, first_));
    double x = double(to_float(float8_e4m3{code})) / float8_moment_largest;
    return first_ ? x : x * x;
  }
  uint8_t nearest(double x) const {
    if (float8_) {
      uint8_t code = to_float8<float8_e4m3>(float(float8_moment_largest * (first_ ? x : std::sqrt(x)))).bits;
      return !first_ && x > 0 ? std::max<uint8_t>(code, 1) : code;
    }
    int best = 0;  // by looking at all of them
    double distance = std::fabs(x);
    for (int code = 1; code < 256; ++code)
      if (double d = std::fabs(x - part(uint8_t(code))); d < distance) best = code, distance = d;
    return uint8_t(best);
  }
  int64_t begin_, block_;
  bool float8_, first_;
  std::vector<double> values_;
};

// Random numbers of stochastic rounding: a function of seed, step, group and place in the group.
struct RoundingWords {
  explicit RoundingWords(const KernelCall& c)
      : scalars_(scalars(c, scalars_input)),
        stream_(update_stream(scalars_.adam_step, c.instr.attrs.integer("rng_id", 0))),
        first_(c.in_value(parameter_input).layout.offset) {}
  uint32_t operator()(int64_t e) const { return random_bits(scalars_.seed, stream_, uint64_t(first_ + e)); }

 private:
  const Scalars& scalars_;
  uint64_t stream_;
  int64_t first_;
};

// Master weights: the parameter of an update, next to its copy as input and output (an input may be
// absent).
class Master {
 public:
  Master(const KernelCall& c, size_t copy_in, size_t copy_out)
      : in_(input(c, parameter_input)),
        out_(output(c, parameter_output)),
        halves_(c.in_value(parameter_input).dtype == DType::u16) {
    if (c.has(copy_in)) copy_in_ = input(c, copy_in), copy_out_ = output(c, copy_out);
  }
  double operator[](int64_t e) const {
    return halves_ ? join(to_bfloat16(float(copy_in_[e])), uint16_t(in_[e])) : in_[e];
  }
  void set(int64_t e, double p) const {
    if (halves_) {
      SplitFloat s = split(float(p));
      out_.set(e, s.low), copy_out_.set(e, to_float(s.high));
    } else {
      out_.set(e, p);
      if (copy_out_) copy_out_.set_weight(e, out_[e]);
    }
  }

 private:
  Tensor in_, out_, copy_in_, copy_out_;
  bool halves_;
};

template <class Rule>
void update(const KernelCall& c) {
  constexpr size_t states = Rule::states;
  const Scalars& s = scalars(c, scalars_input);
  if (s.found_inf) return;  // every output lives in its input: nothing changes
  UpdateStep<double> step = UpdateRates(c.instr.attrs).step<double>(s);
  size_t w = copy_input(states), k = compensation_input(states);
  Rounding rounding = rounding_of(c.instr.attrs);
  RoundingWords words(c);
  Master master(c, w, copy_output(states));
  Tensor g = input(c, gradient_input(states));
  for (int64_t e = 0; e < g.numel(); ++e) {
    double p = master[e], state[states];
    for (size_t i = 0; i < states; ++i) state[i] = input(c, state_input + i)[e];
    Rule::apply(step, g[e] * step.gradient_factor, p, state);
    if (rounding == Rounding::stochastic) {
      uint32_t word = words(e);
      p = to_float(round_stochastically(float(p), word));
      for (size_t i = 0; i < states; ++i)
        state[i] = to_float(round_stochastically(float(state[i]), state_word(word, int(i))));
    }
    if (rounding == Rounding::kahan) {
      double wanted = p + input(c, k)[e];
      p = to_float(to_bfloat16(float(wanted)));
      output(c, compensation_output(states)).set(e, wanted - p);
    }
    master.set(e, p);
    for (size_t i = 0; i < states; ++i) output(c, state_output + i).set(e, state[i]);
  }
}

}  // namespace

#define CREST_UPDATE_KERNEL(op, inputs, outputs) \
  void op(const KernelCall& c) { update<update_rules::op<ScalarMath<double>>>(c); }
CREST_UPDATE_OPS(CREST_UPDATE_KERNEL)
#undef CREST_UPDATE_KERNEL

// Block by block: numbers out of codes, a step in double, codes of the new moments at the block's
// new scale.
void adamw_8bit(const KernelCall& c) {
  const Scalars& s = scalars(c, in::adamw_8bit::scalars);
  if (s.found_inf) return;
  UpdateStep<double> step = UpdateRates(c.instr.attrs).step<double>(s);
  Master master(c, in::adamw_8bit::w, out::adamw_8bit::w);
  Tensor g = input(c, in::adamw_8bit::g);
  int64_t n = g.numel(), block = c.instr.attrs.integer("block");
  for (int64_t begin = 0; begin < n; begin += block) {
    int64_t end = std::min(begin + block, n);
    Quantized m(c, in::adamw_8bit::m, begin, end, true), v(c, in::adamw_8bit::v, begin, end, false);
    for (int64_t e = begin; e < end; ++e) {
      double p = master[e], state[] = {m[e], v[e]};
      update_rules::adamw<ScalarMath<double>>::apply(step, g[e] * step.gradient_factor, p, state);
      m[e] = state[0], v[e] = state[1];
      master.set(e, p);
    }
    m.store(c, out::adamw_8bit::m);
    v.store(c, out::adamw_8bit::v);
  }
}

}  // namespace crest::reference
