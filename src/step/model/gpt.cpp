#include "model/gpt.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <numbers>
#include <unordered_map>

#include "core/scalars.h"
#include "model/gpt_layers.h"
#include "model/parameters.h"
#include "model/weights_map.h"
#include "program/builder.h"

namespace crest {

std::string_view name(ProgramKind k) {
  static constexpr std::string_view n[] = {"train", "update", "validation", "prefill", "decode", "start"};
  return n[size_t(k)];
}

namespace {

// Dropout of adapters has its own numbers: dropout of the model stays as it is without them.
constexpr int adapter_rng_ids = 1 << 20;
// Of attention, and of what attention and MLP add to the residual stream.
constexpr int rng_ids_of_block = 3;

class GptBuilder {
 public:
  GptBuilder(const ModelConfig& config, const ForwardShape& shape, LayerRange range)
      : c_(config), s_(shape), range_(range), b_(program_) {
    program_.name = name(shape.kind);
  }

  Program run() {
    scalars_ = b_.declare("scalars", DType::u8, {int64_t(sizeof(Scalars))}, Role::state, Lifetime::persistent);
    declare_parameters();
    if (s_.kind == ProgramKind::update || s_.kind == ProgramKind::start) return std::move(program_);
    inference_ = s_.kind == ProgramKind::prefill || s_.kind == ProgramKind::decode;
    tokens_ = b_.declare("tokens", DType::i32, {s_.batch, s_.seq}, Role::input, Lifetime::micro_step);
    program_.inputs = {tokens_};
    ValueId x = embed();
    rng_id_ += int(range_.first) * rng_ids_of_block;
    for (int64_t l = range_.first; l < range_.end; ++l) x = block(l, x);
    head(x);
    return std::move(program_);
  }

 private:
  // GPT-2's initialization: normal(0, 0.02), times 1/sqrt(2 layers) for projections into the
  // residual stream.
  void declare_parameters() {
    double std = 0.02, residual_std = c_.zero_projections ? 0 : 0.02 / std::sqrt(2.0 * double(c_.layers));
    matrix("wte.weight", c_.vocab, c_.width, std);
    if (c_.position == PositionKind::learned) matrix("wpe.weight", c_.context, c_.width, std);
    if (c_.embedding_norm) norm_parameters("ln_emb", c_);
    for (int64_t l = range_.first; l < range_.end; ++l) {
      std::string h = fmt::format("h.{}.", l);
      const LayerConfig& layer = c_.layer(l);
      const bool before = layer.norm_position != NormPosition::after,
                 after = layer.norm_position != NormPosition::before;
      if (before) norm_parameters(h + "ln_1", layer);
      linear_parameters(h + "attn.qkv", c_.qkv_width(), c_.width, std, layer.has_qkv_bias());
      if (layer.qk_norm != QkNorm::none && layer.norm_weight) {
        const bool head = layer.qk_norm == QkNorm::head;
        parameter(h + "attn.q_norm.weight", {(head ? 1 : c_.heads) * c_.head_dim}, 1, 0, false);
        parameter(h + "attn.k_norm.weight", {(head ? 1 : c_.kv_heads) * c_.head_dim}, 1, 0, false);
      }
      linear_parameters(h + "attn.proj", c_.width, c_.heads * c_.head_dim, residual_std, layer.has_proj_bias());
      if (after) norm_parameters(h + "ln_1_post", layer);
      if (before) norm_parameters(h + "ln_2", layer);
      for (const char* in : gated(layer.activation) ? std::vector{"mlp.gate", "mlp.up"} : std::vector{"mlp.fc"})
        linear_parameters(h + in, c_.ff, c_.width, std, layer.has_mlp_bias());
      linear_parameters(h + "mlp.proj", c_.width, c_.ff, residual_std, layer.has_mlp_bias());
      if (after) norm_parameters(h + "ln_2_post", layer);
    }
    norm_parameters("ln_f", c_);
    if (!c_.tied) {
      matrix("lm_head.weight", c_.vocab, c_.width, std);
      adapter("lm_head", "lm_head", c_.vocab, c_.width);
    }
  }

