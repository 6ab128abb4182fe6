// What crest plan reports: parameters, FLOPs, memory, and what fits.
#pragma once
#include <cstdint>
#include <nlohmann/json_fwd.hpp>

#include "plan/compile.h"

namespace crest {

// The convention of the model's FLOPs.
inline constexpr const char* plan_flops_convention = "6N + 12 L d T per token (PaLM, appendix B), no causal discount";

// The results of a plan, for people and for programs. Bytes are those of one rank.
struct PlanReport {
  CompiledSession session;
  int64_t ranks = 1;
  int64_t limit = 0;  // of this machine, which all ranks share
  int64_t batch_that_fits = 0;
  double executed_flops = 0;  // per optimizer step
  double search_seconds = 0;

  const ModelConfig& model() const { return session.recipe.model; }
  int64_t planned() const { return session.planned_bytes(); }
  bool fits() const { return planned() * ranks <= limit; }
  int64_t embeddings() const {
    const ModelConfig& m = model();
    return m.width * (m.vocab + (m.position == PositionKind::learned ? m.context : 0));
  }
  double model_flops() const {
    return model().flops_per_token(session.recipe.seq_length()) * double(session.recipe.tokens_per_step());
  }
};

// Compiles the session and finds the largest micro batch within `limit` bytes. The recipe must be
// resolved.
PlanReport plan_report(const Recipe& recipe, const Device& device, const SessionUse& use, int64_t limit);
// blocks: how many of the largest ones to list.
nlohmann::ordered_json to_json(const PlanReport& report, int blocks);

}  // namespace crest
