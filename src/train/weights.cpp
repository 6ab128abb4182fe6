#include "train/weights.h"

#include <fmt/format.h>

#include <map>
#include <string_view>

#include "core/error.h"
#include "core/text.h"
#include "model/weights_map.h"
#include "train/safetensors_folder.h"

namespace crest {

namespace {

std::map<std::string_view, const ParameterRef*> by_name(const std::vector<ParameterRef>& parameters) {
  std::map<std::string_view, const ParameterRef*> index;
  for (auto& p : parameters) index.emplace(p.name, &p);
  return index;
}

std::vector<char> read_tensor(const WeightsFolder& folder, size_t i) {
  std::vector<char> bytes(byte_count(folder.tensors()[i].spec));
  folder.read(i, bytes.data(), bytes.size());
  return bytes;
}

// A file may hold the head of a tied model too; training would silently go on from other weights if they differ.
void require_tied(const WeightsFolder& folder, size_t head, size_t embedding) {
  const TensorSpec &a = folder.tensors()[head].spec, &b = folder.tensors()[embedding].spec;
  bool same = a.dtype == b.dtype && read_tensor(folder, head) == read_tensor(folder, embedding);
  if (!same)
    fail(fmt::format("'{}' and '{}' differ, but the model ties them", printable(a.name), printable(b.name)),
         folder.path(), "Set tied = false (\"tie_word_embeddings\": false) in the model's description.");
}

}  // namespace

void load_weights(const std::string& path, const ModelConfig& config, const std::vector<ParameterRef>& parameters) {
  WeightsFolder folder = WeightsFolder::open(path);
  std::vector<OfferedTensor> offered;
  for (auto& item : folder.tensors()) offered.push_back({item.spec.name, item.spec.shape});
  std::vector<CanonicalTensor> canonical = canonical_tensors(config);
  NameMatch match = match_names(config, canonical, offered, folder.path());
  for (size_t i = 0; i < canonical.size(); ++i) {
    auto& item = folder.tensors()[match.source[i]];
    auto& entry = folder.files()[item.file].tensors()[item.index];
    if (!entry.readable || !is_float(item.spec.dtype))
      fail(fmt::format("tensor '{}' is stored as {}", printable(item.spec.name), printable(entry.stored_as)),
           folder.path(), "Convert the weights to float32, bfloat16 or float16.");
  }
  if (match.redundant_head) {
    size_t embedding = 0;
    while (canonical[embedding].parameter != "wte.weight") ++embedding;
    require_tied(folder, *match.redundant_head, match.source[embedding]);
  }
  auto index = by_name(parameters);
  std::vector<float> buffer;
  for (size_t i = 0; i < canonical.size(); ++i) {
    const ParameterRef& p = *index.at(canonical[i].parameter);
    if (canonical[i].row == 0) buffer.assign(size_t(p.numel()), 0);
    scatter(canonical[i], read_tensor(folder, match.source[i]).data(), folder.tensors()[match.source[i]].spec.dtype,
            buffer.data());
    // The tensors of a parameter follow each other; the next one starts another parameter.
    bool complete = i + 1 == canonical.size() || canonical[i + 1].row == 0;
    if (complete) p.set(buffer.data());
  }
}

CanonicalTensors export_weights(const ModelConfig& config, const std::vector<ParameterRef>& parameters) {
  CanonicalTensors out;
  auto index = by_name(parameters);
  std::vector<float> buffer;
  for (auto& t : canonical_tensors(config)) {
    const ParameterRef& p = *index.at(t.parameter);
    if (t.row == 0) {
      buffer.resize(size_t(p.numel()));
      p.get(buffer.data());
    }
    out.storage.emplace_back(size_t(t.elements()));
    gather(t, buffer.data(), out.storage.back().data());
    out.tensors.push_back({{t.name, DType::f32, t.shape}, out.storage.back().data()});
  }
  return out;
}

}  // namespace crest
