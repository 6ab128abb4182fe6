// The content of crest plan: parameters, FLOPs, memory, and the sizes that fit.
#pragma once
#include <cstdint>
#include <nlohmann/json_fwd.hpp>
#include <optional>
#include <string>
#include <vector>

#include "model/parameters.h"
#include "plan/compile.h"

namespace crest {

// A stage of a pipeline.
struct StagePlan {
  std::string layers;  // of its chunks: "2", "1+1"
  int64_t planned_bytes = 0;
  double executed_flops = 0;  // of a rank, per step
  bool fits = true;
  int micro_steps = 0;  // at a time
};

// The results of a plan, for people and for programs. Bytes are those of one rank.
struct PlanReport {
  CompiledSession session;
  int64_t ranks = 1;
  int64_t limit = 0;                       // bytes of the device, or of the host
  int64_t rank_limit = 0;                  // a rank's part of it
  std::optional<int64_t> batch_that_fits;  // none: the plan does not depend on the batch
  double executed_flops = 0;               // per optimizer step, or per forward pass
  double search_seconds = 0;
  std::vector<StagePlan> stages;  // of a pipeline's training step; the session is of the largest
  Bubble bubble;                  // by FLOPs, without transfers
  std::string cut_that_fits;      // --stages for a plan with a stage too large; empty: none fits

  const ModelConfig& model() const { return session.recipe.model; }
  int64_t planned() const { return session.planned_bytes(); }
  bool fits() const { return session.limited_bytes() <= rank_limit; }
  // The plan of a forward pass, not of a step.
  bool forward_only() const { return crest::forward_only(session); }
  // The forward pass decodes one token.
  bool decodes() const { return std::string_view(phase_of(session)) == "decode"; }
  int64_t tokens() const { return step_tokens(session); }
  double model_flops() const {
    double flops = flops_per_token(model(), session.recipe.seq_length()) * double(tokens());
    return forward_only() ? flops / 3 : flops;
  }
  std::string flops_convention() const;
};

// A rank's share of `limit` bytes: processes have a GPU each and share a host; the virtual ranks of
// --data-parallel share their process' memory.
int64_t limit_of_rank(const Recipe& recipe, const Device& device, int64_t limit);

// The device as planned for one of its ranks: ranks in processes of one CPU share its threads.
Device rank_device(const Recipe& recipe, Device device);

// Compiles the session and finds the largest micro batch within `limit` bytes, of a GPU or of the
// host. The recipe must be resolved.
PlanReport plan_report(const Recipe& recipe, const Device& device, const SessionUse& use, int64_t limit);
// blocks: how many of the largest ones to list.
nlohmann::ordered_json to_json(const PlanReport& report, int blocks);

}  // namespace crest
