#include "model/recipe.h"

#include <fmt/format.h>

#include <algorithm>

#include "core/error.h"
#include "core/text.h"

namespace crest {

static void one_of(const char* flag, const std::string& value, const std::vector<std::string>& allowed) {
  if (std::find(allowed.begin(), allowed.end(), value) != allowed.end()) return;
  fail_usage(fmt::format("'{}' is not a value of {}", printable(value), flag), flag,
             fmt::format("{} Values: {}.", did_you_mean(value, allowed), join(allowed, ", ")));
}

static void at_least(const char* flag, double value, double low) {
  if (!(value >= low))
    fail_usage(fmt::format("{} = {}", flag, value), flag, fmt::format("It must be at least {}.", low));
}

void validate(const Recipe& r) {
  validate(r.model, "--model " + r.model.name);
  one_of("--precision", r.precision, {"auto", "fp32", "tf32", "bf16", "fp16"});
  one_of("--policy", r.policy, {"pure", "autocast"});
  one_of("--grad-dtype", r.grad_dtype, {"fp32", "bf16"});
  one_of("--attention", r.attention, {"flash", "naive"});
  one_of("--fusion", r.fusion, {"on", "off"});
  one_of("--recompute", r.recompute, {"auto", "none", "activation", "pointwise", "selective", "full"});
  at_least("--batch", double(r.batch), 1);
  at_least("--grad-accumulation", double(r.grad_accumulation), 1);
  at_least("--pad-vocab", double(r.pad_vocab), 1);
  at_least("--clip", r.clip, 0);
  at_least("--weight-decay", r.weight_decay, 0);
  if (r.batch > (1 << 24)) fail_usage(fmt::format("--batch = {}", r.batch), "--batch", "It must be at most 16777216.");
  if (r.pad_vocab > (1 << 20)) fail_usage(fmt::format("--pad-vocab = {}", r.pad_vocab), "--pad-vocab");
  if (r.seq < 0 || r.seq_length() > r.model.context)
    fail_usage(fmt::format("sequence length {} is beyond the model's context of {}", r.seq_length(), r.model.context),
               "--seq", "Use a shorter --seq, or a model with a longer context (key `context` of its TOML file).");
  if (r.grad_dtype == "bf16" && (r.policy != "pure" || r.precision == "fp32" || r.precision == "tf32"))
    fail_usage("--grad-dtype bf16 needs --policy pure with bf16 or fp16", "--grad-dtype");
}

}  // namespace crest
