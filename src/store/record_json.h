// Records as JSON: what commands print, and the lines of an export. Keys in docs/contract.md.
#pragma once
#include <string>

#include "store/record.h"

namespace crest {

// Everything but samples, log and documents.
Json run_to_json(const RunRecord& record);
Json to_json(const SampleRow& row);
Json to_json(const LogRow& row);
// All of it; of the documents the names.
Json record_to_json(const RunRecord& record);

// Checks types and sizes: the text may come from anywhere. `where` names file and line. `id` is not read; a run that
// was running is "lost", since its end will not be told here.
RunRecord run_from_json(const Json& json, const std::string& where);

// What every message about a damaged export ends with.
extern const char* const import_advice;

// Rows of an export: arrays, in the order of the fields of SampleRow and LogRow.
Json samples_to_rows(const std::vector<SampleRow>& samples, size_t first, size_t count);
Json log_to_rows(const std::vector<LogRow>& log, size_t first, size_t count);
void append_samples(const Json& rows, std::vector<SampleRow>& samples, const std::string& where);
void append_log(const Json& rows, std::vector<LogRow>& log, const std::string& where);

// The text fields of a record that is JSON, by their keys; the order of everything that is printed.
struct RunText {
  const char* key;
  std::string RunRecord::*field;
};
extern const std::vector<RunText> run_texts;

// What a run may be, for messages about unknown values.
extern const std::vector<std::string> run_kinds, run_states;

}  // namespace crest
