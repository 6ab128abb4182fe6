// The checks of the table of rules (rules.cpp), and their helpers.
#pragma once
#include <string>
#include <vector>

#include "advise/advise.h"
#include "core/round_up.h"

namespace crest::rule {

inline Checked holds(std::string text) { return {RuleStatus::holds, std::move(text), {}}; }
inline Checked does_not_apply(std::string why) { return {RuleStatus::not_applicable, std::move(why), {}}; }
inline Checked advise(std::vector<Finding> findings, std::string otherwise) {
  if (findings.empty()) return holds(std::move(otherwise));
  return {RuleStatus::advice, "", std::move(findings)};
}
// The recipe with one setting changed.
Recipe with(Recipe recipe, const std::string& setting, const std::string& value);

// Why the rules about sizes do not apply: the matrix products do not run on tensor cores. "": they
// do.
std::string no_tensor_cores(const AdviceCase& c);
// Operand sizes should be a multiple of this many elements for full speed, by the device's
// generation and the type. The text names the source.
int64_t aligned_elements(const AdviceCase& c);
std::string alignment_text(const AdviceCase& c);
// Elements in 16 bytes, the minimum for tensor cores.
int64_t needed_elements(const AdviceCase& c);

// rules_sizes.cpp
Checked vocabulary(const AdviceCase&, Planner&);
Checked tokens(const AdviceCase&, Planner&);
Checked head_size(const AdviceCase&, Planner&);
Checked head_ratio(const AdviceCase&, Planner&);
Checked mlp_width(const AdviceCase&, Planner&);
Checked product_alignment(const AdviceCase&, Planner&);
Checked tile_quantization(const AdviceCase&, Planner&);
Checked wave_quantization(const AdviceCase&, Planner&);
Checked fallback_kernels(const AdviceCase&, Planner&);
// rules_methods.cpp
Checked micro_batch(const AdviceCase&, Planner&);
Checked accumulation(const AdviceCase&, Planner&);
Checked mixed_precision(const AdviceCase&, Planner&);
Checked flash_attention(const AdviceCase&, Planner&);
Checked fusion(const AdviceCase&, Planner&);
Checked recompute(const AdviceCase&, Planner&);
Checked fused_optimizer(const AdviceCase&, Planner&);
Checked optimizer_memory(const AdviceCase&, Planner&);
Checked data_loading(const AdviceCase&, Planner&);
// rules_ranks.cpp
Checked width_over_ranks(const AdviceCase&, Planner&);
Checked heads_over_ranks(const AdviceCase&, Planner&);
Checked tensor_ranks(const AdviceCase&, Planner&);
Checked pipeline_bubble(const AdviceCase&, Planner&);
Checked sharded_optimizer(const AdviceCase&, Planner&);

}  // namespace crest::rule
