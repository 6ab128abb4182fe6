// nanoGPT's checkpoints after conversion to safetensors (interop/import.cpp has the command): the
// names of its state dict, with `_orig_mod.` if torch.compile was used; all matrices [out, in]; and
// its model arguments as metadata.
#include <fmt/format.h>

#include <algorithm>
#include <charconv>
#include <map>
#include <memory>

#include "checkpoint/safetensors.h"
#include "core/error.h"
#include "core/text.h"
#include "data/tokenizer.h"
#include "interop/export.h"
#include "interop/import.h"
#include "interop/torch_file.h"

namespace crest {

namespace {

constexpr std::string_view embedding_name = "transformer.wte.weight", head_name = "lm_head.weight";

// Crest's "h.3.attn.qkv.weight" -> "transformer.h.3.attn.c_attn.weight".
std::string nanogpt_name(const std::string& parameter) {
  if (parameter == head_name) return parameter;
  static constexpr std::pair<std::string_view, std::string_view> renames[] = {{".attn.qkv.", ".attn.c_attn."},
                                                                              {".attn.proj.", ".attn.c_proj."},
                                                                              {".mlp.fc.", ".mlp.c_fc."},
                                                                              {".mlp.proj.", ".mlp.c_proj."}};
  std::string name = "transformer." + parameter;
  for (auto& [ours, theirs] : renames)
    if (size_t at = name.find(ours); at != std::string::npos) name.replace(at, ours.size(), theirs);
  return name;
}

class NanogptCheckpoint {
 public:
  explicit NanogptCheckpoint(const std::string& path) : file_(SafetensorsFile::open(path)) {
    for (size_t i = 0; i < file_.tensors().size(); ++i) by_name_[without_wrappers(file_.tensors()[i].spec.name)] = i;
  }

  bool recognized() const {
    const TensorSpec* qkv = find("transformer.h.0.attn.c_attn.weight");
    return find(embedding_name) && qkv && qkv->shape.size() == 2 && qkv->shape[0] == 3 * qkv->shape[1];
  }

  // Everything but the number of heads follows from the shapes.
  ModelConfig config(int64_t heads_wanted) const {
    ModelConfig c;
    c.name = "nanogpt";
    c.activation = ActivationKind::gelu_erf;
    c.vocab = dim(std::string(embedding_name), 0), c.width = dim(std::string(embedding_name), 1);
    c.context = dim("transformer.wpe.weight", 0), c.ff = dim("transformer.h.0.mlp.c_fc.weight", 0);
    c.layers = 0;
    while (find(fmt::format("transformer.h.{}.attn.c_attn.weight", c.layers))) ++c.layers;
    c.bias = find("transformer.h.0.attn.c_attn.bias") != nullptr;
    c.tied =
        !find(head_name) || same_values(by_name_.at(std::string(embedding_name)), by_name_.find(head_name)->second);
    c.heads = c.kv_heads = heads_of(heads_wanted);
    if (c.heads < 1 || c.width % c.heads)
      fail_usage(fmt::format("{} heads do not divide the model's width of {}", c.heads, c.width), printable(path()),
                 "Give its n_head: --heads N.");
    c.head_dim = c.width / c.heads;
    validate(c, printable(path()));
    return c;
  }

  // Every parameter is present as floats in its shape, and there is nothing else but buffers.
  void require_all(const ModelConfig& c) const {
    size_t used = 0;
    for (auto& p : parameters_of(c)) {
      std::string name = nanogpt_name(p.name);
      const TensorSpec* spec = find(name);
      if (!spec)
        fail(fmt::format("the tensor {} is missing", name), printable(path()), "Convert the checkpoint again.");
      if (std::vector<int64_t> shape = p.shape.dims(); spec->shape != shape)
        fail(fmt::format("{} does not fit: expected [{}]", describe(*spec), fmt::join(shape, ", ")), printable(path()),
             "Convert the checkpoint again.");
      const TensorEntry& entry = file_.tensors()[by_name_.at(name)];
      if (!entry.readable || !is_float(spec->dtype))
        fail(fmt::format("tensor {} has dtype {}, not a float", name, printable(entry.stored_as)), printable(path()),
             "Weights must be F64, F32, BF16 or F16.");
      ++used;
    }
    for (auto& [name, index] : by_name_) {
      bool buffer = name.ends_with(".attn.bias") && file_.tensors()[index].spec.shape.size() == 4;
      if (buffer || (c.tied && name == head_name)) ++used;
    }
    if (used == file_.tensors().size()) return;
    std::map<std::string, bool> known;
    for (auto& p : parameters_of(c)) known[nanogpt_name(p.name)] = true;
    for (auto& [name, index] : by_name_)
      if (!known.count(name) && name != head_name && file_.tensors()[index].spec.shape.size() != 4)
        fail(fmt::format("the tensor {} is not part of a nanoGPT model", printable(name)), printable(path()),
             "Crest does not support modified models.");
    fail("two tensors name the same parameter", printable(path()), "Convert the checkpoint again.");
  }

  void read(const Param& p, float* out) const {
    size_t index = by_name_.at(nanogpt_name(p.name));
    const TensorSpec& spec = file_.tensors()[index].spec;
    const CanonicalTensor whole = whole_tensor(p);
    std::vector<char> bytes(size_t(byte_count(spec)));
    file_.read(index, bytes.data(), bytes.size());
    scatter(whole, bytes.data(), spec.dtype, out);
  }

  const std::string& path() const { return file_.path(); }
  DType stored() const { return find(embedding_name)->dtype; }

 private:
  const TensorSpec* find(std::string_view name) const {
    auto at = by_name_.find(name);
    return at == by_name_.end() ? nullptr : &file_.tensors()[at->second].spec;
  }

