// Verdicts as documents, for a run just ended, or for recorded measurements judged again.
#pragma once
#include <string>

#include "lab/judge.h"
#include "store/store.h"

namespace crest::lab {

// Judges a result with its noise floor, and returns the document `lab` of its record. The
// document's rows exclude the floor, since a later run may find another.
Json judged_document(Result& result, const Device& device);

// RunRecord::result.
Json judged_result(const Result& result, const Json& document);

// The newest record with measurements of an experiment at a scale; 0: none.
int64_t find_recorded(const Store& store, const Experiment& experiment, const std::string& scale);

// Judges the record again by the current claims, without measuring. Measurements, device and date
// stay. Fails if the device is not `here` and has no data sheet, since conditions of claims may
// need it.
Result judge_again(Store& store, int64_t id, const Experiment& experiment, const Device& here);

}  // namespace crest::lab
