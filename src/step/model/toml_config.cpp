// Model configurations as TOML text.
#include <fmt/format.h>

#include <algorithm>
#include <map>
#include <variant>

#include "core/error.h"
#include "core/text.h"
#include "core/toml.h"
#include "core/toml_string.h"
#include "model/config_files.h"

namespace crest {

namespace {

// One table for reading and writing: each key and its member.
template <class T>
struct Key {
  const char* name;
  std::variant<int64_t T::*, double T::*, bool T::*, std::string T::*, NormKind T::*, PositionKind T::*,
               ActivationKind T::*, NormPosition T::*, QkNorm T::*, RopeScalingType T::*>
      field;
  bool optional = false;  // written only if not the default
};
using M = ModelConfig;
const std::vector<Key<M>> model_keys = {{"name", &M::name},
                                        {"family", &M::family, true},
                                        {"vocab", &M::vocab},
                                        {"context", &M::context},
                                        {"layers", &M::layers},
                                        {"heads", &M::heads},
                                        {"kv_heads", &M::kv_heads},
                                        {"width", &M::width},
                                        {"head_dim", &M::head_dim},
                                        {"ff", &M::ff},
                                        {"position", &M::position},
                                        {"tied", &M::tied},
                                        {"dropout", &M::dropout},
                                        {"embedding_scale", &M::embedding_scale, true},
                                        {"embedding_norm", &M::embedding_norm, true},
                                        {"logit_scale", &M::logit_scale, true},
                                        {"logit_cap", &M::logit_cap, true},
                                        {"zero_projections", &M::zero_projections, true},
                                        {"pattern", &M::pattern, true}};
using L = LayerConfig;
const std::vector<Key<L>> layer_keys = {{"norm", &L::norm},
                                        {"norm_position", &L::norm_position, true},
                                        {"norm_eps", &L::norm_eps},
                                        {"qk_norm", &L::qk_norm, true},
                                        {"norm_weight", &L::norm_weight, true},
                                        {"activation", &L::activation},
                                        {"bias", &L::bias},
                                        {"qkv_bias", &L::qkv_bias},
                                        {"attention_bias", &L::attention_bias},
                                        {"mlp_bias", &L::mlp_bias},
                                        {"norm_bias", &L::norm_bias, true},
                                        {"parallel_residual", &L::parallel_residual, true},
                                        {"rope", &L::rope, true},
                                        {"rotary_dim", &L::rotary_dim, true},
                                        {"rope_theta", &L::rope_theta},
                                        {"window", &L::window},
                                        {"attention_scale", &L::attention_scale, true},
                                        {"residual_scale", &L::residual_scale, true}};
const std::vector<Key<RopeScaling>> rope_keys = {{"type", &RopeScaling::type},
                                                 {"factor", &RopeScaling::factor},
                                                 {"low_freq_factor", &RopeScaling::low_freq_factor},
                                                 {"high_freq_factor", &RopeScaling::high_freq_factor},
                                                 {"original_context", &RopeScaling::original_context},
                                                 {"beta_fast", &RopeScaling::beta_fast},
                                                 {"beta_slow", &RopeScaling::beta_slow},
                                                 {"attention_factor", &RopeScaling::attention_factor},
                                                 {"truncate", &RopeScaling::truncate}};

const std::vector<Key<LoraConfig>> lora_keys = {{"rank", &LoraConfig::rank},
                                                {"qkv_rank", &LoraConfig::qkv_rank, true},
                                                {"alpha", &LoraConfig::alpha, true},
                                                {"targets", &LoraConfig::targets},
                                                {"rank_stabilized", &LoraConfig::rank_stabilized, true},
                                                {"dropout", &LoraConfig::dropout, true}};

class TomlReader {
 public:
  explicit TomlReader(const std::string& path) : path_(path) {}

  std::string place(const toml::source_region& s) const {
    return fmt::format("{} (line {}, column {})", path_, s.begin.line, s.begin.column);
  }

  // Sets the field of a key. false: unknown key.
  template <class T>
  bool assign(const std::string& key, const toml::node& value, const std::vector<Key<T>>& keys, T& out) const {
    auto it = std::find_if(keys.begin(), keys.end(), [&](auto& x) { return key == x.name; });
    if (it == keys.end()) return false;
    std::visit([&](auto member) { set(key, value, out.*member); }, it->field);
    return true;
  }
  [[noreturn]] void unknown(const toml::key& key, const std::vector<std::string>& known) const {
    std::string hint = did_you_mean(std::string(key.str()), known);
    fail_usage(fmt::format("unknown key '{}'", printable(key.str())), place(key.source()),
               (hint.empty() ? "" : hint + " ") + "Keys: " + join(known, ", ") + ".");
  }

