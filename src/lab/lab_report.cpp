#include "lab/lab_report.h"

#include <fmt/format.h>

#include <algorithm>
#include <map>
#include <set>

#include "charts/figure.h"
#include "core/error.h"
#include "core/json.h"
#include "core/text.h"
#include "lab/columns.h"
#include "lab/judge.h"
#include "lab/result_json.h"
#include "lab/sources.h"

namespace crest::lab {

namespace {

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

// The name of what a formula reads: "planned_bytes" of max(planned_bytes, fusion=on).
std::string read_by(const std::string& formula) {
  size_t open = formula.find('(');
  if (open == std::string::npos) return formula;
  std::string function = formula.substr(0, open), inner = formula.substr(open + 1);
  for (const char* keeps : {"value", "max", "min", "mean", "sum"})
    if (function == keeps) return inner.substr(0, inner.find_first_of(",)"));
  return "";  // a ratio has no unit
}

// Bytes and FLOPs with their unit.
std::string with_unit(const std::string& formula, const Value& v) {
  std::string column = read_by(formula);
  bool unit = column.ends_with("_bytes") || column.ends_with("_flops");
  return unit && v.type == Value::Type::number ? format_value(column, v) : describe(v);
}

std::string figures_of(const Json& claim) {
  std::vector<std::string> parts;
  auto it = claim.find("figures");
  if (it != claim.end() && it->is_array())
    for (auto& f : *it)
      if (Value v = value_from_json(member(f, "value")); v.known())
        parts.push_back(text_at(f, "figure") + " = " + with_unit(text_at(f, "figure"), v));
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
  return " (" + text_at(claim, "subject") + "; " + source_text(text_at(claim, "source")) + ")";
}

// For people; a verdict that this version does not know, as recorded.
std::string label_of(const std::string& recorded) {
  for (Verdict v : verdicts)
    if (recorded == name(v)) return label(v);
  return recorded;
}

std::string quoted(const Json& claim) {
  std::string quote = text_at(claim, "quote");
  return quote.empty() ? "" : "\u201c" + quote + "\u201d ";
}

Text& add_verdict(Text& item, const std::string& recorded) {
  std::string label = label_of(recorded) + ":";
  if (recorded == name(Verdict::upheld)) return item.good(label);
  if (recorded == name(Verdict::refuted)) return item.bad(label);
  if (recorded == name(Verdict::cannot_tell)) return item.open(label);
  return item.soft(label);
}

// The claims for people; how each was judged, on demand.
void add_claims(Page& page, const Judged& j) {
  Bullets list;
  PageTable formulas;
  formulas.columns = {{"claim", Align::left}, {"holds if", Align::left}, {"figures here", Align::left}};
  formulas.folded = true, formulas.summary = "How each claim was judged";
  for (auto& c : j.list("claims")) {
    Text item;
    add_verdict(item, text_at(c, "verdict")).add(" " + text_at(c, "text") + whose(c) + ". " + quoted(c));
    if (std::string why = text_at(c, "reason"); !why.empty()) item.add("Reason: " + why + ".");
    list.items.push_back(item);
    formulas.rows.push_back({text_at(c, "text"), text_at(c, "check"), figures_of(c)});
  }
  page.blocks.push_back(list);
  page.blocks.push_back(formulas);
}

constexpr size_t least_bars = 2;

// What was measured here, over the figure of the document.
void add_then_figure(Page& page, const Judged& j) {
  BarChart chart;
  Figure f;
  f.numbers.columns = {{"quantity", Align::left}, {"document"}, {"here"}, {"here / document"}};
  for (auto& row : j.list("then")) {
    auto document = row.find("document");
    double then = document != row.end() && document->is_number() ? document->get<double>() : 0;
    Value here = value_from_json(member(row, "here"));
    if (!here.known() || here.type != Value::Type::number || then == 0) continue;
    double ratio = here.x / then;
    Bar bar;
    bar.value = ratio, bar.text = fmt::format("{:.2f}", ratio);
    bar.tip = fmt::format("{} here, {} in the document", describe_number(here.x), describe_number(then));
    chart.groups.push_back({text_at(row, "what"), {bar}});
    f.numbers.rows.push_back({text_at(row, "what"), describe_number(then), describe_number(here.x), bar.text});
  }
  if (chart.groups.size() < least_bars) return;
  f.title = "Here over the document";
  f.caption.add("Each figure that was measured here, divided by that of the document: 1 is equal.");
  chart.label = f.title, chart.axis = "here / document";
  f.draw = [chart](double width) { return draw_bars(chart, width); };
  page.blocks.push_back(f);
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
                      number && then != 0 ? fmt::format("{:.2f}", here.x / then) : "",
                      section_text(text_at(row, "source"))});
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
  t.folded = true;
  t.summary = fmt::format("{} cells", rows.size());
  page.blocks.push_back(t);
}

