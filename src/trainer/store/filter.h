// Checks of run filters, for every command with a list of runs.
#pragma once
#include "store/store.h"

namespace crest {

// Throws for a filter without possible matches: an unknown kind, an invalid time.
void check_filter(const RunFilter& filter);
// Whether the filter excludes any runs.
bool is_filtered(const RunFilter& filter);

}  // namespace crest
