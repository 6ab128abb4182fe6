// Output files at places chosen by the user.
#pragma once
#include <string>
#include <string_view>

namespace crest {

// Throws if the file exists and belongs to a training run, a checkpoint or prepared data. Reports
// and traces replace older ones, but a typing error must not cost a run.
void require_no_run_file(const std::string& file);

// For a file that long work will write at its end with write_file_atomic: throws before the work if
// the folder is missing, the file cannot be created or it belongs to a run. setting: its flag.
void require_place_for(const std::string& file, const char* setting);

// Whether a run's folder has a file or folder of this name.
bool is_name_in_run(std::string_view name);

}  // namespace crest
