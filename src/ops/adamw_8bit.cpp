// AdamW whose moments are kept in 8 bits (Dettmers et al. 2022, "8-bit Optimizers via Block-wise Quantization"): blocks
// of `block` elements share an f32 scale, their largest magnitude; a code is a number of core/dynamic_code.h times
// that.
#include "ops/index.h"
#include "ops/update.h"

namespace crest {

static void infer(Infer& c) {
  rules::inputs(c, 7, 8);
  rules::contiguous(c);
  rules::scalars(c, 0);
  int64_t block = rules::integer(c, "block", 64), n = c.in(1).numel(), blocks = (n + block - 1) / block;
  c.check(block % 64 == 0, "attribute 'block' must be a multiple of 64");
  rules::master(c, 7);
  if (c.in(1).dtype != DType::u16) c.same_dtype(3, 1);
  for (size_t i : {2, 4}) {
    rules::dtype(c, i, DType::u8);
    c.same_shape(i, 1);
    rules::dtype(c, i + 1, c.in(3).dtype == DType::f64 ? DType::f64 : DType::f32);
    rules::shape(c, i + 1, {blocks});
  }
  for (size_t i : {6, 7})
    if (c.has(i)) {
      rules::floating(c, i);
      c.same_shape(i, 1);
    }
  rules::beta(c, "beta1");
  rules::beta(c, "beta2");
  c.check(rules::number(c, "eps") >= 0, "attribute 'eps' must not be negative");
  rules::number(c, "weight_decay");
  for (size_t i : {1, 2, 3, 4, 5, 7})
    if (c.has(i)) c.out_in_place(i);
}

const OpDef op_adamw_8bit = {
    .name = "adamw_8bit",
    .help = "scalars, master, m u8, m_max, v u8, v_max, g, [w] -> master, m, m_max, v, v_max, [w]: one step",
    .op_class = OpClass::optimizer,
    .infer = infer,
    .cost = update_cost<32, 7>,
    .flat = true};

}  // namespace crest
