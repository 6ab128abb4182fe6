#include "store/query.h"

#include <fmt/format.h>

#include <algorithm>
#include <filesystem>

#include "core/error.h"
#include "core/text.h"
#include "store/rows.h"

namespace crest {

namespace fs = std::filesystem;

std::string absolute_folder(const std::string& folder) {
  if (folder.empty()) return "";
  std::error_code error;
  fs::path path = fs::weakly_canonical(fs::absolute(folder, error), error);
  std::string text = error ? folder : path.string();
  while (text.size() > 1 && text.back() == '/') text.pop_back();
  return text;
}

namespace {

// The conditions of a WHERE clause and their parameters.
struct Where {
  std::vector<std::string> conditions, texts;
  void add(const std::string& condition, std::initializer_list<std::string> values) {
    conditions.push_back("(" + condition + ")");
    texts.insert(texts.end(), values);
  }
  std::string text() const { return conditions.empty() ? "" : " WHERE " + join(conditions, " AND "); }
};

// A LIKE pattern that matches the text anywhere.
std::string anywhere(const std::string& text) {
  std::string pattern = "%";
  for (char c : text) {
    if (c == '%' || c == '_' || c == '\\') pattern += '\\';
    pattern += c;
  }
  return pattern + "%";
}

Where where_of(const RunFilter& f) {
  Where w;
  for (auto [column, value] :
       {std::pair{"kind", &f.kind}, {"phase", &f.phase}, {"grid", &f.grid}, {"key", &f.key}, {"model", &f.model}})
    if (!value->empty()) w.add(fmt::format("{} = ?", column), {*value});
  if (!f.device.empty()) w.add("device_kind = ? OR device_name LIKE ? ESCAPE '\\'", {f.device, anywhere(f.device)});
  if (!f.since.empty()) w.add("started >= ?", {f.since});
  if (!f.until.empty()) w.add("substr(started, 1, length(?)) <= ?", {f.until, f.until});
  if (!f.text.empty()) {
    std::string p = anywhere(f.text);
    w.add("name LIKE ? ESCAPE '\\' OR command LIKE ? ESCAPE '\\' OR folder LIKE ? ESCAPE '\\'", {p, p, p});
  }
  for (auto& [key, value] : f.settings) {
    std::string plain = value == "true" ? "1" : value == "false" ? "0" : value;  // as SQLite represents JSON booleans
    bool number = !plain.empty() && plain.find_first_not_of("0123456789.eE+-") == std::string::npos;
    // An invalid recipe has no settings; checked with CASE, since AND guarantees no order.
    const char* whole = "CASE WHEN json_valid(recipe) THEN {} END";
    if (number)
      w.add(fmt::format(fmt::runtime(whole),
                        "json_extract(recipe, '$.' || ?) = CAST(? AS REAL) OR "
                        "CAST(json_extract(recipe, '$.' || ?) AS TEXT) = ?"),
            {key, plain, key, plain});
    else
      w.add(fmt::format(fmt::runtime(whole), "json_extract(recipe, '$.' || ?) = ?"), {key, plain});
  }
  // Whether a run is still running depends on its process, not on its row.
  if (f.status == "running" || f.status == "lost")
    w.add("status IN ('running', 'lost')", {});
  else if (!f.status.empty())
    w.add("status = ?", {f.status});
  return w;
}

std::vector<int64_t> ids(Database& database, const std::string& condition, std::initializer_list<std::string> values) {
  Statement s(database, "SELECT id FROM runs WHERE " + condition + " ORDER BY started DESC, id DESC");
  for (auto& v : values) s.add(v);
  std::vector<int64_t> found;
  while (s.step()) found.push_back(s.integer(0));
  return found;
}

bool all_of(const std::string& text, const char* characters) {
  return !text.empty() && text.find_first_not_of(characters) == std::string::npos;
}

[[noreturn]] void fail_unknown(Database& database, const std::string& run) {
  std::vector<std::string> names;
  Statement s(database, "SELECT DISTINCT name, folder FROM runs ORDER BY started DESC LIMIT 2000");
  while (s.step()) {
    names.push_back(s.text(0));
    if (!s.text(1).empty()) names.push_back(fs::path(s.text(1)).filename().string());
  }
  std::string advice = names.empty() ? "No runs are recorded yet: crest bench --model nano records one."
                                     : did_you_mean(run, names) + " crest runs list shows all.";
  fail(fmt::format("no run '{}'", printable(run)), printable(database.file()),
       advice.substr(advice.find_first_not_of(' ')));
}

}  // namespace

std::vector<RunRecord> list_runs(Database& database, const RunFilter& f) {
  Where where = where_of(f);
  Statement s(database, fmt::format("SELECT id FROM runs{} ORDER BY started DESC, id DESC", where.text()));
  for (auto& text : where.texts) s.add(text);
  // Each run separately: damage in one does not affect the others.
  Statement row(database, fmt::format("SELECT {} FROM runs WHERE id = ?", run_columns));
  std::vector<RunRecord> runs;
  while ((f.limit <= 0 || int64_t(runs.size()) < f.limit) && s.step()) {
    auto r = read_run(database, row, s.integer(0), false);
    if (r && (f.status.empty() || r->status == f.status)) runs.push_back(std::move(*r));
  }
  return runs;
}

int64_t find_run(Database& database, const std::string& run) {
  std::vector<int64_t> found;
  if (all_of(run, "0123456789") && run.size() < 19) found = ids(database, "id = CAST(? AS INTEGER)", {run});
  if (found.empty() && run.size() >= 4 && all_of(run, "0123456789abcdef")) {
    found = ids(database, "substr(uid, 1, length(?)) = ?", {run, run});
    if (found.size() > 1)
      fail(fmt::format("{} runs have a uid that starts with '{}'", found.size(), run), printable(database.file()),
           "Give more of its digits (crest runs list --json).");
  }
  if (found.empty()) found = ids(database, "name = ?", {run});
  if (found.empty() && !run.empty()) found = ids(database, "folder = ?", {absolute_folder(run)});
  if (found.empty()) fail_unknown(database, run);
  return found[0];
}

}  // namespace crest
