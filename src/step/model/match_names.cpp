// Finds a model's tensors in a foreign file, and explains what would fit if they do not.
#include <fmt/format.h>

#include <algorithm>
#include <map>
#include <string_view>

#include "core/error.h"
#include "core/text.h"
#include "model/weights_map.h"

namespace crest {

// Prefixes of torch.compile, data parallelism, FSDP and activation checkpointing.
std::string without_wrappers(std::string_view name) {
  static constexpr std::string_view wrappers[] = {"_orig_mod.", "module.", "_fsdp_wrapped_module.",
                                                  "_checkpoint_wrapped_module."};
  std::string out;
  while (!name.empty()) {
    auto wrapper = std::find_if(std::begin(wrappers), std::end(wrappers), [&](auto w) { return name.starts_with(w); });
    const size_t end = wrapper != std::end(wrappers) ? wrapper->size() : std::min(name.find('.'), name.size() - 1) + 1;
    if (wrapper == std::end(wrappers)) out += name.substr(0, end);
    name.remove_prefix(end);
  }
  return out;
}

namespace {

std::string plain_name(std::string_view name) {
  std::string plain = without_wrappers(name);
  for (std::string_view prefix : {"transformer.", "model."})
    if (plain.starts_with(prefix)) return plain.substr(prefix.size());
  return plain;
}

// Buffers that older versions of transformers saved with the parameters. GPT-2's causal mask is an
// "attn.bias" of rank 4.
bool is_buffer(const OfferedTensor& t) {
  return (t.name.ends_with(".attn.bias") && t.shape.size() == 4) || t.name.ends_with(".attn.masked_bias") ||
         t.name.ends_with("rotary_emb.inv_freq");
}

std::string text(const std::vector<int64_t>& shape) { return fmt::format("[{}]", fmt::join(shape, ", ")); }

const char* text(WeightFormat f) {
  return f == WeightFormat::gpt2 ? "GPT-2 (Hugging Face)" : f == WeightFormat::llama ? "Llama (Hugging Face)" : "Crest";
}

// Infers the model in a file from its tensor names and shapes, as far as they determine it.
class OfferedModel {
 public:
  explicit OfferedModel(const std::vector<OfferedTensor>& offered) {
    for (auto& t : offered) {
      const std::string n = plain_name(t.name);
      by_name_[n] = &t;
      for (std::string_view layer : {"h.", "layers."})
        if (n.starts_with(layer))
          layers_ = std::max(layers_, layer_number(std::string_view(n).substr(layer.size())) + 1);
    }
  }

  std::optional<WeightFormat> format() const {
    if (by_name_.count("h.0.attn.c_attn.weight")) return WeightFormat::gpt2;
    if (by_name_.count("layers.0.self_attn.q_proj.weight")) return WeightFormat::llama;
    if (by_name_.count("h.0.attn.qkv.weight")) return WeightFormat::crest;
    return std::nullopt;
  }

  // "vocab = 50304 (the model has 50257)" for each key that the file contradicts.
  std::vector<std::string> contradictions(const ModelConfig& c) const {
    std::vector<std::string> out;
    auto key = [&](const char* name, int64_t file, int64_t model) {
      if (file > 0 && file != model) out.push_back(fmt::format("{} = {} (the model has {})", name, file, model));
    };
    bool llama = format() == WeightFormat::llama, gpt2 = format() == WeightFormat::gpt2;
    const char* embedding = llama ? "embed_tokens.weight" : "wte.weight";
    std::string layer = llama ? "layers.0." : "h.0.";
    key("vocab", dim(embedding, 0), c.vocab);
    key("width", dim(embedding, 1), c.width);
    key("layers", layers_, c.layers);
    if (c.position == PositionKind::learned) {
      int64_t rows = dim("wpe.weight", 0);
      if (rows > 0 && rows < c.context)
        out.push_back(fmt::format("context at most {} (the model has {})", rows, c.context));
    }
    if (gpt2) {
      key("ff", dim(layer + "mlp.c_fc.weight", 1), c.ff);
    } else if (llama) {
      key("ff", dim(layer + "mlp.gate_proj.weight", 0), c.ff);
      key("heads * head_dim", dim(layer + "self_attn.q_proj.weight", 0), c.heads * c.head_dim);
      key("kv_heads * head_dim", dim(layer + "self_attn.k_proj.weight", 0), c.kv_heads * c.head_dim);
    } else {
      const char* fc = c.activation == ActivationKind::swiglu ? "mlp.gate.weight" : "mlp.fc.weight";
      key("ff", dim(layer + fc, 0), c.ff);
      key("heads * head_dim", dim(layer + "attn.proj.weight", 1), c.heads * c.head_dim);
    }
    if (!c.tied && !by_name_.count("lm_head.weight")) out.push_back("tied = true (there is no lm_head.weight)");
    return out;
  }

