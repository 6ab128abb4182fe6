// Setting --pad-vocab: matrix units need multiples of 128 columns in the head GEMM. Tensor ranks
// divide the padded vocabulary evenly.
#include <numeric>

#include "core/round_up.h"
#include "passes/pass.h"
#include "program/builder.h"

namespace crest {

// Pads the rows of token embedding and head. The loss's `vocab` and the parameter's logical shape
// keep the user's size, so padding is never sampled or exported.
void pad_vocabulary(Program& program, const PassContext& context) {
  const int64_t ranks = context.recipe.layout().size(Axis::tensor);
  const int64_t multiple = std::lcm(std::max<int64_t>(1, context.recipe.pad_vocab), ranks);
  if (multiple <= 1) return;
  for (auto& q : program.params) {
    if (q.name != "wte.weight" && q.name != "lm_head.weight") continue;
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
