// Shared by the optimizers of --optimizer. An optimizer is a row and a function that emits the
// update of one parameter, in an optimizer_*.cpp.
#pragma once
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "passes/pass.h"
#include "program/builder.h"

namespace crest {

// The owner of each number of a state.
enum class Per { element, row, column, block };  // block: --state-block elements

// A state tensor `PARAMETER.NAME`, read and written by an update. It starts at zero, is persistent
// and is part of checkpoints.
struct StateRow {
  const char* name;
  Per per = Per::element;
  DType dtype = DType::f32;
  bool momentum = false;  // only with --beta1 above 0
};

// The state `master` of a 16-bit weight. split: the lower 16 bits of an fp32 master (a full fp32
// copy with --master-weights fp32); needs an element-wise update (ops/update.h). whole: a full fp32
// copy. none: no master; the weights must be bf16.
enum class Master { split, whole, none };

class Update;

struct Optimizer {
  const char* name;       // --optimizer
  void (*emit)(Update&);  // emits the update of one parameter
  std::vector<StateRow> states;
  Master master = Master::split;
  bool (*takes)(const Param&) = nullptr;  // whether it updates a parameter (AdamW updates the rest); null: all
  double rate = 1;                        // suitable learning rate relative to AdamW's
  bool owned = false;                     // with --shard a rank updates its own of the tensors taken, each as a whole
};

// A parameter's state, declared by --optimizer.
struct OptimizerState {
  const char* name;
  DType dtype;
  Shape shape;
};
// All states of a parameter with weights of this shape (possibly padded) and dtype.
std::vector<OptimizerState> optimizer_states(const PassContext& context, const Param& param, const Shape& shape,
                                             DType weight);

// Whether a rank updates its own of these tensors as wholes (passes/shard.cpp). Tensors of the same
// role in their layers, such as h.3.attn.qkv.weight and h.7.attn.qkv.weight, have the same update.
bool is_owned(const PassContext& context, const Param& param);

// One parameter, and what its update is built from.
class Update {
 public:
  // Declares the states.
  Update(Builder& b, const Recipe& recipe, const Param& param, const std::vector<OptimizerState>& states,
         ValueId scalars, ValueId gradient);

  const Recipe& recipe;
  Builder& b;
  const Param& param;
  const ValueId scalars, gradient;

  // For matrix products of the optimizer itself: the dtype of operands, and whether f32 is rounded
  // to TF32.
  DType product_dtype() const;
  bool product_tf32() const;
  const Shape& shape() const { return b.at(param.value).shape; }
  double decay() const { return param.decay ? recipe.weight_decay : 0.0; }
  // Attributes of an element-wise update, with `lr_factor` if the parameter has one.
  Attrs attrs() const;

  ValueId state(std::string_view name) const;
  // The updated value: the state `master` if it exists, else the weight.
  ValueId master() const { return copy == no_value ? param.value : state("master"); }
  ValueId copy = no_value;  // the weight, if it is a copy of the master

 private:
  std::vector<std::pair<std::string_view, ValueId>> states_;
  Update(const Update&) = delete;
};

// The optimizers in each file. AdamW is first: it updates the parameters left by others.
std::vector<Optimizer> elementwise_optimizers();
std::vector<Optimizer> unfused_optimizers();
std::vector<Optimizer> adafactor_optimizers();
std::vector<Optimizer> muon_optimizers();

// A suitable learning rate relative to AdamW's (docs/reference/optimizers.md).
double learning_rate_scale(const std::string& optimizer);
// Steps with fewer tokens have noisier gradients and need a lower rate. Adam's best rate grows with
// the square root of the batch while noise dominates (Malladi et al. 2022).
// docs/results/learning_rate.md has the runs behind this number.
inline constexpr int64_t enough_tokens = 1024;
// The peak learning rate without --lr: 6e-4 sqrt(768 / width), from 1e-4 to 3e-3, times
// sqrt(tokens of a step / enough_tokens) below enough_tokens. Optimizers other than AdamW scale it
// (learning_rate_scale).
// Adapters have small matrices next to the model's own: 2e-4 for every width.
inline constexpr double adapter_rate = 2e-4;
double default_learning_rate(const Recipe& recipe);

// Parameters with their own learning rate. Param::lr_group is 1 + the index here.
struct LearningRateGroup {
  const char* name;         // "embedding"
  const char* setting;      // "lr-embedding"
  const char *lack, *hint;  // for models without such parameters
  bool (*has)(const Param&);
};
const std::vector<LearningRateGroup>& learning_rate_groups();
// The peaks, as "embedding 0.3, vectors 0.05"; "": no group has its own rate.
std::string learning_rates_text(const Recipe& recipe);

// Elements with a common scale in 8-bit state (--state-block).
inline constexpr const char* state_block_property = "state_block";

}  // namespace crest
