// Records as rows of the database: what Store's functions are made of. Writing happens within the caller's transaction.
#pragma once
#include <optional>
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

// What read_run reads, for SELECT ... WHERE id = ?.
extern const char* const run_columns;
// The record of a row, nothing when there is none; "running" of a process that is gone becomes "lost". A cell of the
// wrong type, too long or no JSON is told in `damage`.
std::optional<RunRecord> read_run(const Database& database, Statement& row, int64_t id, bool environments);
// Of the record's id; damage as above.
void read_samples(Database& database, RunRecord& record);
void read_log(Database& database, RunRecord& record);
// Names the run and its damaged cells.
[[noreturn]] void fail_damaged(const Database& database, const RunRecord& record);
// Guarded; null for an empty text. `what` is for messages.
Json read_json(const Database& database, const std::string& text, int64_t id, const std::string& what);

}  // namespace crest
