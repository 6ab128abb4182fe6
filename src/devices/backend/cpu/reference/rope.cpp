// Rotary embedding, half-split pairs; rescaled frequencies.
#include <algorithm>
#include <cmath>
#include <numbers>

#include "backend/cpu/reference/heads.h"
#include "backend/cpu/reference/kernels.h"
#include "ops/index.h"

namespace crest::reference {

// Frequency of pair i. Llama 3 (Grattafiori et al. 2024; rope_type "llama3" of Hugging Face):
// `factor` slows down wavelengths above original_context / low_freq_factor; wavelengths between the
// two bounds blend. With first_pair and last_pair (rope_types "linear" and "yarn"; Peng et al.
// 2023), pairs blend between these two numbers.
static double frequency(const Attrs& a, int64_t i, int64_t dim) {
  double f = std::pow(a.number("theta"), -2.0 * double(i) / double(dim));
  if (!a.has("factor")) return f;
  if (a.has("first_pair")) {
    double first = a.number("first_pair"), last = a.number("last_pair");
    double slowed = std::clamp((double(i) - first) / (last - first), 0.0, 1.0);
    return slowed * f / a.number("factor") + (1 - slowed) * f;
  }
  double factor = a.number("factor"), low = a.number("low_freq_factor"), high = a.number("high_freq_factor");
  double turns = a.number("original_context") * f / (2 * std::numbers::pi);  // original context / wavelength
  if (turns > high) return f;
  if (turns < low) return f / factor;
  double smooth = (turns - low) / (high - low);
  return (1 - smooth) * f / factor + smooth * f;
}

void rope(const KernelCall& c) {
  Tensor x = input(c, in::rope::qkv), y = output(c, out::rope::y);
  Heads h(c, x);
  const int64_t rotary_dim = c.instr.attrs.integer("rotary_dim", h.dim);
  int64_t half = rotary_dim / 2, first = c.has(in::rope::scalars) ? scalars(c, in::rope::scalars).position : 0;
  const auto* positions = c.has(in::rope::positions) ? c.input<int32_t>(in::rope::positions) : nullptr;
  double direction = c.instr.attrs.integer("inverse", 0) ? -1 : 1, scale = c.instr.attrs.number("attention_factor", 1);
  for (int64_t b = 0; b < h.batch; ++b)
    for (int64_t t = 0; t < h.seq; ++t)
      for (int64_t head = 0; head < h.heads + 2 * h.kv_heads; ++head) {
        int64_t e = h.q(b, t, head);
        int64_t position = positions ? positions[b * h.seq + t] : first + t;
        bool rotates = head < h.heads + h.kv_heads;
        for (int64_t i = 0; i < half; ++i) {
          double angle = rotates ? direction * double(position) * frequency(c.instr.attrs, i, rotary_dim) : 0;
          double u = x[e + i], v = x[e + half + i];
          if (rotates) u *= scale, v *= scale;
          y.set(e + i, u * std::cos(angle) - v * std::sin(angle));
          y.set(e + half + i, v * std::cos(angle) + u * std::sin(angle));
        }
        for (int64_t i = rotary_dim; i < h.dim; ++i) y.set(e + i, x[e + i]);
      }
}

}  // namespace crest::reference
