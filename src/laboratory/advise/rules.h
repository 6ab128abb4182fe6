// The checks behind the table of rules (rules.cpp), and what they share.
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
// The recipe with a setting changed.
Recipe with(Recipe recipe, const std::string& setting, const std::string& value);

// Whether the matrix products of the recipe run on tensor cores, for which the rules of sizes were
// made; if not, why.
std::string no_tensor_cores(const AdviceCase& c);
// Elements that the device's generation wants sizes of operands to be a multiple of, for full speed
// (128 bytes from compute capability 8.0, 16 before), and the text that says so.
int64_t aligned_elements(const AdviceCase& c);
std::string alignment_text(const AdviceCase& c);
// Elements of 16 bytes: what tensor cores need at all.
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
