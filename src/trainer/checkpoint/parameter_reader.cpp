#include "checkpoint/parameter_reader.h"

#include <fmt/format.h>

#include <cstring>

#include "core/error.h"
#include "core/text.h"

namespace crest {

ParameterReader::ParameterReader(const ModelConfig& model, const WeightsFolder& folder, const AdapterWeights* adapter)
    : model_(model), folder_(folder), adapter_(adapter) {
  std::vector<OfferedTensor> offered;
  for (auto& item : folder.tensors()) offered.push_back({item.spec.name, item.spec.shape});
  found_ = match_names(model, offered, folder.path());
  for (size_t i = 0; i < found_.tensors.size(); ++i)
    for (auto& part : found_.tensors[i].parts)
      if (auto& of = tensors_[part.parameter]; of.empty() || of.back() != i) of.push_back(i);
  for (size_t position : found_.source) require_floats(position);
  if (found_.redundant_head) require_floats(*found_.redundant_head);
}

void ParameterReader::require_floats(size_t position) const {
  auto& item = folder_.tensors()[position];
  auto& entry = folder_.files()[item.file].tensors()[item.index];
  if (!entry.readable || !is_float(entry.spec.dtype))
    fail(fmt::format("tensor '{}' has dtype {}, not a float", printable(entry.spec.name), printable(entry.stored_as)),
         printable(folder_.files()[item.file].path()),
         "Weights must be F64, F32, BF16 or F16: save the model again with torch_dtype=torch.float32.");
}

// A tied model computes its logits with the embedding. A file with a different head is a different
// model.
void ParameterReader::require_equal_head(const CanonicalTensor& embedding, const float* expected) const {
  size_t head = *found_.redundant_head;
  auto& spec = folder_.tensors()[head].spec;
  std::vector<char> bytes(size_t(byte_count(spec)));
  folder_.read(head, bytes.data(), bytes.size());
  std::vector<float> values(size_t(embedding.elements()));
  scatter(embedding, bytes.data(), spec.dtype, values.data());
  if (std::memcmp(values.data(), expected, values.size() * sizeof(float)) != 0)
    fail("lm_head.weight differs from the embedding, but the model ties them (tied = true)", printable(folder_.path()),
         "Set tied = false (tie_word_embeddings in config.json).");
}

void ParameterReader::read(const std::string& parameter, std::vector<float>& values) const {
  auto found = tensors_.find(parameter);
  if (found == tensors_.end()) fail_internal("the model has no parameter " + parameter, "parameter_reader");
  int64_t elements = 0;
  auto own = [&](const TensorPart& part) { return part.parameter == parameter; };
  for (size_t i : found->second)
    for (auto& part : found_.tensors[i].parts)
      if (own(part)) elements += part.rows * found_.tensors[i].columns;
  values.resize(size_t(elements));
  std::vector<char> bytes;
  std::vector<float> others;  // rows of another parameter in the same tensor
  for (size_t i : found->second) {
    const CanonicalTensor& t = found_.tensors[i];
    const TensorSpec& spec = folder_.tensors()[found_.source[i]].spec;
    // A position table may be longer than the model's context: scatter uses its first rows.
    bytes.resize(size_t(byte_count(spec)));
    folder_.read(found_.source[i], bytes.data(), bytes.size());
    scatter(t, bytes.data(), spec.dtype, [&](const TensorPart& part) {
      if (own(part)) return values.data() + part.row * t.columns;
      others.resize(size_t(part.rows * t.columns));
      return others.data();
    });
    if (found_.redundant_head && parameter == "wte.weight") require_equal_head(t, values.data());
  }
  if (!adapter_) return;
  const std::string layer = layer_of_weight(parameter);
  auto a = adapter_->find(layer + lora_a), b = adapter_->find(layer + lora_b);
  if (!parameter.ends_with(".weight") || a == adapter_->end() || b == adapter_->end()) return;
  const int64_t columns = found_.tensors[found->second[0]].columns, rows = elements / columns;
  add_adapter(values.data(), a->second.data(), b->second.data(), rows, columns, int64_t(b->second.size()) / rows,
              model_.lora.factor());
}

}  // namespace crest
