// Bounds of a combination of mesh, schedule, shards and micro batch before it is planned.
#pragma once
#include <cstdint>
#include <vector>

#include "model/recipe.h"

namespace crest {

class MeshBounds {
 public:
  // For all recipes of this model.
  explicit MeshBounds(const ModelConfig& model);

  // A step takes at least so many milliseconds: its matrix products at `peak` FLOP/s, without
  // recomputation and communication, with the waits that every order of its schedule has.
  double least_ms(const Recipe& resolved, double peak) const;
  // The fullest rank needs at least so much device memory, with all layers recomputed: weights,
  // optimizer state, gradients kept between micro steps, and inputs of layers.
  int64_t least_bytes(const Recipe& resolved) const;

 private:
  // Of a layer, of all before the layers, or of all behind them.
  struct Part {
    double trained = 0, frozen_matrices = 0, other_frozen = 0;  // elements
    double forward = 0, backward = 0;                           // FLOPs of products for a token
  };
  Part& part_of(const std::string& parameter);
  // By stage: the parts' sums.
  std::vector<Part> stages(const std::vector<int64_t>& layers) const;

  ModelConfig model_;
  bool layers_adapt_ = true;  // some parameter of each layer is trained
  Part before_, behind_;
  std::vector<Part> layers_;
};

}  // namespace crest
