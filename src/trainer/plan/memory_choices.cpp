#include "plan/memory_choices.h"

#include <fmt/format.h>

#include <algorithm>

#include "core/text.h"
#include "plan/automatic.h"
#include "plan/stage_plans.h"

namespace crest {

namespace {

// Fewer rows would make the head's matmuls slower. Chunks save at least this memory, or are not
// worth a choice.
constexpr int64_t small_chunk = 2048;
constexpr int64_t least_saved = int64_t(256) << 20;

bool is_automatic(const Recipe& r, const char* setting) {
  auto given = r.pass_settings.find(setting);
  return given == r.pass_settings.end() || given->second == "auto";
}

bool may_chunk(const Recipe& r, const Device& device) {
  if (device.kind == "cpu" || !is_automatic(r, "loss-chunk")) return false;
  const int64_t usual = std::stoll(auto_loss_chunk(r.precision, r.model.vocab, device.kind));
  const int64_t rows = std::min(usual, r.batch * r.padded_seq() / r.layout().size(Axis::context));
  const int64_t element = r.precision == "fp32" || r.precision == "tf32" ? 4 : 2;
  return (rows - small_chunk) * r.model.vocab / r.layout().size(Axis::tensor) * element >= least_saved;
}

// "8-bit weights are made again in each micro step: otherwise the plan needs ..."
std::string note_of(const Recipe& usual, const Recipe& chosen, int64_t bytes, int64_t limit) {
  std::vector<std::string> changes, flags;
  if (pass_setting_of(usual, "fp8-weights") != pass_setting_of(chosen, "fp8-weights"))
    changes.emplace_back("8-bit weights are made again in each micro step"), flags.emplace_back("--fp8-weights");
  if (pass_setting_of(usual, "loss-chunk") != pass_setting_of(chosen, "loss-chunk"))
    changes.push_back(fmt::format("the loss runs for {} tokens at a time", small_chunk)),
        flags.emplace_back("--loss-chunk");
  return fmt::format("note     {}: otherwise the plan needs {} of {} ({} changes it)", join(changes, ", and "),
                     format_bytes(double(bytes)), format_bytes(double(limit)), join(flags, " or "));
}

}  // namespace

std::string pass_setting_of(const Recipe& r, const char* setting, const char* otherwise) {
  auto it = r.pass_settings.find(setting);
  return it == r.pass_settings.end() || it->second.empty() ? otherwise : it->second;
}

std::vector<Recipe> memory_choices(const Recipe& recipe, const Device& device) {
  std::vector<Recipe> list = {recipe};
  if (recipe.precision == "fp8" && recipe.grad_accumulation > 1 && is_automatic(recipe, "fp8-weights")) {
    list.push_back(recipe);
    list[0].pass_settings["fp8-weights"] = "keep";
    list[1].pass_settings["fp8-weights"] = "again";
  }
  if (!may_chunk(recipe, device)) return list;
  std::vector<Recipe> chunked;  // chunks cost less time than making weights again
  for (const Recipe& choice : list) {
    chunked.insert(chunked.end(), 2, choice);
    chunked.back().pass_settings["loss-chunk"] = std::to_string(small_chunk);
  }
  return chunked;
}

int first_choice_that_fits(int count, const std::function<bool(int)>& fits) {
  if (fits(0)) return 0;
  if (count == 1 || !fits(count - 1)) return -1;
  for (int i = 1; i < count - 1; ++i)
    if (fits(i)) return i;
  return count - 1;
}

Recipe within_memory(const Recipe& recipe, const Device& device, int64_t limit, const SessionUse& use,
                     const std::function<void(const std::string&)>& note) {
  const std::vector<Recipe> choices = memory_choices(recipe, device);
  if (choices.size() == 1) return recipe;
  const CompileOptions quick = {.verify = false};
  std::vector<int64_t> bytes(choices.size());
  const int best = first_choice_that_fits(int(choices.size()), [&](int i) {
    const Recipe& choice = choices[size_t(i)];
    const std::vector<ProgramSpec> programs = session_programs(resolve(choice, device), use);
    bytes[size_t(i)] = largest_stage(compile(choice, device, programs, quick), quick).limited_bytes();
    return bytes[size_t(i)] <= limit;
  });
  if (best < 0) return bytes.front() <= bytes.back() ? choices.front() : choices.back();
  if (note && best > 0) note(note_of(choices[0], choices[size_t(best)], bytes[0], limit));
  return choices[size_t(best)];
}

}  // namespace crest
