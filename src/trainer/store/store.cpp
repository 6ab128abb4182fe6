#include "store/store.h"

#include <fmt/format.h>

#include <cstdlib>

#include "core/error.h"
#include "core/text.h"
#include "store/database.h"
#include "store/query.h"
#include "store/rows.h"
#include "store/schema.h"

namespace crest {

struct Store::Impl {
  mutable Database database;
  Impl(const std::string& file, Database::Mode mode, Patience patience) : database(file, mode, std::move(patience)) {
    prepare_schema(database, mode);
  }

  void require(int64_t id) {
    Statement s(database, "SELECT 1 FROM runs WHERE id = ?");
    if (!s.add(id).step())
      fail(fmt::format("run {} does not exist or was deleted", id), printable(database.file()),
           "crest runs list shows all.");
  }

  // An atomic change of one run.
  template <class Write>
  void change(int64_t id, Write write) {
    Transaction transaction(database);
    require(id);
    write();
    transaction.commit();
  }

  // 0: unknown.
  int64_t id_of_uid(const std::string& uid) {
    Statement s(database, "SELECT id FROM runs WHERE uid = ?");
    return s.add(uid).step() ? s.integer(0) : 0;
  }

  int64_t insert_whole(const RunRecord& r) {
    int64_t id = insert_run(database, r);
    insert_samples(database, id, r.samples);
    insert_log(database, id, r.log);
    for (auto& [name, json] : r.documents) insert_document(database, id, name, json);
    return id;
  }

  RunRecord head(int64_t id, bool environments) const {
    Statement s(database, fmt::format("SELECT {} FROM runs WHERE id = ?", run_columns));
    auto r = read_run(database, s, id, environments);
    if (!r) fail(fmt::format("no run {}", id), printable(database.file()), "crest runs list shows all.");
    return std::move(*r);
  }

  RunRecord load(int64_t id, bool documents) const {
    RunRecord r = head(id, true);
    if (r.damage.empty()) read_samples(database, r);
    if (r.damage.empty()) read_log(database, r);
    if (!r.damage.empty()) fail_damaged(database, r);
    Statement d(database, fmt::format("SELECT name, {} FROM documents WHERE run = ?", documents ? "json" : "NULL"));
    d.add(id);
    while (d.step()) r.documents[d.text(0)] = read_json(database, d.text(1), id, "document " + printable(d.text(0)));
    return r;
  }
};

static void complete(RunRecord& r) {
  if (r.uid.empty()) r.uid = new_uid();
  if (r.started.empty()) r.started = utc_now();
  if (r.status.empty()) r.status = "running";
  if (r.name.empty()) r.name = recipe_name(r);
  if (!r.imported_from.empty()) return;
  if (r.key.empty()) r.key = measurement_key(r.recipe, r.device, r.phase);
  r.folder = absolute_folder(r.folder);
}

Store::Store(const std::string& file, Mode mode, Patience patience)
    : impl_(std::make_unique<Impl>(file, mode == Mode::write ? Database::Mode::write : Database::Mode::read,
                                   std::move(patience))) {}
Store::~Store() = default;
Store::Store(Store&&) noexcept = default;

const std::string& Store::file() const { return impl_->database.file(); }

int64_t Store::begin(RunRecord& r) {
  complete(r);
  return r.id = insert_run(impl_->database, r);
}

void Store::reopen(int64_t id) {
  impl_->change(id, [&] { reopen_run(impl_->database, id); });
}

void Store::add_samples(int64_t id, const std::vector<SampleRow>& samples) {
  impl_->change(id, [&] { insert_samples(impl_->database, id, samples); });
}

void Store::add_log(int64_t id, const std::vector<LogRow>& rows) {
  impl_->change(id, [&] { insert_log(impl_->database, id, rows); });
}

void Store::set_document(int64_t id, const std::string& name, const Json& json) {
  impl_->change(id, [&] { insert_document(impl_->database, id, name, json); });
}

void Store::finish(int64_t id, const RunRecord& record) {
  RunRecord end;
  end.status = record.status.empty() || record.status == "running" ? "done" : record.status;
  end.error = record.error, end.result = record.result, end.environment_after = record.environment_after;
  end.finished = record.finished.empty() ? utc_now() : record.finished;
  impl_->change(id, [&] { update_end(impl_->database, id, end); });
}

int64_t Store::add(RunRecord& r) {
  complete(r);
  Transaction transaction(impl_->database);
  r.id = impl_->id_of_uid(r.uid);
  if (r.id == 0) r.id = impl_->insert_whole(r);
  transaction.commit();
  return r.id;
}

Store::Added Store::add_all(const std::function<bool(RunRecord&)>& next) {
  Added added;
  Transaction transaction(impl_->database);
  for (RunRecord r; next(r); r = RunRecord()) {
    complete(r);
    if (impl_->id_of_uid(r.uid))
      ++added.known;
    else
      added.ids.push_back(impl_->insert_whole(r));
  }
  transaction.commit();
  return added;
}

std::vector<RunRecord> Store::list(const RunFilter& filter) const { return list_runs(impl_->database, filter); }
RunRecord Store::head(int64_t id) const { return impl_->head(id, false); }
RunRecord Store::load(int64_t id) const { return impl_->load(id, true); }
RunRecord Store::load_without_documents(int64_t id) const { return impl_->load(id, false); }
int64_t Store::find(const std::string& run) const { return find_run(impl_->database, run); }

Json Store::document(int64_t id, const std::string& name) const {
  std::vector<std::string> names;
  Statement s(impl_->database, "SELECT name FROM documents WHERE run = ?");
  s.add(id);
  while (s.step()) names.push_back(printable(s.text(0)));
  Statement d(impl_->database, "SELECT json FROM documents WHERE run = ? AND name = ?");
  if (!d.add(id).add(name).step())
    fail(fmt::format("run {} has no document '{}'", id, printable(name)), printable(file()),
         names.empty() ? "It has no documents." : fmt::format("It has: {}.", join(names, ", ")));
  return read_json(impl_->database, d.text(0), id, "document " + printable(name));
}

LogCurve Store::curve(int64_t id, int64_t most_points, const LogCurve* known) const {
  return read_curve(impl_->database, id, most_points, known);
}
int64_t Store::version() const { return impl_->database.integer("PRAGMA data_version"); }

void Store::erase(int64_t id) {
  impl_->change(id, [&] { Statement(impl_->database, "DELETE FROM runs WHERE id = ?").add(id).run(); });
  impl_->database.run("PRAGMA incremental_vacuum");  // returns the pages to the file system
}

std::string default_store_file() {
  const char* file = std::getenv("CREST_STORE");
  return file && *file ? file : "crest.db";
}

}  // namespace crest
