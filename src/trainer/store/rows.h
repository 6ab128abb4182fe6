// Records as rows of the database, used by Store. Writes happen in the caller's transaction.
#pragma once
#include <optional>
#include <string>
#include <vector>

#include "store/database.h"
#include "store/record.h"

namespace crest {

// A row of runs, without samples, log and documents; returns its id.
int64_t insert_run(Database& database, const RunRecord& record);
// Sets the run to "running" in this process, without log and end.
void reopen_run(Database& database, int64_t id);
// Append rows, numbered in the order of writing.
void insert_samples(Database& database, int64_t id, const std::vector<SampleRow>& samples);
void insert_log(Database& database, int64_t id, const std::vector<LogRow>& rows);
// Replaces the document of this name.
void insert_document(Database& database, int64_t id, const std::string& name, const Json& json);
// status, error, result, environment_after, finished.
void update_end(Database& database, int64_t id, const RunRecord& record);

// The columns for read_run, in SELECT ... WHERE id = ?.
extern const char* const run_columns;
// The record of a row, or nothing. "running" of a dead process becomes "lost". Values that are
// mistyped, too long or not JSON are listed in `damage`.
std::optional<RunRecord> read_run(const Database& database, Statement& row, int64_t id, bool environments);
// For the record's id; damage as above.
void read_samples(Database& database, RunRecord& record);
void read_log(Database& database, RunRecord& record);
// Throws an error with the run and its damaged cells.
[[noreturn]] void fail_damaged(const Database& database, const RunRecord& record);
// Parses with limits; null for an empty text. `what` is for messages.
Json read_json(const Database& database, const std::string& text, int64_t id, const std::string& what);

}  // namespace crest
