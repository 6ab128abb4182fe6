#include "lab/lab_report.h"

#include <fmt/format.h>

#include <algorithm>
#include <map>
#include <set>

#include "core/error.h"
#include "core/json.h"
#include "core/text.h"
#include "lab/columns.h"
#include "lab/result_json.h"

namespace crest::lab {

namespace {

constexpr size_t rows_unfolded = 12;
const std::vector<Verdict> verdicts = {Verdict::upheld, Verdict::refuted, Verdict::cannot_tell};

Json member(const Json& object, const char* key) {
  auto it = object.find(key);  // end() for anything but an object
  return it == object.end() ? Json() : *it;
}

// The document `lab` of one record (result_json.h); damaged or missing parts read as empty.
struct Judged {
  const RunRecord* run;
  Json document;

  std::string text(const char* key) const { return text_at(document, key); }
  const Json& list(const char* key) const {
    static const Json none = Json::array();
    auto it = document.find(key);
    return it != document.end() && it->is_array() ? *it : none;
  }
  std::string device() const { return text("device").empty() ? text_at(run->device, "name") : text("device"); }
  size_t count(Verdict verdict) const {
    size_t n = 0;
    for (auto& c : list("claims")) n += text_at(c, "verdict") == name(verdict);
    return n;
  }
};

std::vector<Judged> newest(const std::vector<RunRecord>& runs) {
  std::map<std::string, Judged> by_name;
  for (auto& r : runs) {
    auto document = r.documents.find("lab");
    if (r.kind != "experiment" || document == r.documents.end() || !document->second.is_object()) continue;
    Judged j{&r, document->second};
    if (j.list("claims").empty()) continue;
    std::string key = j.text("name") + "\n" + j.text("scale") + "\n" + j.device();
    auto [it, added] = by_name.emplace(key, j);
    if (!added && it->second.run->started <= r.started) it->second = j;
  }
  std::vector<Judged> all;
  for (auto& [key, j] : by_name) all.push_back(j);
  return all;
}

std::string shown(const Value& v) {
  return v.known() && v.type == Value::Type::number ? describe_number(v.x) : v.known() ? describe(v) : "-";
}

std::string figures_of(const Json& claim) {
  std::vector<std::string> parts;
  if (std::string why = text_at(claim, "reason"); !why.empty()) parts.push_back(why);
  auto it = claim.find("figures");
  if (it != claim.end() && it->is_array())
    for (auto& f : *it)
      if (Value v = value_from_json(member(f, "value")); v.known())
        parts.push_back(text_at(f, "figure") + " = " + describe(v));
  return join(parts, "; ");
}

// "... also B" continues the claim "A" before it; alone it reads "A ... also B".
std::string whole_text(const Json& claims, size_t i) {
  std::string text = text_at(claims[i], "text");
  for (size_t k = i; k-- > 0 && text.rfind("...", 0) == 0;)
    if (std::string first = text_at(claims[k], "text"); first.rfind("...", 0) != 0) text = first + " " + text;
  return text;
}

std::string whose(const Json& claim) {
  return " (" + text_at(claim, "subject") + "; " + text_at(claim, "source") + ")";
}

void add_claims(Page& page, const Judged& j) {
  Bullets list;
  for (auto& c : j.list("claims")) {
    Text item;
    std::string verdict = text_at(c, "verdict");
    item.strong((verdict == name(Verdict::cannot_tell) ? label(Verdict::cannot_tell) : verdict) + ":")
        .add(" " + text_at(c, "text") + whose(c) + ". ")
        .code(text_at(c, "check"));
    if (std::string figures = figures_of(c); !figures.empty()) item.add(": " + figures);
    list.items.push_back(item);
  }
  page.blocks.push_back(list);
}

void add_then(Page& page, const Judged& j) {
  if (j.list("then").empty()) return;
  PageTable t;
  t.columns = {{"quantity", Align::left}, {"document"}, {"here"}, {"here / document"}, {"source", Align::left}};
  t.compact = true;
  for (auto& row : j.list("then")) {
    auto document = row.find("document");
    double then = document != row.end() && document->is_number() ? document->get<double>() : 0;
    Value here = value_from_json(member(row, "here"));
    std::string unit = text_at(row, "unit").empty() ? "" : " " + text_at(row, "unit");
    bool number = here.known() && here.type == Value::Type::number;
    t.rows.push_back({text_at(row, "what"), describe_number(then) + unit, shown(here) + (number ? unit : ""),
                      number && then != 0 ? fmt::format("{:.2f}", here.x / then) : "", text_at(row, "source")});
  }
  page.blocks.push_back(t);
}

void add_cells(Page& page, const Judged& j) {
  std::vector<Row> rows;
  for (auto& row : j.list("rows")) rows.push_back(row_from_json(row));
  if (rows.empty()) return;
  std::vector<std::string> keys = telling_keys(rows), columns;
  for (auto& column : j.list("show"))
    if (column.is_string()) columns.push_back(column.get<std::string>());
  PageTable t;
  for (auto& key : keys) t.columns.push_back({key, Align::left});
  for (auto& column : columns) t.columns.push_back({column});
  t.columns.push_back({"record", Align::left});
  for (auto& row : rows) {
    std::vector<PageCell> cells;
    for (auto& key : keys) cells.emplace_back(row.keys.count(key) ? row.keys.at(key) : "");
    for (auto& column : columns) cells.emplace_back(format_value(column, column_of(row, column)));
    std::string records = row.run + (row.again.empty() ? "" : " " + row.again);
    PageCell last(row.absent.empty() ? records : row.absent);
    last.look = row.absent.empty() ? PageCell::Look::soft : PageCell::Look::missing;
    cells.push_back(last);
    t.rows.push_back(cells);
  }
  t.folded = rows.size() > rows_unfolded;
  t.summary = fmt::format("{} cells", rows.size());
  page.blocks.push_back(t);
}

std::string noise_of(const Judged& j) {
  std::string source = j.text("noise_floor_source");
  auto floor = j.document.find("noise_floor");
  if (source.empty() || floor == j.document.end() || !floor->is_number()) return "";
  return fmt::format(" Noise floor {:.1f}%: {}.", 100 * floor->get<double>(), source);
}

// "fusion", "fusion (full)" or "fusion (full, NVIDIA H200)": enough to distinguish it from others
// of its name.
std::string heading_of(const Judged& j, const std::vector<Judged>& all) {
  bool scales = false, devices = false;
  for (auto& other : all) {
    if (other.run == j.run || other.text("name") != j.text("name")) continue;
    (other.text("scale") == j.text("scale") ? devices : scales) = true;
  }
  if (devices) return fmt::format("{} ({}, {})", j.text("name"), j.text("scale"), j.device());
  return scales ? fmt::format("{} ({})", j.text("name"), j.text("scale")) : j.text("name");
}

void add_experiment(Page& page, const Judged& j, const std::vector<Judged>& all) {
  page.blocks.push_back(Heading{2, heading_of(j, all)});
  page.blocks.push_back(Paragraph{Text().strong(j.text("title") + ".").add(" " + j.text("question"))});
  add_claims(page, j);
  add_then(page, j);
  add_cells(page, j);
  page.blocks.push_back(
      Paragraph{Text("Source " + j.text("source") + "; measured " + j.run->started.substr(0, 10) + " on " + j.device() +
                     ", scale " + j.text("scale") + "; record " + j.run->uid + "." + noise_of(j) + " Reproduce: ")
                    .code("crest lab run " + j.text("name") + " --scale " + j.text("scale"))});
}

void add_overview(Page& page, const std::vector<Judged>& all) {
  PageTable t;
  t.columns = {{"experiment", Align::left}, {"scale", Align::left}};
  for (Verdict v : verdicts) t.columns.push_back({label(v)});
  t.columns.push_back({"", Align::left});
  for (auto& j : all) {
    std::vector<PageCell> row = {j.text("name"), j.text("scale")};
    for (Verdict v : verdicts) row.emplace_back(j.count(v) ? std::to_string(j.count(v)) : "");
    row.emplace_back(j.text("title"));
    t.rows.push_back(row);
  }
  page.blocks.push_back(Heading{2, "Overview"});
  page.blocks.push_back(t);
}

void add_refuted(Page& page, const std::vector<Judged>& all) {
  Bullets list;
  for (auto& j : all) {
    const Json& claims = j.list("claims");
    for (size_t i = 0; i < claims.size(); ++i) {
      if (text_at(claims[i], "verdict") != "refuted") continue;
      Text item;
      item.strong(whole_text(claims, i)).add(whose(claims[i]));
      if (std::string figures = figures_of(claims[i]); !figures.empty()) item.add(": " + figures);
      list.items.push_back(item.add(" [" + j.text("name") + "]"));
    }
  }
  if (list.items.empty()) return;
  page.blocks.push_back(Heading{2, "Refuted claims"});
  page.blocks.push_back(list);
}

}  // namespace

Report make_lab_report(const std::vector<RunRecord>& runs, const std::string& title) {
  std::vector<Judged> all = newest(runs);
  if (all.empty())
    fail("no judged experiment is recorded", "crest report --lab", "Run some: crest lab run --all --scale tiny");
  std::array<size_t, 3> sums = {};
  std::set<std::string> devices, names;
  Json experiments = Json::array();
  for (auto& j : all) {
    for (size_t v = 0; v < verdicts.size(); ++v) sums[v] += j.count(verdicts[v]);
    devices.insert(j.device()), names.insert(j.text("name"));
    experiments.push_back({{"name", j.text("name")},
                           {"scale", j.text("scale")},
                           {"device", j.device()},
                           {"uid", j.run->uid},
                           {"upheld", j.count(verdicts[0])},
                           {"refuted", j.count(verdicts[1])},
                           {"cannot_tell", j.count(verdicts[2])}});
  }
  Report report;
  Page& page = report.page;
  page.title = title.empty() ? "The lab: claims and verdicts" : title;
  page.subtitle = fmt::format("{} experiment{} on {}", all.size(), all.size() == 1 ? "" : "s",
                              join(std::vector<std::string>(devices.begin(), devices.end()), "; "));
  std::string sentence = verdict_counts(sums) + (devices.size() == 1 ? " on " + *devices.begin() + "." : ".");
  if (names.size() < all.size())
    sentence += " Claims of an experiment run at several scales or on several devices count once for each.";
  page.blocks.push_back(Tiles{{{label(Verdict::upheld), std::to_string(sums[0]), ""},
                               {label(Verdict::refuted), std::to_string(sums[1]), ""},
                               {label(Verdict::cannot_tell), std::to_string(sums[2]), ""}}});
  page.blocks.push_back(Paragraph{Text(sentence)});
  add_overview(page, all);
  add_refuted(page, all);
  for (auto& j : all) add_experiment(page, j, all);
  page.footer = std::string("Made by crest report --lab, Crest ") + CREST_VERSION +
                ". Every verdict is computed from its formula and the named records.";
  report.json = {{"title", page.title}, {"summary", Json::array({sentence})}, {"experiments", experiments}};
  return report;
}

}  // namespace crest::lab
