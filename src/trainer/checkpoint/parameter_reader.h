// Parameters from files of Hugging Face or Crest with any float dtype, one at a time.
#pragma once
#include <string>
#include <unordered_map>
#include <vector>

#include "checkpoint/adapter.h"
#include "checkpoint/safetensors_folder.h"
#include "model/config.h"
#include "model/weights_map.h"

namespace crest {

class ParameterReader {
 public:
  // Throws if the weights belong to another model, or are no floats.
  // adapter: merged into the weights; null: none. Both must outlive the reader.
  ParameterReader(const ModelConfig& model, const WeightsFolder& folder, const AdapterWeights* adapter = nullptr);
  // The whole parameter in Crest's shape and orientation, unpadded. Throws if the file has another
  // head for a tied model.
  void read(const std::string& parameter, std::vector<float>& values) const;

 private:
  void require_floats(size_t position) const;
  void require_equal_head(const CanonicalTensor& embedding, const float* expected) const;

  const ModelConfig model_;
  const WeightsFolder& folder_;
  const AdapterWeights* adapter_;
  NameMatch found_;
  std::unordered_map<std::string, std::vector<size_t>> tensors_;  // of a parameter, indices into found_.tensors
};

}  // namespace crest
