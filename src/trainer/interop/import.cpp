#include "interop/import.h"

#include <fmt/format.h>
#include <map>
#include <memory>
#include <nlohmann/json.hpp>

#include "checkpoint/safetensors.h"
#include "checkpoint/weights_io.h"
#include "core/error.h"
#include "core/io.h"
#include "core/text.h"
#include "data/staging.h"
#include "data/tokenizer.h"

namespace crest {

bool recognises_llmc(const ForeignFile&);
ForeignModel open_llmc(const ForeignFile&);
bool recognises_nanogpt(const ForeignFile&);
ForeignModel open_nanogpt(const ForeignFile&);

namespace {

bool recognises_pickle(const ForeignFile& file) { return is_pickle(file.path, file.start); }

ForeignModel refuse_pickle_file(const ForeignFile& file) { fail_pickle(file.path); }

bool recognises_safetensors(const ForeignFile& file) { return file.start.size() > 8 && file.start[8] == '{'; }

ForeignModel refuse_safetensors(const ForeignFile& file) {
  fail("is a safetensors file, but not from nanoGPT", printable(file.path),
       "Models of transformers need no import: give their folder to --init or --run.");
}

}  // namespace

const std::vector<ForeignFormat>& foreign_formats() {
  static const std::vector<ForeignFormat> table = {
      {"llm.c", recognises_llmc, open_llmc},
      {"nanoGPT", recognises_nanogpt, open_nanogpt},
      {"safetensors", recognises_safetensors, refuse_safetensors},
      {"PyTorch", recognises_pickle, refuse_pickle_file},
  };
  return table;
}

namespace {

ForeignFile look_at(const ImportOptions& o) {
  if (is_directory(o.path))
    fail("is a folder", printable(o.path),
         "Give the file with the weights. A transformers folder needs no import: give it to --init or --run.");
  ForeignFile file{o.path, std::string(1024, '\0'), 0, o.heads};
  File opened = File::open_read(o.path);
  file.start.resize(opened.read_some_at(file.start.data(), file.start.size(), 0));
  file.bytes = opened.size();
  return file;
}

const ForeignFormat& format_of(const ForeignFile& file) {
  for (auto& format : foreign_formats())
    if (format.recognises(file)) return format;
  fail("is not a checkpoint that Crest can import", printable(file.path),
       "Supported: GPT-2 checkpoints of llm.c (.bin), and nanoGPT checkpoints converted to safetensors "
       "(docs/reference/interop.md).");
}

// One tensor at a time: the parameter in Crest's orientation, then as the file stores it.
uint64_t write_weights(const std::string& path, const ForeignModel& model,
                       const std::function<void(uint64_t, uint64_t)>& progress) {
  auto canonical = canonical_tensors(model.config);
  std::vector<TensorSource> list;
  uint64_t all = 0, done = 0;
  for (auto& t : canonical) list.push_back({{t.name, DType::f32, t.shape}}), all += uint64_t(t.elements());
  std::vector<size_t> order;
  std::string preamble = safetensors_preamble(list, TensorOrder::canonical, {}, &order);
  require_free_space(parent_path(path), preamble.size() + all * sizeof(float), "the imported model");
  std::map<std::string, Param> parameters;
  for (auto& p : parameters_of(model.config)) parameters[p.name] = p;
  File file = File::create(path);
  file.write(preamble);
  std::vector<float> parameter, tensor;
  for (size_t i : order) {
    const CanonicalTensor& t = canonical[i];
    auto read = [&](const TensorPart& part) -> const float* {
      const Param& p = parameters.at(part.parameter);
      parameter.resize(size_t(p.shape.numel()));
      model.read(p, parameter.data());
      return parameter.data() + part.row * t.columns;
    };
    const float* data = t.plain() ? read(t.parts[0]) : nullptr;
    if (!data) {
      tensor.resize(size_t(t.elements()));
      gather(t, read, tensor.data());
      data = tensor.data();
    }
    file.write(data, size_t(t.elements()) * sizeof(float));
    done += uint64_t(t.elements());
    if (progress) progress(done, all);
  }
  file.sync();
  file.close();
  return preamble.size() + all * sizeof(float);
}

std::shared_ptr<const Tokenizer> read_tokenizer(const std::string& path, const ModelConfig& config) {
  if (path.empty()) return nullptr;
  auto tokenizer = std::make_shared<const Tokenizer>(Tokenizer::load(path));
  require_embeddings(tokenizer->vocab_size(), config, path);
  return tokenizer;
}

}  // namespace

ImportResult import_model(const ImportOptions& o) {
  ForeignFile file = look_at(o);
  const ForeignFormat& format = format_of(file);
  ForeignModel model = format.open(file);
  if (o.heads && o.heads != model.config.heads)
    fail_usage(fmt::format("the file states {}, but --heads {} was given",
                           format_number_of(model.config.heads, "attention head"), o.heads),
               printable(o.path), "Leave --heads out.");
  auto tokenizer = read_tokenizer(o.tokenizer, model.config);
  require_new(o.out);
  StagingFolder staging(o.out);
  ImportResult result{format.name, "", model.config, model.stored, model.notes};
  for (auto& [name, text] : model_files(model.config, tokenizer.get())) {
    write_file_synced(staging / name, text);
    result.transformers = result.transformers || name == "config.json";
  }
  result.tokenizer = tokenizer != nullptr;
  result.bytes = write_weights(staging / "model.safetensors", model, o.progress);
  staging.publish(false);
  result.folder = staging.out().string();
  return result;
}

nlohmann::ordered_json to_json(const ImportResult& r) {
  const ModelConfig& c = r.config;
  return {{"folder", r.folder},       {"format", r.format},
          {"stored", name(r.stored)}, {"parameters", parameter_count(c)},
          {"vocab", c.vocab},         {"context", c.context},
          {"layers", c.layers},       {"heads", c.heads},
          {"width", c.width},         {"bias", c.bias},
          {"tied", c.tied},           {"transformers", r.transformers},
          {"tokenizer", r.tokenizer}, {"bytes", r.bytes},
          {"notes", r.notes}};
}

}  // namespace crest
