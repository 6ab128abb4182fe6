#include "watch/watch.h"

#include <fmt/format.h>

#include <algorithm>
#include <charconv>
#include <cmath>

#include "compare/compare.h"
#include "compare/compare_text.h"
#include "compare/open_compared.h"
#include "core/embedded.h"
#include "core/error.h"
#include "core/folder.h"
#include "core/json_number.h"
#include "core/text.h"
#include "report/report.h"
#include "report/report_data.h"
#include "terminal/table.h"

namespace crest {

const std::vector<EmbeddedFile>& embedded_pages();  // watch/*.html

namespace {

constexpr const char *html = "text/html; charset=utf-8", *json = "application/json",
                     *plain = "text/plain; charset=utf-8";
constexpr int64_t most_listed = 500, most_curves_at_once = 32, sample_bytes = 64 << 10;
constexpr int64_t fewest_points = 16, usual_points = 600, most_points = 4000;

// A malformed query.
struct BadQuery {
  std::string problem;
};

int64_t whole_number(const std::string& text) {
  int64_t value = 0;
  auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  if (error != std::errc() || end != text.data() + text.size() || value < 0)
    throw BadQuery{fmt::format("'{}' is not a whole number", printable(text, 40))};
  return value;
}

std::vector<int64_t> runs_of(const HttpRequest& request) {
  std::vector<int64_t> ids;
  for (auto& [key, value] : request.query)
    if (key == "run") ids.push_back(whole_number(value));
  if (ids.empty()) throw BadQuery{"the address names no run"};
  return ids;
}

std::string short_number(double x) { return std::isfinite(x) ? fmt::format("{:.7g}", x) : "null"; }

// ["name":[...]], one value a point. Columns without any value are left out.
void append_column(std::string& out, const std::string& name, const LogCurve& curve,
                   const std::function<double(const LogPoint&)>& value) {
  if (std::none_of(curve.points.begin(), curve.points.end(), [&](auto& p) { return std::isfinite(value(p)); })) return;
  out += fmt::format(",\"{}\":[", name);
  for (auto& p : curve.points) out += short_number(value(p)) + ",";
  out.back() = ']';
}

std::string curve_json(int64_t run, const LogCurve& curve) {
  std::string out = fmt::format("{{\"run\":{},\"rows\":{},\"rows_per_point\":{},\"writer\":\"{}\",\"index\":[", run,
                                curve.rows, curve.rows_per_point, printable(curve.writer, 60));
  for (auto& p : curve.points) out += fmt::format("{},", p.index);
  if (!curve.points.empty()) out.pop_back();
  out += "],\"step\":[";
  for (auto& p : curve.points) out += fmt::format("{},", p.last_step);
  if (!curve.points.empty()) out.pop_back();
  out += "]";
  append_column(out, "seconds", curve, [](auto& p) { return p.seconds; });
  for (size_t c = 0; c < summarized_count; ++c) {
    const std::string name = summarized_columns[c];
    append_column(out, name, curve, [&](auto& p) { return p.columns[c].mean; });
    if (curve.rows_per_point == 1) continue;
    append_column(out, name + "_low", curve, [&](auto& p) { return p.columns[c].low; });
    append_column(out, name + "_high", curve, [&](auto& p) { return p.columns[c].high; });
  }
  return out + "}";
}

// "3:8:1000:77-123": the page has a curve of run 3 of 1,000 rows, 8 a point.
std::pair<int64_t, LogCurve> known_curve(const std::string& text) {
  std::vector<std::string> parts = split(text, ':');
  LogCurve known;
  if (parts.size() != 1 && parts.size() != 4) throw BadQuery{fmt::format("'{}' is not a curve", printable(text, 60))};
  if (parts.size() == 4)
    known.rows_per_point = whole_number(parts[1]), known.rows = whole_number(parts[2]), known.writer = parts[3];
  return {whole_number(parts[0]), known};
}

Json listed(const RunRecord& r) {
  Json run = {{"id", r.id},
              {"name", valid_utf8(shown_name(r))},
              {"kind", r.kind},
              {"status", r.status},
              {"started", r.started},
              {"finished", r.finished},
              {"folder", valid_utf8(r.folder)},
              {"command", valid_utf8(r.command)}};
  run["model"] = text_at(r.recipe, "model"), run["device"] = text_at(r.device, "name");
  run["tokens_per_step"] = number_or_null(tokens_per_step(r.recipe));
  for (const char* key : {"step", "loss", "val_loss", "seconds", "validation_seconds", "saving_seconds"})
    if (r.result.is_object() && r.result.contains(key)) run[key] = r.result[key];
  return run;
}

}  // namespace

WatchPages::WatchPages(const std::string& store, std::vector<int64_t> runs)
    : file_(store), nonce_(new_uid()), first_runs_(std::move(runs)), store_(store, Store::Mode::read) {}

HttpResponse WatchPages::answer(const HttpRequest& request) {
  try {
    if (request.path == "/") return page();
    if (request.path == "/api/runs") return list();
    if (request.path == "/api/curves") return curves(request);
    if (request.path == "/api/samples") return samples(request);
    if (request.path == "/report") return report(request);
    if (request.path == "/compare") return compare(request);
    return {404, plain, "There is no such page.\n"};
  } catch (const BadQuery& e) {
    return {400, plain, e.problem + "\n"};
  } catch (const Error& e) {
    return {500, plain, std::string(e.what()) + "\n"};
  }
}

HttpResponse WatchPages::page() const {
  std::string text(embedded_pages().at(0).text);
  Json first = first_runs_;
  for (auto [mark, value] : {std::pair<std::string, std::string>{"{{nonce}}", nonce_}, {"{{runs}}", first.dump()}})
    if (size_t at = text.find(mark); at != std::string::npos) text.replace(at, mark.size(), value);
  return {200, html, text,
          fmt::format("default-src 'none'; connect-src 'self'; img-src data:; style-src 'unsafe-inline'; "
                      "script-src 'nonce-{}'",
                      nonce_)};
}

HttpResponse WatchPages::list() {
  std::vector<RunRecord> runs;
  {
    std::lock_guard lock(mutex_);
    for (const char* kind : {"train", "log"}) {
      RunFilter filter;
      filter.kind = kind, filter.limit = most_listed;
      for (auto& r : store_.list(filter)) runs.push_back(std::move(r));
    }
  }
  std::stable_sort(runs.begin(), runs.end(), [](auto& a, auto& b) { return a.started > b.started; });
  Json all = Json::array();
  for (auto& r : runs) all.push_back(listed(r));
  return {200, json, dump_json(all)};
}

// Without changes in the database since `version` the answer is empty (204), and nothing is read.
HttpResponse WatchPages::curves(const HttpRequest& request) {
  const int64_t points = std::clamp(whole_number(request.value("points").value_or(std::to_string(usual_points))),
                                    fewest_points, most_points);
  std::vector<std::pair<int64_t, LogCurve>> wanted;
  for (auto& [key, value] : request.query)
    if (key == "run") wanted.push_back(known_curve(value));
  if (wanted.size() > size_t(most_curves_at_once))
    throw BadQuery{fmt::format("more than {} runs at once", most_curves_at_once)};
  std::lock_guard lock(mutex_);
  const std::string version = fmt::format("{}-{}", nonce_, store_.version());
  if (request.value("version") == version) return {204};
  std::string out = fmt::format("{{\"version\":\"{}\",\"curves\":[", version);
  for (auto& [run, known] : wanted) {
    if (out.back() != '[') out += ",";
    out += curve_json(run, store_.curve(run, points, &known));
  }
  return {200, json, out + "]}"};
}

HttpResponse WatchPages::samples(const HttpRequest& request) {
  RunRecord run;
  {
    std::lock_guard lock(mutex_);
    run = store_.head(runs_of(request).at(0));
  }
  Json result = {{"size", 0}, {"from", 0}, {"text", ""}};
  // The folder of an imported run is one of another machine.
  if (run.folder.empty() || !run.imported_from.empty() || !path_exists(run.folder + "/samples.txt"))
    return {200, json, dump_json(result)};
  const File file = Folder::open(run.folder).open_read("samples.txt");
  const int64_t size = int64_t(file.size());
  int64_t from = whole_number(request.value("from").value_or("0"));
  if (from > size) from = 0;  // written again
  from = std::max(from, size - sample_bytes);
  std::string text(size_t(size - from), '\0');
  text.resize(file.read_some_at(text.data(), text.size(), uint64_t(from)));
  result = {{"size", from + int64_t(text.size())}, {"from", from}, {"text", valid_utf8(text)}};
  return {200, json, dump_json(result)};
}

// Reports and comparisons take a while: they read with a connection of their own.
HttpResponse WatchPages::report(const HttpRequest& request) const {
  Store store(file_, Store::Mode::read);
  std::vector<RunRecord> runs;
  for (int64_t id : runs_of(request)) runs.push_back(store.load(id));
  return {200, html, to_html(make_report(runs).page), "default-src 'none'; img-src data:; style-src 'unsafe-inline'"};
}

HttpResponse WatchPages::compare(const HttpRequest& request) const {
  const std::vector<int64_t> ids = runs_of(request);
  if (ids.size() != 2) throw BadQuery{"a comparison needs two runs"};
  Store store(file_, Store::Mode::read);
  const RunRecord a = store.load(ids[0]), b = store.load(ids[1]);
  CompareTextOptions text;
  text.width = int(std::clamp(whole_number(request.value("columns").value_or("100")), int64_t(40), int64_t(160)));
  CompareOptions options;
  options.noise_floor = known_noise_floor(a, b, {file_});
  return {200, plain, compare_text(compare_runs(a, b, options), text)};
}

}  // namespace crest
