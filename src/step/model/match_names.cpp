// Finds a model's tensors in a foreign file, or explains the mismatch.
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
  for (auto& family : families())
    if (plain.starts_with(family.names.prefix)) return plain.substr(std::string_view(family.names.prefix).size());
  return plain;
}

// Buffers that older versions of transformers saved with the parameters. A causal mask is an
// "attn.bias" or "attention.bias" of rank 4.
bool is_buffer(const OfferedTensor& t) {
  for (const char* mask : {".attn", ".attention"})
    if ((t.name.ends_with(std::string(mask) + ".bias") && t.shape.size() == 4) ||
        t.name.ends_with(std::string(mask) + ".masked_bias"))
      return true;
  return t.name.ends_with("rotary_emb.inv_freq");
}

std::string text(const std::vector<int64_t>& shape) { return fmt::format("[{}]", fmt::join(shape, ", ")); }

// A possible set of names in a file: a family's, or Crest's own (null).
struct Naming {
  const TensorNames* names = nullptr;
  std::string title = "Crest";
};
// The model's own family first.
std::vector<Naming> namings(const ModelConfig& config) {
  std::vector<Naming> all;
  if (const Family* own = family_of(config)) all.push_back({&own->names, own->type});
  all.push_back({});
  for (auto& f : families())
    if (std::none_of(all.begin(), all.end(), [&](auto& n) { return n.names == &f.names; }))
      all.push_back({&f.names, f.type});
  return all;
}

std::string head(const Naming& n) { return std::string(n.names ? n.names->head : "lm_head") + ".weight"; }

using ByName = std::map<std::string, size_t>;  // plain name -> index

// Infers as much of a file's model as its tensor names and shapes determine.
class OfferedModel {
 public:
  OfferedModel(const std::vector<OfferedTensor>& offered, const ByName& by_name)
      : offered_(offered), by_name_(by_name) {}

  // Counts the tensors in the file.
  size_t found(const std::vector<CanonicalTensor>& tensors) const {
    return size_t(
        std::count_if(tensors.begin(), tensors.end(), [&](auto& t) { return by_name_.count(plain_name(t.name)) > 0; }));
  }
  // The naming with the most tensors of the first layer in the file; `used` if none has more.
  Naming naming(const Naming& used, const std::vector<Naming>& all) const {
    Naming best = used;
    for (auto& n : all)
      if (matrices(n) > matrices(best)) best = n;
    return best;
  }

  // "vocab = 50304 (the model has 50257)" for each key that the file contradicts.
  std::vector<std::string> contradictions(const ModelConfig& c, const Naming& n) const {
    std::vector<std::string> out;
    auto key = [&](const char* name, int64_t file, int64_t model) {
      if (file > 0 && file != model) out.push_back(fmt::format("{} = {} (the model has {})", name, file, model));
    };
    key("vocab", dim(n, "wte", 0), c.vocab);
    key("width", dim(n, "wte", 1), c.width);
    key("layers", layers(n), c.layers);
    if (c.position == PositionKind::learned) {
      int64_t rows = dim(n, "wpe", 0);
      if (rows > 0 && rows < c.context)
        out.push_back(fmt::format("context at most {} (the model has {})", rows, c.context));
    }
    key("ff", dim(n, gated(c.activation) ? "mlp.gate" : "mlp.fc", 0), c.ff);
    const TensorForm qkv = form(n, "attn.qkv");
    if (qkv == TensorForm::apart || qkv == TensorForm::apart_back) {
      key("heads * head_dim", dim(n, "attn.qkv", 0), c.heads * c.head_dim);
      key("kv_heads * head_dim", dim(n, "attn.qkv", 0, 'k'), c.kv_heads * c.head_dim);
    } else {
      key("heads * head_dim", dim(n, "attn.proj", 1), c.heads * c.head_dim);
    }
    if (!c.tied && !by_name_.count(head(n))) out.push_back(fmt::format("tied = true (there is no {})", head(n)));
    return out;
  }

 private:
  static const TensorName* row(const Naming& n, const std::string& member) {
    if (n.names)
      for (auto* table : {&n.names->model, &n.names->members})
        for (auto& r : *table)
          if (std::string_view(r.crest).substr(0, std::string_view(r.crest).find('+')) == member) return &r;
    return nullptr;
  }
  static TensorForm form(const Naming& n, const std::string& member) {
    auto* r = row(n, member);
    return r ? r->form : TensorForm::same;
  }
  static std::string layer_prefix(const Naming& n) { return n.names ? n.names->layer : "h."; }
  int matrices(const Naming& n) const {
    int count = 0;
    for (const char* member : {"attn.qkv", "attn.proj", "mlp.fc", "mlp.gate", "mlp.proj"})
      count += dim(n, member, 0) > 0;
    return count;
  }
  static bool in_layer(const std::string& member) { return member.find('.') != std::string::npos; }

