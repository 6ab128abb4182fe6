#include "store/schema.h"

#include <fmt/format.h>
#include <sqlite3.h>
#include <sys/stat.h>

#include <set>
#include <span>
#include <utility>

#include "core/error.h"
#include "core/text.h"
#include "store/summary.h"

namespace crest {

namespace {

constexpr int64_t application_id = 0x43525354;       // "CRST"; identifies the format for file(1) and SQLite
constexpr int64_t checked_bytes = int64_t(4) << 20;  // files up to this size are fully checked when opened

// SQLite before 3.38 (Ubuntu 22.04's sqlite3) opens no file with ->> in a view.
// Columns serve to filter lists; the full run is JSON, with the keys of docs/reference/contract.md.
constexpr const char* tables = R"sql(
CREATE TABLE runs (
  id INTEGER PRIMARY KEY AUTOINCREMENT,
  uid TEXT NOT NULL UNIQUE,
  name TEXT NOT NULL,
  kind TEXT NOT NULL,
  status TEXT NOT NULL,
  started TEXT NOT NULL,
  finished TEXT NOT NULL,
  command TEXT NOT NULL,
  folder TEXT NOT NULL,
  grid TEXT NOT NULL,
  key TEXT NOT NULL,
  phase TEXT NOT NULL,
  error TEXT NOT NULL,
  imported_from TEXT NOT NULL,
  recipe TEXT, device TEXT, environment TEXT, environment_after TEXT, result TEXT,
  host TEXT, boot TEXT, space TEXT, pid INTEGER, pid_started INTEGER,
  model TEXT NOT NULL, device_name TEXT NOT NULL, device_kind TEXT NOT NULL  -- out of recipe and device
);
CREATE INDEX runs_started ON runs (started);
CREATE INDEX runs_key ON runs (key);
CREATE INDEX runs_kind ON runs (kind, started);
CREATE INDEX runs_name ON runs (name);

CREATE TABLE samples (
  run INTEGER NOT NULL REFERENCES runs ON DELETE CASCADE,
  number INTEGER NOT NULL,
  ms REAL,
  round INTEGER NOT NULL,
  contender TEXT NOT NULL,
  throttled INTEGER NOT NULL,
  PRIMARY KEY (run, number)
) WITHOUT ROWID;

CREATE TABLE log (
  run INTEGER NOT NULL REFERENCES runs ON DELETE CASCADE,
  number INTEGER NOT NULL,
  step INTEGER NOT NULL,
  loss REAL, val_loss REAL, lr REAL, grad_norm REAL, step_ms REAL, tokens_per_second REAL,
  skipped INTEGER NOT NULL,
  wait_ms REAL, update_ms REAL, watts REAL, clock_mhz REAL, memory_bytes REAL,
  PRIMARY KEY (run, number)
) WITHOUT ROWID;

CREATE TABLE documents (
  run INTEGER NOT NULL REFERENCES runs ON DELETE CASCADE,
  name TEXT NOT NULL,
  json TEXT NOT NULL,
  UNIQUE (run, name)
);

CREATE VIEW profile_instructions AS
SELECT d.run, json_extract(i.value, '$.program') AS program, json_extract(i.value, '$.index') AS "index",
  json_extract(i.value, '$.op') AS op, json_extract(i.value, '$.kernel') AS kernel,
  json_extract(i.value, '$.phase') AS phase, json_extract(i.value, '$.op_class') AS class,
  json_extract(i.value, '$.layer') AS layer, json_extract(i.value, '$.ms') AS ms,
  json_extract(i.value, '$.floor_ms') AS floor_ms, json_extract(i.value, '$.flops') AS flops,
  json_extract(i.value, '$.bytes') AS bytes
FROM documents d, json_each(d.json, '$.instrs') i WHERE d.name = 'profile';

CREATE VIEW profile_kernels AS
SELECT d.run, json_extract(k.value, '$.name') AS name, json_extract(k.value, '$.count') AS count,
  json_extract(k.value, '$.ms') AS ms
FROM documents d, json_each(d.json, '$.kernels') k WHERE d.name = 'profile';
)sql";

bool is_empty(Database& database) {
  return database.integer("SELECT count(*) FROM sqlite_schema") == 0 && database.integer("PRAGMA application_id") == 0;
}

void create(Database& database) {
  database.run("PRAGMA auto_vacuum = INCREMENTAL");
  Transaction transaction(database);
  if (!is_empty(database)) return;  // another process was first
  database.run(tables);
  database.run(summary_table().c_str());
  database.run(
      fmt::format("PRAGMA application_id = {}; PRAGMA user_version = {}", application_id, store_version).c_str());
  transaction.commit();
}

// Format 1 has no columns of the device in its log, and no summaries.
void bring_up_to_date(Database& database) {
  if (database.integer("PRAGMA user_version") != 1) return;
  Transaction transaction(database);
  if (database.integer("PRAGMA user_version") != 1) return;  // another process was first
  for (const LogColumn& column : std::span(log_columns).subspan(log_columns_before_skipped))
    database.run(fmt::format("ALTER TABLE log ADD COLUMN {} REAL", column.name).c_str());
  database.run(summary_table().c_str());
  summarize_all(database);
  database.run(fmt::format("PRAGMA user_version = {}", store_version).c_str());
  transaction.commit();
}

// Switching locks the file for a moment, and SQLite does not wait for other processes here. Without
// shared memory (some network file systems) the result is another mode, which also works, one
// process at a time.
void use_wal(Database& database) {
  for (int attempt = 0; !database.try_to_run("PRAGMA journal_mode = WAL"); ++attempt)
    if (!database.wait(attempt)) database.fail_with(SQLITE_BUSY);
}

constexpr const char* repair_advice =
    "Recover readable data with: sqlite3 FILE .recover | sqlite3 NEW. Or start a new one with --store.";

// The tables and columns in use. Everything else in the file is ignored.
constexpr std::pair<const char*, const char*> needed[] = {
    {"runs",
     "id uid name kind status started finished command folder grid key phase error imported_from recipe device "
     "environment environment_after result host boot space pid pid_started model device_name device_kind"},
    {"samples", "run number ms round contender throttled"},
    {"log", "run number step loss val_loss lr grad_norm step_ms tokens_per_second skipped"},
    {"documents", "run name json"}};

// A view, a virtual table or a computed column would run code from the file.
void check_table(Database& database, const char* table, const char* columns) {
  std::string where = printable(database.file());
  Statement s(database, "SELECT type, rootpage FROM sqlite_schema WHERE name = ? COLLATE NOCASE");
  bool there = s.add(std::string_view(table)).step();
  if (!there) fail(fmt::format("is not a valid run database: the table '{}' is missing", table), where, repair_advice);
  bool is_table = s.text(0) == "table";
  if (!is_table || s.integer(1) == 0)
    fail(fmt::format("holds a {} where the table '{}' should be", is_table ? "virtual table" : printable(s.text(0), 20),
                     table),
         where, "Crest did not create it, so nothing was read. Ask for an export instead (crest runs export).");
  std::set<std::string> plain;
  Statement c(database, fmt::format("PRAGMA table_xinfo({})", table));
  while (c.step())
    if (c.integer(6) == 0) plain.insert(c.text(1));  // not hidden, not computed
  for (auto& column : split(columns, ' '))
    if (!plain.contains(column))
      fail(fmt::format("is not a valid run database: the table '{}' has no plain column '{}'", table, column), where,
           repair_advice);
}

void check_tables(Database& database) {
  for (auto& [table, columns] : needed) check_table(database, table, columns);
  if (database.integer("PRAGMA user_version") < 2) return;
  std::string added;
  for (const LogColumn& column : std::span(log_columns).subspan(log_columns_before_skipped))
    added += (added.empty() ? "" : " ") + std::string(column.name);
  check_table(database, "log", added.c_str());
  check_table(database, "log_summary", summary_columns().c_str());
}

void check_kind(Database& database) {
  std::string where = printable(database.file());
  if (is_empty(database)) fail("is empty, not a run database", where, "Check the path of --store.");
  if (database.integer("PRAGMA application_id") != application_id)
    fail("is a database of another program, not a run database of Crest", where,
         "Check the path of --store; nothing was changed.");
  int64_t version = database.integer("PRAGMA user_version");
  if (version > store_version)
    fail(fmt::format("was written by a newer Crest (format {}, this one reads {})", version, store_version), where,
         "Use that version of Crest, or give another --store FILE.");
  if (version < 1) database.fail_with(SQLITE_CORRUPT);
}

void check_whole(Database& database) {
  struct stat info;
  if (::stat(database.file().c_str(), &info) != 0 || info.st_size > checked_bytes) return;
  Statement check(database, "PRAGMA quick_check(1)");
  if (check.step() && check.text(0) != "ok")
    fail(fmt::format("the run database is damaged ({})", printable(check.text(0))), printable(database.file()),
         repair_advice);
}

}  // namespace

void prepare_schema(Database& database, Database::Mode mode) {
  if (mode == Database::Mode::write && is_empty(database)) create(database);
  check_kind(database);
  check_whole(database);
  check_tables(database);
  if (mode == Database::Mode::write && !database.read_only()) bring_up_to_date(database);
  if (!database.read_only()) {
    use_wal(database);
    // Committed data survives a crash of the process. A power failure may lose the last commits,
    // but nothing else.
    database.run("PRAGMA synchronous = NORMAL");
  }
  database.run("PRAGMA foreign_keys = ON");
}

}  // namespace crest
