#include "store/rows.h"

#include <fmt/format.h>

#include <string_view>

#include "core/json.h"
#include "core/text.h"
#include "host/process.h"
#include "store/summary.h"

namespace crest {

namespace {

// A profile of a deep unfused model has millions of values.
constexpr JsonLimits json_limits{.bytes = uint64_t(512) << 20,
                                 .depth = 64,
                                 .values = 20'000'000,
                                 .string_bytes = uint64_t(64) << 20,
                                 .keys = 20'000};

void add_json(Statement& statement, const Json& json) {
  if (json.is_null())
    statement.add_null();
  else
    statement.add(dump_json(json));
}

int64_t next_number(Database& database, const char* table, int64_t id) {
  Statement s(database, fmt::format("SELECT coalesce(max(number) + 1, 0) FROM {} WHERE run = ?", table));
  s.add(id).step();
  return s.integer(0);
}

}  // namespace

int64_t insert_run(Database& database, const RunRecord& r) {
  Statement s(
      database,
      "INSERT INTO runs (uid, name, kind, status, started, finished, command, folder, grid, key, phase, error, "
      "imported_from, recipe, device, environment, environment_after, result, host, boot, space, pid, "
      "pid_started, model, device_name, device_kind) VALUES (?,?,?,?,?,?,?,?,?,?,?,?,?,?,?,?,?,?,?,?,?,?,?,?,?,?)");
  for (auto* text : {&r.uid, &r.name, &r.kind, &r.status, &r.started, &r.finished, &r.command, &r.folder, &r.grid,
                     &r.key, &r.phase, &r.error, &r.imported_from})
    s.add(*text);
  for (auto* json : {&r.recipe, &r.device, &r.environment, &r.environment_after, &r.result}) add_json(s, *json);
  ProcessId p = r.imported_from.empty() ? this_process() : ProcessId();
  s.add(p.host).add(p.boot).add(p.space).add(p.pid).add(p.started);
  s.add(text_at(r.recipe, "model")).add(text_at(r.device, "name")).add(text_at(r.device, "kind")).run();
  return database.last_id();
}

void reopen_run(Database& database, int64_t id) {
  Statement s(database,
              "UPDATE runs SET status = 'running', error = '', finished = '', result = NULL, environment_after = NULL, "
              "host = ?, boot = ?, space = ?, pid = ?, pid_started = ? WHERE id = ?");
  ProcessId p = this_process();
  s.add(p.host).add(p.boot).add(p.space).add(p.pid).add(p.started).add(id).run();
  Statement(database, "DELETE FROM log WHERE run = ?").add(id).run();
  forget_summaries(database, id);
}

void insert_samples(Database& database, int64_t id, const std::vector<SampleRow>& samples) {
  int64_t number = next_number(database, "samples", id);
  Statement s(database, "INSERT INTO samples VALUES (?,?,?,?,?,?)");
  for (auto& row : samples)
    s.add(id).add(number++).add(row.ms).add(row.round).add(row.contender).add(int(row.throttled)).run();
}

void insert_log(Database& database, int64_t id, const std::vector<LogRow>& rows) {
  const int64_t first = next_number(database, "log", id);
  int64_t number = first;
  std::string names, places;
  for (auto& column : log_columns) names += fmt::format(", {}", column.name), places += ",?";
  Statement s(database,
              fmt::format("INSERT INTO log (run, number, step, skipped{}) VALUES (?,?,?,?{})", names, places));
  for (auto& r : rows) {
    s.add(id).add(number++).add(r.step).add(int(r.skipped));
    for (auto& column : log_columns) s.add(r.*column.field);
    s.run();
  }
  summarize(database, id, first, number);
}

void insert_document(Database& database, int64_t id, const std::string& name, const Json& json) {
  Statement s(database,
              "INSERT INTO documents (run, name, json) VALUES (?,?,?) "
              "ON CONFLICT (run, name) DO UPDATE SET json = excluded.json");
  s.add(id).add(name).add(dump_json(json)).run();
}

void update_end(Database& database, int64_t id, const RunRecord& r) {
  Statement s(database,
              "UPDATE runs SET status = ?, error = ?, result = ?, environment_after = ?, finished = ? WHERE id = ?");
  s.add(r.status).add(r.error);
  add_json(s, r.result);
  add_json(s, r.environment_after);
  s.add(r.finished).add(id).run();
}

const char* const run_columns =
    "id, uid, name, kind, status, started, finished, command, folder, grid, key, phase, error, imported_from, recipe, "
    "device, result, host, boot, space, pid, pid_started, environment, environment_after";

namespace {

// For a value of runs, samples or log not written by Crest.
constexpr int64_t longest_cell = 1 << 20;
constexpr JsonLimits cell_limits{.bytes = uint64_t(16) << 20, .keys = 20'000};

// The place of a value: a column of the run's row, or of one of its rows in another table.
struct Cell {
  const char* column;
  const char* row = nullptr;
  size_t number = 0;
  std::string name() const { return row ? fmt::format("{} of {} {}", column, row, number) : column; }
};

bool is(const char* type, const char* other) { return std::string_view(type) == other; }

void add_damage(RunRecord& r, const Cell& cell, const std::string& what) {
  r.damage.push_back(cell.name() + ": " + what);
}

std::string read_text(const Statement& s, int column, const Cell& cell, RunRecord& r) {
  if (!is(s.type(column), "text"))
    add_damage(r, cell, fmt::format("a {}, not a string", s.type(column)));
  else if (s.bytes(column) > longest_cell)
    add_damage(r, cell, fmt::format("a text of {}", format_bytes(double(s.bytes(column)))));
  else
    return s.text(column);
  return "";
}

Json read_object(const Statement& s, int column, const char* what, RunRecord& r) {
  if (s.is_null(column)) return nullptr;
  if (!is(s.type(column), "text")) {
    add_damage(r, {what}, fmt::format("a {}, not a string", s.type(column)));
    return nullptr;
  }
  try {
    std::string text = s.text(column);
    if (text.empty()) return nullptr;
    Json json = parse_ordered_json_guarded(text, cell_limits, what);
    if (json.is_object() || json.is_array()) return json;
    add_damage(r, {what}, fmt::format("a {}, neither an object nor a list", json.type_name()));
  } catch (const Error& e) {
    add_damage(r, {e.where().c_str()}, e.problem());
  }
  return nullptr;
}

double read_number(const Statement& s, int column, const Cell& cell, RunRecord& r) {
  const char* type = s.type(column);
  if (is(type, "text") || is(type, "blob")) add_damage(r, cell, fmt::format("a {}, not a number", type));
  return s.real(column);
}

int64_t read_integer(const Statement& s, int column, const Cell& cell, RunRecord& r) {
  if (!is(s.type(column), "integer")) add_damage(r, cell, fmt::format("a {}, not a whole number", s.type(column)));
  return s.integer(column);
}

}  // namespace

std::optional<RunRecord> read_run(const Database&, Statement& s, int64_t id, bool environments) {
  RunRecord r;
  r.id = id;
  try {
    if (!s.reset().add(id).step()) return std::nullopt;
  } catch (const StoreDamaged& e) {
    r.damage.push_back(e.problem());
    return r;
  }
  int c = 1;
  for (auto [text, what] : {std::pair{&r.uid, "uid"},
                            {&r.name, "name"},
                            {&r.kind, "kind"},
                            {&r.status, "status"},
                            {&r.started, "started"},
                            {&r.finished, "finished"},
                            {&r.command, "command"},
                            {&r.folder, "folder"},
                            {&r.grid, "grid"},
                            {&r.key, "key"},
                            {&r.phase, "phase"},
                            {&r.error, "error"},
                            {&r.imported_from, "imported_from"}})
    *text = read_text(s, c++, {what}, r);
  for (auto [json, what] : {std::pair{&r.recipe, "recipe"}, {&r.device, "device"}, {&r.result, "result"}})
    *json = read_object(s, c++, what, r);
  if (r.status == "running" && r.imported_from.empty()) {
    ProcessId p{s.text(c), s.text(c + 1), s.text(c + 2), s.integer(c + 3), s.integer(c + 4)};
    if (life_of(p) == Life::gone) r.status = "lost";
  }
  c += 5;
  if (environments) {
    r.environment = read_object(s, c, "environment", r);
    r.environment_after = read_object(s, c + 1, "environment_after", r);
  }
  s.reset();
  return r;
}

void read_samples(Database& database, RunRecord& r) {
  Statement s(database, "SELECT ms, round, contender, throttled FROM samples WHERE run = ? ORDER BY number");
  s.add(r.id);
  while (r.damage.empty() && s.step()) {
    auto cell = [&](const char* column) { return Cell{column, "sample", r.samples.size()}; };
    r.samples.push_back({read_number(s, 0, cell("ms"), r), int(read_integer(s, 1, cell("round"), r)),
                         read_text(s, 2, cell("contender"), r), read_integer(s, 3, cell("throttled"), r) != 0});
  }
}

void read_log(Database& database, RunRecord& record) {
  const auto columns = log_columns_of(database);
  std::string names;
  for (auto& column : columns) names += fmt::format(", {}", column.name);
  Statement s(database, fmt::format("SELECT step, skipped{} FROM log WHERE run = ? ORDER BY number", names));
  s.add(record.id);
  while (record.damage.empty() && s.step()) {
    auto cell = [&](const char* column) { return Cell{column, "log row", record.log.size()}; };
    LogRow r;
    r.step = read_integer(s, 0, cell("step"), record);
    r.skipped = read_integer(s, 1, cell("skipped"), record) != 0;
    int c = 2;
    for (auto& column : columns) r.*column.field = read_number(s, c++, cell(column.name), record);
    record.log.push_back(r);
  }
}

void fail_damaged(const Database& database, const RunRecord& r) {
  std::string name = r.name.empty() ? "" : fmt::format(" ({})", printable(r.name, 100));
  throw StoreDamaged(Exit::failed, fmt::format("run {}{} is damaged: {}", r.id, name, join(r.damage, "; ")),
                     printable(database.file()),
                     fmt::format("The other runs can be read; crest runs delete {} removes this one.", r.id));
}

Json read_json(const Database& database, const std::string& text, int64_t id, const std::string& what) {
  if (text.empty()) return nullptr;
  return parse_ordered_json_guarded(text, json_limits, fmt::format("{}, {} of run {}", database.file(), what, id));
}

}  // namespace crest
