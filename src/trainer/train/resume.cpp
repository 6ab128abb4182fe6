#include "train/resume.h"

#include <fmt/format.h>

#include "checkpoint/checkpoint.h"
#include "comm/launch.h"
#include "core/error.h"
#include "core/shell_word.h"
#include "core/text.h"
#include "plan/recipe_settings.h"
#include "train/run_files.h"
#include "train/training_settings.h"

namespace crest {

namespace {

std::string last_value(const GivenSettings& given, const char* name) {
  auto it = given.find(name);
  return it == given.end() || it->second.empty() ? std::string() : it->second.back();
}

std::string comparable(const Setting& row, const std::vector<std::string>& texts) {
  if (row.type == SettingType::list) return join(texts, ",");
  return text_of(parse_setting(row, texts.back()));
}

// The settings of the global batch.
Recipe batch_of(const GivenSettings& given) {
  Recipe recipe;
  GivenSettings sizes;
  for (const char* name : {"batch", "grad-accumulation", "ranks", "data-parallel", "mesh"})
    if (auto it = given.find(name); it != given.end()) sizes[name] = it->second;
  settings_of(recipe).apply(sizes);
  return recipe;
}

}  // namespace

void check_run_file(const std::string& run, const GivenSettings& of_run) {
  const std::string file = run + "/config.toml";
  if (!of_run.count("data")) {  // every run has the key
    if (list_checkpoints(run + "/checkpoints").empty() && last_logged_step(run) == 0) fail_not_begun(run);
    fail("the file has lost the run's settings: it names no data", printable(file), how_to_restore_config(run));
  }
  for (auto* table : {&recipe_settings(), &training_settings()})
    for (auto& row : *table)
      if (auto it = of_run.find(row.name); it != of_run.end())
        for (auto& text : it->second) parse_setting(row, text, fmt::format("{}, key {}", printable(file), row.key()));
}

std::vector<std::string> changes_of_run(const std::vector<Setting>& table, const void* defaults,
                                        const GivenSettings& of_run, const GivenSettings& given) {
  std::vector<std::string> lines;
  for (auto& row : table) {
    auto was = of_run.find(row.name), now = given.find(row.name);
    if (now == given.end() || now->second.empty() || row.resume == OnResume::accepts) continue;
    std::string before = was != of_run.end() ? comparable(row, was->second) : text_of(row.get(row, defaults));
    std::string after = comparable(row, now->second);
    if (before == after) continue;
    std::string shown = before.empty() ? "not set" : printable(before);
    if (row.resume == OnResume::refuses)
      fail_usage(before.empty() ? fmt::format("the run has no {}, but {} was given", row.name, printable(after))
                                : fmt::format("the run has {} {}, but {} was given", row.name, shown, printable(after)),
                 row.flag(), fmt::format("Leave out {} to continue the run.", row.flag()));
    lines.push_back(fmt::format("note     {} was {}; the run continues with {}", row.flag(), shown, printable(after)));
  }
  return lines;
}

std::optional<std::string> keep_global_batch(const GivenSettings& of_run, GivenSettings& given) {
  const Recipe then = batch_of(of_run), now = batch_of(given);
  if (then.data_ranks() == now.data_ranks() || then.grad_accumulation != now.grad_accumulation) return {};
  int64_t global = then.batch * then.grad_accumulation * then.data_ranks(), micro = now.batch * now.data_ranks();
  if (global % micro != 0)
    fail_usage(fmt::format("the run has {} sequences per step, which {} ranks with --batch {} cannot share equally",
                           global, now.data_ranks(), now.batch),
               now.ranks > 1 ? "--ranks" : "--resume",
               fmt::format("Choose --ranks and --batch so that their product divides {}.", global));
  given["grad-accumulation"] = {std::to_string(global / micro)};
  const bool all = now.all_ranks() == now.data_ranks() && then.all_ranks() == then.data_ranks();
  return fmt::format(
      "note     the run continues with {} instead of {} {}, {} micro steps instead of {}: the same global batch, "
      "but not bit for bit",
      now.data_ranks(), then.data_ranks(), all ? "ranks" : "data ranks", global / micro, then.grad_accumulation);
}

void choose_sums_anew(const GivenSettings& of_run, GivenSettings& given) {
  auto changed = [&](const char* name) { return last_value(of_run, name) != last_value(given, name); };
  auto leave_out = [&](const char* name) {
    for (auto& row : recipe_settings())
      if (row.name == std::string(name) && last_value(given, name) == row.default_value && !changed(name))
        given[name].clear();
  };
  // A new mesh needs new stages, and has its own default of the overlap.
  for (const char* name : {"stages", "tensor-overlap"})
    if (changed("mesh") && !changed(name)) given[name].clear();
  if (changed("shard") || changed("gather")) leave_out("reduce");
  if (changed("ranks") || changed("data-parallel"))
    for (const char* name : {"shard", "reduce", "bucket", "comm-dtype"}) leave_out(name);
}

std::vector<std::string> continuing_command(const TrainRequest& request, const std::string& folder) {
  std::vector<std::string> arguments = {own_arguments().at(0), "train", "--resume", folder};
  const TrainOptions& t = request.train;
  if (t.json) arguments.push_back("--json");
  if (t.quiet) arguments.push_back("--quiet");
  if (t.stop_after > 0) arguments.push_back(fmt::format("--stop-after={}", t.stop_after));
  if (std::string seconds = last_value(request.training, "max-seconds"); !seconds.empty())
    arguments.push_back("--max-seconds=" + seconds);
  return arguments;
}

}  // namespace crest
