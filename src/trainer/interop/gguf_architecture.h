// The architectures of llama.cpp: their limits, and the description of a model in a file.
#pragma once
#include <string>
#include <vector>

#include "interop/gguf_file.h"
#include "model/config.h"
#include "model/weights_map.h"

namespace crest {

struct GgufArchitecture;
// The architecture for a model. null: none; gguf_lacks says why.
const GgufArchitecture* gguf_architecture(const ModelConfig& config);
// What llama.cpp lacks of the model, or "".
std::string gguf_lacks(const ModelConfig& config);
const char* name(const GgufArchitecture& architecture);

struct GgufTensor {
  CanonicalTensor tensor;       // under llama.cpp's name
  bool neighbor_pairs = false;  // rows of each head: llama.cpp rotates 2i with 2i + 1, Crest i with i + head_dim / 2
  bool again = false;           // holds parameters of another tensor, too
};
// All tensors of a model without adapters, except gguf_rope_factors.
std::vector<GgufTensor> gguf_tensors(const ModelConfig& config);
// The divisors of the rotary frequencies, for tensor rope_freqs.weight; empty: none.
std::vector<float> gguf_rope_factors(const ModelConfig& config);
// Up to this length of a sequence llama.cpp and Crest compute the same. `why` gets a sentence if it
// is shorter than the model's context.
int64_t gguf_context(const ModelConfig& config, std::string* why = nullptr);
// general.architecture, and the keys of the architecture.
void gguf_describe(const ModelConfig& config, GgufHeader& header);

}  // namespace crest
