// Records as rows of the database: what Store's functions are made of. Writing happens within the caller's transaction.
#pragma once
#include <string>
#include <vector>

#include "store/database.h"
#include "store/record.h"

namespace crest {

// A row of runs, without samples, log and documents; returns its id.
int64_t insert_run(Database& database, const RunRecord& record);
// "running" again, of this process, without log and end.
void reopen_run(Database& database, int64_t id);
// They append: rows are numbered in the order of writing.
void insert_samples(Database& database, int64_t id, const std::vector<SampleRow>& samples);
void insert_log(Database& database, int64_t id, const std::vector<LogRow>& rows);
// Replaces the document of that name.
void insert_document(Database& database, int64_t id, const std::string& name, const Json& json);
// status, error, result, environment_after, finished.
void update_end(Database& database, int64_t id, const RunRecord& record);

// What read_run reads, for SELECT.
extern const char* const run_columns;
// The record of a row; "running" of a process that is gone becomes "lost".
RunRecord read_run(const Database& database, const Statement& row, bool environments);
std::vector<SampleRow> read_samples(Database& database, int64_t id);
std::vector<LogRow> read_log(Database& database, int64_t id);
// Guarded; null for an empty text. `what` is for messages.
Json read_json(const Database& database, const std::string& text, int64_t id, const std::string& what);

}  // namespace crest
