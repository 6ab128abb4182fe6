// Maps Crest's parameters to the tensors of checkpoint files and back: names, slices, transposes.
#pragma once
#include <cstddef>
#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "core/dtype.h"
#include "model/family.h"
#include "model/parameters.h"

namespace crest {

// Rows of a parameter. A vector is a matrix with one column.
struct TensorPart {
  std::string parameter;  // Crest's name
  int64_t row = 0, rows = 0;
};
// One tensor of a checkpoint file, and the parts of parameters that it holds, from its first row
// on.
struct CanonicalTensor {
  std::string name;            // in the file, e.g. "transformer.h.0.attn.c_attn.weight"
  std::vector<int64_t> shape;  // in the file
  std::vector<TensorPart> parts;
  int64_t columns = 1;
  bool transposed = false;  // one part, and the file holds [columns, rows] (GPT-2's Conv1D)
  float offset = 0;         // the file holds parameters minus it
  int64_t elements() const;
  // Consecutive elements of one parameter, as they are.
  bool plain() const { return parts.size() == 1 && !transposed && offset == 0; }
};
// A parameter as one tensor, under Crest's name and in Crest's orientation.
CanonicalTensor whole_tensor(const Param& parameter);
// All tensors of a checkpoint, in the order of parameters_of: under the names of family_of(config),
// or under Crest's own if there is none. Together they cover every element of every parameter
// exactly once.
std::vector<CanonicalTensor> canonical_tensors(const ModelConfig& config);
// The same under the names of a family; empty if they have none for some parameter. null: Crest's.
std::vector<CanonicalTensor> tensors_under(const TensorNames* names, const ModelConfig& config);

// Parameter -> file: writes tensor.elements() floats to `out`. `rows` gives the rows of a part.
void gather(const CanonicalTensor& tensor, const std::function<const float*(const TensorPart&)>& rows, float* out);
// File -> parameter: `from` holds the tensor's elements in a float dtype, in the file's orientation
// (other dtypes are a usage error of the file). `rows` gives the place of the rows of a part.
void scatter(const CanonicalTensor& tensor, const void* from, DType dtype,
             const std::function<float*(const TensorPart&)>& rows);
// Where all parts are of one parameter, row-major at `parameter`.
void gather(const CanonicalTensor& tensor, const float* parameter, float* out);
void scatter(const CanonicalTensor& tensor, const void* from, DType dtype, float* parameter);

// A tensor that a file contains.
struct OfferedTensor {
  std::string name;
  std::vector<int64_t> shape;
};
struct NameMatch {
  std::vector<CanonicalTensor> tensors;  // under the names in the file
  std::vector<size_t> source;            // tensors[i] is offered[source[i]]
  std::optional<size_t> redundant_head;  // lm_head.weight of a tied model: must equal the embedding
  std::vector<std::string> ignored;      // buffers, not parameters
};
// The name without the wrappers of PyTorch's modules (`_orig_mod.`, `module.`), wherever they are.
std::string without_wrappers(std::string_view name);
// Finds every tensor of the model in a file, under the names of the family with most of them there
// (a model may fit several), or Crest's own. Names may lack the family's prefix (`transformer.`,
// `model.`), and have wrappers. Buffers (attention masks, rotary frequencies) are ignored. A tied
// head may have either or both of its names. A learned position table longer than the model's
// context fits: its first rows are used (the source is then larger than the canonical tensor, with
// the same width). Throws with the first missing, unexpected and wrongly shaped tensors, and with
// the keys of the model that the file's shapes contradict.
NameMatch match_names(const ModelConfig& config, const std::vector<OfferedTensor>& offered, const std::string& where);

}  // namespace crest
