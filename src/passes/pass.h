// A pass rewrites a Program. Each lever of the recipe is read by one pass and nowhere else; what later passes need to
// know they see in the Program itself.
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
  // Micro steps of a training step: the first writes gradients, later ones add to them, the last one may reduce.
  bool first = true, last = true;
  // The device's kernel for an instruction that a pass could make; empty where only the reference takes it. Null: no
  // device is known.
  std::function<std::string(const Program&, const Instr&)> kernel_for = nullptr;

  // Value of a lever (see lever()), or its default.
  std::string lever(std::string_view name) const;
  // The same as a number; a usage error when it is none.
  double number(std::string_view name) const;
};

// A setting that only its pass reads, which keeps its text in Recipe::levers: lever({.name = "packing", ..}).
// Of type number or whole where the row says so.
Setting lever(Setting row);

struct Pass {
  const char* name;
  const char* help;
  void (*run)(Program&, const PassContext&);
  const std::vector<Setting>& (*settings)() = nullptr;  // what the pass reads of a recipe; null: nothing of its own
  // Why a Program that is run cannot do without the pass; null: --disable-pass may switch it off there too.
  const char* required = nullptr;
};

// All passes in order (passes/pipeline.cpp).
const std::vector<Pass>& pipeline();

// A property of update Programs: the precision of products that an optimizer makes, where the weights do not show it
// (autocast, TF32).
inline constexpr const char* product_precision_property = "product_precision";

struct PassTiming {
  std::string name;
  double seconds;  // run and verification
};

struct PipelineOptions {
  std::string stop_after;  // run up to and including this pass; empty: all
  bool verify = true;
};

// Runs the pipeline over a forward Program; verifies after every pass. Passes named in recipe.disabled_passes are
// skipped (an unknown name is a usage error with the nearest right one). Returns the time of each.
std::vector<PassTiming> run_passes(Program& program, const PassContext& context, const PipelineOptions& options = {});

// The settings of all passes, in their order.
const std::vector<Setting>& pass_settings();

// Whether --packing puts whole documents side by side: the data must be packed, too (data/packing.h).
bool packs_documents(const Recipe& recipe);

}  // namespace crest
