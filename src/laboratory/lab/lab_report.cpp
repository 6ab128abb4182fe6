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
#include "lab/experiment.h"
#include "lab/judge.h"
#include "lab/lab_figures.h"
#include "lab/result_json.h"
#include "lab/sources.h"
#include "report/phrases.h"
#include "report/report_data.h"

namespace crest::lab {

namespace {

Json member(const Json& object, const char* key) {
  auto it = object.find(key);  // end() if it is not an object
  return it == object.end() ? Json() : *it;
}

// The document `lab` of one record (result_json.h). Damaged or missing parts read as empty.
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

// The runs of one experiment at several scales or on several devices, the main one first: the
// largest scale, then the newest.
using Entry = std::vector<const Judged*>;

std::vector<Entry> entries_of(const std::vector<Judged>& all) {
  std::vector<Entry> entries;
  for (auto& j : all) {
    if (entries.empty() || entries.back()[0]->text("name") != j.text("name")) entries.emplace_back();
    entries.back().push_back(&j);
  }
  auto scale = [](const Judged* j) {
    return std::find(scale_names.begin(), scale_names.end(), j->text("scale")) - scale_names.begin();
  };
  auto leads = [&](const Judged* a, const Judged* b) {
    return scale(a) != scale(b) ? scale(a) > scale(b) : a->run->started > b->run->started;
  };
  for (auto& e : entries) std::stable_sort(e.begin(), e.end(), leads);
  return entries;
}

std::string id_of(const Judged& j) { return "experiment-" + j.text("name"); }

// The name inside a formula: "planned_bytes" of max(planned_bytes, fusion=on).
std::string read_by(const std::string& formula) {
  size_t open = formula.find('(');
  if (open == std::string::npos) return formula;
  std::string function = formula.substr(0, open), inner = formula.substr(open + 1);
  for (const char* keeps : {"value", "max", "min", "mean", "sum"})
    if (function == keeps) return inner.substr(0, inner.find_first_of(",)"));
  return "";  // a ratio has no unit
}

// Formatted: "1.27x (1.25 to 1.3)", "14.51 GB".
std::string shown(const std::string& formula, const Value& v) {
  if (!v.known()) return "-";
  if (v.type != Value::Type::number) return describe(v);
  NumberText t = number_text(v);
  std::string text = formula.starts_with("ratio(") ? fmt::format("{:.4g}x", v.x) : t.x + t.unit;
  return v.exact() ? text : text + fmt::format(" ({} to {})", t.low, t.high);
}

// Older records have no units. There the column in the formula decides.
Unit figure_unit(const Json& figure, const std::string& formula) {
  std::string unit = text_at(figure, "unit");
  return unit.empty() ? unit_of_column(read_by(formula)) : unit_named(unit);
}

Figures figures_of(const Json& claim) {
  Figures figures;
  auto it = claim.find("figures");
  if (it != claim.end() && it->is_array())
    for (auto& f : *it)
      if (Value v = value_from_json(member(f, "value")); v.known()) {
        std::string formula = text_at(f, "figure");
        figures.push_back({formula, v.type == Value::Type::number ? v.in(figure_unit(f, formula)) : v});
      }
  return figures;
}

// Every figure with its formula.
std::string formulas_of(const Json& claim) {
  std::vector<std::string> parts;
  for (auto& [formula, v] : figures_of(claim)) parts.push_back(formula + " = " + shown(formula, v));
  return join(parts, "; ");
}

// Figures understandable without their formula: named quantities, or a single figure. If some
// figures are unknown, the others explain nothing.
std::string values_of(const Json& claim) {
  std::vector<std::string> parts;
  auto all = claim.find("figures");
  if (all != claim.end() && all->is_array())
    for (auto& f : *all)
      if (!value_from_json(member(f, "value")).known()) return "";
  Figures figures = figures_of(claim);
  for (auto& [formula, v] : figures) {
    bool named = formula.find_first_of("(\" ") == std::string::npos;
    if (named || figures.size() == 1) parts.push_back((named ? spaced(formula) + " " : "") + shown(formula, v));
  }
  return parts.size() <= 2 ? join(parts, ", ") : "";
}

// In words. Verdicts unknown to this version stay as recorded.
std::string label_of(const std::string& recorded) {
  for (Verdict v : verdicts)
    if (recorded == name(v)) return label(v);
  return recorded;
}

Look look_of(const std::string& recorded) {
  static const Look looks[] = {Look::good, Look::bad, Look::open, Look::soft};
  for (Verdict v : verdicts)
    if (recorded == name(v)) return looks[size_t(v)];
  return Look::soft;
}

Text& add_verdict(Text& item, const std::string& recorded, const std::string& end) {
  return item.strong(label_of(recorded) + end, look_of(recorded));
}

PageCell verdict_cell(const std::string& recorded) {
  PageCell cell(label_of(recorded));
  cell.look = look_of(recorded);
  return cell;
}

// "full, NVIDIA H200".
std::string run_of(const Judged& j) { return "scale " + j.text("scale") + ", " + j.device(); }

// Other verdicts in other runs of the experiment: " (refuted at scale small, CPU)".
Text other_verdicts(const Entry& entry, const Json& claim) {
  Text text;
  for (size_t k = 1; k < entry.size(); ++k)
    for (auto& other : entry[k]->list("claims")) {
      std::string verdict = text_at(other, "verdict");
      if (text_at(other, "text") != text_at(claim, "text") || verdict == text_at(claim, "verdict")) continue;
      text.add(text.empty() ? " (" : "; ");
      add_verdict(text, verdict, "").add(" at " + run_of(*entry[k]));
    }
  return text.empty() ? text : text.add(")");
}

// A claim, with its source and checks in a fold.
Fold claim_block(const Entry& entry, const Json& claim, const std::string& claim_text) {
  Fold fold;
  fold.kind = Fold::item, fold.tag = text_at(claim, "verdict");
  std::string verdict = text_at(claim, "verdict"), values = values_of(claim), why = text_at(claim, "reason");
  add_verdict(fold.summary, verdict, ":").add(" " + claim_text + ".");
  if (!values.empty()) fold.summary.add(" Here: ").strong(values).add(".");
  if (!why.empty()) fold.summary.add(" Reason: " + why + ".");
  fold.summary.append(other_verdicts(entry, claim));
  std::string quote = text_at(claim, "quote");
  fold.blocks.push_back(Paragraph{(quote.empty() ? "From " : "\u201c" + quote + "\u201d ") +
                                  source_text(text_at(claim, "source")) + "; about " + text_at(claim, "subject") +
                                  "."});
  Text formula("Holds if ");
  formula.code(text_at(claim, "check")).add(".");
  if (std::string figures = formulas_of(claim); !figures.empty()) formula.add(" Here: ").code(figures).add(".");
  fold.blocks.push_back(Paragraph{formula});
  return fold;
}

constexpr size_t least_bars = 2;

// Measurements next to the document's figure: a chart of several, a table of one.
void add_then(std::vector<PageBlock>& blocks, const Judged& j) {
  PageTable t;
  t.columns = {{"quantity", Align::left}, {"document"}, {"here"}, {"here / document"}};
  RatioChart chart;
  for (auto& row : j.list("then")) {
    auto document = row.find("document");
    double then = document != row.end() && document->is_number() ? document->get<double>() : 0;
    Value here = value_from_json(member(row, "here"));
    std::string what = text_at(row, "what"), unit = text_at(row, "unit").empty() ? "" : " " + text_at(row, "unit");
    bool number = here.known() && here.type == Value::Type::number;
    double ratio = number && then != 0 ? here.x / then : NAN;
    std::string was = shown("", Value::number(then)), is = number ? shown("", Value::number(here.x)) : shown("", here);
    std::string known_unit = number ? unit : "";
    if (!section_text(text_at(row, "source")).empty()) what += ", " + section_text(text_at(row, "source"));
    t.rows.push_back({what, was + unit, is + known_unit, std::isfinite(ratio) ? fmt::format("{:.2f}", ratio) : ""});
    if (ratio > 0)
      chart.rows.push_back({what, was + " \u2192 " + is + unit,
                            fmt::format("{:.2f} times the document's figure", ratio), ratio, here.low / then,
                            here.high / then});
  }
  if (t.rows.empty()) return;
  t.compact = true;
  if (chart.rows.size() < least_bars) return blocks.push_back(t);
  Figure f;
  f.title = "Claimed and measured";
  f.caption.add(
      "Each figure measured here, divided by the document's figure: 1 is equal. Right: document \u2192 here.");
  chart.label = f.title + ": " + f.caption.plain(), chart.axis = "here / document";
  f.draw = [chart](double width) { return draw_ratios(chart, width); };
  f.numbers = t;
  blocks.push_back(f);
}

std::vector<Row> judged_rows(const Judged& j) {
  std::vector<Row> rows;
  for (auto& row : j.list("rows")) rows.push_back(row_from_json(row));
  return rows;
}

std::vector<std::string> shown_columns(const Judged& j) {
  std::vector<std::string> columns;
  for (auto& column : j.list("show"))
    if (column.is_string()) columns.push_back(column.get<std::string>());
  return columns;
}

void add_measurements(std::vector<PageBlock>& blocks, const Judged& j) {
  std::vector<Row> rows = judged_rows(j);
  if (rows.empty()) return;
  std::vector<std::string> keys = telling_keys(rows), columns = shown_columns(j);
  PageTable t;
  for (auto& key : keys) t.columns.push_back({spaced(key), Align::left});
  for (auto& column : columns) {
    bool text = std::any_of(rows.begin(), rows.end(), [&](auto& row) {
      Value v = column_of(row, column);
      return v.known() && v.type == Value::Type::text;
    });
    t.columns.push_back({column_words(column), text ? Align::left : Align::right});
  }
  t.columns.push_back({"record", Align::left});
  for (auto& row : rows) {
    std::vector<PageCell> cells;
    for (auto& key : keys) cells.emplace_back(row.keys.count(key) ? row.keys.at(key) : "");
    for (auto& column : columns) cells.emplace_back(format_value(column, column_of(row, column)));
    std::string records = row.run + (row.again.empty() ? "" : " " + row.again);
    PageCell last(row.absent.empty() ? records : row.absent);
    last.look = row.absent.empty() ? Look::soft : Look::missing;
    cells.push_back(last);
    t.rows.push_back(cells);
  }
  move_constants_to_note(t, keys.empty() ? 0 : 1);
  blocks.push_back(t);
}

std::string noise_of(const Judged& j) {
  std::string source = j.text("noise_floor_source");
  auto floor = j.document.find("noise_floor");
  if (source.empty() || floor == j.document.end() || !floor->is_number()) return "";
  return fmt::format(" Noise floor {:.1f}%: {}.", 100 * floor->get<double>(), source);
}

Paragraph provenance(const Judged& j) {
  Text text("Measured " + j.run->started.substr(0, 10) + " on " + j.device() + ", scale " + j.text("scale") +
            "; record " + j.run->uid + "." + noise_of(j) + " Reproduce: ");
  return {text.code("crest lab run " + j.text("name") + " --scale " + j.text("scale"))};
}

// Measurements, record and how to reproduce them, in a fold.
Fold measurements_block(const Judged& j) {
  Fold fold;
  size_t measurements = j.list("rows").size();
  fold.summary.add((measurements ? plural(measurements, "measurement") + " and how" : std::string("How")) +
                   " to reproduce: " + run_of(j));
  add_measurements(fold.blocks, j);
  fold.blocks.push_back(provenance(j));
  return fold;
}

// Another scale or device of the same experiment, in a fold.
Fold other_run(const Judged& j) {
  Fold fold;
  VerdictCounts counts = {};
  for (Verdict v : verdicts) counts[size_t(v)] = j.count(v);
  fold.summary.add("Also at " + run_of(j) + ": " + verdict_counts(counts));
  PageTable t;
  t.columns = {{"verdict", Align::left}, {"claim", Align::left}, {"here", Align::left}};
  for (auto& c : j.list("claims"))
    t.rows.push_back({verdict_cell(text_at(c, "verdict")), text_at(c, "text"), values_of(c)});
  fold.blocks.push_back(t);
  add_then(fold.blocks, j);
  add_measurements(fold.blocks, j);
  fold.blocks.push_back(provenance(j));
  return fold;
}

std::string counts_text(const Judged& j) {
  std::vector<std::string> parts;
  for (Verdict v : verdicts)
    if (size_t n = j.count(v)) parts.push_back(std::to_string(n) + " " + label(v));
  return join(parts, ", ");
}

// Refuted claims, claims with another verdict, and claims that are not comparable: each group is
// printed by itself.
size_t group_of(const Json& claim) {
  std::string verdict = text_at(claim, "verdict");
  return verdict == name(Verdict::refuted) ? 0 : verdict == name(Verdict::not_comparable) ? 2 : 1;
}

// With their texts: a claim that continues another one may follow a third in its group.
std::vector<std::pair<const Json*, std::string>> refuted_first(const Judged& j) {
  const Json& list = j.list("claims");
  std::vector<std::string> texts;
  for (auto& claim : list) texts.push_back(text_at(claim, "text"));
  std::vector<std::pair<const Json*, std::string>> claims;
  for (size_t group : {0, 1, 2})
    for (size_t i = 0; i < list.size(); ++i) {
      if (group_of(list[i]) != group) continue;
      const bool follows = i > 0 && group_of(list[i - 1]) == group;
      claims.push_back({&list[i], follows ? texts[i] : whole_text(texts, i)});
    }
  return claims;
}

void add_experiment(Page& page, const Entry& entry) {
  const Judged& j = *entry[0];
  page.blocks.push_back(Heading{3, j.text("name"), id_of(j)});
  page.blocks.push_back(Paragraph{Text().strong(j.text("title") + ".").add(" " + j.text("question"))});
  std::string source = source_text(j.text("source"));
  page.blocks.push_back(Paragraph{
      Text((source.empty() ? "Judged at " : source + ", judged at ") + run_of(j) + ". ").link("Overview", "overview"),
      true});
  Fold fold;
  fold.kind = Fold::entry;
  fold.summary.add(counts_text(j) + ": claims, figures, measurements");
  // Claims about other devices or scales are one closed line.
  Fold elsewhere;
  elsewhere.kind = Fold::item, elsewhere.tag = name(Verdict::not_comparable);
  for (auto& [claim, text] : refuted_first(j)) {
    bool here = text_at(*claim, "verdict") != name(Verdict::not_comparable);
    (here ? fold : elsewhere).blocks.push_back(claim_block(entry, *claim, text));
  }
  if (!elsewhere.blocks.empty()) {
    add_verdict(elsewhere.summary, elsewhere.tag, ":").add(" " + plural(elsewhere.blocks.size(), "claim") + ".");
    fold.blocks.push_back(elsewhere);
  }
  add_then(fold.blocks, j);
  add_measurements_figure(fold.blocks, judged_rows(j), shown_columns(j));
  fold.blocks.push_back(measurements_block(j));
  for (size_t k = 1; k < entry.size(); ++k) fold.blocks.push_back(other_run(*entry[k]));
  page.blocks.push_back(fold);
}

// A row for each document: how many of its claims hold.
void add_documents(Page& page, const std::vector<Entry>& entries) {
  std::map<std::string, VerdictCounts> of;
  for (auto& entry : entries)
    for (auto& claim : entry[0]->list("claims")) {
      std::vector<std::string> keys = source_keys(text_at(claim, "source"));
      if (keys.empty()) keys = {""};
      for (Verdict v : verdicts)
        if (text_at(claim, "verdict") == name(v))
          for (auto& key : keys) ++of[key][size_t(v)];
    }
  PageTable t;
  t.columns = {{"document", Align::left}};
  for (Verdict v : verdicts) t.columns.push_back({label(v)});
  auto row = [&](const std::string& title, const std::string& key) {
    if (!of.count(key)) return;
    std::vector<PageCell> cells = {title};
    for (size_t n : of[key]) cells.emplace_back(std::to_string(n));
    t.rows.push_back(cells);
  };
  for (auto& s : sources()) row(std::string(s.title) + " (" + s.author + ")", s.key);
  row("Crest's own, and others", "");
  if (t.rows.size() < 2) return;
  t.compact = true, t.note = "A claim of two documents counts for both.";
  page.blocks.push_back(Heading{2, "By document"});
  page.blocks.push_back(t);
}

// Experiments without a claim about this device and scale, in one closed line.
void add_elsewhere(Page& page, const std::vector<Entry>& entries) {
  Fold fold;
  Bullets list;
  for (auto& entry : entries)
    list.items.push_back(Text().link(entry[0]->text("name"), id_of(*entry[0])).add(": " + entry[0]->text("title")));
  if (list.items.empty()) return;
  fold.summary.add(plural(list.items.size(), "experiment") + " with no claim about this kind of device or scale");
  fold.blocks.push_back(list);
  page.blocks.push_back(fold);
}

bool judges_here(const Entry& entry) {
  return std::any_of(entry.begin(), entry.end(),
                     [](auto* j) { return j->count(Verdict::not_comparable) < j->list("claims").size(); });
}

// A row for each run, grouped by experiment.
void add_overview(Page& page, const std::vector<Entry>& all) {
  std::vector<Entry> entries = all, elsewhere;
  auto end = std::stable_partition(entries.begin(), entries.end(), judges_here);
  elsewhere.assign(end, entries.end());
  entries.erase(end, entries.end());
  if (entries.empty()) entries.swap(elsewhere);
  std::set<std::string> scales;
  std::map<std::string, size_t> devices;
  for (auto& entry : entries)
    for (auto* j : entry) scales.insert(j->text("scale")), ++devices[j->device()];
  std::string usual =
      std::max_element(devices.begin(), devices.end(), [](auto& a, auto& b) { return a.second < b.second; })->first;
  PageTable t;
  t.columns = {{"experiment", Align::left}, {"scale", Align::left}, {"claims", Align::left}};
  for (auto& entry : entries)
    for (size_t k = 0; k < entry.size(); ++k) {
      const Judged& j = *entry[k];
      PageCell name(k == 0 ? j.text("name") : ""), claims(counts_text(j)), scale(j.text("scale"));
      if (k == 0) name.link = id_of(j), name.under = j.text("title");
      if (j.device() != usual) scale.under = j.device();
      for (Verdict v : verdicts)
        if (size_t n = j.count(v)) claims.squares.push_back({look_of(crest::lab::name(v)), n});
      t.rows.push_back({name, scale, claims});
    }
  if (scales.size() == 1 && devices.size() == 1) {
    t.columns.erase(t.columns.begin() + 1);
    for (auto& row : t.rows) row.erase(row.begin() + 1);
  }
  t.note =
      "One square for each claim: filled green if upheld, filled orange if refuted, hollow if inconclusive or not "
      "comparable. On " +
      usual + (devices.size() > 1 ? " where no other device is named." : ".");
  page.blocks.push_back(Heading{2, "Overview"});
  page.blocks.push_back(t);
  add_elsewhere(page, elsewhere);
}

void add_refuted(Page& page, const std::vector<Entry>& entries) {
  Bullets list;
  for (auto& entry : entries) {
    const Judged& j = *entry[0];
    const Json& claims = j.list("claims");
    std::vector<std::string> texts;
    for (auto& claim : claims) texts.push_back(text_at(claim, "text"));
    for (size_t i = 0; i < claims.size(); ++i) {
      if (text_at(claims[i], "verdict") != name(Verdict::refuted)) continue;
      Text item;
      item.link(j.text("name"), id_of(j)).add(": " + whole_text(texts, i) + ".");
      if (std::string values = values_of(claims[i]); !values.empty()) item.add(" Here: ").strong(values).add(".");
      list.items.push_back(item);
    }
  }
  if (list.items.empty()) return;
  page.blocks.push_back(Heading{2, plural(list.items.size(), "refuted claim")});
  page.blocks.push_back(list);
}

void add_filter(Page& page, const std::vector<Entry>& entries) {
  ItemFilter filter;
  for (Verdict v : {Verdict::refuted, Verdict::upheld, Verdict::cannot_tell, Verdict::not_comparable}) {
    size_t claims = 0;
    for (auto& entry : entries) claims += entry[0]->count(v);
    if (claims) filter.choices.push_back({name(v), fmt::format("{} ({})", label(v), claims)});
  }
  if (filter.choices.size() > 1) page.blocks.push_back(filter);
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
  page.subtitle = fmt::format("{} on {}", plural(names.size(), "experiment"),
                              join(std::vector<std::string>(devices.begin(), devices.end()), "; "));
  std::string sentence = verdict_counts(sums) + (devices.size() == 1 ? " on " + *devices.begin() + "." : ".");
  if (names.size() < all.size())
    sentence += " Claims of an experiment run at several scales or on several devices count once for each.";
  Tiles tiles;
  for (Verdict v : verdicts) tiles.tiles.push_back({label(v), std::to_string(sums[size_t(v)]), "", look_of(name(v))});
  page.blocks.push_back(tiles);
  page.blocks.push_back(Paragraph{Text(sentence)});
  std::vector<Entry> entries = entries_of(all);
  add_documents(page, entries);
  add_refuted(page, entries);
  add_overview(page, entries);
  page.blocks.push_back(Heading{2, "Experiments"});
  add_filter(page, entries);
  for (auto& entry : entries) add_experiment(page, entry);
  page.footer = std::string("Made by crest report --lab, Crest ") + CREST_VERSION +
                ". Every verdict is computed from its formula and the named records.";
  report.json = {{"title", page.title}, {"summary", Json::array({sentence})}, {"experiments", experiments}};
  return report;
}

}  // namespace crest::lab
