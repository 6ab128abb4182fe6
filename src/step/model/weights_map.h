// Maps Crest's parameters to tensors of checkpoint files and back: names, slices, transposes.
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
// A tensor of a checkpoint file, as parts of parameters in the order of its rows.
struct CanonicalTensor {
  std::string name;            // in the file, e.g. "transformer.h.0.attn.c_attn.weight"
  std::vector<int64_t> shape;  // in the file
  std::vector<TensorPart> parts;
  int64_t columns = 1;
  bool transposed = false;  // the file has [columns, rows] (GPT-2's Conv1D); only with one part
  float offset = 0;         // the file has the parameters minus this number
  int64_t elements() const;
  // The elements of one parameter, unchanged and consecutive.
  bool plain() const { return parts.size() == 1 && !transposed && offset == 0; }
};
// A parameter as one tensor with Crest's name and orientation.
CanonicalTensor whole_tensor(const Param& parameter);
// The name within a layer: "attn.qkv.weight" of h.3.attn.qkv.weight. Other names stay.
std::string_view role_in_layer(std::string_view name);

// All tensors of a model without adapters, in the order of parameters_of. Names are from
// family_of(config), or Crest's own without a family. The tensors cover every element of every
// parameter once.
std::vector<CanonicalTensor> canonical_tensors(const ModelConfig& config);
// What a checkpoint holds: adapters alone under Crest's own names, or canonical_tensors.
std::vector<CanonicalTensor> saved_tensors(const ModelConfig& config);
// With a family's names (null: Crest's own). Empty if some parameter has no name in the family.
std::vector<CanonicalTensor> tensors_under(const TensorNames* names, const ModelConfig& config);

// Parameter -> file: writes tensor.elements() floats to `out`. `rows` returns the rows of a part.
void gather(const CanonicalTensor& tensor, const std::function<const float*(const TensorPart&)>& rows, float* out);
// File -> parameter: `from` has the tensor's elements in the file's orientation. `dtype` must be a
// float type, or the file is a usage error. `rows` returns the destination of a part.
void scatter(const CanonicalTensor& tensor, const void* from, DType dtype,
             const std::function<float*(const TensorPart&)>& rows);
// For one parameter in all parts, stored row-major at `parameter`.
void gather(const CanonicalTensor& tensor, const float* parameter, float* out);
void scatter(const CanonicalTensor& tensor, const void* from, DType dtype, float* parameter);

// A tensor in a file.
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
// Removes the prefixes of PyTorch's wrappers (`_orig_mod.`, `module.`) anywhere in a name.
std::string without_wrappers(std::string_view name);
// Finds every tensor of the model in a file. Tries the names of each family and Crest's own, and
// uses the set with the most matches. Names may lack the family's prefix (`transformer.`, `model.`)
// and may have wrappers. Skips buffers (attention masks, rotary frequencies). A tied head may have
// either name or both. A learned position table may be longer than the model's context; its first
// rows are used (source larger than the canonical tensor, same width). Throws with the first
// missing, unexpected and wrongly shaped tensors, and with the model keys contradicted by the
// file's shapes.
NameMatch match_names(const ModelConfig& config, const std::vector<OfferedTensor>& offered, const std::string& where);

}  // namespace crest