std::string noise_of(const Judged& j) {
  std::string source = j.text("noise_floor_source");
  auto floor = j.document.find("noise_floor");
  if (source.empty() || floor == j.document.end() || !floor->is_number()) return "";
  return fmt::format(" Noise floor {:.1f}%: {}.", 100 * floor->get<double>(), source);
}

// "full, NVIDIA H200".
std::string run_of(const Judged& j) { return "Scale " + j.text("scale") + ", " + j.device(); }

// One entry for each name, in which every scale and device is a part.
void add_experiment(Page& page, const Judged& j, const std::vector<Judged>& all) {
  auto same = [&](auto& other) { return other.text("name") == j.text("name"); };
  if (std::find_if(all.begin(), all.end(), same)->run == j.run) {
    page.blocks.push_back(Heading{2, j.text("name")});
    page.blocks.push_back(Paragraph{Text().strong(j.text("title") + ".").add(" " + j.text("question"))});
  }
  if (std::count_if(all.begin(), all.end(), same) > 1) page.blocks.push_back(Heading{3, run_of(j)});
  add_claims(page, j);
  add_then(page, j);
  add_then_figure(page, j);
  add_cells(page, j);
  page.blocks.push_back(Paragraph{Text("Source: " + source_text(j.text("source")) + "; measured " +
                                       j.run->started.substr(0, 10) + " on " + j.device() + ", scale " +
                                       j.text("scale") + "; record " + j.run->uid + "." + noise_of(j) + " Reproduce: ")
                                      .code("crest lab run " + j.text("name") + " --scale " + j.text("scale"))});
}

int color_of(Verdict v) {
  switch (v) {
    case Verdict::upheld: return 2;
    case Verdict::refuted: return 1;
    case Verdict::cannot_tell: return 4;
    default: return grey;
  }
}

void add_overview_figure(Page& page, const std::vector<Judged>& all) {
  StackChart chart;
  Figure f;
  f.numbers.columns = {{"experiment", Align::left}};
  for (Verdict v : verdicts) {
    chart.parts.push_back({label(v), color_of(v)});
    f.numbers.columns.push_back({label(v)});
  }
  for (auto& j : all) {
    StackRow row{j.text("name") + " (" + j.text("scale") + ")", "", {}, "", {}};
    std::vector<PageCell> cells = {row.label};
    for (Verdict v : verdicts) {
      row.values.push_back(double(j.count(v)));
      row.tips.push_back(fmt::format("{}: {}", label(v), j.count(v)));
      cells.emplace_back(std::to_string(j.count(v)));
    }
    chart.rows.push_back(row);
    f.numbers.rows.push_back(cells);
  }
  f.title = "Verdicts";
  f.caption.add("Claims of each experiment by verdict.");
  chart.label = f.title + ": " + f.caption.plain(), chart.axis = "claims";
  f.draw = [chart](double width) { return draw_stack(chart, width); };
  page.blocks.push_back(f);
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
  add_overview_figure(page, all);
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
  VerdictCounts sums = {};
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
                           {"cannot_tell", j.count(verdicts[2])},
                           {"not_comparable", j.count(verdicts[3])}});
  }
  Report report;
  Page& page = report.page;
  page.title = title.empty() ? "The lab: claims and verdicts" : title;
  page.subtitle = fmt::format("{} experiment{} on {}", all.size(), all.size() == 1 ? "" : "s",
                              join(std::vector<std::string>(devices.begin(), devices.end()), "; "));
  std::string sentence = verdict_counts(sums) + (devices.size() == 1 ? " on " + *devices.begin() + "." : ".");
  if (names.size() < all.size())
    sentence += " Claims of an experiment run at several scales or on several devices count once for each.";
  Tiles tiles;
  for (Verdict v : verdicts) tiles.tiles.push_back({label(v), std::to_string(sums[size_t(v)]), ""});
  page.blocks.push_back(tiles);
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