  void read_scaling(const toml::node& scaling, RopeScaling& out) const {
    if (!scaling.is_table())
      fail_usage("rope_scaling must be a table", place(scaling.source()), "Write [rope_scaling] and its keys.");
    for (auto&& [key, value] : *scaling.as_table())
      if (!assign(std::string(key.str()), value, rope_keys, out)) unknown(key, names(rope_keys));
  }
  void read_layer(const toml::table& table, LayerConfig& out) const {
    for (auto&& [k, value] : table) {
      std::string key(k.str());
      if (key == "rope_scaling")
        read_scaling(value, out.rope_scaling);
      else if (!assign(key, value, layer_keys, out))
        unknown(k, with(names(layer_keys), {"rope_scaling"}));
    }
  }
  void read_model(const toml::table& table, ModelConfig& out) const {
    static const std::vector<std::string> others = {"preset", "rope_scaling", "full_layers", "layer", "lora"};
    for (auto&& [k, value] : table) {
      std::string key(k.str());
      if (std::find(others.begin(), others.end(), key) != others.end()) continue;
      if (!assign(key, value, model_keys, out) && !assign<LayerConfig>(key, value, layer_keys, out))
        unknown(k, with(with(names(model_keys), names(layer_keys)), others));
    }
    if (const toml::node* scaling = table.get("rope_scaling")) read_scaling(*scaling, out.rope_scaling);
    if (const toml::node* lora = table.get("lora")) {
      if (!lora->is_table()) fail_usage("lora must be a table", place(lora->source()), "Write [lora] and its keys.");
      for (auto&& [key, value] : *lora->as_table())
        if (!assign(std::string(key.str()), value, lora_keys, out.lora)) unknown(key, names(lora_keys));
    }
  }

  // [layer.X]: layers with the letter X in `pattern` differ in these keys.
  void read_layers(const toml::table& table, ModelConfig& c) const {
    std::map<char, LayerConfig> kinds;
    const toml::node* described = table.get("layer");
    if (described && !described->is_table())
      fail_usage("layer must be a table", place(described->source()), "Write [layer.B] and its keys.");
    if (described)
      for (auto&& [k, value] : *described->as_table()) {
        const std::string letter(k.str());
        if (letter.size() != 1 || !value.is_table() || c.pattern.find(letter) == std::string::npos)
          fail_usage(fmt::format("no layer is '{}'", printable(letter)), place(value.source()),
                     "A table [layer.X] describes the layers with the letter X in pattern.");
        LayerConfig& kind = kinds.emplace(letter[0], c).first->second;
        read_layer(*value.as_table(), kind);
      }
    if (const toml::node* full = table.get("full_layers")) {  // older files
      int64_t n = 0;
      set("full_layers", *full, n);
      if (n < 0 || n > c.layers || (n > 0 && !c.pattern.empty()))
        fail_usage(fmt::format("full_layers = {} is out of range", n), place(full->source()),
                   c.pattern.empty() ? fmt::format("full_layers must be from 0 to {}.", c.layers)
                                     : "With a pattern, give its layers their window.");
      if (c.pattern.empty() && c.layers > 0 && c.layers <= 1024) see_all_in_first(c, n);
      return;
    }
    if (c.pattern.empty() || !table.contains("pattern") || c.layers > 1024) return;
    if (int64_t(c.pattern.size()) > c.layers)
      fail_usage(fmt::format("pattern has {} letters for {} layers", c.pattern.size(), c.layers),
                 place(table.get("pattern")->source()), "It repeats until the layers end.");
    std::string plain;
    std::vector<LayerConfig> all;
    for (int64_t i = 0; i < c.layers; ++i) {
      const char letter = c.pattern[size_t(i) % c.pattern.size()];
      auto kind = kinds.find(letter);
      if (kind == kinds.end() && plain.find(letter) == std::string::npos) plain += letter;
      all.push_back(kind == kinds.end() ? static_cast<const LayerConfig&>(c) : kind->second);
    }
    if (plain.size() > 1)
      fail_usage(fmt::format("pattern has '{}' and '{}', and neither has a table", plain[0], plain[1]),
                 place(table.get("pattern")->source()), fmt::format("Describe one of them: [layer.{}].", plain[1]));
    c.set_layers(all);
  }

  void set(const std::string& key, const toml::node& node, int64_t& out) const {
    if (!node.is_integer()) wrong(key, node, "a whole number");
    out = node.as_integer()->get();
  }
  void set(const std::string& key, const toml::node& node, double& out) const {
    if (!node.is_number()) wrong(key, node, "a number");
    out = node.is_integer() ? double(node.as_integer()->get()) : node.as_floating_point()->get();
  }
  void set(const std::string& key, const toml::node& node, bool& out) const {
    if (!node.is_boolean()) wrong(key, node, "true or false");
    out = node.as_boolean()->get();
  }
  void set(const std::string& key, const toml::node& node, std::string& out) const {
    if (!node.is_string()) wrong(key, node, "a string");
    if (node.as_string()->get().size() > 200) wrong(key, node, "a string of at most 200 bytes");
    out = node.as_string()->get();
  }
  template <class E>
  requires std::is_enum_v<E>
  void set(const std::string& key, const toml::node& node, E& out) const {
    std::string word;
    set(key, node, word);
    auto& w = names_of<E>();
    auto it = std::find(w.begin(), w.end(), word);
    if (it == w.end())
      fail_usage(fmt::format("unknown value {} = \"{}\"", key, printable(word)), place(node.source()),
                 did_you_mean(word, w) + " Values: " + join(w, ", ") + ".");
    out = E(it - w.begin());
  }

