// The element-wise optimizers in double: what they share around their rule (ops/update.h).
#pragma once
#include <cmath>

#include "backend/cpu/reference/tensor.h"
#include "core/dtype.h"
#include "core/split_float.h"
#include "core/stochastic_rounding.h"
#include "ops/update.h"

namespace crest::reference {

// Random numbers of stochastic rounding: a function of seed, step, group and place in the group.
struct RoundingWords {
  explicit RoundingWords(const KernelCall& c)
      : scalars_(scalars(c, 0)),
        stream_(update_stream(scalars_.adam_step, c.instr.attrs.integer("rng_id", 0))),
        first_(c.in_value(1).layout.offset) {}
  uint32_t operator()(int64_t e) const { return random_bits(scalars_.seed, stream_, uint64_t(first_ + e)); }

 private:
  const Scalars& scalars_;
  uint64_t stream_;
  int64_t first_;
};

// Master weights: input 1 and output 0 of an update, beside their copy as input and output (an input may be absent).
class Master {
 public:
  Master(const KernelCall& c, size_t copy_in, size_t copy_out)
      : in_(input(c, 1)), out_(output(c, 0)), halves_(c.in_value(1).dtype == DType::u16) {
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
      if (copy_out_) copy_out_.set(e, out_[e]);
    }
  }

 private:
  Tensor in_, out_, copy_in_, copy_out_;
  bool halves_;
};

// rule(p, g, states) changes the parameter and the states of one element; g is the gradient times grad_factor.
template <size_t states, class Rule>
void update(const KernelCall& c, Rule rule) {
  const Scalars& s = scalars(c, 0);
  if (s.found_inf) return;  // every output lives in its input: nothing changes
  size_t w = copy_input(states), k = compensation_input(states);
  Rounding rounding = rounding_of(c.instr.attrs);
  RoundingWords words(c);
  Master master(c, w, 1 + states);
  Tensor g = input(c, gradient_input(states));
  for (int64_t e = 0; e < g.numel(); ++e) {
    double p = master[e], state[states];
    for (size_t i = 0; i < states; ++i) state[i] = input(c, 2 + i)[e];
    rule(p, g[e] * s.grad_factor, state);
    if (rounding == Rounding::stochastic) {
      uint32_t word = words(e);
      p = to_float(round_stochastically(float(p), word));
      for (size_t i = 0; i < states; ++i)
        state[i] = to_float(round_stochastically(float(state[i]), state_word(word, int(i))));
    }
    if (rounding == Rounding::kahan) {
      double wanted = p + input(c, k)[e];
      p = to_float(to_bfloat16(float(wanted)));
      output(c, 1 + states).set(e, wanted - p);
    }
    master.set(e, p);
    for (size_t i = 0; i < states; ++i) output(c, 1 + i).set(e, state[i]);
  }
}

}  // namespace crest::reference
