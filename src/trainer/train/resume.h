// The changes allowed by --resume. of_run: the keys of RUN/config.toml. given: settings of the
// continued run, including the file's. Errors are usage errors unless stated otherwise.
#pragma once
#include <optional>
#include <string>
#include <vector>

#include "settings/settings.h"
#include "train/request.h"

namespace crest {

// Throws if the file is incomplete or has a wrong value. Errors name the file, since the user gave
// no flag. A file without settings and a run before its start are errors with exit code 1.
void check_run_file(const std::string& run, const GivenSettings& of_run);

// Compares the settings of a table with the run's. `defaults`: an object of the table with default
// values; a setting missing in the file had its default. Throws if a fixed setting differs
// (OnResume). Returns a line for each other change.
std::vector<std::string> changes_of_run(const std::vector<Setting>& table, const void* defaults,
                                        const GivenSettings& of_run, const GivenSettings& given);

// Keeps the global batch when the number of ranks changes, by changing the micro steps. Returns a
// line about the change. Throws if the ranks cannot divide the batch equally.
std::optional<std::string> keep_global_batch(const GivenSettings& of_run, GivenSettings& given);

// A run's file has all settings, including defaults. If the number of ranks or their sharding
// changes, removes old defaults of summing: resolve() chooses again.
void choose_sums_anew(const GivenSettings& of_run, GivenSettings& given);

// The command to continue a run in a folder, program first. Repeats the flags missing in
// config.toml.
std::vector<std::string> continuing_command(const TrainRequest& request, const std::string& folder);

}  // namespace crest
