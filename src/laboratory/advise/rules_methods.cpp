// Rules about methods: batch, precision, kernels, recompute, data.
#include <fmt/format.h>

#include <algorithm>

#include "advise/rules.h"
#include "core/text.h"

namespace crest::rule {

namespace {

std::string bytes(int64_t n) { return format_bytes(double(n)); }

Recipe with_batch(const Recipe& given, int64_t batch) { return with(given, "batch", std::to_string(batch)); }

constexpr double knee = 0.01;  // gain below which a larger batch does not pay

// The smallest batch within `knee` of the best one, trying `from`, twice `from`, and so on.
int64_t sufficient_batch(Planner& planner, const Recipe& given, int64_t from, int64_t largest) {
  std::vector<std::pair<int64_t, double>> list;
  for (int64_t b = from;; b = std::min(2 * b, largest)) {
    list.emplace_back(b, *planner.ms_per_token(with_batch(given, b)));
    if (b >= largest) break;
  }
  double best =
      std::min_element(list.begin(), list.end(), [](auto& a, auto& b) { return a.second < b.second; })->second;
  for (auto& [b, ms] : list)
    if (ms <= best * (1 + knee)) return b;
  return from;
}

}  // namespace

Checked micro_batch(const AdviceCase& c, Planner& planner) {
  int64_t largest = planner.largest_batch(c.given), given = c.recipe.batch;
  std::string condition = fmt::format("batch {}; up to {} fit in {}", given, largest, bytes(c.limit));
  if (largest == 0) return does_not_apply(fmt::format("not even one sequence fits in {}", bytes(c.limit)));
  if (given > largest)
    return advise({{.condition = fmt::format("batch {} needs {} of {}; any size may be used, not only powers of two",
                                             given, bytes(planner.planned_bytes()), bytes(c.limit)),
                    .change = fmt::format("--batch {}", largest),
                    .recipe = with_batch(c.given, largest),
                    .other_model = true,
                    .for_memory = true}},
                  "");
  if (given == largest) return holds(condition);
  if (!planner.ms_per_token(c.given))
    return does_not_apply(condition + "; to predict the gain of a larger batch, run crest calibrate");
  int64_t enough = sufficient_batch(planner, c.given, given, largest);
  if (enough == given)
    return holds(fmt::format("{}; more is predicted to bring less than {:.0f}%", condition, 100 * knee));
  if (enough < largest) condition += fmt::format("; above {}, at most {:.0f}% more is predicted", enough, 100 * knee);
  return advise({{condition, fmt::format("--batch {}", enough), with_batch(c.given, enough), true}}, "");
}

Checked accumulation(const AdviceCase& c, Planner& planner) {
  int64_t steps = c.recipe.grad_accumulation;
  if (steps == 1) return does_not_apply("no gradient accumulation");
  for (int64_t d = steps; d > 1; --d) {
    if (steps % d) continue;
    Recipe merged = with(with_batch(c.given, c.recipe.batch * d), "grad-accumulation", std::to_string(steps / d));
    if (!planner.fits(merged)) continue;
    return advise(
        {{fmt::format("{} micro steps of batch {}; {} of batch {} fit", steps, c.recipe.batch, steps / d,
                      c.recipe.batch * d),
          fmt::format("--batch {} --grad-accumulation {} (the same global batch)", c.recipe.batch * d, steps / d),
          merged}},
        "");
  }
  return holds(fmt::format("{} micro steps: no larger micro batch of the same global batch fits", steps));
}

Checked mixed_precision(const AdviceCase& c, Planner&) {
  const std::string& p = c.recipe.precision;
  if (p != "fp32" && p != "tf32") return holds(p);
  bool gpu = c.device.kind == "cuda";
  if (!c.device.native_bf16 && !gpu) return does_not_apply("this CPU has no units for 16-bit floats");
  std::string half = c.device.native_bf16 ? "bf16" : "fp16";
  return advise(
      {{fmt::format("{} on a device with {} units", p, half), "--precision " + half, with(c.given, "precision", half)}},
      "");
}

Checked flash_attention(const AdviceCase& c, Planner&) {
  if (c.recipe.attention == "flash") return holds("--attention flash");
  return advise({{"attention keeps T x T scores", "--attention flash", with(c.given, "attention", "flash")}}, "");
}

Checked fusion(const AdviceCase& c, Planner&) {
  if (c.recipe.fusion == "on") return holds("--fusion on");
  return advise(
      {{"every element-wise operation reads and writes memory", "--fusion on", with(c.given, "fusion", "on")}}, "");
}

Checked recompute(const AdviceCase& c, Planner& planner) {
  const std::string& level = c.recipe.recompute;
  Recipe none = with(c.given, "recompute", "none");
  if (!planner.fits(c.given)) {
    for (const char* more : {"pointwise", "selective", "full"}) {
      Recipe r = with(c.given, "recompute", more);
      if (planner.fits(r))
        return advise({{.condition = fmt::format("{} do not fit in {}", bytes(planner.planned_bytes()), bytes(c.limit)),
                        .change = fmt::format("--recompute {}", more),
                        .recipe = r,
                        .for_memory = true}},
                      "");
    }
    return does_not_apply("the step does not fit with any recompute");
  }
  if (level != "none" && planner.fits(none))
    return advise({{fmt::format("--recompute {}, and all activations fit", level), "--recompute none", none}}, "");
  // Recompute frees memory for a larger batch.
  int64_t largest = planner.largest_batch(c.given);
  if (c.recipe.batch < largest || !planner.ms_per_token(c.given))
    return holds(fmt::format("--recompute {}; memory does not limit the batch", level));
  std::vector<Finding> findings;
  for (const char* more : {"selective", "full"}) {
    Recipe r = with(c.given, "recompute", more);
    int64_t batch = planner.largest_batch(r);
    if (batch <= c.recipe.batch) continue;
    r = with_batch(r, sufficient_batch(planner, r, c.recipe.batch, batch));
    if (*planner.ms_per_token(r) < *planner.ms_per_token(findings.empty() ? c.given : *findings[0].recipe))
      findings = {{fmt::format("batch {} is the largest that fits", c.recipe.batch),
                   fmt::format("--recompute {} --batch {}", more, r.batch), r, true}};
  }
  return advise(findings, fmt::format("--recompute {}; a larger batch would not pay for more recompute", level));
}

Checked fused_optimizer(const AdviceCase& c, Planner&) {
  if (c.recipe.optimizer != "adamw-unfused") return holds("--optimizer " + c.recipe.optimizer);
  return advise({{"AdamW as separate operations", "--optimizer adamw", with(c.given, "optimizer", "adamw")}}, "");
}

Checked optimizer_memory(const AdviceCase& c, Planner& planner) {
  if (planner.fits(c.given)) return does_not_apply("the step fits");
  std::vector<Finding> findings;
  int64_t now = planner.planned_bytes();
  for (const char* name : {"adamw-8bit", "lion", "adafactor"}) {
    if (c.recipe.optimizer == name) continue;
    Recipe r = with(c.given, "optimizer", name);
    int64_t planned = planner.planned_bytes(r);
    if (planned >= now) continue;
    findings.push_back(
        {.condition = fmt::format("{} do not fit in {}", bytes(now), bytes(c.limit)),
         .change = fmt::format("--optimizer {}{}", name, !planner.fits(r) ? " (does not suffice alone)" : ""),
         .recipe = r,
         .other_model = true,
         .for_memory = true});
  }
  return advise(findings, "no optimizer has a smaller state");
}

Checked data_loading(const AdviceCase& c, Planner&) {
  if (!c.waits) return does_not_apply("only a run knows how long its steps wait for data: --run");
  if (c.waits->steps == 0 || !(c.waits->step_ms > 0)) return does_not_apply("the run has no steps");
  double share = c.waits->wait_ms / c.waits->step_ms;
  std::string text =
      fmt::format("{:.2f}% of the time of the last {} steps is waiting for data", 100 * share, c.waits->steps);
  if (share < 0.01) return holds(text);
  return advise(
      {{.condition = text, .change = "more --loader-threads or a larger --prefetch", .time_ratio = 1 - share}}, "");
}

}  // namespace crest::rule