  void parameter(const std::string& name, const Shape& shape, double mean, double std, bool decay) {
    ValueId v = b_.declare(name, DType::f32, shape, Role::weight, Lifetime::persistent);
    program_.params.push_back({name, shape, v, mean, std});
    program_.params.back().decay = decay;
    program_.params.back().frozen = c_.lora.rank > 0;
    by_name_[name] = v;
  }
  void matrix(const std::string& name, int64_t rows, int64_t columns, double std) {
    parameter(name, {rows, columns}, 0, std, true);
  }
  void linear_parameters(const std::string& scope, int64_t out, int64_t in, double std, bool bias) {
    matrix(scope + ".weight", out, in, std);
    if (bias) parameter(scope + ".bias", {out}, 0, 0, false);
    adapter(scope, role_in_layer(scope), out, in);
  }
  // Of a linear layer with this name in its block. B is zero, so a new adapter changes nothing; A
  // is initialized as in peft, uniform in +-1/sqrt(in).
  void adapter(const std::string& scope, std::string_view layer, int64_t out, int64_t in) {
    if (!c_.lora.has(layer)) return;
    const int64_t rank = c_.lora.rank_of(layer);
    matrix(scope + lora_a, rank, in, 1 / std::sqrt(3.0 * double(in)));
    program_.params.back().uniform = true, program_.params.back().frozen = false;
    matrix(scope + lora_b, out, rank, 0);
    program_.params.back().frozen = false;
  }
  void norm_parameters(const std::string& scope, const LayerConfig& layer) {
    if (layer.norm_weight) parameter(scope + ".weight", {c_.width}, 1, 0, false);
    if (layer.has_norm_bias()) parameter(scope + ".bias", {c_.width}, 0, 0, false);
  }

  ValueId param(const std::string& name) const {
    auto it = by_name_.find(name);
    return it == by_name_.end() ? no_value : it->second;
  }

  ValueId linear(const std::string& scope, ValueId x) {
    b_.origin = Origin(scope);
    return adapted(scope, x, b_.emit1("linear", {x, param(scope + ".weight"), param(scope + ".bias")}));
  }
  // Adds the adapter's output to the layer's output y, if it has one.
  ValueId adapted(const std::string& scope, ValueId x, ValueId y) {
    const ValueId a = param(scope + lora_a), b = param(scope + lora_b);
    if (a == no_value) return y;
    b_.origin = Origin(scope + ".lora");
    ++adapter_rng_id_;
    if (c_.lora.dropout > 0 && s_.kind == ProgramKind::train)
      x = b_.emit1("dropout", {x, scalars_}, Attrs().set("p", c_.lora.dropout).set("rng_id", adapter_rng_id_));
    const ValueId low = scaled(b_.emit1("linear", {x, a, no_value}), c_.lora.factor());
    y = b_.emit1("add", {y, b_.emit1("linear", {low, b, no_value})});
    b_.origin = Origin(scope);
    return y;
  }
  ValueId norm(const std::string& scope, const LayerConfig& layer, ValueId x) {
    b_.origin = Origin(scope);
    Attrs a;
    a.set("kind", layer.norm == NormKind::layer ? "layer" : "rms").set("eps", layer.norm_eps);
    return b_.emit1("norm", {x, param(scope + ".weight"), param(scope + ".bias")}, a);
  }
  // Dropout, in training only, with the model's next rng_id.
  ValueId dropout(const std::string& scope, ValueId x) {
    ++rng_id_;
    if (c_.dropout == 0 || s_.kind != ProgramKind::train) return x;
    b_.origin = Origin(scope);
    return b_.emit1("dropout", {x, scalars_}, Attrs().set("p", c_.dropout).set("rng_id", rng_id_));
  }
  ValueId residual(const std::string& scope, ValueId x, ValueId y) {
    b_.origin = Origin(scope);
    return b_.emit1("add", {x, y});
  }

  ValueId scaled(ValueId x, double factor) {
    return factor == 1 ? x : b_.emit1("scale", {x}, Attrs().set("value", factor));
  }

  ValueId embed() {
    b_.origin = Origin("wte");
    ValueId x = scaled(b_.emit1("embedding", {tokens_, param("wte.weight")}), c_.embedding_scale);
    if (c_.position == PositionKind::learned) {
      b_.origin = Origin("wpe");
      x = b_.emit1("add_position", {x, param("wpe.weight"), inference_ ? scalars_ : no_value});
    }
    return dropout("drop", c_.embedding_norm ? norm("ln_emb", c_, x) : x);
  }