  int64_t dim(const std::string& name, size_t d) const {
    const TensorSpec* spec = find(name);
    if (!spec || spec->shape.size() != 2)
      fail(fmt::format("the tensor {} is {}", name, spec ? "not a matrix" : "missing"), printable(path()),
           "Convert the checkpoint again.");
    return spec->shape[d];
  }

  bool same_values(size_t a, size_t b) const {
    auto &x = file_.tensors()[a], &y = file_.tensors()[b];
    return x.spec.shape == y.spec.shape && x.stored_as == y.stored_as && file_.hash(a) == file_.hash(b);
  }

  // From the file, else as given.
  int64_t heads_of(int64_t wanted) const {
    auto at = file_.metadata().find("n_head");
    if (at == file_.metadata().end()) {
      if (wanted) return wanted;
      fail_usage("the file does not state how many attention heads the model has", printable(path()),
                 "Give its n_head: --heads N. Or convert it again with the command in docs/reference/interop.md, which "
                 "keeps n_head.");
    }
    int64_t heads = 0;
    auto& text = at->second;
    auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), heads);
    if (error != std::errc() || end != text.data() + text.size() || heads < 1) {
      if (wanted) return wanted;
      fail(fmt::format("its metadata has n_head = '{}', which is not a number of heads", printable(text)),
           printable(path()), "Give it with --heads N.");
    }
    return heads;
  }

  SafetensorsFile file_;
  std::map<std::string, size_t, std::less<>> by_name_;
};

}  // namespace

// ckpt.pt as saved by train.py and read with --init_from=resume. Its optimizer has a group with
// weight decay (matrices) and one without; without states it starts afresh.
void write_nanogpt(ExportJob& job) {
  const ModelConfig& c = job.config;
  const auto parameters = parameters_of(c);
  TorchPickle p;
  auto item = [&](const char* key, auto value) {
    p.text(key);
    if constexpr (std::is_same_v<decltype(value), bool>)
      p.boolean(value);
    else if constexpr (std::is_floating_point_v<decltype(value)>)
      p.number(value);
    else
      p.integer(value);
  };
  auto arguments = [&] {
    p.begin_dict();
    item("n_layer", c.layers), item("n_head", c.heads), item("n_embd", c.width), item("block_size", c.context);
    item("bias", c.bias), item("vocab_size", c.vocab), item("dropout", double(c.dropout));
    p.end_dict();
  };
  auto group = [&](double weight_decay, int64_t first, int64_t end) {
    p.begin_dict();
    item("lr", 6e-4), item("eps", 1e-8), item("weight_decay", weight_decay);
    p.text("betas"), p.begin_tuple(), p.number(0.9), p.number(0.95), p.end_tuple();
    for (const char* key : {"amsgrad", "maximize", "capturable", "differentiable"}) item(key, false);
    for (const char* key : {"foreach", "fused"}) p.text(key), p.none();
    p.text("params"), p.begin_list();
    for (int64_t i = first; i < end; ++i) p.integer(i);
    p.end_list();
    p.end_dict();
  };
  auto matrices = std::count_if(parameters.begin(), parameters.end(), [](auto& q) { return q.shape.rank() == 2; });
  p.begin_dict();
  p.text("model"), p.begin_dict();
  for (size_t i = 0; i < parameters.size(); ++i)
    p.text(nanogpt_name(parameters[i].name)), p.tensor(int64_t(i), parameters[i].shape.dims());
  p.text(head_name), p.tensor(0, parameters[0].shape.dims());  // wte.weight again
  p.end_dict();
  p.text("optimizer"), p.begin_dict();
  p.text("state"), p.begin_dict(), p.end_dict();
  p.text("param_groups"), p.begin_list();
  group(0.1, 0, matrices), group(0, matrices, int64_t(parameters.size()));
  p.end_list(), p.end_dict();
  p.text("model_args"), arguments();
  item("iter_num", int64_t(0));
  item("best_val_loss", 1e9);
  p.text("config"), p.begin_dict(), p.end_dict();
  p.end_dict();

  TorchFile file(join_path(job.folder, "ckpt.pt"), "ckpt");
  file.add("data.pkl", p.finish());
  file.add("byteorder", "little");
  std::vector<float> values;
  for (size_t i = 0; i < parameters.size(); ++i) {
    job.weights.read(parameters[i].name, values);
    file.add(fmt::format("data/{}", i), {reinterpret_cast<const char*>(values.data()), values.size() * sizeof(float)});
    job.advance(values.size());
  }
  file.add("version", "3\n");
  file.finish();
  job.files = {"ckpt.pt"};
  job.notes.push_back("The optimizer starts afresh, at iteration 0.");
  job.notes.push_back("nanoGPT's sample.py uses GPT-2's tokenizer unless the data set has a meta.pkl.");
}

bool recognises_nanogpt(const ForeignFile& file) {
  if (file.start.size() < 9 || file.start[8] != '{') return false;
  return NanogptCheckpoint(file.path).recognized();
}

ForeignModel open_nanogpt(const ForeignFile& file) {
  auto checkpoint = std::make_shared<NanogptCheckpoint>(file.path);
  ForeignModel model;
  model.config = checkpoint->config(file.heads_wanted);
  model.stored = checkpoint->stored();
  checkpoint->require_all(model.config);
  if (!model.config.bias)
    model.notes.push_back("The model has no biases. transformers has no such GPT-2, so no config.json was written.");
  model.read = [checkpoint](const Param& p, float* out) { checkpoint->read(p, out); };
  return model;
}

}  // namespace crest
