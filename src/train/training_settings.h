// The settings of a training run besides its recipe.
#pragma once
#include <vector>

#include "settings/settings.h"
#include "train/run.h"

namespace crest {

// Rows over TrainOptions: data, schedule, validation, saving, samples, reading ahead.
const std::vector<Setting>& training_settings();
// All settings that the record of a run can hold: of its recipe and of training.
const std::vector<const Setting*>& run_settings();
// By name or key; null where there is none.
const Setting* find_run_setting(const std::string& name);
Settings settings_of(TrainOptions& options);
Settings settings_of(const TrainOptions& options);

// The peak of the learning rate where --lr is not given: (6e-4 sqrt(768 / width), within 1e-4 and 3e-3) for AdamW and
// its relatives, a fraction or a multiple of it for others (learning_rate_scale).
double default_learning_rate(const Recipe& recipe);

}  // namespace crest
