// The cases of mode grad: every rule, with and without optional inputs.
#include <tuple>

#include "ops/case.h"
#include "program/builder.h"

namespace crest::test {

static constexpr DType d = DType::f64;

// One instruction with the inputs in order; `outs` of its outputs are weighed.
static GradCase single(const std::string& name, const std::string& op, std::vector<Arg> in, Attrs attrs = {},
                       std::vector<size_t> weights = {}, size_t outs = 1) {
  auto forward = [=](Builder& b, const std::vector<ValueId>& v) {
    auto o = b.emit(op, v, attrs);
    o.resize(outs);
    return o;
  };
  return {name, std::move(in), std::move(weights), forward};
}

std::vector<GradCase> grad_cases() {
  std::vector<GradCase> list;
  Arg x = tensor(d, {2, 3, 5}), w = tensor(d, {4, 5});
  list.push_back(single("linear", "linear", {x, w}, {}, {1}));
  list.push_back(single("linear_bias", "linear", {x, w, tensor(d, {4})}, {}, {1, 2}));
  list.push_back({"linear_tied", {x, tensor(d, {5, 5})}, {1}, [](Builder& b, auto& v) {
                    return std::vector{b.emit1("linear", {b.emit1("linear", {v[0], v[1]}), v[1]})};
                  }});
  for (bool ta : {false, true})
    for (bool tb : {false, true}) {
      Attrs attrs = Attrs().set("transpose_a", ta).set("transpose_b", tb);
      Shape a = ta ? Shape{2, 4, 5, 3} : Shape{2, 4, 3, 5};
      for (int64_t g : {4, 2}) {
        if (ta && g == 2) continue;  // appears in gradients only
        Shape b = tb ? Shape{2, g, 6, 5} : Shape{2, g, 5, 6};
        std::string n = std::string("matmul") + (ta ? "_ta" : "") + (tb ? "_tb" : "") + (g == 2 ? "_grouped" : "");
        list.push_back(single(n, "matmul", {tensor(d, a), tensor(d, b)}, attrs));
      }
    }
  for (const char* op : {"add", "mul"}) list.push_back(single(op, op, {x, x}));
  for (const char* op : {"tanh", "gelu", "gelu_erf", "silu", "relu"}) list.push_back(single(op, op, {x}));
  list.push_back(single("scale", "scale", {x}, Attrs().set("value", -1.7)));
  list.push_back(single("add_scalar", "add_scalar", {x}, Attrs().set("value", 0.3)));
  list.push_back(single("cast", "cast", {x}, Attrs().set("dtype", "f64")));
  list.push_back(single("dropout", "dropout", {x, scalars_arg()}, Attrs().set("p", 0.3).set("rng_id", 3)));
  list.push_back({"used_twice", {x}, {}, [](Builder& b, auto& v) {
                    ValueId t = b.emit1("tanh", {v[0]});
                    return std::vector{b.emit1("mul", {b.emit1("silu", {t}), b.emit1("add", {t, v[0]})})};
                  }});

  Arg gamma = positive(d, {5}), beta = tensor(d, {5});
  Attrs layer = Attrs().set("kind", "layer").set("eps", 1e-2), rms = Attrs().set("kind", "rms").set("eps", 1e-2);
  list.push_back(single("norm_layer", "norm", {x, gamma}, layer, {1}));
  list.push_back(single("norm_layer_beta", "norm", {x, gamma, beta}, layer, {1, 2}));
  list.push_back(single("norm_rms", "norm", {x, gamma}, rms, {1}));
  list.push_back(single("norm_plain", "norm", {x}, rms));
  list.push_back(single("softmax", "softmax", {x}));
  list.push_back(single("softmax_scale", "softmax", {x}, Attrs().set("scale", -0.7)));
  list.push_back(
      single("softmax_causal", "softmax", {tensor(d, {2, 2, 5, 5})}, Attrs().set("scale", 0.7).set("causal", 1)));
  list.push_back({"causal_softmax", {tensor(d, {2, 2, 5, 5})}, {}, [](Builder& b, auto& v) {
                    return std::vector{b.emit1("softmax", {b.emit1("causal_mask", {v[0]})})};
                  }});

  for (auto [causal, kv, p] : {std::tuple{1, 4, 0.0}, {0, 4, 0.0}, {1, 2, 0.0}, {1, 1, 0.0}, {1, 2, 0.3}}) {
    Attrs attrs = Attrs().set("heads", 4).set("kv_heads", kv).set("causal", causal).set("scale", 0.6);
    std::vector<Arg> in = {tensor(d, {2, 5, (4 + 2 * kv) * 3})};
    if (p > 0) {
      attrs.set("p", p).set("rng_id", 4);
      in.push_back(scalars_arg());
    }
    std::string n = "attention_kv" + std::to_string(kv) + (causal ? "_causal" : "") + (p > 0 ? "_dropout" : "");
    list.push_back(single(n, "attention", in, attrs));
  }
  Attrs documents = Attrs().set("heads", 2).set("kv_heads", 1).set("causal", 1).set("scale", 0.6);
  list.push_back(
      {"attention_documents", {tensor(d, {2, 7, 4 * 3}), positions({2, 7}, 3)}, {}, [=](Builder& b, auto& v) {
         return std::vector{b.emit("attention", {v[0], no_value, v[1]}, documents)[0]};
       }});
  for (int64_t window : {1, 3})
    list.push_back(single("attention_window" + std::to_string(window), "attention", {tensor(d, {2, 7, 4 * 3})},
                          Attrs(documents).set("window", window)));
  list.push_back(
      {"attention_window_documents", {tensor(d, {2, 9, 4 * 3}), positions({2, 9}, 6)}, {}, [=](Builder& b, auto& v) {
         return std::vector{b.emit("attention", {v[0], no_value, v[1]}, Attrs(documents).set("window", 3))[0]};
       }});
  list.push_back({"window_softmax", {tensor(d, {2, 2, 5, 5})}, {}, [](Builder& b, auto& v) {
                    return std::vector{b.emit1("softmax", {b.emit1("causal_mask", {v[0]}, Attrs().set("window", 2))})};
                  }});
  Attrs heads = Attrs().set("heads", 4).set("kv_heads", 2);
  Arg qkv = tensor(d, {2, 5, 8 * 4});
  list.push_back(single("split_heads", "split_heads", {qkv}, heads, {}, 3));
  list.push_back(single("split_heads_q", "split_heads", {qkv}, Attrs().set("heads", 4).set("kv_heads", 0)));
  list.push_back(
      single("join_heads", "join_heads", {tensor(d, {2, 4, 5, 3}), tensor(d, {2, 2, 5, 3}), tensor(d, {2, 2, 5, 3})}));
  list.push_back(single("join_heads_q", "join_heads", {tensor(d, {2, 4, 5, 3})}));
  list.push_back({"naive_attention", {qkv}, {}, [heads](Builder& b, auto& v) {
                    auto h = b.emit("split_heads", {v[0]}, heads);
                    ValueId s = b.emit1("matmul", {h[0], h[1]}, Attrs().set("transpose_b", true));
                    ValueId p = b.emit1("softmax",
                                        {b.emit1("causal_mask", {b.emit1("scale", {s}, Attrs().set("value", 0.5))})});
                    return std::vector{b.emit1("join_heads", {b.emit1("matmul", {p, h[2]})})};
                  }});
  for (const char* per : {"head", "row"}) {
    const int64_t q = per == std::string("head") ? 4 : 16, k = per == std::string("head") ? 4 : 8;
    Attrs a = Attrs(heads).set("per", per).set("eps", 1e-2);
    list.push_back(
        single(std::string("qk_norm_") + per, "qk_norm", {qkv, positive(d, {q}), positive(d, {k})}, a, {1, 2}));
    list.push_back(single(std::string("qk_norm_plain_") + per, "qk_norm", {qkv}, a));
  }
  Attrs rope = heads;
  rope.set("theta", 100.0);
  list.push_back(single("rope", "rope", {qkv}, rope));
  list.push_back(single("rope_part", "rope", {qkv}, Attrs(rope).set("rotary_dim", 2)));
  list.push_back({"rope_documents", {qkv, positions({2, 5}, 2)}, {}, [=](Builder& b, auto& v) {
                    return std::vector{b.emit1("rope", {v[0], no_value, v[1]}, rope)};
                  }});
  list.push_back(single("rope_position", "rope", {qkv, scalars_arg()}, rope));
  rope.set("factor", 8.0).set("low_freq_factor", 1.0).set("high_freq_factor", 4.0).set("original_context", 64);
  list.push_back(single("rope_llama3", "rope", {qkv}, Attrs(rope).set("inverse", true)));
  Attrs yarn = heads;
  yarn.set("theta", 100.0).set("factor", 8.0).set("first_pair", 0.5).set("last_pair", 3.0);
  list.push_back(single("rope_yarn", "rope", {qkv}, yarn.set("attention_factor", 1.2)));

  list.push_back(single("embedding", "embedding", {ids({2, 4}, 6), tensor(d, {7, 3})}, {}, {1}));
  list.push_back(single("add_position", "add_position", {x, tensor(d, {6, 5})}, {}, {1}));
  Arg places = positions({x.shape[0], x.shape[1]}, 2);
  list.push_back(single("add_position_of_each_token", "add_position", {x, tensor(d, {6, 5}), places}, {}, {1}));
  Attrs loss = Attrs().set("vocab", 7).set("scale", 0.5);
  list.push_back(single("cross_entropy", "cross_entropy", {tensor(d, {6, 9}), targets({6}, 7), scalars_arg()}, loss));
  list.back().root = true;
  list.push_back(single("cross_entropy_capped", "cross_entropy", {tensor(d, {6, 9}, 2), targets({6}, 7), scalars_arg()},
                        Attrs(loss).set("cap", 1.5)));
  list.back().root = true;
  for (const CaseFile* file : CaseFile::all())
    if (file->grad_cases) file->grad_cases(list);
  return list;
}

}  // namespace crest::test
