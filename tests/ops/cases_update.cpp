// Cases of the optimizers' operations.
#include <cmath>

#include "ops/case.h"
#include "ops/harness.h"
#include "ops/index.h"
#include "program/builder.h"

namespace crest::test {

namespace {

constexpr DType f = DType::f32;

struct List {
  std::vector<Case>& cases;
  DType t;
  Case& add(const char* op, const std::string& name, std::vector<Arg> in, Attrs attrs) {
    cases.push_back({op, name + "_" + std::string(crest::name(t)), std::move(in), std::move(attrs), nullptr,
                     some_scalars(), nullptr});
    return cases.back();
  }
};

Attrs adam() { return Attrs().set("beta1", 0.9).set("beta2", 0.95).set("eps", 1e-8).set("weight_decay", 0.1); }

Arg shifted(DType type, int64_t n) { return view(type, {n}, {1}, 3); }  // contiguous, not on a vector

void add_momentum(List& list, const char* op, const Attrs& attrs) {
  for (int64_t n : {6240, 33, 1}) {
    std::string size = "n" + std::to_string(n);
    std::vector<Arg> in = {scalars_arg(), tensor(f, {n}), tensor(f, {n}), tensor(list.t, {n}, 8)};
    list.add(op, size, in, attrs);
    in.push_back(tensor(list.t == f ? DType::bf16 : list.t, {n}));
    list.add(op, size + "_weight", in, attrs);
    list.add(op, size + "_skipped", in, attrs).scalars.found_inf = 1;
  }
  list.add(op, "shifted", {scalars_arg(), tensor(f, {50}), shifted(f, 50), shifted(list.t, 50)}, attrs);
}

// Masters in two halves: the low ones as u16, the high ones in the weight.
Arg low_halves(int64_t n) { return {Arg::Fill::ids, DType::u16, {n}, 1, 1 << 16}; }

void add_halves(List& list, const char* op, size_t states, const Attrs& attrs) {
  for (int64_t n : {6240, 33, 1}) {
    std::string size = "halves_n" + std::to_string(n);
    std::vector<Arg> in = {scalars_arg(), low_halves(n), tensor(f, {n})};
    if (states == 2) in.push_back(positive(f, {n}));
    in.push_back(tensor(list.t, {n}, 8));
    in.push_back(tensor(DType::bf16, {n}));
    list.add(op, size, in, attrs);
    list.add(op, size + "_skipped", in, attrs).scalars.found_inf = 1;
    if (n == 6240) {
      Arg low = in[1];
      in[1].strides = {1}, in[1].offset = 3;
      list.add(op, size + "_shifted", in, attrs);
      in[1] = low, in.back() = shifted(DType::bf16, n);
      list.add(op, size + "_weight_shifted", in, attrs);
    }
  }
}

// 600 elements: f32 and double rarely disagree on the nearer of two bf16 neighbors.
void add_bf16(List& list) {
  DType h = DType::bf16;
  for (int64_t n : {600, 33}) {
    std::string size = "bf16_n" + std::to_string(n);
    std::vector<Arg> in = {scalars_arg(), tensor(h, {n}), tensor(h, {n}), positive(h, {n}), tensor(list.t, {n}, 8)};
    list.add("adamw", size, in, adam());
    list.add("adamw", size + "_stochastic", in, adam().set("rounding", "stochastic").set("rng_id", 1));
    in.push_back(absent());
    in.push_back(tensor(h, {n}, 1e-3));
    list.add("adamw", size + "_kahan", in, adam().set("rounding", "kahan"));
    list.add("adamw", size + "_kahan_skipped", in, adam().set("rounding", "kahan")).scalars.found_inf = 1;
  }
  std::vector<Arg> in = {scalars_arg(), shifted(h, 600), tensor(h, {600}), positive(h, {600}),
                         tensor(list.t, {600}, 8)};
  list.add("adamw", "bf16_shifted_stochastic", in, adam().set("rounding", "stochastic").set("rng_id", 0));
}

// e4m3's NaN is no code of a moment.
void without_nan(Values& v) {
  for (size_t i : {in::adamw_8bit::m, in::adamw_8bit::v})
    for (double& code : v[i]) code -= int(code) % 128 == 127;
}

// format: the meaning of codes; empty: dynamic codes.
void add_8bit(List& list, const std::string& format) {
  Arg code = {Arg::Fill::ids, DType::u8, {}, 1, 256};
  for (int64_t block : {64, 256, 2048})
    for (int64_t n : {5000, 33, 512}) {  // 512: for two ranks, whole blocks each
      if (n == 512 && block > 256) continue;
      std::string name = format + "n" + std::to_string(n) + "_block" + std::to_string(block);
      int64_t blocks = (n + block - 1) / block;
      code.shape = {n};
      std::vector<Arg> in = {scalars_arg(),         tensor(f, {n}),        code, positive(f, {blocks}), code,
                             positive(f, {blocks}), tensor(list.t, {n}, 8)};
      Attrs attrs = adam().set("block", block);
      if (!format.empty()) attrs.set("codes", format);
      auto add = [&](const std::string& called, const std::vector<Arg>& args) -> Case& {
        Case& c = list.add("adamw_8bit", called, args, attrs);
        if (!format.empty()) c.complete = without_nan;
        return c;
      };
      add(name, in);
      std::vector<Arg> halves = in;
      halves[1] = low_halves(n), halves.push_back(tensor(DType::bf16, {n}));
      add(name + "_halves", halves);
      in.push_back(tensor(list.t == f ? DType::bf16 : list.t, {n}));
      add(name + "_weight", in);
      add(name + "_skipped", in).scalars.found_inf = 1;
      add(name + "_fresh", in).complete = [](Values& v) {
        for (size_t i : {2, 3, 4, 5})
          for (double& x : v[i]) x = 0;
        for (double& x : v[6]) x = 0;  // no gradient yet: every code stays 0
      };
      if (format.empty()) continue;
      // Most second moments of a block are too small for its scale; some blocks are almost zero.
      add(name + "_wide", in).complete = [block](Values& v) {
        without_nan(v);
        for (size_t e = 0; e < v[6].size(); ++e) {
          auto scale = float(int64_t(e) / block % 2 ? 1e-25 : 1), size = e % 64 ? 1e-8f : 1.0f;
          v[2][e] = v[4][e] = 0;
          v[6][e] = double(float(v[6][e]) * size * scale);
        }
      };
    }
}

void add_factored(List& list) {
  for (const Shape& s : {Shape{130, 1100}, Shape{300, 33}, Shape{1, 5}}) {
    std::string size = std::to_string(s[0]) + "x" + std::to_string(s[1]);
    Arg g = tensor(list.t, s), row = positive(f, {s[0]}), col = positive(f, {s[1]});
    Attrs moments = Attrs().set("decay_rate", 0.8).set("eps", 1e-30);
    list.add("factored_moments", size, {scalars_arg(), g, row, col}, moments);
    list.add("factored_moments", size + "_first", {scalars_arg(), g, row, col}, moments).scalars.adam_step = 0;
    list.add("factored_moments", size + "_skipped", {scalars_arg(), g, row, col}, moments).scalars.found_inf = 1;
    Attrs update = Attrs().set("clip", 1.0).set("weight_decay", 0.1);
    std::vector<Arg> in = {scalars_arg(), tensor(f, s), g, row, col};
    list.add("factored_update", size, in, update);
    list.add("factored_update", size + "_clipped", in, Attrs(update).set("clip", 0.01));
    list.add("factored_update", size + "_moment", in, Attrs(update).set("momentum", 0.9));
    in.push_back(tensor(list.t == f ? DType::bf16 : list.t, s));
    list.add("factored_update", size + "_weight", in, update);
    list.add("factored_update", size + "_skipped", in, update).scalars.found_inf = 1;
  }
}

void add_parts(List& list) {
  for (int64_t n : {3000, 7}) {
    std::string size = "n" + std::to_string(n);
    Arg x = tensor(f, {n}), y = tensor(list.t, {n}), z = positive(list.t, {n});
    list.add("axpby", size + "_scale", {scalars_arg(), y}, Attrs().set("a", 1.0).set("a_by", "grad_factor"));
    list.add("axpby", size + "_constant", {scalars_arg(), x}, Attrs().set("a", 1.0).set("c", 0.5));
    list.add("axpby", size + "_decay", {scalars_arg(), x}, Attrs().set("a", 1.0).set("decay", 0.1));
    list.add("axpby", size + "_mix", {scalars_arg(), x, y}, Attrs().set("a", 0.9).set("b", 0.1));
    list.add("axpby", size + "_copy", {scalars_arg(), y, x}, Attrs().set("a", 0.0).set("b", 1.0));
    list.add("axpby", size + "_weights", {scalars_arg(), tensor(list.t == f ? DType::bf16 : list.t, {n}), x},
             Attrs().set("a", 0.0).set("b", 1.0).set("weights", 1));
    list.add("axpby", size + "_product", {scalars_arg(), x, y, z}, Attrs().set("a", 1.0).set("b", 0.05));
    list.add("axpby", size + "_skipped", {scalars_arg(), x, y}, Attrs().set("a", 0.9).set("b", 0.1)).scalars.found_inf =
        1;
    Attrs step = Attrs().set("a", 1.0).set("b", -1.0).set("b_by", "step_size").set("beta", 0.9).set("divide", 1);
    list.add("axpby", size + "_step", {scalars_arg(), x, y, z}, step);
    Attrs root = Attrs().set("a", 1.0).set("a_by", "root_correction").set("beta", 0.95);
    list.add("axpby", size + "_root", {scalars_arg(), z}, root);
    list.add("sqrt", size, {z}, {});
  }
  for (const Shape& s : {Shape{130, 70}, Shape{3, 1}}) {
    std::string size = std::to_string(s[0]) + "x" + std::to_string(s[1]);
    list.add("unit_norm", size, {tensor(list.t, s)}, Attrs().set("eps", 1e-7));
    list.add("unit_norm", size + "_from_f32", {tensor(f, s)},
             Attrs().set("eps", 1e-7).set("dtype", crest::name(list.t)));
  }
}

void add_cases(std::vector<Case>& cases, DType t) {
  List list{cases, t};
  add_momentum(list, "sgd", Attrs().set("momentum", 0.9).set("weight_decay", 0.1));
  add_momentum(list, "lion", Attrs().set("beta1", 0.9).set("beta2", 0.99).set("weight_decay", 0.1));
  add_halves(list, "sgd", 1, Attrs().set("momentum", 0.9).set("weight_decay", 0.1));
  add_halves(list, "lion", 1, Attrs().set("beta1", 0.9).set("beta2", 0.99).set("weight_decay", 0.1));
  add_halves(list, "adamw", 2, adam());
  add_bf16(list);
  for (const char* format : {"", "e4m3"}) add_8bit(list, format);
  // A learning rate of its own.
  std::vector<Arg> moments = {scalars_arg(), tensor(f, {300}), tensor(f, {300}), positive(f, {300}), tensor(t, {300})};
  list.add("adamw", "lr_factor", moments, adam().set("lr_factor", 30.0));
  Arg code = {Arg::Fill::ids, DType::u8, {300}, 1, 256}, scale = positive(f, {5});
  list.add("adamw_8bit", "lr_factor", {scalars_arg(), tensor(f, {300}), code, scale, code, scale, tensor(t, {300})},
           adam().set("block", 64).set("lr_factor", 30.0));
  list.add("factored_update", "lr_factor",
           {scalars_arg(), tensor(f, {30, 40}), tensor(t, {30, 40}), positive(f, {30}), positive(f, {40})},
           Attrs().set("clip", 1.0).set("weight_decay", 0.1).set("lr_factor", 30.0));
  add_factored(list);
  add_parts(list);
}

const CaseFile file = {add_cases};

}  // namespace

}  // namespace crest::test
