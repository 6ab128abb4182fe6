// AdamW with 8-bit moments (Dettmers et al. 2022, "8-bit Optimizers via Block-wise Quantization"):
// blocks of `block` elements share an f32 scale, their largest magnitude. The attribute `codes`
// defines the codes: absent, numbers of core/dynamic_code.h; "e4m3", core/float8_moment.h.
#include "ops/index.h"
#include "ops/update.h"
#include "program/place.h"

namespace crest {

static void infer(Infer& c) {
  rules::inputs(c, 7, 8);
  rules::contiguous(c);
  rules::scalars(c, in::adamw_8bit::scalars);
  const Value& p = c.in(in::adamw_8bit::master);
  int64_t block = rules::integer(c, "block", 64), blocks = (p.numel() + block - 1) / block;
  c.check(block % 64 == 0, "attribute 'block' must be a multiple of 64");
  c.check(!c.attrs().has("codes") || c.attrs().text("codes") == "e4m3", "attribute 'codes' must be e4m3, or absent");
  rules::master(c, in::adamw_8bit::w);
  if (p.dtype != DType::u16) c.same_dtype(in::adamw_8bit::m_max, in::adamw_8bit::master);
  for (size_t i : {in::adamw_8bit::m, in::adamw_8bit::v}) {
    rules::dtype(c, i, DType::u8);
    c.same_shape(i, in::adamw_8bit::master);
    // The largest magnitudes of the blocks follow.
    rules::dtype(c, i + 1, c.in(in::adamw_8bit::m_max).dtype == DType::f64 ? DType::f64 : DType::f32);
    rules::shape(c, i + 1, {blocks});
  }
  for (size_t i : {in::adamw_8bit::g, in::adamw_8bit::w})
    if (c.has(i)) {
      rules::floating(c, i);
      c.same_shape(i, in::adamw_8bit::master);
    }
  rules::beta(c, "beta1");
  rules::beta(c, "beta2");
  c.check(rules::number(c, "eps") >= 0, "attribute 'eps' must not be negative");
  rules::rates(c);
  for (size_t i = in::adamw_8bit::master; i <= in::adamw_8bit::w; ++i)
    if (i != in::adamw_8bit::g && c.has(i)) c.out_in_place(i);
}

const OpDef op_adamw_8bit = {
    .name = "adamw_8bit",
    .inputs = in::adamw_8bit::names,
    .outputs = out::adamw_8bit::names,
    .help = "scalars, master, m u8, m_max, v u8, v_max, g, [w] -> master, m, m_max, v, v_max, [w]: one step",
    .op_class = OpClass::optimizer,
    .infer = infer,
    .place = cut<"-, *_ -> *_; ..">,
    .cost = update_cost<32, in::adamw_8bit::w>,
    .flat = true};

}  // namespace crest
