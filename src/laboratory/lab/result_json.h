// Experiments and results as JSON, for --json and the document "lab" in the run store. --resume
// reads the rows back.
#pragma once
#include <nlohmann/json.hpp>

#include "lab/judge.h"

namespace crest::lab {

using Json = nlohmann::ordered_json;

// A number, {value, low, high} if it is not exact, a string, true, false, or {unknown: why}.
Json to_json(const Value& value);
Value value_from_json(const Json& json);
// {keys, columns, absent, run}; run: uid of the measurement's record.
Json to_json(const Row& row);
Row row_from_json(const Json& json);
// docs/reference/contract.md, lab.
Json to_json(const Result& result);
Json to_json(const std::vector<Result>& results);

// The output of crest lab list and crest lab show.
Json to_json(const Experiment& experiment);
Json to_json(const std::vector<Experiment>& experiments);
Json to_json(const Experiment& experiment, const std::vector<MeasurementSpec>& measurements, const std::string& scale);

}  // namespace crest::lab
