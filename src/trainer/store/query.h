// Selects runs: filters of a list, and a run by name.
#pragma once
#include <string>
#include <vector>

#include "store/database.h"
#include "store/store.h"

namespace crest {

// Behind Store::list and Store::find.
std::vector<RunRecord> list_runs(Database& database, const RunFilter& filter);
int64_t find_run(Database& database, const std::string& run);

// A folder as an absolute path without links, so every spelling finds it.
std::string absolute_folder(const std::string& folder);

}  // namespace crest
