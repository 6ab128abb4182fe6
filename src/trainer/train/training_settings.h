// The settings of a training run outside its recipe.
#pragma once
#include <vector>

#include "settings/settings.h"
#include "train/run.h"

namespace crest {

// Rows bound to TrainOptions: data, schedule, validation, saving, samples, reading ahead.
const std::vector<Setting>& training_settings();
// All settings in the record of a run: of the recipe and of training.
const std::vector<const Setting*>& run_settings();
// Finds a row by name or key; null if there is none.
const Setting* find_run_setting(const std::string& name);
Settings settings_of(TrainOptions& options);
Settings settings_of(const TrainOptions& options);

// Every table of settings of a command, with a struct of its defaults: recipe, training, ranks,
// restarts, device.
struct SettingTable {
  const std::vector<Setting>* rows;
  const void* defaults;
};
const std::vector<SettingTable>& setting_tables();

// The sources of another setting's default (RunSchedule): a change of them changes a default nobody
// gave.
std::vector<std::string> follows(const std::string& setting);

}  // namespace crest