 private:
  static int64_t layer_number(std::string_view s) {
    int64_t n = 0;
    size_t i = 0;
    for (; i < s.size() && i < 7 && s[i] >= '0' && s[i] <= '9'; ++i) n = n * 10 + (s[i] - '0');
    return i > 0 && i < s.size() && s[i] == '.' ? n : -1;
  }
  int64_t dim(const std::string& name, size_t d) const {
    auto it = by_name_.find(name);
    return it == by_name_.end() || it->second->shape.size() <= d ? 0 : it->second->shape[d];
  }
  std::map<std::string, const OfferedTensor*> by_name_;
  int64_t layers_ = 0;
};

// The first few items of a list, and how many more there are.
std::string first_of(const std::vector<std::string>& items) {
  constexpr size_t shown = 3;
  std::vector<std::string> head(items.begin(), items.begin() + long(std::min(shown, items.size())));
  return join(head, ", ") + (items.size() > shown ? fmt::format(" and {} more", items.size() - shown) : "");
}

}  // namespace

NameMatch match_names(const ModelConfig& config, const std::vector<CanonicalTensor>& canonical,
                      const std::vector<OfferedTensor>& offered, const std::string& where) {
  NameMatch match;
  std::map<std::string, size_t> by_name;
  std::vector<std::string> missing, unexpected, shapes;
  bool all_turned = true;
  for (size_t i = 0; i < offered.size(); ++i) {
    if (is_buffer(offered[i]))
      match.ignored.push_back(offered[i].name);
    else if (auto [it, fresh] = by_name.emplace(plain_name(offered[i].name), i); !fresh)
      fail(fmt::format("has both '{}' and '{}'", printable(offered[it->second].name), printable(offered[i].name)),
           where, "Both name the same parameter; remove one.");
  }
  auto take = [&](const std::string& name) {
    auto it = by_name.find(name);
    if (it == by_name.end()) return offered.size();
    size_t i = it->second;
    by_name.erase(it);
    return i;
  };
  for (auto& t : canonical) {
    size_t i = take(plain_name(t.name));
    if (i == offered.size() && config.tied && t.parameter == "wte.weight") i = take("lm_head.weight");
    match.source.push_back(i);
    if (i == offered.size()) {
      missing.push_back(t.name);
      continue;
    }
    auto& shape = offered[i].shape;
    bool longer = t.parameter == "wpe.weight" && shape.size() == 2 && shape[1] == t.shape[1] && shape[0] > t.shape[0];
    if (shape == t.shape || longer) continue;
    bool turned = shape.size() == 2 && shape[0] == t.shape[1] && shape[1] == t.shape[0];
    all_turned = all_turned && turned;
    shapes.push_back(fmt::format("{} is {}, not {}{}", printable(offered[i].name), text(shape), text(t.shape),
                                 turned ? " (transposed)" : ""));
  }
  if (config.tied) {
    size_t i = take("lm_head.weight");
    if (i != offered.size()) {
      std::vector<int64_t> head = {config.vocab, config.width};
      if (offered[i].shape == head)
        match.redundant_head = i;
      else
        shapes.push_back(fmt::format("lm_head.weight is {}, not {}", text(offered[i].shape), text(head)));
    }
  }
  for (auto& [name, i] : by_name) unexpected.push_back(printable(offered[i].name));
  if (missing.empty() && unexpected.empty() && shapes.empty()) return match;

  std::vector<std::string> problems;
  if (!missing.empty()) problems.push_back("missing: " + first_of(missing));
  if (!unexpected.empty()) problems.push_back("unexpected: " + first_of(unexpected));
  if (!shapes.empty()) problems.push_back("different shapes: " + first_of(shapes));
  OfferedModel model(offered);
  std::string advice = "Choose the model of these weights (--model FOLDER reads its config.json).";
  auto format = model.format();
  if (format && *format != weight_format(config)) {
    advice = fmt::format("The file has weights in the format {}; the model needs {}. ", text(*format),
                         text(weight_format(config))) +
             advice;
  } else if (missing.empty() && unexpected.empty() && all_turned) {
    advice =
        "The program that wrote them stores the matrices of these layers the other way round, as nanoGPT does. "
        "For a checkpoint of nanoGPT: crest import FILE --out DIR.";
  } else if (auto keys = model.contradictions(config); !keys.empty()) {
    advice = "The shapes in the file imply " + join(keys, ", ") + ". " + advice;
  }
  fail("the weights do not fit model '" + printable(config.name) + "': " + join(problems, "; "), where, advice);
}

}  // namespace crest
