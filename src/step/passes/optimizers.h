// What the optimizers behind --optimizer share. Each is a row and a function that emits the update
// of one parameter, in one of optimizer_*.cpp.
#pragma once
#include <string>
#include <string_view>
#include <vector>

#include "model/recipe.h"
#include "program/builder.h"

namespace crest {

// One parameter, and what its update is built from.
class Update {
 public:
  Update(Builder& b, const Recipe& recipe, bool splits_masters, const Param& param, ValueId scalars, ValueId gradient)
      : recipe(recipe), b(b), param(param), scalars(scalars), gradient(gradient), splits_masters_(splits_masters) {}

  const Recipe& recipe;
  Builder& b;
  const Param& param;
  const ValueId scalars, gradient;

  // For the optimizer's own matrix products: the dtype of their operands, and whether f32 is
  // rounded to TF32.
  DType product_dtype() const;
  bool product_tf32() const;
  DType weight_dtype() const { return b.at(param.value).dtype; }
  const Shape& shape() const { return b.at(param.value).shape; }
  bool matrix() const { return shape().rank() == 2; }
  // A matrix inside a layer: neither embedding nor head.
  bool hidden() const { return matrix() && param.name.starts_with("h."); }
  double decay() const { return param.decay ? recipe.weight_decay : 0.0; }

  // Declares `PARAMETER.SUFFIX`: zero at first, persistent, part of checkpoints.
  ValueId state(std::string_view suffix, DType dtype, const Shape& shape) const {
    return b.declare(param.name + "." + std::string(suffix), dtype, shape, Role::state, Lifetime::persistent);
  }
  ValueId state(std::string_view suffix) const { return state(suffix, DType::f32, shape()); }
  // The fp32 values: the weight itself; for a 16-bit weight, the state `master`, which `copy`
  // follows.
  ValueId master() {
    if (!is_half(weight_dtype())) return param.value;
    copy = param.value;
    return state("master");
  }
  // The same for an element-wise update (ops/update.h): for a bf16 weight, `master` is only the low
  // half, unless --master-weights fp32.
  ValueId elementwise_master() {
    if (!splits_masters_ || weight_dtype() != DType::bf16) return master();
    copy = param.value;
    return state("master", DType::u16, shape());
  }
  ValueId copy = no_value;  // set by both: the weight, if it is a copy

 private:
  bool splits_masters_;
  Update(const Update&) = delete;
};

struct Optimizer {
  const char* name;           // --optimizer
  void (*emit)(Update&);      // the update of one parameter
  bool bf16_weights = false;  // no fp32 master: the weights themselves are bf16
  bool blocks = false;        // state in blocks of --state-block elements
  double rate = 1;            // suitable learning rate relative to AdamW's
};

// What other optimizers leave to AdamW: vectors and embeddings.
void emit_adamw(Update&);

// The optimizers of each file.
std::vector<Optimizer> elementwise_optimizers();
std::vector<Optimizer> unfused_optimizers();
std::vector<Optimizer> adafactor_optimizers();
std::vector<Optimizer> muon_optimizers();

// A suitable learning rate relative to AdamW's (docs/guides/optimizers.md).
double learning_rate_scale(const std::string& optimizer);

// Elements that share a scale of 8-bit state (--state-block).
inline constexpr const char* state_block_property = "state_block";

}  // namespace crest
