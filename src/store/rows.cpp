#include "store/rows.h"

#include <fmt/format.h>

#include "core/json.h"
#include "store/process.h"

namespace crest {

namespace {

// A profile of a deep unfused model has some million values.
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
}

void insert_samples(Database& database, int64_t id, const std::vector<SampleRow>& samples) {
  int64_t number = next_number(database, "samples", id);
  Statement s(database, "INSERT INTO samples VALUES (?,?,?,?,?,?)");
  for (auto& row : samples)
    s.add(id).add(number++).add(row.ms).add(row.round).add(row.contender).add(int(row.throttled)).run();
}

void insert_log(Database& database, int64_t id, const std::vector<LogRow>& rows) {
  int64_t number = next_number(database, "log", id);
  Statement s(database, "INSERT INTO log VALUES (?,?,?,?,?,?,?,?,?,?)");
  for (auto& r : rows) {
    s.add(id).add(number++).add(r.step);
    for (double x : {r.loss, r.val_loss, r.lr, r.grad_norm, r.step_ms, r.tokens_per_second}) s.add(x);
    s.add(int(r.skipped)).run();
  }
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

RunRecord read_run(const Database& database, const Statement& s, bool environments) {
  RunRecord r;
  int c = 0;
  r.id = s.integer(c++);
  for (auto* text : {&r.uid, &r.name, &r.kind, &r.status, &r.started, &r.finished, &r.command, &r.folder, &r.grid,
                     &r.key, &r.phase, &r.error, &r.imported_from})
    *text = s.text(c++);
  for (auto [json, what] : {std::pair{&r.recipe, "recipe"}, {&r.device, "device"}, {&r.result, "result"}})
    *json = read_json(database, s.text(c++), r.id, what);
  if (r.status == "running" && r.imported_from.empty()) {
    ProcessId p{s.text(c), s.text(c + 1), s.text(c + 2), s.integer(c + 3), s.integer(c + 4)};
    if (life_of(p) == Life::gone) r.status = "lost";
  }
  c += 5;
  if (!environments) return r;
  r.environment = read_json(database, s.text(c), r.id, "environment");
  r.environment_after = read_json(database, s.text(c + 1), r.id, "environment_after");
  return r;
}

std::vector<SampleRow> read_samples(Database& database, int64_t id) {
  std::vector<SampleRow> rows;
  Statement s(database, "SELECT ms, round, contender, throttled FROM samples WHERE run = ? ORDER BY number");
  s.add(id);
  while (s.step()) rows.push_back({s.real(0), int(s.integer(1)), s.text(2), s.integer(3) != 0});
  return rows;
}

std::vector<LogRow> read_log(Database& database, int64_t id) {
  std::vector<LogRow> rows;
  Statement s(database,
              "SELECT step, loss, val_loss, lr, grad_norm, step_ms, tokens_per_second, skipped FROM log "
              "WHERE run = ? ORDER BY number");
  s.add(id);
  while (s.step()) {
    LogRow r;
    r.step = s.integer(0);
    int c = 1;
    for (double* x : {&r.loss, &r.val_loss, &r.lr, &r.grad_norm, &r.step_ms, &r.tokens_per_second}) *x = s.real(c++);
    r.skipped = s.integer(c) != 0;
    rows.push_back(r);
  }
  return rows;
}

Json read_json(const Database& database, const std::string& text, int64_t id, const std::string& what) {
  if (text.empty()) return nullptr;
  return parse_ordered_json_guarded(text, json_limits, fmt::format("{}, {} of run {}", database.file(), what, id));
}

}  // namespace crest
