// Setting --pad-vocab: matrix units need multiples of 128 columns in the head GEMM. Tensor ranks
// share the vocabulary, so each gets as many rows.
#include "passes/vocabulary_padding.h"

#include <algorithm>
#include <numeric>

#include "core/round_up.h"
#include "model/parameters.h"
#include "passes/pass.h"
#include "program/builder.h"

namespace crest {

static int64_t rows_multiple(const Recipe& r) {
  return std::lcm(std::max<int64_t>(1, r.pad_vocab), int64_t(r.layout().size(Axis::tensor)));
}

int64_t padded_vocabulary(const Recipe& r) {
  if (is_disabled(r, "vocabulary_padding")) return r.model.vocab;
  return round_up(r.model.vocab, rows_multiple(r));
}

// Pads the rows of the token embedding and of the head. `vocab` of the loss and the logical shape
// of the parameter keep the user's size, so padding is never sampled and never exported.
void pad_vocabulary(Program& program, const PassContext& context) {
  const int64_t multiple = rows_multiple(context.recipe);
  if (multiple <= 1) return;
  for (auto& q : program.params) {
    if (q.name != "wte.weight" && q.name != "lm_head.weight" && q.name != std::string("lm_head") + lora_b) continue;
    Value& v = program.at(q.value);
    v.shape[0] = round_up(v.shape[0], multiple);
    v.layout.strides = v.shape.contiguous_strides();
  }
  reinfer(program);
}

const std::vector<Setting>& pad_vocabulary_settings() {
  static const std::vector<Setting> rows = {
      setting<&Recipe::pad_vocab>({.name = "pad-vocab",
                                   .group = "Precision and memory",
                                   .help = "pad the vocabulary to a multiple of this; 1: no padding",
                                   .unit = "tokens",
                                   .min = 1,
                                   .max = double(1 << 20),
                                   .effects = {{Effect::work, Effect::anywhere, {"wte", "lm_head", "loss"}}},
                                   .smaller = {"1"}})};
  return rows;
}

}  // namespace crest
