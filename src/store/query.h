// Which runs: filters of a list, and the run that somebody names.
#pragma once
#include <string>
#include <vector>

#include "store/database.h"
#include "store/store.h"

namespace crest {

// Store::list and Store::find.
std::vector<RunRecord> list_runs(Database& database, const RunFilter& filter);
int64_t find_run(Database& database, const std::string& run);

// Folders of this machine as absolute paths without links, so that every way to write one finds it.
std::string absolute_folder(const std::string& folder);

}  // namespace crest
