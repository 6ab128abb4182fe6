#include "plan/defaults.h"

#include <fmt/format.h>

#include <algorithm>
#include <optional>

#include "core/error.h"
#include "core/text.h"
#include "passes/recompute.h"
#include "passes/tensor_parallel.h"
#include "plan/choose_kernels.h"
#include "plan/memory_choices.h"

namespace crest {

namespace {

// A length must fit training. 8-bit weights cannot train: there it must fit evaluation.
SessionUse deciding_use(const Recipe& r, const SessionUse& use) {
  auto weights = r.pass_settings.find("weights");
  if (weights == r.pass_settings.end() || weights->second != "int8") return use;
  SessionUse evaluation;
  evaluation.validation = true;
  return evaluation;
}

// A session with the smallest batch; none if some kernel is missing.
std::optional<CompiledSession> smallest_batch(Recipe r, int64_t seq, const Device& device, const SessionUse& use) {
  r.seq = seq, r.batch = batch_multiple(r);
  r = memory_choices(r, device).back();  // the smallest
  if (!recompute_budget(r.recompute).empty()) r.recompute = "full";
  try {
    return compile(r, device, session_programs(resolve(r, device), deciding_use(r, use)), {.verify = false});
  } catch (const NoKernel&) {
    return {};
  }
}

// An upper bound: 32 bytes per parameter, a layer's activations in fp32, naive attention's scores,
// logits. Most recipes fit by this bound and need no compiled session.
double most_bytes(const ModelConfig& m, int64_t seq, int64_t batch = 1) {
  const double ff = double(m.ff), n = double(seq), vocab = double(m.vocab) + 4096;
  const double width = double(std::max(m.width, m.heads * m.head_dim));
  const double parameters = (2 * vocab + double(m.context)) * width + double(m.layers) * width * (6 * width + 3 * ff);
  const double layer = n * (160 * width + 48 * ff) + 32 * double(m.heads) * n * n;
  return 32 * parameters + double(batch) * (double(m.layers) * layer + 32 * n * vocab) + double(256 << 20);
}

int64_t default_seq(const Recipe& r, const Device& device, const SessionUse& use, int64_t limit) {
  const int64_t longest = std::min(r.model.context, longest_default_seq);
  if (most_bytes(r.model, longest) < double(limit)) return longest;
  for (int64_t seq = longest; seq > 0; seq /= 2) {
    std::optional<CompiledSession> s = smallest_batch(r, seq, device, use);
    if (!s || s->limited_bytes() <= limit) return seq;
    if (s->limited_bytes() - s->transient_bytes > limit) break;  // the state alone is too large
  }
  return longest;
}

// Why the length is not the context; empty if it is.
std::string why_shorter(const Recipe& r, int64_t chosen, int64_t limit) {
  const std::string context = format_number_of(r.model.context, "token");
  if (chosen < std::min(r.model.context, longest_default_seq))
    return fmt::format("longer ones do not fit in {}, even with --batch {}", format_bytes(double(limit)),
                       batch_multiple(r));
  if (chosen < r.model.context)
    return fmt::format("the model's context of {} is longer than most training needs", context);
  return "";
}

// Balances the stages by time if times are known.
Recipe with_stages(Recipe r, const Device& device, const DefaultSources& from) {
  const bool given = r.pass_settings.count("stages") && !r.pass_settings["stages"].empty();
  if (r.layout().size(Axis::pipeline) == 1 || given || !from.stage_costs_of) return r;
  const Recipe resolved = resolve(r, device);
  const std::optional<StageCosts> costs = from.stage_costs_of(resolved, device);
  if (!costs) return r;
  const std::string cut = stages_text(cut_layers(*costs, stage_count(r)));
  if (from.note && cut != stages_text(stage_layers(resolved)))
    from.note(fmt::format("note     stages of {} layers, by predicted times (--stages changes it)", cut));
  r.pass_settings["stages"] = cut;
  return r;
}

}  // namespace

// Leaves `auto` if resolve() can decide.
Recipe with_default_precision(Recipe r, const Device& device, const DefaultSources& from) {
  if (r.precision != "auto") return r;
  const std::optional<MatmulRates> rates = from.rates_of ? from.rates_of(device) : std::nullopt;
  if (!rates) return r;
  r.precision = rates->fp32 > rates->bf16 ? "fp32" : "bf16";
  if (from.note)
    from.note(fmt::format("precision {}: matmuls of this CPU reach {} in fp32 and {} in bf16 (--precision changes it)",
                          r.precision, format_si(rates->fp32, "FLOP/s"), format_si(rates->bf16, "FLOP/s")));
  return r;
}

Recipe with_defaults(Recipe r, const Device& device, const DefaultSources& from) {
  r = with_default_precision(std::move(r), device, from);
  if (r.seq == 0) {
    int64_t limit = from.limit;
    if (auto budget = recompute_budget(r.recompute); !budget.empty())
      limit = std::min(limit, parse_bytes(budget, "--recompute"));
    const int64_t seq = default_seq(r, device, from.use, limit);
    if (std::string why = why_shorter(r, seq, limit); from.note && !why.empty())
      from.note(fmt::format("note     sequences of {}: {} (--seq changes it)", format_number_of(seq, "token"), why));
    r.seq = seq;
  }
  if (recompute_budget(r.recompute).empty())
    r = most_bytes(r.model, r.padded_seq(), r.batch) < double(from.limit)
            ? memory_choices(r, device).front()
            : within_memory(r, device, from.limit, from.use, from.note);
  else
    r = recompute_within_budget(std::move(r), device, from.timer_of, from.note, from.use);
  return with_stages(std::move(r), device, from);
}

}  // namespace crest
