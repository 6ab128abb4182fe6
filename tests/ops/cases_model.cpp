// The case list, part two: row-wise operations, attention, embedding, loss, update.
#include <cmath>
#include <limits>

#include "ops/case.h"
#include "ops/harness.h"

namespace crest::test {

static Case& add(std::vector<Case>& list, DType t, const std::string& op, const std::string& name, std::vector<Arg> in,
                 Attrs attrs = {}) {
  list.push_back({op, name + "_" + std::string(crest::name(t)), std::move(in), std::move(attrs), nullptr,
                  some_scalars(), nullptr});
  return list.back();
}

// Outputs of `op` in double for given values of its inputs.
static Values forward(const std::string& op, std::vector<Arg> in, const Attrs& attrs, const Values& values) {
  return reference_outputs(in_double({op, "", std::move(in), attrs, nullptr, some_scalars(), nullptr}), values);
}

static void add_norm_cases(std::vector<Case>& list, DType t, const std::string& n, const Shape& s, bool layer,
                           bool weight = true) {
  Shape c = {s.back()}, rows = {s.rows()};
  Attrs attrs = Attrs().set("kind", layer ? "layer" : "rms").set("eps", 1e-5);
  std::string kind = layer ? "layer_" : "rms_";
  Arg x = tensor(t, s, 3), gamma = weight ? positive(t, c) : absent(), beta = tensor(t, c);
  add(list, t, "norm", kind + n, {x, gamma}, attrs);
  // Summands are multiples of 1/4 below 32, so their sum is exact in every dtype and the statistics
  // of the sum agree to f32.
  auto exact_sum = [](Values& v) {
    for (size_t i : {0, 1})
      for (double& e : v[i]) e = std::round(e * 4) / 4;
  };
  add(list, t, "add_norm", kind + n, {x, x, gamma}, attrs).complete = exact_sum;
  if (layer) {
    add(list, t, "norm", "layer_beta_" + n, {x, gamma, beta}, attrs);
    add(list, t, "add_norm", "layer_beta_" + n, {x, x, gamma, beta}, attrs).complete = exact_sum;
  }
  auto statistics = [x, gamma, attrs, layer](Values& v) {
    Values out = forward("norm", {x, gamma}, attrs, {v[1], v[2]});
    v[3] = out[1];
    if (layer) v[4] = out[2];
  };
  DType f = DType::f32;
  Arg dy = tensor(t, s), rstd = tensor(f, rows), mean = layer ? tensor(f, rows) : absent();
  Arg acc = tensor(f, c, 10);
  auto grad = [&](const std::string& name, std::vector<Arg> extra, bool with_beta, DType dtype, bool bias = false,
                  bool keep = false) {
    std::vector<Arg> in = {dy, x, gamma, rstd, mean};
    in.insert(in.end(), extra.begin(), extra.end());
    Attrs a = Attrs().set("kind", layer ? "layer" : "rms").set("beta", with_beta).set("dtype", crest::name(dtype));
    if (bias) a.set("bias", 1);
    if (keep) a.set("keep", 1);
    add(list, t, "norm_grad", kind + name + n, in, a).complete = statistics;
  };
  grad("", {}, false, f);
  grad("residual_", {dy}, false, f);
  grad("acc_", {dy, acc, absent()}, false, f);
  if (layer) grad("beta_", {absent(), absent(), absent()}, true, f);
  if (layer) grad("beta_acc_", {dy, acc, acc}, true, f);
  if (t == DType::bf16) grad("acc_bf16_", {absent(), tensor(t, c, 10)}, false, t);
  if (layer) grad("bias_", {}, true, f, true);
  if (layer) grad("bias_acc_", {dy, acc, acc, acc}, true, f, true);
  if (Arg half = tensor(t, c, 10); layer && t == DType::bf16)
    grad("bias_acc_bf16_", {absent(), half, half, half}, true, t, true);
  grad("keep_", {dy}, false, f, false, true);
  if (layer) grad("keep_beta_", {dy, acc, acc, absent(), beta}, true, f, false, true);
  if (layer) grad("bias_keep_", {absent(), absent(), absent(), acc, beta}, true, f, true, true);
}

void add_row_cases(std::vector<Case>& list, DType t) {
  for (bool layer : {true, false}) {
    add_norm_cases(list, t, "batch3", {3, 65, 96}, layer);
    add_norm_cases(list, t, "one_row", {1, 96}, layer);
    add_norm_cases(list, t, "odd", {5, 33}, layer);
    add_norm_cases(list, t, "plain", {6, 96}, layer, false);
    add_norm_cases(list, t, "plain_odd", {5, 33}, layer, false);
  }
  add(list, t, "softmax", "batch3", {tensor(t, {3, 65, 96}, 3)});
  add(list, t, "softmax", "odd", {tensor(t, {5, 33}, 3)});
  add(list, t, "softmax", "one", {tensor(t, {2, 1})});
  add(list, t, "softmax", "masked", {tensor(t, {3, 2, 65, 65}, 3)}).complete = [](Values& v) {
    for (size_t e = 0; e < v[0].size(); ++e)
      if (e % 65 > e / 65 % 65) v[0][e] = -std::numeric_limits<double>::infinity();
  };
  add(list, t, "softmax", "large", {tensor(t, {4, 40}, 1000)});
  for (const Shape& s : {Shape{3, 2, 65, 65}, Shape{5, 33}, Shape{1, 1}})
    add(list, t, "softmax_grad", "width" + std::to_string(s.back()), {tensor(t, s), positive(t, s)}).complete =
        [s](Values& v) { v[1] = forward("softmax", {tensor(DType::f64, s)}, {}, {v[1]})[0]; };
  for (const Shape& s : {Shape{3, 2, 65, 65}, Shape{1, 1, 33, 33}, Shape{2, 1, 1, 1}, Shape{1, 2, 40, 40}})
    for (bool causal : {true, false}) {
      std::string n = (causal ? "causal" : "scaled") + std::to_string(s.back());
      for (double scale : {0.3, -2.0}) {
        Attrs a = Attrs().set("scale", scale).set("causal", causal);
        std::string full = n + (scale < 0 ? "_negative" : "");
        add(list, t, "softmax", full, {tensor(t, s, 3)}, a);
        // Hidden values are no probabilities here: they must not be read.
        add(list, t, "softmax_grad", full, {tensor(t, s), positive(t, s)}, a).complete = [s, causal](Values& v) {
          auto y = forward("softmax", {tensor(DType::f64, s)}, Attrs().set("causal", causal), {v[1]})[0];
          for (size_t e = 0, n = size_t(s.back()); e < y.size(); ++e)
            if (!causal || e % n <= e / n % n) v[1][e] = y[e];
        };
      }
    }
  add(list, t, "causal_mask", "batch3", {tensor(t, {3, 2, 65, 65})});
  add(list, t, "causal_mask", "documents", {tensor(t, {3, 2, 65, 65}), positions({3, 65}, 9)});
  add(list, t, "causal_mask", "documents_vectors", {tensor(t, {2, 3, 64, 64}), positions({2, 64}, 20)});
  add(list, t, "causal_mask", "one", {tensor(t, {1, 1, 1, 1})});
}

static void add_attention(std::vector<Case>& list, DType t, const std::string& n, int64_t b, int64_t s, int64_t h,
                          int64_t kv, int64_t d, bool causal, double p) {
  Attrs attrs = Attrs().set("heads", h).set("kv_heads", kv).set("scale", 1 / std::sqrt(double(d)));
  attrs.set("causal", causal);
  if (p > 0) attrs.set("p", p).set("rng_id", 9);
  Arg qkv = tensor(t, {b, s, (h + 2 * kv) * d}), extra = p > 0 ? scalars_arg() : absent();
  add(list, t, "attention", n, {qkv, extra}, attrs);
  Arg o = tensor(t, {b, s, h * d}), lse = tensor(DType::f32, {b, h, s});
  add(list, t, "attention_grad", n, {o, qkv, o, lse, extra}, attrs).complete = [=](Values& v) {
    Values out = forward("attention", {qkv, extra}, attrs, {v[1], v[4]});
    v[2] = out[0], v[3] = out[1];
  };
}

void add_qk_norm(std::vector<Case>& list, DType t, const char* per, const std::string& name, int64_t b, int64_t s,
                 int64_t h, int64_t kv, int64_t d) {
  const bool head = per == std::string("head");
  const Attrs a = Attrs().set("heads", h).set("kv_heads", kv).set("per", per).set("eps", 1e-5);
  const Attrs back = Attrs().set("heads", h).set("kv_heads", kv).set("per", per).set("dtype", "f32");
  const Shape q_size = {head ? d : h * d}, k_size = {head ? d : kv * d};
  const Arg qkv = tensor(t, {b, s, (h + 2 * kv) * d}), qw = positive(t, q_size), kw = positive(t, k_size);
  add(list, t, "qk_norm", name, {qkv, qw, kw}, a);
  add(list, t, "qk_norm", name + "_plain", {qkv}, a);
  const DType f = DType::f32;
  const Arg qr = tensor(f, {b, s, head ? h : 1}), kr = tensor(f, {b, s, head ? kv : 1});
  auto statistics = [=](bool weights) {
    return [=](Values& v) {
      std::vector<Arg> in = {qkv};
      Values values = {v[1]};
      if (weights) in.insert(in.end(), {qw, kw}), values.insert(values.end(), {v[2], v[3]});
      Values out = forward("qk_norm", in, a, values);
      v[4] = out[1], v[5] = out[2];
    };
  };
  const Arg aq = tensor(f, q_size, 10), ak = tensor(f, k_size, 10);
  add(list, t, "qk_norm_grad", name, {qkv, qkv, qw, kw, qr, kr}, back).complete = statistics(true);
  add(list, t, "qk_norm_grad", name + "_acc", {qkv, qkv, qw, kw, qr, kr, aq, ak}, back).complete = statistics(true);
  add(list, t, "qk_norm_grad", name + "_plain", {qkv, qkv, absent(), absent(), qr, kr}, back).complete =
      statistics(false);
}

void add_attention_cases(std::vector<Case>& list, DType t) {
  add_attention(list, t, "batch3", 3, 65, 4, 4, 24, true, 0);
  add_attention(list, t, "grouped", 2, 65, 4, 2, 16, true, 0);
  add_attention(list, t, "one_head", 1, 65, 1, 1, 96, true, 0);
  add_attention(list, t, "long", 1, 130, 2, 1, 64, true, 0);
  add_attention(list, t, "full", 2, 33, 2, 2, 24, false, 0);
  add_attention(list, t, "one_token", 2, 1, 2, 2, 8, true, 0);
  add_attention(list, t, "dropout", 2, 65, 4, 2, 16, true, 0.2);
  add_attention(list, t, "full_dropout", 2, 17, 2, 2, 8, false, 0.5);

  int64_t b = 3, s = 65, h = 4, kv = 2, d = 24, width = (h + 2 * kv) * d;
  Attrs heads = Attrs().set("heads", h).set("kv_heads", kv);
  Arg qkv = tensor(t, {b, s, width}), q = tensor(t, {b, h, s, d}), k = tensor(t, {b, kv, s, d});
  add(list, t, "split_heads", "grouped", {qkv}, heads);
  add(list, t, "split_heads", "only_q", {qkv}, Attrs().set("heads", 8).set("kv_heads", 0));
  add(list, t, "join_heads", "grouped", {q, k, k});
  add(list, t, "join_heads", "only_q", {q});
  Shape strides = {s * width, d, width, 1};
  add(list, t, "join_heads", "views", {view(t, {b, h, s, d}, strides, 0), view(t, {b, kv, s, d}, strides, h * d), k});

  for (const char* per : {"head", "row"}) {
    add_qk_norm(list, t, per, per, 3, 65, 4, 2, 24);
    add_qk_norm(list, t, per, per + std::string("_wide"), 1, 5, 10, 2, 256);
  }
  for (auto [h, kv] : {std::pair{5, 1}, {20, 4}, {32, 8}, {40, 2}})  // as many vectors as a GPU's thread may have
    add_qk_norm(list, t, "row", "row_of_" + std::to_string(h), 1, 3, h, kv, 256);

  for (bool inverse : {false, true}) {
    std::string n = inverse ? "inverse" : "forward";
    Attrs rope = heads;
    rope.set("theta", 10000.0).set("inverse", inverse);
    add(list, t, "rope", n, {qkv}, rope);
    add(list, t, "rope", n + "_position", {qkv, scalars_arg()}, rope);
    add(list, t, "rope", n + "_part", {qkv, scalars_arg()}, Attrs(rope).set("rotary_dim", 4));
    rope.set("theta", 500000.0).set("factor", 32.0).set("low_freq_factor", 1.0).set("high_freq_factor", 4.0);
    add(list, t, "rope", n + "_llama3", {qkv}, rope.set("original_context", 128));
    Attrs pairs = heads;
    pairs.set("theta", 10000.0).set("inverse", inverse).set("factor", 4.0);
    add(list, t, "rope", n + "_linear", {qkv}, Attrs(pairs).set("first_pair", -1.0).set("last_pair", 0.0));
    pairs.set("first_pair", 1.5).set("last_pair", 4.0).set("attention_factor", 1.3);
    add(list, t, "rope", n + "_yarn", {qkv}, pairs);
    add(list, t, "rope", n + "_yarn_position", {qkv, scalars_arg()}, pairs);
  }

  for (int64_t tokens : {1, 4}) {
    std::string n = tokens == 1 ? "decode" : "prefill";
    Arg some = tensor(t, {b, tokens, width}), cache = tensor(t, {b, 2, kv, 16, d});
    add(list, t, "cache_append", n, {some, cache, scalars_arg()}, heads);
    Attrs attrs = heads;
    attrs.set("scale", 1 / std::sqrt(double(d)));
    add(list, t, "cached_attention", n, {some, cache, scalars_arg()}, attrs);
    Case& first = add(list, t, "cached_attention", n + "_first", {some, cache, scalars_arg()}, attrs);
    first.scalars.position = 0;
  }
}

void add_embedding_cases(std::vector<Case>& list, DType t) {
  DType f = DType::f32;
  Arg tokens = ids({3, 65}, 257), table = tensor(t, {384, 96}), dy = tensor(t, {3, 65, 96});
  auto beyond = [](Values& v) { v[0][1] = 384, v[0][2] = -1; };
  add(list, t, "embedding", "batch3", {tokens, table});
  add(list, t, "embedding", "unknown_ids", {tokens, table}).complete = beyond;
  add(list, t, "embedding", "odd", {ids({1, 1}, 5), tensor(t, {5, 33})});
  for (DType to : {f, DType::bf16})
    add(list, t, "embedding", "to_" + std::string(name(to)), {tokens, table}, Attrs().set("dtype", name(to)));
  Attrs rows = Attrs().set("rows", 384).set("dtype", "f32");
  add(list, t, "embedding_grad", "batch3", {tokens, dy}, rows);
  add(list, t, "embedding_grad", "repeated", {ids({3, 65}, 3), dy}, rows);
  add(list, t, "embedding_grad", "unknown_ids", {tokens, dy}, rows).complete = beyond;
  add(list, t, "embedding_grad", "acc", {tokens, dy, tensor(f, {384, 96}, 10)}, rows);
  for (int rank : {0, 2}) {  // of three, each with a table for some of 1152 tokens
    const std::string of = "rank" + std::to_string(rank);
    const Arg any = ids({3, 65}, 3 * 384);
    const Attrs own = Attrs().set("axes", "tensor");
    on_rank(add(list, t, "embedding", of, {any, table}, own), rank);
    on_rank(add(list, t, "embedding_grad", of, {any, dy}, Attrs(rows).set("axes", "tensor")), rank);
  }
  add(list, t, "embedding_grad", "odd", {ids({1, 2}, 5), tensor(t, {1, 2, 33})}, Attrs().set("rows", 5));
  if (t == DType::bf16)
    add(list, t, "embedding_grad", "acc_bf16", {tokens, dy, tensor(t, {384, 96}, 10)},
        Attrs(rows).set("dtype", "bf16"));
  add(list, t, "take_row", "batch3", {dy, scalars_arg()});

  Arg positions = tensor(t, {128, 96});
  add(list, t, "add_position", "batch3", {dy, positions});
  add(list, t, "add_position", "from_position", {dy, positions, scalars_arg()});
  Arg places = {Arg::Fill::positions, DType::i32, {3, 65}, 1, 20};
  add(list, t, "add_position", "of_each_token", {dy, positions, places});
  add(list, t, "add_position", "of_each_token_odd",
      {tensor(t, {2, 5, 33}), tensor(t, {5, 33}), {Arg::Fill::positions, DType::i32, {2, 5}, 1, 2}});
  add(list, t, "add_position", "odd", {tensor(t, {2, 5, 33}), tensor(t, {5, 33})});
  Attrs table_rows = Attrs().set("rows", 128).set("dtype", "f32");
  add(list, t, "position_grad", "batch3", {dy}, table_rows);
  add(list, t, "position_grad", "acc", {dy, tensor(f, {128, 96}, 10)}, table_rows);
  add(list, t, "position_grad", "odd", {tensor(t, {2, 5, 33})}, Attrs().set("rows", 5));
  if (t == DType::bf16)
    add(list, t, "position_grad", "acc_bf16", {dy, tensor(t, {128, 96}, 10)}, Attrs(table_rows).set("dtype", "bf16"));
}

void add_loss_cases(std::vector<Case>& list, DType t) {
  struct Size {
    const char* name;
    Shape logits;
    int64_t vocab;
    double cap = 0;
  };
  const Size sizes[] = {{"padded", {3, 65, 384}, 257},
                        {"exact", {7, 257}, 257},
                        {"one_row", {1, 50}, 33},
                        {"capped", {5, 384}, 257, 1.5},
                        {"capped_odd", {7, 47}, 33, 30}};
  for (const Size& s : sizes) {
    Shape rows = {s.logits.rows()};
    Arg logits = tensor(t, s.logits, 2), labels = targets(rows, s.vocab);
    Attrs vocab = Attrs().set("vocab", s.vocab);
    if (s.cap > 0) vocab.set("cap", s.cap);
    Attrs scaled = Attrs(vocab).set("scale", 1 / double(rows.numel()));
    add(list, t, "cross_entropy", s.name, {logits, labels}, vocab);
    add(list, t, "cross_entropy", std::string(s.name) + "_scaled", {logits, labels, scalars_arg()}, scaled);
    add(list, t, "cross_entropy_grad", s.name, {logits, labels, tensor(DType::f32, rows), scalars_arg()}, scaled)
        .complete = [=](Values& v) {
      v[2] = forward("cross_entropy", {logits, labels}, vocab, {v[0], v[1]})[1];
    };
    add(list, t, "cross_entropy_fused", s.name, {logits, labels, scalars_arg()}, scaled);
    add(list, t, "loss_stats", s.name, {logits, labels}, vocab);
    // The second of three ranks, with targets inside and outside its columns; the last rank, with
    // padding.
    const int64_t all = 3 * s.logits.back() - 20;
    const Attrs own = Attrs(vocab).set("vocab", all).set("axes", "tensor"),
                own_scaled = Attrs(scaled).set("vocab", all).set("axes", "tensor");
    for (int rank : {1, 2}) {
      const std::string of = std::string(s.name) + "_rank" + std::to_string(rank);
      const Arg any = targets(rows, all);
      on_rank(add(list, t, "loss_stats", of, {logits, any}, own), rank);
      on_rank(
          add(list, t, "cross_entropy_grad", of, {logits, any, tensor(DType::f32, rows), scalars_arg()}, own_scaled),
          rank)
          .complete = [=](Values& v) {
        for (double& lse : v[2]) lse = 8 + std::abs(lse);
      };
    }
    auto some = [rows](Values& v) {  // sums of exponentials are positive, one rank has only padding
      for (size_t i = 0; i < v[3].size(); i += 3) v[3][i + 1] = 1 + std::abs(v[3][i + 1]);
      const auto third = size_t(2 * rows[0] * 3);
      v[3][third] = -INFINITY, v[3][third + 1] = v[3][third + 2] = 0;
    };
    for (const Arg& weight : {absent(), scalars_arg()})
      add(list, t, "cross_entropy",
          std::string(s.name) + "_stats" + (weight.fill == Arg::Fill::absent ? "" : "_weight"),
          {logits, labels, weight, tensor(DType::f32, {3, rows[0], 3}, 4)}, Attrs(own))
          .complete = some;
  }
  if (t != DType::f32) return;
  Attrs scale = Attrs().set("scale", 1 / 195.0);
  add(list, t, "sum_loss", "rows195", {positive(t, {195})}, scale);
  add(list, t, "sum_loss", "acc", {positive(t, {195}), positive(t, {1})}, scale);
  add(list, t, "sum_loss", "one", {positive(t, {1})}, scale);
}

void add_update_cases(std::vector<Case>& list, DType t) {
  DType f = DType::f32;
  std::vector<Arg> grads = {scalars_arg(), tensor(t, {384, 96}), tensor(t, {33}), tensor(t, {1})};
  add(list, t, "grad_norm", "clip", grads, Attrs().set("clip", 1.0));
  add(list, t, "grad_norm", "large_clip", grads, Attrs().set("clip", 1e9));
  add(list, t, "grad_norm", "no_clip", grads, Attrs().set("clip", 0.0));
  add(list, t, "grad_norm", "infinity", grads, Attrs().set("clip", 1.0)).complete = [](Values& v) {
    v[2][32] = std::numeric_limits<double>::infinity();
  };
  add(list, t, "grad_norm", "nan", grads, Attrs().set("clip", 1.0)).complete = [](Values& v) {
    v[1][777] = std::numeric_limits<double>::quiet_NaN();
  };

  Attrs adamw = Attrs().set("beta1", 0.9).set("beta2", 0.95).set("eps", 1e-8).set("weight_decay", 0.1);
  for (int64_t n : {6240, 33, 1}) {
    std::string size = "n" + std::to_string(n);
    std::vector<Arg> in = {scalars_arg(), tensor(f, {n}), tensor(f, {n}), positive(f, {n}), tensor(t, {n}, 8)};
    add(list, t, "adamw", size, in, adamw);
    add(list, t, "adamw", size + "_first", in, adamw).scalars.adam_step = 0;
    std::vector<Arg> with_weight = in;
    with_weight.push_back(tensor(t == f ? DType::bf16 : t, {n}));
    add(list, t, "adamw", size + "_weight", with_weight, adamw);
    add(list, t, "adamw", size + "_skipped", with_weight, adamw).scalars.found_inf = 1;
    with_weight[4].dtype = f;
    add(list, t, "adamw", size + "_f32_gradient", with_weight, adamw);
  }
  if (t != f) return;
  Attrs dynamic = Attrs().set("dynamic", 1).set("growth_interval", 5).set("min_scale", 1.0).set("max_scale", 65536.0);
  add(list, t, "finish_step", "static", {scalars_arg()}, Attrs().set("dynamic", 0));
  add(list, t, "finish_step", "static_skipped", {scalars_arg()}, Attrs().set("dynamic", 0)).scalars.found_inf = 1;
  add(list, t, "finish_step", "grows", {scalars_arg()}, dynamic);
  add(list, t, "finish_step", "largest", {scalars_arg()}, dynamic).scalars.loss_scale = 65536;
  add(list, t, "finish_step", "waits", {scalars_arg()}, dynamic).scalars.good_steps = 1;
  add(list, t, "finish_step", "shrinks", {scalars_arg()}, dynamic).scalars.found_inf = 1;
  Case& smallest = add(list, t, "finish_step", "smallest", {scalars_arg()}, dynamic);
  smallest.scalars.found_inf = 1, smallest.scalars.loss_scale = 1;
}

}  // namespace crest::test
