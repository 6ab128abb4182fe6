// What every command that lists runs asks of a filter.
#pragma once
#include "store/store.h"

namespace crest {

// Throws for a filter that can match nothing: an unknown kind, a time that is none.
void check_filter(const RunFilter& filter);
// Whether it leaves runs out.
bool is_filtered(const RunFilter& filter);

}  // namespace crest
