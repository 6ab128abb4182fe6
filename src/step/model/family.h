// The model families of transformers: how their config.json and their tensors become a ModelConfig
// and its parameters. A family is one file in families/ and one line of families/index.cpp; nothing
// outside of this folder names one.
#pragma once
#include <nlohmann/json_fwd.hpp>
#include <string>
#include <vector>

#include "model/config.h"

namespace crest {

class Keys;

// How a tensor of a file holds parameters.
enum class TensorForm : uint8_t {
  same,        // one parameter as it is
  transposed,  // a matrix [in, out] (Conv1D)
  less_one,    // a parameter minus 1 (norms that multiply by 1 + weight)
  apart,       // queries, keys and values as three tensors: `file` has a * for q, k or v
  apart_back,  // the same for a rotation backwards: the halves of each query and key head swapped
  by_head,     // queries, keys and values of a head, then of the next head
  joined       // the rows of two parameters: `crest` has both, with a + between them
};
// A member of a layer, such as mlp.fc, or of the model: wte, ln_f. Names are without .weight,
// .bias.
struct TensorName {
  const char *crest, *file;
  TensorForm form = TensorForm::same;
};
struct TensorNames {
  const char* prefix;  // of all but the head's: "model."
  const char* layer;   // after it, before the number: "layers."
  std::vector<TensorName> model, members;
  const char* head = "lm_head";  // without the prefix
};

struct Family {
  const char* type;          // model_type in config.json
  const char* architecture;  // class in transformers
  const TensorNames& names;
  // Throws usage errors that name the key whose value Crest does not compute.
  ModelConfig (*read)(const Keys&);
  // Adds the keys that `read` reads. false: transformers refuses such sizes.
  bool (*write)(const ModelConfig&, nlohmann::ordered_json&);
};
// In the order in which they are tried for a model without a family of its own.
const std::vector<Family>& families();
// By model_type; null: unknown.
const Family* find_family(const std::string& type);
// The family whose class computes the model: `config.family`, else the first one whose config.json
// loses nothing of it. null: there is none.
const Family* family_of(const ModelConfig& config);
// "gpt2, llama, ..."
std::string family_types();

}  // namespace crest
