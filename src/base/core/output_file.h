// Output files at places chosen by the user.
#pragma once
#include <string>
#include <string_view>

namespace crest {

// Throws if the file is there and belongs to a training run, a checkpoint or prepared data. Reports
// and traces replace older ones, but a slip of the keyboard must not cost a run.
void require_no_run_file(const std::string& file);

// Whether a training run has a file or folder of this name in its folder.
bool is_name_in_run(std::string_view name);

}  // namespace crest
