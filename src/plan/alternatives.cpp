#include "plan/alternatives.h"

#include <fmt/format.h>

#include <algorithm>

#include "core/error.h"

namespace crest {

namespace {

struct Candidate {
  std::string flags;
  Recipe recipe;
};

std::vector<Candidate> neighbours(const Recipe& r) {
  std::vector<Candidate> list;
  auto add = [&](std::string flags, auto change) {
    list.push_back({std::move(flags), r});
    change(list.back().recipe);
  };
  if (r.attention == "naive") add("--attention flash", [](Recipe& x) { x.attention = "flash"; });
  if (r.fusion == "off") add("--fusion on", [](Recipe& x) { x.fusion = "on"; });
  for (const char* recompute : {"activation", "pointwise", "selective", "full"})
    if (r.recompute != recompute)
      add(fmt::format("--recompute {}", recompute), [&](Recipe& x) { x.recompute = recompute; });
  for (const char* tokens : {"2048", "256"})
    add(fmt::format("--loss-chunk {}", tokens), [&](Recipe& x) { x.levers["loss-chunk"] = tokens; });
  if (r.batch > 1 && r.batch % 2 == 0)
    add(fmt::format("--batch {} --grad-accumulation {}", r.batch / 2, r.grad_accumulation * 2),
        [](Recipe& x) { x.batch /= 2, x.grad_accumulation *= 2; });
  if (r.precision == "fp32" || r.precision == "tf32")
    add("--precision bf16", [](Recipe& x) { x.precision = "bf16"; });
  else if (r.policy == "pure" && r.grad_dtype == "fp32")
    add("--grad-dtype bf16", [](Recipe& x) { x.grad_dtype = "bf16"; });
  if (auto it = r.levers.find("master-weights"); it != r.levers.end() && it->second != "split")
    add("--master-weights split", [](Recipe& x) { x.levers["master-weights"] = "split"; });
  for (const char* policy : {"pure", "autocast"})
    if (r.policy != policy && (r.grad_dtype == "fp32" || std::string(policy) == "pure"))
      add(fmt::format("--policy {}", policy), [&](Recipe& x) { x.policy = policy; });
  if (r.pad_vocab > 1) add("--pad-vocab 1", [](Recipe& x) { x.pad_vocab = 1; });
  return list;
}

}  // namespace

std::vector<Alternative> memory_alternatives(const CompiledSession& session,
                                             const std::function<CompiledSession(const Recipe&)>& compile,
                                             const std::function<double(const CompiledSession&)>& flops_per_token) {
  std::vector<Alternative> list;
  for (auto& candidate : neighbours(session.recipe)) {
    try {
      CompiledSession other = compile(candidate.recipe);
      if (other.planned_bytes() < session.planned_bytes())
        list.push_back({candidate.flags, other.planned_bytes(), flops_per_token(other)});
    } catch (const Error& e) {
      if (e.code() != Exit::usage) throw;  // what does not go together here is no alternative
    }
  }
  std::stable_sort(list.begin(), list.end(), [](auto& a, auto& b) { return a.planned_bytes < b.planned_bytes; });
  return list;
}

}  // namespace crest
