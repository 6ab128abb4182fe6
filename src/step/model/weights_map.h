// Maps Crest's parameters to the tensors of checkpoint files and back: names, slices, transposes.
#pragma once
#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "core/dtype.h"
#include "model/parameters.h"

namespace crest {

// The names and layouts in a model's checkpoints: those of transformers' GPT-2 or Llama, if its
// layers are theirs. Such a model may still have no class there (to_huggingface_config is empty).
enum class WeightFormat { gpt2, llama, crest };
WeightFormat weight_format(const ModelConfig& config);

// One tensor of a checkpoint file, and the part of a parameter that it holds. A vector is a matrix
// with one column.
struct CanonicalTensor {
  std::string name;            // in the file, e.g. "transformer.h.0.attn.c_attn.weight"
  std::vector<int64_t> shape;  // in the file
  std::string parameter;       // Crest's name
  int64_t row = 0;             // first row of the parameter
  int64_t rows = 0, columns = 1;
  bool transposed = false;  // the file holds [columns, rows] (GPT-2's Conv1D)
  int64_t elements() const { return rows * columns; }
};
// A parameter as one tensor, under Crest's name and in Crest's orientation.
CanonicalTensor whole_tensor(const Param& parameter);
// All tensors of a checkpoint, in the order of parameters_of. Together they cover every element of
// every parameter exactly once.
std::vector<CanonicalTensor> canonical_tensors(const ModelConfig& config);

// Parameter -> file: writes tensor.elements() floats to `out`. `parameter` is the whole parameter,
// row-major; rows beyond its own (vocabulary padding) are not read.
void gather(const CanonicalTensor& tensor, const float* parameter, float* out);
// File -> parameter: `from` holds the tensor's elements in a float dtype, in the file's orientation
// (other dtypes are a usage error of the file). Writes only the tensor's rows of `parameter`.
void scatter(const CanonicalTensor& tensor, const void* from, DType dtype, float* parameter);

// A tensor that a file contains.
struct OfferedTensor {
  std::string name;
  std::vector<int64_t> shape;
};
struct NameMatch {
  std::vector<size_t> source;            // canonical tensor i is offered[source[i]]
  std::optional<size_t> redundant_head;  // lm_head.weight of a tied model: must equal the embedding
  std::vector<std::string> ignored;      // buffers, not parameters
};
// The name without the wrappers of PyTorch's modules (`_orig_mod.`, `module.`), wherever they are.
std::string without_wrappers(std::string_view name);
// Finds every canonical tensor of the model in a file. Names may start with `transformer.` or
// `model.`, and have wrappers. Buffers (attention masks, rotary frequencies) are ignored. A tied
// head may have either or both of its names. A learned position table longer than the model's
// context fits: its first rows are used (the source is then larger than the canonical tensor, with
// the same width). Throws with the first missing, unexpected and wrongly shaped tensors, and with
// the keys of the model that the file's shapes contradict.
NameMatch match_names(const ModelConfig& config, const std::vector<CanonicalTensor>& canonical,
                      const std::vector<OfferedTensor>& offered, const std::string& where);

}  // namespace crest