 private:
  [[noreturn]] void wrong(const std::string& key, const toml::node& node, const char* expected) const {
    fail_usage(fmt::format("{} must be {}", key, expected), place(node.source()), "See docs/reference/models.md.");
  }
  template <class T>
  static std::vector<std::string> names(const std::vector<Key<T>>& keys) {
    std::vector<std::string> out;
    for (auto& k : keys) out.push_back(k.name);
    return out;
  }
  static std::vector<std::string> with(std::vector<std::string> a, const std::vector<std::string>& b) {
    a.insert(a.end(), b.begin(), b.end());
    return a;
  }
  const std::string& path_;
};

std::string toml_number(double x) {
  std::string s = fmt::format("{}", x);
  return s.find_first_of(".ein") == std::string::npos ? s + ".0" : s;
}

// base: writes only keys with another value. null: writes all keys except optional ones with
// defaults.
template <class T>
std::string write_keys(const std::vector<Key<T>>& keys, const T& from, const T* base = nullptr) {
  std::string out;
  static const T defaults;
  for (auto& k : keys) {
    auto equal = [&](const T& other) {
      return std::visit([&](auto member) { return from.*member == other.*member; }, k.field);
    };
    if (base ? equal(*base) : k.optional && equal(defaults)) continue;
    std::string value = std::visit(
        [&](auto member) -> std::string {
          auto& x = from.*member;
          using V = std::decay_t<decltype(x)>;
          if constexpr (std::is_same_v<V, std::string>)
            return toml_string(x);
          else if constexpr (std::is_same_v<V, double>)
            return toml_number(x);
          else if constexpr (std::is_enum_v<V>)
            return '"' + names_of<V>()[size_t(x)] + '"';
          else
            return fmt::format("{}", x);
        },
        k.field);
    out += fmt::format("{} = {}\n", k.name, value);
  }
  return out;
}

}  // namespace

ModelConfig parse_model_toml(std::string_view text, const std::string& where) {
  toml::table table = parse_toml(text, where, {max_model_file_bytes, 8});
  TomlReader reader(where);
  ModelConfig base;
  if (const toml::node* preset = table.get("preset")) {
    std::string name;
    reader.set("preset", *preset, name);
    const ModelConfig* found = find_preset(name);
    if (!found) {
      auto& names = preset_names();
      std::string hint = did_you_mean(name, names);
      fail_usage(fmt::format("unknown preset '{}'", printable(name)), reader.place(preset->source()),
                 (hint.empty() ? "" : hint + " ") + "Presets: " + join(names, ", ") + ".");
    }
    base = *found;
  }
  ModelConfig c = base;
  reader.read_model(table, c);
  bool heads = table.contains("heads"), width = table.contains("width");
  if (heads && !table.contains("kv_heads") && base.kv_heads == base.heads) c.kv_heads = c.heads;
  if (width && !table.contains("ff") && base.ff == 4 * base.width && c.width < (int64_t(1) << 40)) c.ff = 4 * c.width;
  if ((heads || width) && !table.contains("head_dim") && c.heads > 0) {
    if (c.width % c.heads)
      fail_usage(fmt::format("heads = {} does not divide width = {}", c.heads, c.width), where,
                 "Choose a number of heads that divides the width, or give head_dim.");
    c.head_dim = c.width / c.heads;
  }
  reader.read_layers(table, c);
  validate(c, where);
  return c;
}

std::string to_toml(const ModelConfig& config) {
  std::string out = write_keys(model_keys, config) + write_keys<LayerConfig>(layer_keys, config);
  if (config.rope_scaling != RopeScaling()) out += "\n[rope_scaling]\n" + write_keys(rope_keys, config.rope_scaling);
  if (config.lora != LoraConfig()) out += "\n[lora]\n" + write_keys(lora_keys, config.lora);
  for (size_t i = 0; i < config.others.size(); ++i) {
    const LayerConfig &other = config.others[i], &base = config;
    const char letter = char('B' + i);
    out += fmt::format("\n[layer.{}]\n", letter) + write_keys(layer_keys, other, &base);
    if (other.rope_scaling != base.rope_scaling)
      out += fmt::format("\n[layer.{}.rope_scaling]\n", letter) + write_keys(rope_keys, other.rope_scaling);
  }
  return out;
}

}  // namespace crest
