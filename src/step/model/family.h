// Model families of transformers: they map config.json and tensors to a ModelConfig and its
// parameters, and back. A family is one file in families/ and one line in families/index.cpp. Code
// outside this folder names no family.
#pragma once
#include <nlohmann/json_fwd.hpp>
#include <string>
#include <vector>

#include "model/config.h"

namespace crest {

class Keys;

// How a tensor in a file stores parameters.
enum class TensorForm : uint8_t {
  same,        // a parameter unchanged
  transposed,  // a matrix [in, out] (Conv1D)
  less_one,    // a parameter minus 1 (norms that multiply by 1 + weight)
  apart,       // queries, keys and values as three tensors: * in `file` stands for q, k, v
  apart_back,  // apart, for a backward rotation: swaps the halves of each query and key head
  by_head,     // queries, keys and values of one head, then of the next head
  joined       // the rows of two parameters: `crest` is their names with a + between them
};
// A member of a layer (mlp.fc) or of the model (wte, ln_f). Names omit .weight and .bias.
struct TensorName {
  const char *crest, *file;
  TensorForm form = TensorForm::same;
};
struct TensorNames {
  const char* prefix;  // of all tensors except the head: "model."
  const char* layer;   // between the prefix and the number: "layers."
  std::vector<TensorName> model, members;
  const char* head = "lm_head";  // has no prefix
};

struct Family {
  const char* type;          // model_type in config.json
  const char* architecture;  // class in transformers
  const char* llama_cpp;     // architecture in llama.cpp; null: none
  const TensorNames& names;
  // Throws a usage error that names the key with an unsupported value.
  ModelConfig (*read)(const Keys&);
  // Writes the keys for `read`. false: transformers rejects these sizes.
  bool (*write)(const ModelConfig&, nlohmann::ordered_json&);
};
// Searched in this order if a model has no `family`.
const std::vector<Family>& families();
// By model_type; null: unknown.
const Family* find_family(const std::string& type);
// The family with a class for the model: `config.family`, else the first family whose config.json
// describes the whole model. null: no family.
const Family* family_of(const ModelConfig& config);
// "gpt2, llama, ..."
std::string family_types();

}  // namespace crest
