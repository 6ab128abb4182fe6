// Rules about ranks that share a model.
#include <fmt/format.h>

#include <algorithm>

#include "advise/rules.h"
#include "core/error.h"
#include "core/text.h"

namespace crest::rule {

namespace {

std::string one_rank(const AdviceCase& c) {
  return c.mesh.size(Axis::tensor) == 1 ? "one tensor parallel rank (--mesh)" : "";
}

}  // namespace

Checked width_over_ranks(const AdviceCase& c, Planner&) {
  if (std::string why = one_rank(c); !why.empty()) return does_not_apply(why);
  if (std::string why = no_tensor_cores(c); !why.empty()) return does_not_apply(why);
  int64_t t = c.mesh.size(Axis::tensor), h = c.recipe.model.width, multiple = aligned_elements(c);
  if (h % t == 0 && h / t % multiple == 0) return holds(fmt::format("h/t = {}/{} = {}", h, t, h / t));
  std::string share = h % t ? fmt::format("{} is not divided by {}", h, t)
                            : fmt::format("h/t = {} is no multiple of {}", h / t, alignment_text(c));
  std::vector<Finding> findings;
  int64_t fewer = t - 1;
  while (fewer > 1 && (h % fewer || h / fewer % multiple)) --fewer;
  findings.push_back(
      {share, fmt::format("--mesh tensor={}, or a width of {}", fewer, round_up(h, t * multiple)), {}, true});
  return advise(findings, "");
}

Checked heads_over_ranks(const AdviceCase& c, Planner&) {
  if (std::string why = one_rank(c); !why.empty()) return does_not_apply(why);
  const ModelConfig& m = c.recipe.model;
  int64_t t = c.mesh.size(Axis::tensor);
  auto divides = [&](int64_t n) { return m.heads % n == 0 && m.kv_heads % n == 0; };
  bool batch = c.recipe.batch * m.heads % t == 0;
  if (divides(t)) return holds(fmt::format("a/t = {}/{} = {}", m.heads, t, m.heads / t));
  int64_t fewer = t - 1, more = t + 1;
  while (!divides(fewer)) --fewer;  // 1 does
  while (more <= m.kv_heads && !divides(more)) ++more;
  return advise({{fmt::format("{} heads{} are not divided by t = {}{}", m.heads,
                              m.kv_heads == m.heads ? "" : fmt::format(" ({} for keys and values)", m.kv_heads), t,
                              batch ? "" : fmt::format(", nor is b*a = {}", c.recipe.batch * m.heads)),
                  more <= m.kv_heads ? fmt::format("--mesh tensor={} or tensor={}", fewer, more)
                                     : fmt::format("--mesh tensor={}", fewer),
                  {}}},
                "");
}

// A share of the plan: what tensor parallelism repeats on every rank comes on top.
Checked tensor_ranks(const AdviceCase& c, Planner& planner) {
  if (std::string why = one_rank(c); !why.empty()) return does_not_apply(why);
  int64_t planned = planner.planned_bytes(), t = c.mesh.size(Axis::tensor), least = 1;
  while (least < t && planned / (least * c.mesh.size(Axis::pipeline)) > c.limit) ++least;
  std::string text = fmt::format("{} planned for one rank, {} available on each", format_bytes(double(planned)),
                                 format_bytes(double(c.limit)));
  if (least == t) return holds(text);
  return advise({{fmt::format("t = {}; {}: {} {} enough if memory divides evenly", t, text,
                              format_number_of(least, "rank"), least == 1 ? "is" : "are"),
                  fmt::format("--mesh tensor={}", least),
                  {}}},
                "");
}

Checked pipeline_bubble(const AdviceCase& c, Planner&) {
  int64_t p = c.mesh.size(Axis::pipeline), m = c.recipe.grad_accumulation;
  if (p == 1) return does_not_apply("one pipeline stage (--mesh)");
  auto bubble = [p](int64_t steps) { return double(p - 1) / double(steps + p - 1); };
  std::string text = fmt::format("{} in {} stages: the bubble (p - 1)/(m + p - 1) is {:.0f}% of the step",
                                 format_number_of(m, "micro step"), p, 100 * bubble(m));
  constexpr double most = 0.1;
  if (bubble(m) <= most) return holds(text);
  int64_t enough = m;
  while (bubble(enough) > most) ++enough;
  return advise({{.condition = text,
                  .change = fmt::format("--grad-accumulation {}: {:.0f}%", enough, 100 * bubble(enough)),
                  .other_model = true,
                  .time_ratio = (1 - bubble(m)) / (1 - bubble(enough))}},
                "");
}

Checked sharded_optimizer(const AdviceCase& c, Planner& planner) {
  if (c.recipe.data_ranks() == 1) return does_not_apply("one rank (--ranks)");
  static const std::vector<std::string> levels = {"none", "optimizer", "gradients", "weights"};
  auto given = c.recipe.pass_settings.find("shard");
  auto level = std::find(levels.begin(), levels.end(), given == c.recipe.pass_settings.end() ? "none" : given->second);
  if (level == levels.end()) fail_internal("--shard is not resolved", "advise");
  int64_t now = planner.planned_bytes();
  if (planner.fits(c.given)) return holds(*level == "none" ? "the step fits without it" : "--shard " + *level);
  if (*level == levels.back()) return holds("--shard " + *level + ": there is nothing more to share");
  try {
    while (++level != levels.end()) {
      Recipe r = with(c.given, "shard", *level);
      bool fits = planner.fits(r);
      if (!fits && *level != levels.back()) continue;
      return advise({{.condition = fmt::format("each rank needs {} of {}", format_bytes(double(now)),
                                               format_bytes(double(c.limit))),
                      .change = fmt::format("--shard {}{}", *level, fits ? "" : " (does not suffice alone)"),
                      .recipe = r,
                      .for_memory = true}},
                    "");
    }
    fail_internal("no level of sharding was tried", "advise");
  } catch (const Error& e) {
    if (e.code() != Exit::usage) throw;
    return does_not_apply("--shard is refused: " + e.problem());
  }
}

}  // namespace crest::rule
