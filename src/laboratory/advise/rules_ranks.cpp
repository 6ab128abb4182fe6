// Rules about ranks sharing a model.
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

bool heads_divide(const ModelConfig& m, int64_t t) { return m.heads % t == 0 && m.kv_heads % t == 0; }
bool width_is_aligned(const AdviceCase& c, int64_t t) {
  int64_t h = c.recipe.model.width;
  return h % t == 0 && (!no_tensor_cores(c).empty() || h / t % aligned_elements(c) == 0);
}

// The fewest ranks with enough memory if the plan divides evenly. Tensor parallelism repeats some
// values on every rank, so more may be needed.
int64_t ranks_for_memory(const AdviceCase& c, Planner& planner) {
  int64_t planned = planner.planned_bytes(), t = c.mesh.size(Axis::tensor), least = 1;
  while (least < t && planned / (least * c.mesh.size(Axis::pipeline)) > c.limit) ++least;
  return least;
}

// The fewest ranks, up to the given number, with suitable memory, heads and width alike, so that
// all these rules give the same advice. 0: none.
int64_t fitting_ranks(const AdviceCase& c, Planner& planner) {
  for (int64_t t = ranks_for_memory(c, planner); t <= c.mesh.size(Axis::tensor); ++t)
    if (heads_divide(c.recipe.model, t) && width_is_aligned(c, t)) return t;
  return 0;
}

// The text of a rule about heads or width if tensor-ranks already advises a suitable number.
std::string settled(const std::string& condition, int64_t ranks) {
  return fmt::format("{}; --mesh tensor={} of tensor-ranks settles it", condition, ranks);
}

}  // namespace

Checked width_over_ranks(const AdviceCase& c, Planner& planner) {
  if (std::string why = one_rank(c); !why.empty()) return does_not_apply(why);
  if (std::string why = no_tensor_cores(c); !why.empty()) return does_not_apply(why);
  int64_t t = c.mesh.size(Axis::tensor), h = c.recipe.model.width, multiple = aligned_elements(c);
  if (width_is_aligned(c, t)) return holds(fmt::format("h/t = {}/{} = {}", h, t, h / t));
  std::string share = h % t ? fmt::format("{} is not divisible by {}", h, t)
                            : fmt::format("h/t = {} is not a multiple of {}", h / t, alignment_text(c));
  if (int64_t fitting = fitting_ranks(c, planner)) return holds(settled(share, fitting));
  return advise({{share, fmt::format("a width of {}", round_up(h, t * multiple)), {}, true}}, "");
}

Checked heads_over_ranks(const AdviceCase& c, Planner& planner) {
  if (std::string why = one_rank(c); !why.empty()) return does_not_apply(why);
  const ModelConfig& m = c.recipe.model;
  int64_t t = c.mesh.size(Axis::tensor);
  bool batch = c.recipe.batch * m.heads % t == 0;
  if (heads_divide(m, t)) return holds(fmt::format("a/t = {}/{} = {}", m.heads, t, m.heads / t));
  std::string condition = fmt::format("{} heads{} are not divisible by t = {}{}", m.heads,
                                      m.kv_heads == m.heads ? "" : fmt::format(" ({} for keys and values)", m.kv_heads),
                                      t, batch ? "" : fmt::format(", nor is b*a = {}", c.recipe.batch * m.heads));
  if (int64_t fitting = fitting_ranks(c, planner)) return holds(settled(condition, fitting));
  int64_t fewer = t - 1, more = t + 1;
  while (!heads_divide(m, fewer)) --fewer;  // ends at 1
  while (more <= m.kv_heads && !heads_divide(m, more)) ++more;
  bool enough = fewer >= ranks_for_memory(c, planner);
  std::string change = enough ? fmt::format("--mesh tensor={}", fewer) : "";
  if (more <= m.kv_heads) change += fmt::format("{}tensor={}", enough ? " or " : "--mesh ", more);
  return advise({{condition, change.empty() ? fmt::format("heads that {} divides", t) : change, {}}}, "");
}

Checked tensor_ranks(const AdviceCase& c, Planner& planner) {
  if (std::string why = one_rank(c); !why.empty()) return does_not_apply(why);
  int64_t planned = planner.planned_bytes(), t = c.mesh.size(Axis::tensor);
  // If no number of ranks suits heads and width, their own rules name the first change.
  int64_t fitting = fitting_ranks(c, planner), least = fitting ? fitting : t;
  std::string text = fmt::format("{} planned for one rank, {} available on each", format_bytes(double(planned)),
                                 format_bytes(double(c.limit)));
  if (least == t) return holds(text);
  return advise({{fmt::format("t = {}; {}: {} {} enough if memory divides evenly, and suit{} heads and width", t, text,
                              format_number_of(least, "rank"), least == 1 ? "is" : "are", least == 1 ? "s" : ""),
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
  if (c.recipe.copies() == 1) return does_not_apply("one rank (--ranks)");
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