  // Frequencies of transformers' rope_type. Linear and YaRN slow pairs from first_pair on, by the
  // whole factor from last_pair on.
  void set_rope(Attrs& a, const LayerConfig& layer) const {
    const RopeScaling& s = layer.rope_scaling;
    const int64_t rotated = layer.rotary_dim ? layer.rotary_dim : c_.head_dim;
    double dim = double(rotated), original = double(s.original_context);
    a.set("theta", layer.rope_theta).set("inverse", 0);
    if (rotated != c_.head_dim) a.set("rotary_dim", rotated);
    if (s.type == RopeScalingType::yarn) {
      double factor = s.attention_factor;
      if (factor == 0) factor = 0.1 * std::log(s.factor) + 1;
      if (factor != 1) a.set("attention_factor", factor);
    }
    if (s.factor == 1) return;
    switch (s.type) {
      case RopeScalingType::llama3:
        a.set("factor", s.factor)
            .set("low_freq_factor", s.low_freq_factor)
            .set("high_freq_factor", s.high_freq_factor)
            .set("original_context", s.original_context);
        break;
      case RopeScalingType::linear: a.set("factor", s.factor).set("first_pair", -1.0).set("last_pair", 0.0); break;
      case RopeScalingType::dynamic: {
        // Cached keys keep their rotation, so the base is the one of a full cache.
        double length = double(inference_ ? s_.cache_length : s_.seq);
        if (length > original)
          a.set("theta", layer.rope_theta * std::pow(s.factor * length / original - (s.factor - 1), dim / (dim - 2)));
        break;
      }
      case RopeScalingType::yarn: {
        // The pair with this number of turns in the original context.
        auto pair = [&](double turns) {
          return dim * std::log(original / (turns * 2 * std::numbers::pi)) / (2 * std::log(layer.rope_theta));
        };
        double first = pair(s.beta_fast), last = pair(s.beta_slow);
        if (s.truncate) first = std::floor(first), last = std::ceil(last);
        first = std::max(first, 0.0), last = std::min(last, dim - 1);
        if (first == last) last += 0.001;
        a.set("factor", s.factor).set("first_pair", first).set("last_pair", last);
        break;
      }
    }
  }

  ValueId attention(int64_t layer, const std::string& scope, ValueId qkv) {
    Attrs heads;
    heads.set("heads", c_.heads).set("kv_heads", c_.kv_heads);
    const LayerConfig& l = c_.layer(layer);
    double scale = l.attention_scale != 0 ? l.attention_scale : 1 / std::sqrt(double(c_.head_dim));
    if (l.qk_norm != QkNorm::none) {
      b_.origin = Origin(scope + ".qk_norm");
      Attrs a = heads;
      a.set("per", names_of<QkNorm>()[size_t(l.qk_norm)]).set("eps", l.norm_eps);
      qkv = b_.emit1("qk_norm", {qkv, param(scope + ".q_norm.weight"), param(scope + ".k_norm.weight")}, a);
    }
    if (c_.position == PositionKind::rope && l.rope) {
      b_.origin = Origin(scope + ".rope");
      Attrs a = heads;
      set_rope(a, l);
      qkv = b_.emit1("rope", {qkv, inference_ ? scalars_ : no_value}, a);
    }
    b_.origin = Origin(scope);
    ++rng_id_;
    Attrs a = heads;
    a.set("scale", scale);
    if (int64_t window = c_.window_of(layer, inference_ ? s_.cache_length : s_.seq)) a.set("window", window);
    if (inference_) {
      ValueId cache =
          b_.declare(fmt::format("cache.{}", layer), DType::f32,
                     {s_.batch, 2, c_.kv_heads, s_.cache_length, c_.head_dim}, Role::cache, Lifetime::persistent);
      cache = b_.emit1("cache_append", {qkv, cache, scalars_}, heads);
      return b_.emit1("cached_attention", {qkv, cache, scalars_}, a);
    }
    a.set("causal", 1);
    bool drops = c_.dropout > 0 && s_.kind == ProgramKind::train;
    if (drops) a.set("p", c_.dropout).set("rng_id", rng_id_);
    return b_.emit1("attention", {qkv, drops ? scalars_ : no_value}, a);
  }

