// Model configurations as TOML text.
#include <fmt/format.h>

#include <algorithm>
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
               ActivationKind T::*, RopeScalingType T::*>
      field;
};
using M = ModelConfig;
const std::vector<Key<M>> model_keys = {{"name", &M::name},
                                        {"vocab", &M::vocab},
                                        {"context", &M::context},
                                        {"layers", &M::layers},
                                        {"heads", &M::heads},
                                        {"kv_heads", &M::kv_heads},
                                        {"width", &M::width},
                                        {"head_dim", &M::head_dim},
                                        {"ff", &M::ff},
                                        {"norm", &M::norm},
                                        {"position", &M::position},
                                        {"activation", &M::activation},
                                        {"bias", &M::bias},
                                        {"qkv_bias", &M::qkv_bias},
                                        {"attention_bias", &M::attention_bias},
                                        {"mlp_bias", &M::mlp_bias},
                                        {"tied", &M::tied},
                                        {"dropout", &M::dropout},
                                        {"norm_eps", &M::norm_eps},
                                        {"rope_theta", &M::rope_theta},
                                        {"window", &M::window},
                                        {"full_layers", &M::full_layers}};
const std::vector<Key<RopeScaling>> rope_keys = {{"type", &RopeScaling::type},
                                                 {"factor", &RopeScaling::factor},
                                                 {"low_freq_factor", &RopeScaling::low_freq_factor},
                                                 {"high_freq_factor", &RopeScaling::high_freq_factor},
                                                 {"original_context", &RopeScaling::original_context},
                                                 {"beta_fast", &RopeScaling::beta_fast},
                                                 {"beta_slow", &RopeScaling::beta_slow},
                                                 {"attention_factor", &RopeScaling::attention_factor},
                                                 {"truncate", &RopeScaling::truncate}};

class TomlReader {
 public:
  explicit TomlReader(const std::string& path) : path_(path) {}

  std::string place(const toml::source_region& s) const {
    return fmt::format("{} (line {}, column {})", path_, s.begin.line, s.begin.column);
  }

  template <class T>
  void read(const toml::table& table, const std::vector<Key<T>>& keys, std::vector<std::string> others, T& out) const {
    for (auto&& [k, node] : table) {
      std::string key(k.str());
      if (std::find(others.begin(), others.end(), key) != others.end()) continue;
      auto it = std::find_if(keys.begin(), keys.end(), [&](auto& x) { return key == x.name; });
      if (it == keys.end()) {
        std::vector<std::string> known = others;
        for (auto& x : keys) known.push_back(x.name);
        std::string hint = did_you_mean(key, known);
        fail_usage(fmt::format("unknown key '{}'", printable(key)), place(k.source()),
                   (hint.empty() ? "" : hint + " ") + "Keys: " + join(known, ", ") + ".");
      }
      const toml::node& value = node;
      std::visit([&](auto member) { set(key, value, out.*member); }, it->field);
    }
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
  const std::string& path_;
};

std::string toml_number(double x) {
  std::string s = fmt::format("{}", x);
  return s.find_first_of(".ein") == std::string::npos ? s + ".0" : s;
}

template <class T>
std::string write_keys(const std::vector<Key<T>>& keys, const T& from) {
  std::string out;
  for (auto& k : keys) {
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
  reader.read(table, model_keys, {"preset", "rope_scaling"}, c);
  if (const toml::node* scaling = table.get("rope_scaling")) {
    if (!scaling->is_table())
      fail_usage("rope_scaling must be a table", reader.place(scaling->source()), "Write [rope_scaling] and its keys.");
    reader.read(*scaling->as_table(), rope_keys, {}, c.rope_scaling);
  }
  bool heads = table.contains("heads"), width = table.contains("width");
  if (heads && !table.contains("kv_heads") && base.kv_heads == base.heads) c.kv_heads = c.heads;
  if (width && !table.contains("ff") && base.ff == 4 * base.width && c.width < (int64_t(1) << 40)) c.ff = 4 * c.width;
  if ((heads || width) && !table.contains("head_dim") && c.heads > 0) {
    if (c.width % c.heads)
      fail_usage(fmt::format("heads = {} does not divide width = {}", c.heads, c.width), where,
                 "Choose a number of heads that divides the width, or give head_dim.");
    c.head_dim = c.width / c.heads;
  }
  validate(c, where);
  return c;
}

std::string to_toml(const ModelConfig& config) {
  std::string out = write_keys(model_keys, config);
  if (config.rope_scaling != RopeScaling()) out += "\n[rope_scaling]\n" + write_keys(rope_keys, config.rope_scaling);
  return out;
}

}  // namespace crest
