// Loss and embedding at the kernels' turning points: rows beyond on-chip memory, rows unfit for
// vectors, more tokens than one block sorts, ids with a thousand occurrences.
#include <cmath>

#include "ops/case.h"
#include "ops/harness.h"

namespace crest::test {

static void add_cases(std::vector<Case>& list, DType t) {
  auto add = [&](const char* op, const std::string& name, std::vector<Arg> in, Attrs attrs = {}) -> Case& {
    list.push_back({op, name + "_" + std::string(crest::name(t)), std::move(in), std::move(attrs), nullptr,
                    some_scalars(), nullptr});
    return list.back();
  };
  DType f = DType::f32;

  struct Size {
    const char* name;
    Arg logits;
    int64_t vocab;
    double cap = 0;
  };
  const Size sizes[] = {{"gpt2", tensor(t, {5, 50304}, 2), 50257},
                        {"unpadded", tensor(t, {5, 50257}, 2), 50257},
                        {"llama", tensor(t, {2, 128256}, 2), 128256},
                        {"padding", tensor(t, {2, 66000}, 0.1), 10000},
                        {"narrow", tensor(t, {9, 3}, 2), 2},
                        {"boundary", tensor(t, {5, 16384}, 2), 16383},
                        {"shifted", view(t, {6, 96}, {96, 1}, 3), 90},
                        {"pitched", pitched(t, {5, 50257}, 50304, 2), 50257},
                        {"pitched_padding", pitched(t, {2, 3, 1003}, 1024, 2), 1000},
                        {"pitched_odd", pitched(t, {5, 70}, 77, 2), 70},
                        {"capped_gpt2", tensor(t, {2, 50304}, 4), 50257, 15},
                        {"capped_pitched", pitched(t, {2, 3, 1003}, 1024, 4), 1000, 15}};
  for (const Size& s : sizes) {
    Shape rows = {s.logits.shape.rows()};
    // Of dlogits: the logits' pitch, or none.
    int64_t pitch = s.logits.strides.rank() && !s.logits.offset ? s.logits.strides[-2] : 0;
    Arg labels = targets(rows, s.vocab);
    // A forbidden token, a row decided by one logit, targets at the ends.
    auto edit = [=](Values& v) {
      auto width = size_t(s.logits.shape.back());
      v[0][1] = -INFINITY, v[0][width + size_t(s.vocab) - 1] = 50;
      v[1][0] = 0, v[1][1] = double(s.vocab - 1);
      for (size_t r = 0; r < v[1].size() && s.cap > 0; ++r)  // a slope of 1 there: see below
        if (v[1][r] >= 0) v[0][r * width + size_t(v[1][r])] = 0;
    };
    // A power of two: rounding the target's gradient, far larger than the others, does not hide
    // them. f16 needs a loss scale, as in training.
    Attrs attrs = Attrs().set("vocab", s.vocab).set("scale", 0.125);
    if (s.cap > 0) attrs.set("cap", s.cap);
    float loss_scale = t == DType::f16 ? 524288 : 1024;
    add("cross_entropy", s.name, {s.logits, labels}, attrs).complete = edit;
    add("cross_entropy", std::string(s.name) + "_weight", {s.logits, labels, scalars_arg()}, attrs).complete = edit;
    Case& fused = add("cross_entropy_fused", s.name, {s.logits, labels, scalars_arg()}, attrs);
    fused.complete = edit, fused.scalars.loss_scale = loss_scale;
    fused.out_pitch = {0, pitch};
    std::vector<Arg> forward = {s.logits, labels};
    Case& grad = add("cross_entropy_grad", s.name, {s.logits, labels, tensor(f, rows), scalars_arg()}, attrs);
    grad.scalars.loss_scale = loss_scale, grad.complete = [=](Values& v) {
      edit(v);
      Case c{"cross_entropy", "lse", forward, attrs};
      v[2] = reference_outputs(in_double(c), {v[0], v[1]})[1];
    };
    grad.out_pitch = {pitch};
    if (!pitch) continue;
    for (Case only : {list[list.size() - 2], list.back()}) {  // fused and grad where dlogits has none
      only.name = std::string(s.name) + "_logits_" + std::string(crest::name(t));
      only.out_pitch = {};
      list.push_back(std::move(only));
    }
  }
  // Every target is ignored.
  Arg masked = tensor(t, {3, 700});
  Attrs none = Attrs().set("vocab", 600).set("scale", 0.5);
  auto ignore = [](Values& v) { v[1].assign(3, -100); };
  add("cross_entropy", "ignored", {masked, targets({3}, 600), scalars_arg()}, none).complete = ignore;
  add("cross_entropy_fused", "ignored", {masked, targets({3}, 600), scalars_arg()}, none).complete = ignore;

  if (t == f) add("sum_loss", "many", {positive(t, {70001}), positive(t, {1})}, Attrs().set("scale", 1 / 70001.0));

  add("embedding", "wide", {ids({2, 3}, 9), tensor(t, {9, 3000})});
  add("embedding", "shifted", {ids({2, 9}, 9), view(t, {9, 64}, {64, 1}, 3)});
  add("add_position", "wide", {tensor(t, {3, 5, 2100}), tensor(t, {7, 2100})});
  add("take_row", "odd", {tensor(t, {3, 5, 33}), scalars_arg()});
  for (int64_t batch : {1, 6, 9, 75})
    add("position_grad", "batch" + std::to_string(batch), {tensor(t, {batch, 9, 40}), tensor(f, {12, 40}, 10)},
        Attrs().set("rows", 12).set("dtype", "f32"));
  add("position_grad", "shifted", {view(t, {20, 3, 33}, {99, 33, 1}, 3)}, Attrs().set("rows", 4).set("dtype", "f32"));

  struct Tokens {
    const char* name;
    Shape ids;
    int64_t limit, rows, width;
  };
  const Tokens tokens[] = {{"sorted_by_tiles", {5, 1000}, 3000, 3000, 40}, {"long_runs", {3, 1700}, 20, 25, 136},
                           {"long_runs_alone", {2, 1000}, 9, 16, 33},      {"one_id", {1, 9000}, 1, 3, 8},
                           {"three_digits", {3, 1500}, 262200, 262200, 2}, {"one_token", {1, 1}, 5, 5, 768}};
  for (const Tokens& k : tokens) {
    Arg dy = tensor(t, {k.ids[0], k.ids[1], k.width}), acc = tensor(f, {k.rows, k.width}, 10);
    Attrs attrs = Attrs().set("rows", k.rows).set("dtype", "f32");
    auto mixed = [](Values& v) {  // runs of all lengths, missing ids
      for (size_t i = 0; i < v[0].size(); ++i)
        if (i % 7 == 0) v[0][i] = i % 21 == 0 ? -1 : double(i % 2);
    };
    add("embedding_grad", k.name, {ids(k.ids, k.limit), dy}, attrs);
    add("embedding_grad", std::string(k.name) + "_acc", {ids(k.ids, k.limit), dy, acc}, attrs).complete = mixed;
  }
}

static const CaseFile file = {add_cases};

}  // namespace crest::test