  ValueId mlp(const LayerConfig& layer, const std::string& scope, ValueId x) {
    if (!gated(layer.activation)) {
      ValueId f = linear(scope + ".fc", x);
      b_.origin = Origin(scope + ".act");
      const bool squared = layer.activation == ActivationKind::relu2;
      f = b_.emit1(squared ? "relu" : name(layer.activation), {f});
      if (squared) f = b_.emit1("mul", {f, f});
      return linear(scope + ".proj", f);
    }
    ValueId gate = linear(scope + ".gate", x), up = linear(scope + ".up", x);
    b_.origin = Origin(scope + ".act");
    gate = b_.emit1(layer.activation == ActivationKind::swiglu ? "silu" : "gelu", {gate});
    return linear(scope + ".proj", b_.emit1("mul", {gate, up}));
  }

  ValueId block(int64_t index, ValueId x) {
    const std::string h = fmt::format("h.{}.", index);
    const LayerConfig& layer = c_.layer(index);
    auto normalized = [&](const std::string& ln, ValueId v) {
      return layer.norm_position == NormPosition::after ? v : norm(h + ln, layer, v);
    };
    // Adds attention or MLP to the residual stream.
    auto branch = [&](const std::string& ln, const std::string& scope, ValueId y) {
      if (layer.norm_position != NormPosition::before) y = norm(h + ln, layer, y);
      b_.origin = Origin(scope + ".residual");
      return dropout(scope + ".drop", scaled(y, layer.residual_scale));
    };
    ValueId y = attention(index, h + "attn", linear(h + "attn.qkv", normalized("ln_1", x)));
    y = branch("ln_1_post", h + "attn", linear(h + "attn.proj", y));
    ValueId sum = residual(h + "attn.residual", x, y);
    y = mlp(layer, h + "mlp", normalized("ln_2", layer.parallel_residual ? x : sum));
    return residual(h + "mlp.residual", sum, branch("ln_2_post", h + "mlp", y));
  }

  void head(ValueId x) {
    if (inference_ && !s_.all_logits) {
      b_.origin = Origin("ln_f");
      x = b_.emit1("take_row", {x, scalars_});
    }
    x = norm("ln_f", c_, x);
    b_.origin = Origin("lm_head");
    x = scaled(x, c_.logit_scale);
    ValueId logits = b_.emit1("linear", {x, param(c_.tied ? "wte.weight" : "lm_head.weight"), no_value});
    logits = adapted("lm_head", x, logits);
    if (inference_) {
      if (c_.logit_cap > 0) logits = scaled(b_.emit1("tanh", {scaled(logits, 1 / c_.logit_cap)}), c_.logit_cap);
      program_.at(logits).name = "logits";
      program_.at(logits).role = Role::output;
      program_.outputs = {logits};
      return;
    }
    ValueId targets = b_.declare("targets", DType::i32, {s_.batch, s_.seq}, Role::input, Lifetime::micro_step);
    program_.inputs.push_back(targets);
    double scale = 1.0 / double(s_.batch * s_.seq);
    b_.origin = Origin("loss");
    Attrs attrs = Attrs().set("vocab", c_.vocab).set("scale", scale);
    if (c_.logit_cap > 0) attrs.set("cap", c_.logit_cap);
    ValueId rows = b_.emit1("cross_entropy", {logits, targets, scalars_}, attrs);
    ValueId loss = b_.emit1("sum_loss", {rows, no_value}, Attrs().set("scale", scale));
    program_.at(loss).name = "loss";
    program_.at(loss).role = Role::output;
    program_.outputs = {loss};
  }

  const ModelConfig& c_;
  const ForwardShape& s_;
  const LayerRange range_;
  Program program_;
  Builder b_;
  std::unordered_map<std::string, ValueId> by_name_;
  ValueId scalars_ = no_value, tokens_ = no_value;
  bool inference_ = false;
  int rng_id_ = 0, adapter_rng_id_ = adapter_rng_ids;
};

}  // namespace

Program build_layers(const ModelConfig& config, const ForwardShape& shape, LayerRange range) {
  return GptBuilder(config, shape, range).run();
}

Program build_model(const ModelConfig& config, const ForwardShape& shape) {
  return build_layers(config, shape, {0, config.layers});
}

}  // namespace crest