  // A dimension of a matrix (of the model or its first layer) in Crest's orientation; 0: no such
  // matrix.
  int64_t dim(const Naming& n, const std::string& member, size_t d, char letter = 'q') const {
    auto* r = row(n, member);
    if (n.names && !r) return 0;
    std::string name = r ? r->file : member;
    if (size_t star = name.find('*'); star != std::string::npos) name[star] = letter;
    if (in_layer(member)) name = layer_prefix(n) + "0." + name;
    auto it = by_name_.find(name + ".weight");
    if (it == by_name_.end()) return 0;
    auto& shape = offered_[it->second].shape;
    if (form(n, member) == TensorForm::transposed) d = 1 - d;
    const int64_t rows = form(n, member) == TensorForm::joined && d == 0 ? 2 : 1;
    return shape.size() == 2 ? shape[d] / rows : 0;
  }
  int64_t layers(const Naming& n) const {
    int64_t most = 0;
    const std::string prefix = layer_prefix(n);
    for (auto& [name, i] : by_name_)
      if (name.starts_with(prefix))
        most = std::max(most, layer_number(std::string_view(name).substr(prefix.size())) + 1);
    return most;
  }
  static int64_t layer_number(std::string_view s) {
    int64_t n = 0;
    size_t i = 0;
    for (; i < s.size() && i < 7 && s[i] >= '0' && s[i] <= '9'; ++i) n = n * 10 + (s[i] - '0');
    return i > 0 && i < s.size() && s[i] == '.' ? n : -1;
  }
  const std::vector<OfferedTensor>& offered_;
  const ByName& by_name_;
};

// The first few items, and the number of the rest.
std::string first_of(const std::vector<std::string>& items) {
  constexpr size_t shown = 3;
  std::vector<std::string> head(items.begin(), items.begin() + long(std::min(shown, items.size())));
  return join(head, ", ") + (items.size() > shown ? fmt::format(" and {} more", items.size() - shown) : "");
}

}  // namespace

NameMatch match_names(const ModelConfig& config, const std::vector<OfferedTensor>& offered, const std::string& where) {
  NameMatch match;
  ByName by_name;
  std::vector<std::string> missing, unexpected, shapes;
  bool all_turned = true;
  for (size_t i = 0; i < offered.size(); ++i) {
    if (is_buffer(offered[i]))
      match.ignored.push_back(offered[i].name);
    else if (auto [it, fresh] = by_name.emplace(plain_name(offered[i].name), i); !fresh)
      fail(fmt::format("has both '{}' and '{}'", printable(offered[it->second].name), printable(offered[i].name)),
           where, "Both name the same parameter; remove one.");
  }
  const ByName all_names = by_name;
  const OfferedModel model(offered, all_names);
  const std::vector<Naming> all_namings = namings(config);
  size_t most = 0;
  Naming used;
  for (auto& naming : all_namings) {
    auto tensors = tensors_under(naming.names, config);
    const size_t found = model.found(tensors);
    if (!match.tensors.empty() && found <= most) continue;
    if (!tensors.empty()) match.tensors = std::move(tensors), most = found, used = naming;
  }
  auto take = [&](const std::string& name) {
    auto it = by_name.find(name);
    if (it == by_name.end()) return offered.size();
    size_t i = it->second;
    by_name.erase(it);
    return i;
  };
  for (auto& t : match.tensors) {
    size_t i = take(plain_name(t.name));
    if (i == offered.size() && config.tied && t.parts[0].parameter == "wte.weight") i = take(head(used));
    match.source.push_back(i);
    if (i == offered.size()) {
      missing.push_back(t.name);
      continue;
    }
    auto& shape = offered[i].shape;
    bool longer =
        t.parts[0].parameter == "wpe.weight" && shape.size() == 2 && shape[1] == t.shape[1] && shape[0] > t.shape[0];
    if (shape == t.shape || longer) continue;
    bool turned = shape.size() == 2 && shape[0] == t.shape[1] && shape[1] == t.shape[0];
    all_turned = all_turned && turned;
    shapes.push_back(fmt::format("{} is {}, not {}{}", printable(offered[i].name), text(shape), text(t.shape),
                                 turned ? " (transposed)" : ""));
  }
  if (config.tied) {
    size_t i = take(head(used));
    if (i != offered.size()) {
      std::vector<int64_t> shape = {config.vocab, config.width};
      if (offered[i].shape == shape)
        match.redundant_head = i;
      else
        shapes.push_back(fmt::format("{} is {}, not {}", head(used), text(offered[i].shape), text(shape)));
    }
  }
  for (auto& [name, i] : by_name) unexpected.push_back(printable(offered[i].name));
  if (missing.empty() && unexpected.empty() && shapes.empty()) return match;

  std::vector<std::string> problems;
  if (!missing.empty()) problems.push_back("missing: " + first_of(missing));
  if (!unexpected.empty()) problems.push_back("unexpected: " + first_of(unexpected));
  if (!shapes.empty()) problems.push_back("different shapes: " + first_of(shapes));
  std::string advice = "Choose the model of these weights (--model FOLDER reads its config.json).";
  if (const Naming in_file = model.naming(used, all_namings); in_file.names != used.names) {
    advice = fmt::format("The file has the tensors of {}; the model needs those of {}. ", in_file.title, used.title) +
             advice;
  } else if (missing.empty() && unexpected.empty() && all_turned) {
    advice =
        "The program that wrote them stores the matrices of these layers the other way round, as nanoGPT does. "
        "For a checkpoint of nanoGPT: crest import FILE --out DIR.";
  } else if (auto keys = model.contradictions(config, used); !keys.empty()) {
    advice = "The shapes in the file imply " + join(keys, ", ") + ". " + advice;
  }
  fail("the weights do not fit model '" + printable(config.name) + "': " + join(problems, "; "), where, advice);
}

}  // namespace crest
