// Settings of a training run outside its recipe.
#pragma once
#include <vector>

#include "settings/settings.h"
#include "train/run.h"

namespace crest {

// Rows bound to TrainOptions: data, schedule, validation, saving, samples, reading ahead.
const std::vector<Setting>& training_settings();
// All settings in a run's record: the recipe's and training's.
const std::vector<const Setting*>& run_settings();
// Finds a row by name or key; null: unknown.
const Setting* find_run_setting(const std::string& name);
Settings settings_of(TrainOptions& options);
Settings settings_of(const TrainOptions& options);

// A command's tables of settings, each with a struct of defaults: recipe, training, ranks,
// restarts, device.
struct SettingTable {
  const std::vector<Setting>* rows;
  const void* defaults;
};
const std::vector<SettingTable>& setting_tables();

// The sources of another setting's default (RunSchedule). Changing a source changes the default.
std::vector<std::string> follows(const std::string& setting);

}  // namespace crest
