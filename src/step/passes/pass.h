// A pass rewrites a Program. Each setting of the recipe is read in one pass. Later passes see its
// effect in the Program.
#pragma once
#include <functional>
#include <string>
#include <string_view>
#include <vector>

#include "model/gpt.h"
#include "model/recipe.h"
#include "program/program.h"
#include "settings/setting.h"

namespace crest {

struct PassContext {
  const Recipe& recipe;
  ProgramKind kind;
  // The micro steps of a training step. The first writes gradients, later ones add to them, the
  // last may reduce.
  bool first = true, last = true;
  // The device's kernel for an instruction; empty: only the reference supports it. Null: no device
  // is known.
  std::function<std::string(const Program&, const Instr&)> kernel_for = nullptr;
  // Bytes: kernels are fast on rows with this alignment. 1: on any rows.
  int64_t row_alignment = 1;
  // The Program ends after the forward half and keeps all inputs of the backward half.
  bool forward_only = false;
  // The rank's coordinate along the pipeline axis, and the Program's chunk of layers
  // (passes/stages.h).
  int stage = 0, chunk = 0;
  // Seconds of an instruction by its roofline on the device. Null: no device is known.
  std::function<double(const Program&, const Instr&)> seconds_for = nullptr;
  double host_link = 0;  // bytes/s of the link to host memory in one direction
  // The device runs kernels of two streams at once, each with the multiprocessors it can use.
  bool concurrent_kernels = false;

  // The value of a setting (see pass_setting()), or its default.
  std::string setting(std::string_view name) const;
  // As a number. Throws a usage error for other text.
  double number(std::string_view name) const;
};

// A setting of one pass, stored in Recipe::pass_settings: pass_setting({.name = "packing", ..}). Of
// type number or whole if the row says so.
Setting pass_setting(Setting row);

struct Pass {
  const char* name;
  const char* help;
  void (*run)(Program&, const PassContext&);
  const std::vector<Setting>& (*settings)() = nullptr;  // null: the pass has no settings
  // The reason why Programs need the pass; null: --disable-pass may disable it.
  const char* required = nullptr;
};

// All passes in order (passes/pipeline.cpp).
const std::vector<Pass>& pipeline();

// Property of update Programs: the precision of the optimizer's own matrix products, if the weights
// do not show it (autocast, TF32).
inline constexpr const char* product_precision_property = "product_precision";

struct PassTiming {
  std::string name;
  double seconds;  // includes verification
};

struct PipelineOptions {
  std::string stop_after;  // last pass to run; empty: all
  bool verify = true;
};

// Runs the pipeline over a forward Program and verifies the Program after every pass. Skips
// recipe.disabled_passes. An unknown name is a usage error with the nearest name. Returns each
// pass's time.
std::vector<PassTiming> run_passes(Program& program, const PassContext& context, const PipelineOptions& options = {});

// Whether --disable-pass switches the pass off.
bool is_disabled(const Recipe& recipe, std::string_view pass);

// The settings of all passes, in order.
const std::vector<Setting>& pass_settings();

// The dtype of weights as the model reads them, for a resolved recipe.
DType weight_dtype(const Recipe& recipe);

// Whether --packing packs whole documents: the data must be packed too (data/packing.h).
bool packs_documents(const Recipe& recipe);

}  // namespace crest
