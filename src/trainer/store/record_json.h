// Records as JSON: the output of commands, and the lines of an export. Keys:
// docs/reference/contract.md.
#pragma once
#include <string>

#include "store/record.h"

namespace crest {

// Everything except samples, log and documents.
Json run_to_json(const RunRecord& record);
Json runs_to_json(const std::vector<RunRecord>& records);
// [{id, uid, name}]
Json run_names_to_json(const std::vector<RunRecord>& records);
Json to_json(const SampleRow& row);
Json to_json(const LogRow& row);
// Everything, with only the names of documents.
Json record_to_json(const RunRecord& record);

// Checks types and sizes, since the text may come from anywhere. `where` names file and line. `id`
// is not read; a running run becomes "lost", since its end will not be recorded here.
RunRecord run_from_json(const Json& json, const std::string& where);

// The advice in every error about a damaged export.
extern const char* const import_advice;

// Rows of an export: arrays, in the order of the fields of SampleRow and LogRow.
Json samples_to_rows(const std::vector<SampleRow>& samples, size_t first, size_t count);
Json log_to_rows(const std::vector<LogRow>& log, size_t first, size_t count);
void append_samples(const Json& rows, std::vector<SampleRow>& samples, const std::string& where);
void append_log(const Json& rows, std::vector<LogRow>& log, const std::string& where);

// The text fields of a record, by JSON key, in output order.
struct RunText {
  const char* key;
  std::string RunRecord::*field;
};
extern const std::vector<RunText> run_texts;

// All kinds and states of a run, for messages about unknown values.
extern const std::vector<std::string> run_kinds, run_states;

}  // namespace crest
