// The content of crest plan: parameters, FLOPs, memory, and fitting sizes.
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
  std::string layers;  // by chunk: "2", "1+1"
  int64_t planned_bytes = 0;
  double executed_flops = 0;  // one rank, per step
  bool fits = true;
  int micro_steps = 0;  // in flight at once
};

// A plan's results, for people and programs. Bytes are one rank's.
struct PlanReport {
  CompiledSession session;
  int64_t ranks = 1;
  int64_t limit = 0;                       // bytes of the device, or of the host
  int64_t rank_limit = 0;                  // one rank's part
  std::optional<int64_t> batch_that_fits;  // none: the plan does not depend on the batch
  double executed_flops = 0;               // per optimizer step, or per forward pass
  double search_seconds = 0;
  std::vector<StagePlan> stages;  // for a pipeline's training step; `session` is the largest stage's
  Bubble bubble;                  // by FLOPs, without transfers
  std::string cut_that_fits;      // a value of --stages if some stage is too large; empty: none fits

  const ModelConfig& model() const { return session.recipe.model; }
  int64_t planned() const { return session.planned_bytes(); }
  bool fits() const { return session.limited_bytes() <= rank_limit; }
  // Plans a forward pass instead of a step.
  bool forward_only() const { return crest::forward_only(session); }
  // The forward pass decodes one token.
  bool decodes() const { return std::string_view(phase_of(session)) == "decode"; }
  int64_t tokens() const { return step_tokens(session); }
  double model_flops() const {
    const int64_t seq = session.recipe.seq_length();
    return (forward_only() ? forward_flops_per_token(model(), seq) : flops_per_token(model(), seq)) * double(tokens());
  }
  std::string flops_convention() const;
};

// With --lora: bytes of the frozen weights and of the adapters, and their elements. Zeros without
// adapters.
struct AdapterPlan {
  int64_t frozen_bytes = 0, adapter_bytes = 0, frozen = 0, trained = 0;
};
AdapterPlan adapter_plan(const CompiledSession& session);

// A rank's part of `limit` bytes. Processes have a GPU each and share a host. Virtual ranks
// (--data-parallel) share their process's memory.
int64_t limit_of_rank(const Recipe& recipe, const Device& device, int64_t limit);

// The device as seen by one rank: processes on a CPU share its threads.
Device rank_device(const Recipe& recipe, Device device);

// Compiles the session and finds the largest micro batch within `limit` bytes of GPU or host
// memory. The recipe must be resolved.
PlanReport plan_report(const Recipe& recipe, const Device& device, const SessionUse& use, int64_t limit);
// blocks: the number of largest blocks to list.
nlohmann::ordered_json to_json(const PlanReport& report, int blocks);

}  // namespace crest
