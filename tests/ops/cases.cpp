// The case list, part one: contractions and pointwise operations. Sizes are odd on purpose: batch
// 3, sequence 65, width 96 (no power of two), a vocabulary of 257 padded to 384, single rows,
// lengths below a vector.
#include "ops/case.h"
#include "program/builder.h"

namespace crest::test {

static void add(std::vector<Case>& list, DType t, const std::string& op, const std::string& name, std::vector<Arg> in,
                Attrs attrs = {}) {
  list.push_back({op, name + "_" + std::string(crest::name(t)), std::move(in), std::move(attrs), nullptr,
                  some_scalars(), nullptr});
}

Scalars some_scalars() {
  Scalars s{};
  s.loss_weight = 0.5f;
  s.seed = 0x123456789abcdefull;
  s.sample_base = 5;
  s.lr = 0.5f;  // large: an error of the update shows beside the weight
  s.position = 6;
  s.length = 3;
  s.adam_step = 3;
  s.loss_scale = 1024;
  s.grad_norm = 7;
  s.grad_factor = 0.25f;
  s.good_steps = 4;
  s.skipped = 2;
  return s;
}

static Attrs dtype_attr(DType t) { return Attrs().set("dtype", name(t)); }

void add_contraction_cases(std::vector<Case>& list, DType t) {
  struct Size {
    const char* name;
    Shape x;
    int64_t n;
  };
  const Size sizes[] = {{"batch3", {3, 65, 96}, 160},
                        {"one_row", {1, 96}, 64},
                        {"vocab384", {2, 7, 96}, 384},
                        {"odd", {5, 33}, 17},
                        {"vector", {96}, 32}};
  for (const Size& s : sizes) {
    int64_t k = s.x.back();
    Shape y = s.x.with_back(s.n), w = {s.n, k};
    Arg x = tensor(t, s.x), weight = tensor(t, w, 0.1), bias = tensor(t, {s.n}), dy = tensor(t, y);
    std::string n = s.name;
    add(list, t, "linear", n, {x, weight});
    add(list, t, "linear", n + "_no_bias", {x, weight, absent()});
    add(list, t, "linear", n + "_bias", {x, weight, bias});
    for (int keep : {0, 1}) {
      Attrs attrs = Attrs().set("keep", keep);
      add(list, t, "linear_gelu", n + "_keep" + std::to_string(keep), {x, weight, bias}, attrs);
    }
    add(list, t, "linear_gelu", n + "_no_bias", {x, weight}, Attrs().set("keep", 1));
    add(list, t, "linear_dx", n, {dy, weight});
    for (int keep : {0, 1})
      add(list, t, "linear_dx_gelu_grad", n + "_keep" + std::to_string(keep), {dy, weight, x},
          Attrs().set("keep", keep));
    add(list, t, "linear_dx_gelu_grad", n + "_acc", {dy, weight, x, tensor(DType::f32, {k}, 10)},
        dtype_attr(DType::f32));
    if (t == DType::bf16)
      add(list, t, "linear_dx_gelu_grad", n + "_acc_bf16", {dy, weight, x, tensor(t, {k}, 10)},
          dtype_attr(t).set("keep", 1));
    Arg up = tensor(t, w, 0.1);
    for (int keep : {0, 1}) {
      Attrs attrs = Attrs().set("keep", keep);
      add(list, t, "linear_swiglu", n + "_keep" + std::to_string(keep), {x, weight, up}, attrs);
      add(list, t, "linear_dx_swiglu_grad", n + "_keep" + std::to_string(keep), {dy, weight, x, tensor(t, s.x)}, attrs);
    }
    add(list, t, "linear_dx_sum", n, {dy, weight, tensor(t, y), up});
    add(list, t, "linear_dw", n, {dy, x});
    add(list, t, "linear_dw", n + "_f32", {dy, x, absent()}, dtype_attr(DType::f32));
    add(list, t, "linear_dw", n + "_acc", {dy, x, tensor(DType::f32, w, 10)}, dtype_attr(DType::f32));
    if (t == DType::bf16) add(list, t, "linear_dw", n + "_acc_bf16", {dy, x, tensor(t, w, 10)}, dtype_attr(t));
    add(list, t, "bias_grad", n, {dy});
    add(list, t, "bias_grad", n + "_acc", {dy, tensor(DType::f32, {s.n}, 10)}, dtype_attr(DType::f32));
    if (t == DType::bf16) add(list, t, "bias_grad", n + "_acc_bf16", {dy, tensor(t, {s.n}, 10)}, dtype_attr(t));
  }

  // The logits of an odd vocabulary: rows further apart than they are wide.
  struct Pitched {
    const char* name;
    Shape x;
    int64_t n, pitch;
  };
  for (const Pitched& s : {Pitched{"pitched", {2, 9, 40}, 203, 208},
                           {"pitched_odd", {5, 33}, 17, 21},
                           {"pitched_wide", {3, 16}, 8300, 8320}}) {
    int64_t k = s.x.back();
    Arg x = tensor(t, s.x), weight = tensor(t, {s.n, k}, 0.1), dy = pitched(t, s.x.with_back(s.n), s.pitch);
    std::string n = s.name;
    add(list, t, "linear", n, {x, weight});
    list.back().out_pitch = {s.pitch};
    add(list, t, "linear", n + "_bias", {x, weight, tensor(t, {s.n})});
    list.back().out_pitch = {s.pitch};
    add(list, t, "linear_dx", n, {dy, weight});
    add(list, t, "linear_dw", n, {dy, x});
    add(list, t, "linear_dw", n + "_acc", {dy, x, tensor(DType::f32, {s.n, k}, 10)}, dtype_attr(DType::f32));
  }

  // Attention's products: views into interleaved qkv with 4 query and 2 key/value heads, and
  // contiguous T x T matrices.
  int64_t b = 3, tokens = 65, h = 4, kv = 2, d = 24, width = (h + 2 * kv) * d;
  Shape strides = {tokens * width, d, width, 1};
  Arg q = view(t, {b, h, tokens, d}, strides, 0), k = view(t, {b, kv, tokens, d}, strides, h * d);
  Arg p = tensor(t, {b, h, tokens, tokens}), o = view(t, {b, h, tokens, d}, strides, 0);
  add(list, t, "matmul", "scores_grouped", {q, k}, Attrs().set("transpose_b", true));
  add(list, t, "matmul", "scores", {q, q}, Attrs().set("transpose_b", true));
  add(list, t, "matmul", "context_grouped", {p, k});
  add(list, t, "matmul", "context", {p, tensor(t, {b, h, tokens, d})});
  add(list, t, "matmul", "grad_k_grouped", {p, o}, Attrs().set("transpose_a", true).set("reduce", kv));
  add(list, t, "matmul", "grad_k", {p, o}, Attrs().set("transpose_a", true));
  add(list, t, "matmul", "all_reduced", {p, o}, Attrs().set("reduce", 1));
  add(list, t, "matmul", "both_transposed", {tensor(t, {1, 2, 5, 9}), tensor(t, {1, 2, 3, 5})},
      Attrs().set("transpose_a", true).set("transpose_b", true));
  add(list, t, "matmul", "one_token", {tensor(t, {2, 1, 1, 8}), tensor(t, {2, 1, 8, 1})});
}

using Body = std::function<std::vector<ValueId>(Builder&, const std::vector<ValueId>&)>;

static void add_fused(std::vector<Case>& list, DType t, const std::string& name, std::vector<Arg> in,
                      const Body& make) {
  auto body = std::make_shared<Program>();
  Builder b(*body);
  b.origin = Origin("test");
  for (size_t i = 0; i < in.size(); ++i)
    body->inputs.push_back(
        b.declare("x" + std::to_string(i), in[i].dtype, in[i].shape, Role::activation, Lifetime::micro_step));
  body->outputs = make(b, body->inputs);
  add(list, t, "fused", name, std::move(in));
  list.back().body = body;
}

static std::vector<ValueId> gelu_by_parts(Builder& b, ValueId x) {
  ValueId cube = b.emit1("mul", {b.emit1("mul", {x, x}), x});
  ValueId inner = b.emit1("add", {x, b.emit1("scale", {cube}, Attrs().set("value", 0.044715))});
  ValueId t = b.emit1("tanh", {b.emit1("scale", {inner}, Attrs().set("value", 0.7978845608))});
  ValueId one = b.emit1("add_scalar", {t}, Attrs().set("value", 1.0));
  return {b.emit1("scale", {b.emit1("mul", {x, one})}, Attrs().set("value", 0.5)), t};
}

static void add_fused_cases(std::vector<Case>& list, DType t) {
  for (const Shape& s : {Shape{3, 65, 96}, Shape{7, 33}, Shape{1}}) {
    std::string n = s.rank() == 3 ? "batch3" : s.rank() == 2 ? "odd" : "one";
    Shape columns = {s.back()};
    Arg x = tensor(t, s), column_sum = tensor(DType::f32, columns, 10);
    add_fused(list, t, n + "_gelu", {x}, [](Builder& b, auto& in) { return gelu_by_parts(b, in[0]); });
    add_fused(list, t, n + "_swiglu", {x, x}, [](Builder& b, auto& in) {
      return std::vector{b.emit1("mul", {b.emit1("silu", {in[0]}), in[1]})};
    });
    add_fused(list, t, n + "_column_sum", {x, x}, [](Builder& b, auto& in) {
      ValueId dh = b.emit1("gelu_grad", {in[0], in[1]});
      return std::vector{dh, b.emit1("bias_grad", {dh})};
    });
    add_fused(list, t, n + "_column_sum_acc", {x, x, column_sum}, [](Builder& b, auto& in) {
      ValueId dh = b.emit1("silu_grad", {in[0], in[1]});
      return std::vector{b.emit1("bias_grad", {dh, in[2]}), dh};
    });
    add_fused(list, t, n + "_cast", {x, tensor(DType::f32, s)}, [t](Builder& b, auto& in) {
      ValueId up = b.emit1("cast", {in[0]}, dtype_attr(DType::f32));
      ValueId sum = b.emit1("add", {up, in[1]});
      return std::vector{b.emit1("cast", {b.emit1("tanh_grad", {sum, in[1]})}, dtype_attr(t)), sum};
    });
  }
}

void add_pointwise_cases(std::vector<Case>& list, DType t) {
  for (const Shape& s : {Shape{3, 65, 96}, Shape{7, 33}, Shape{1}}) {
    std::string n = s.rank() == 3 ? "batch3" : s.rank() == 2 ? "odd" : "one";
    Arg x = tensor(t, s, 2);
    for (const char* op : {"add", "mul", "tanh_grad", "gelu_grad", "gelu_erf_grad", "silu_grad", "relu_grad"})
      add(list, t, op, n, {x, x});
    for (const char* op : {"tanh", "gelu", "gelu_erf", "silu", "relu"}) add(list, t, op, n, {x});
    if (s.numel() > 1) {  // a lone tail value is smaller than anything f16 can hold
      for (const char* op : {"tanh", "gelu", "gelu_erf", "silu", "relu"})
        add(list, t, op, n + "_saturated", {tensor(t, s, 100)});
      for (const char* op : {"gelu_grad", "gelu_erf_grad", "silu_grad", "relu_grad"})
        add(list, t, op, n + "_saturated", {x, tensor(t, s, 100)});
    }
    add(list, t, "scale", n, {x}, Attrs().set("value", -1.7));
    add(list, t, "add_scalar", n, {x}, Attrs().set("value", 0.3));
    for (DType to : {DType::f32, DType::bf16, DType::f16})
      add(list, t, "cast", n + "_to_" + std::string(name(to)), {x}, dtype_attr(to));
  }
  // Large enough for kernels with a size-dependent grid; the end is ragged. A contiguous view need
  // not be aligned to more than an element.
  Arg large = tensor(t, {131, 513}, 2), shifted = view(t, {7, 33}, {33, 1}, 1);
  for (const char* op : {"mul", "gelu_grad"}) add(list, t, op, "large", {large, large});
  add(list, t, "silu", "large", {large});
  add(list, t, "add", "shifted", {shifted, tensor(t, {7, 33})});
  for (DType to : {DType::f32, DType::bf16, DType::f16}) {
    add(list, t, "cast", "large_to_" + std::string(name(to)), {large}, dtype_attr(to));
    add(list, t, "cast", "shifted_to_" + std::string(name(to)), {shifted}, dtype_attr(to));
    for (int64_t pitch : {0, 2112, 2061}) {  // of the result
      std::string n = "pitched_" + std::to_string(pitch) + "_to_" + std::string(name(to));
      add(list, t, "cast", n, {pitched(t, {2, 3, 2057}, 2112)}, dtype_attr(to));
      list.back().out_pitch = {pitch};
    }
  }
  add(list, t, "dropout", "large", {tensor(t, {3, 24, 400}), scalars_arg()}, Attrs().set("p", 0.2).set("rng_id", 3));
  add(list, t, "dropout", "batch3", {tensor(t, {3, 65, 96}), scalars_arg()}, Attrs().set("p", 0.1).set("rng_id", 7));
  add(list, t, "dropout", "odd", {tensor(t, {5, 7, 11}), scalars_arg()}, Attrs().set("p", 0.5).set("rng_id", 1));
  for (DType to : {DType::f32, DType::bf16, DType::f16})
    if (to != t && (to == DType::f32 || t == DType::f32))
      for (const Shape& s : {Shape{3, 65, 96}, Shape{5, 7, 11}})
        add(list, t, "dropout", "to_" + std::string(name(to)) + "_" + s.text(), {tensor(t, s), scalars_arg()},
            dtype_attr(to).set("p", 0.1).set("rng_id", 7));
  add(list, t, "dropout", "none", {tensor(t, {2, 9}), scalars_arg()}, Attrs().set("p", 0.0).set("rng_id", 2));
  add_fused_cases(list, t);
}

const std::vector<Case>& all_cases() {
  static const std::vector<Case> cases = [] {
    std::vector<Case> list;
    for (DType t : {DType::f32, DType::bf16, DType::f16}) {
      add_contraction_cases(list, t);
      add_pointwise_cases(list, t);
      add_row_cases(list, t);
      add_attention_cases(list, t);
      add_embedding_cases(list, t);
      add_loss_cases(list, t);
      add_update_cases(list, t);
      for (const CaseFile* file : CaseFile::all()) file->cases(list, t);
    }
    return list;
  }();
  return cases;
}

}  // namespace crest::test
