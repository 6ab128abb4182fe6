// Verdicts as documents: of a run that just ended, or of recorded measurements judged again.
#pragma once
#include <string>

#include "lab/judge.h"
#include "store/store.h"

namespace crest::lab {

// Judges a result within its noise floor. Returns the document `lab` of its record, whose rows
// exclude the floor, since a later run may find another.
Json judged_document(Result& result, const Device& device);

// RunRecord::result.
Json judged_result(const Result& result, const Json& document);

// The newest record of an experiment at a scale that has measurements; 0: none.
int64_t find_recorded(const Store& store, const Experiment& experiment, const std::string& scale);

// Replaces the verdicts of that record by those of the claims as they are now; measures nothing.
// Measurements, device and date stay. Fails for a device that is neither `here` nor has a data
// sheet, since claims may have conditions on it.
Result judge_again(Store& store, int64_t id, const Experiment& experiment, const Device& here);

}  // namespace crest::lab
