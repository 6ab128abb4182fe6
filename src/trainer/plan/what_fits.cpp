#include "plan/what_fits.h"

#include <fmt/format.h>

#include <algorithm>
#include <utility>

#include "core/error.h"
#include "core/text.h"
#include "passes/fp8.h"
#include "passes/offload.h"
#include "passes/stages.h"
#include "plan/automatic.h"
#include "plan/choose_kernels.h"
#include "plan/search.h"
#include "plan/stage_plans.h"

namespace crest {

namespace {

std::string breakdown(const CompiledSession& s) {
  std::string text;
  CategoryBytes c = s.by_category();
  for (int i = 0; i < category_count; ++i)
    if (c[size_t(i)])
      text += fmt::format("\n    {:<16} {:>12}{}", name(Category(i)), format_bytes(double(c[size_t(i)])),
                          Category(i) == Category::library_context ? " (estimate)" : "");
  return text;
}

// Sets a level of sharding and resets conflicting settings; returns the flags.
std::string sharded(Recipe& r, const std::string& shard) {
  std::string flags;
  auto set = [&](const char* name, const std::string& value) {
    auto it = r.pass_settings.find(name);
    if (it != r.pass_settings.end() && it->second == value) return;
    r.pass_settings[name] = value;
    flags += fmt::format("{}--{} {}", flags.empty() ? "" : " ", name, value);
  };
  auto given = [&](const char* name, const char* otherwise) {
    auto it = r.pass_settings.find(name);
    return it == r.pass_settings.end() ? std::string(otherwise) : it->second;
  };
  set("shard", shard);
  bool buckets = shard != "optimizer" || given("gather", "update") == "forward";
  std::string reduce = given("reduce", "");
  if (!reduce.empty() && reduce != "bucket" && (buckets || reduce != "flat"))
    set("reduce", buckets ? "bucket" : "flat");
  if (given("comm-dtype", "fp32") != "fp32") set("comm-dtype", "fp32");
  return flags;
}

SessionUse use_of(const CompiledSession& s) {
  SessionUse use;
  for (auto& c : s.programs) {
    use.train |= c.spec.kind == ProgramKind::train && !c.spec.forward_only;
    use.forward_saved |= c.spec.forward_only;
    use.update |= c.spec.kind == ProgramKind::update;
    use.validation |= c.spec.kind == ProgramKind::validation;
    use.sampling |= c.spec.kind == ProgramKind::decode;
    use.scoring |= c.spec.all_logits;
    if (c.spec.kind == ProgramKind::validation && c.spec.batch != s.recipe.batch) use.validation_batch = c.spec.batch;
    if (c.spec.kind == ProgramKind::prefill) use.prefill = c.spec.seq;
    if (c.spec.kind == ProgramKind::decode || c.spec.all_logits) use.cache_length = c.spec.cache_length;
  }
  return use;
}

class Suggestions {
 public:
  Suggestions(const CompiledSession& session, int64_t limit) : s_(session), use_(use_of(session)), limit_(limit) {}

  std::vector<std::string> list() {
    if (keeps_activations()) {
      train_settings();
    } else if (depends_on_batch()) {  // no effect: nothing is repeated, and no state belongs to a step
      suggest("", s_.recipe);
    }
    if (list_.empty() && depends_on_batch()) shorter();
    return list_;
  }

 private:
  bool keeps_activations() const { return use_.train || use_.forward_saved; }
  bool depends_on_batch() const { return keeps_activations() || use_.validation; }

  void train_settings() {
    for (const std::string& shard : shard_levels(s_.recipe))
      if (Recipe r = s_.recipe; r.pass_settings["shard"] != shard) {
        std::string flags = sharded(r, shard);
        suggest(flags, r);
      }
    offload();
    if (Recipe r = s_.recipe; keeps_fp8_weights(r)) {
      r.pass_settings["fp8-weights"] = "again";
      suggest("--fp8-weights again", r);
    }
    if (Recipe r = s_.recipe; r.pass_settings["loss-chunk"] == "off") {
      r.pass_settings["loss-chunk"] = "2048";
      suggest("--loss-chunk 2048", r);
    }
    other_cuts();
    for (const char* recompute : {"none", "activation", "pointwise", "selective", "full"}) {
      Recipe r = s_.recipe;
      r.recompute = recompute;
      suggest(fmt::format("--recompute {}", recompute), r);
    }
  }

  void offload() {
    if (s_.device.kind != "cuda") return;
    Recipe r = s_.recipe;
    auto given = r.pass_settings.find("offload");
    OffloadChoice choice = offload_choice(given == r.pass_settings.end() ? "none" : given->second);
    if (!use_.update || std::exchange(choice.optimizer, true)) return;
    r.pass_settings["offload"] = offload_value(choice);
    suggest("--offload " + offload_value(choice), r);
  }

  void other_cuts() {
    if (const std::string cut = stages_that_fit(s_, limit_); !cut.empty())
      list_.push_back(fmt::format("--stages {} --batch {}", cut, s_.recipe.batch));
  }

  // Halves the sequence repeatedly, with one sequence and the fewest activations.
  void shorter() {
    if (s_.limited_bytes() - s_.transient_bytes > limit_) return;
    Recipe r = s_.recipe;
    r.batch = 1;
    if (keeps_activations()) r.recompute = "full";
    for (r.seq = r.seq_length() / 2; r.seq > 0 && list_.empty(); r.seq /= 2)
      suggest(fmt::format("--seq {}{}", r.seq, keeps_activations() ? " --recompute full" : ""), r);
  }

  void suggest(const std::string& flags, const Recipe& recipe) {
    try {
      const CompileOptions quick = {.verify = false, .stage = s_.stage};
      CompiledSession s = largest_stage(compile(recipe, s_.device, session_programs(recipe, use_), quick), quick);
      int64_t batch = s.limited_bytes() <= limit_ ? recipe.batch : largest_batch(s, use_, limit_);
      if (batch > 0) list_.push_back(fmt::format("{}{}--batch {}", flags, flags.empty() ? "" : " ", batch));
    } catch (const NoKernel&) {  // for this size
    } catch (const Error& e) {   // conflicts with other settings
      if (e.code() != Exit::usage) throw;
    }
  }

  const CompiledSession& s_;
  const SessionUse use_;
  const int64_t limit_;
  std::vector<std::string> list_;
};

}  // namespace

std::vector<std::string> what_fits(const CompiledSession& session, int64_t limit) {
  return Suggestions(session, limit).list();
}

void check_fits(const CompiledSession& s, int64_t limit) {
  if (s.limited_bytes() <= limit) return;
  std::vector<std::string> fits = what_fits(s, limit);
  throw Error(
      Exit::does_not_fit,
      fmt::format("the plan needs {}, but only {} is available{}", format_bytes(double(s.limited_bytes())),
                  format_bytes(double(limit)),
                  s.recipe.layout().size(Axis::pipeline) > 1 ? fmt::format(" for pipeline stage {} (--stages {})",
                                                                           s.stage, stages_text(stage_layers(s.recipe)))
                  : s.recipe.all_ranks() > 1 ? fmt::format(" for each of {} ranks", s.recipe.all_ranks())
                                             : ""),
      "memory",
      "Planned bytes by category:" + breakdown(s) +
          (fits.empty() ? "\n  Nothing that was tried fits: use a smaller model, or a device with more memory."
                        : "\n  What would fit:\n    " + join(fits, "\n    ")));
}

}  // namespace crest
