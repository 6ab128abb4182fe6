// What a side of crest compare may be named by.
#pragma once
#include <string>

#include "store/record.h"
#include "store/record_options.h"

namespace crest {

// The run behind `name`: FILE or FILE#RUN of an export, another run database, a document of crest profile --json, a
// PyTorch profiler trace or a training log; else id, uid, name or RUN folder in the run database. Throws with what
// there is instead.
RunRecord open_compared(const std::string& name, const StoreFile& store);

}  // namespace crest
