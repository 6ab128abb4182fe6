// Experiments and results as JSON: what --json prints and what the run store keeps (document "lab"); rows are read back
// to resume.
#pragma once
#include <nlohmann/json.hpp>

#include "lab/judge.h"

namespace crest::lab {

using Json = nlohmann::ordered_json;

// A number, {value, low, high} where it is not exact, a text, true, false, or {unknown: why}.
Json to_json(const Value& value);
Value value_from_json(const Json& json);
// {keys, columns, absent, run}; run: uid of the cell's record.
Json to_json(const Row& row);
Row row_from_json(const Json& json);
// docs/contract.md, lab.
Json to_json(const Result& result);

// As crest lab list and crest lab show print them.
Json to_json(const Experiment& experiment);
Json to_json(const Experiment& experiment, const std::vector<CellSpec>& cells, const std::string& scale);

}  // namespace crest::lab
