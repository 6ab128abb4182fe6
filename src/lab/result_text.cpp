#include "lab/result_text.h"

#include <fmt/format.h>

#include <algorithm>

#include "core/text.h"
#include "lab/columns.h"
#include "terminal/table.h"

namespace crest::lab {

namespace {

constexpr size_t text_limit = 400;

std::string key_of(const Row& row, const std::string& key) {
  auto it = row.keys.find(key);
  return it == row.keys.end() ? "" : printable(it->second, 60);
}

std::string rows_text(const Result& r, bool color) {
  if (r.table.rows.empty()) return "";
  std::vector<std::string> keys = telling_keys(r.table.rows);
  std::vector<Column> columns;
  for (auto& key : keys) columns.push_back({key, Align::left});
  for (auto& name : r.experiment->show) columns.push_back({name});
  if (columns.empty()) return "";
  columns.push_back({"", Align::left});
  crest::Table table(columns);
  for (auto& row : r.table.rows) {
    std::vector<std::string> cells;
    for (auto& key : keys) cells.push_back(key_of(row, key));
    for (auto& name : r.experiment->show) cells.push_back(format_value(name, column_of(row, name)));
    cells.push_back(printable(row.absent, 60));
    table.row(cells);
  }
  return table.text(color) + "\n";
}

std::string quantities_text(const Result& r, bool color) {
  if (r.quantities.empty()) return "";
  crest::Table table({{"quantity", Align::left}, {"value"}, {"formula", Align::left}});
  for (size_t i = 0; i < r.quantities.size(); ++i)
    table.row({r.quantities[i].first, fit_width(describe(r.quantities[i].second), 60),
               fit_width(printable(r.experiment->quantities[i].text, text_limit), 60)});
  return table.text(color) + "\n";
}

std::string then_text(const Result& r, bool color) {
  if (r.then.empty()) return "";
  crest::Table table({{"quantity", Align::left}, {"document"}, {"here"}, {"here / document"}, {"source", Align::left}});
  for (size_t i = 0; i < r.then.size(); ++i) {
    const Then& t = r.experiment->then[i];
    const Value& here = r.then[i];
    std::string unit = t.unit.empty() ? "" : " " + printable(t.unit, 20);
    bool number = here.known() && here.type == Value::Type::number;
    table.row({printable(t.what, 80), describe_number(t.document) + unit,
               number         ? describe_number(here.x) + unit
               : here.known() ? printable(describe(here))
                              : "-",
               number && t.document != 0 ? fmt::format("{:.2f}", here.x / t.document) : "", printable(t.source, 40)});
  }
  std::string machine =
      r.experiment->machine.empty() ? "" : "document: " + printable(r.experiment->machine, 200) + "; ";
  return table.text(color) + fmt::format("  {}here: {}, scale {}\n\n", machine, printable(r.device), r.scale);
}

std::string claims_text(const Result& r) {
  std::string text;
  for (size_t i = 0; i < r.claims.size(); ++i) {
    const Claim& c = r.experiment->claims[i];
    const ClaimResult& v = r.claims[i];
    text += fmt::format("{}: {} ({}; {})\n", label(v.verdict), printable(c.text, text_limit), printable(c.subject, 60),
                        printable(c.source, 60));
    text += fmt::format("    {}\n", printable(c.check.text, text_limit));
    if (!v.reason.empty()) text += fmt::format("    reason: {}\n", printable(v.reason, text_limit));
    for (auto& [what, value] : v.figures)
      if (value.known()) text += fmt::format("    {} = {}\n", printable(what, text_limit), printable(describe(value)));
  }
  return text;
}

}  // namespace

std::string list_text(const std::vector<Experiment>& experiments, bool color) {
  crest::Table table(
      {{"experiment", Align::left}, {"source", Align::left}, {"kind", Align::left}, {"claims"}, {"", Align::left}});
  for (auto& e : experiments)
    table.row({printable(e.name, 40), printable(e.source, 20), name(e.kind), std::to_string(e.claims.size()),
               e.unavailable.empty() ? printable(e.title, 80) : "not yet available: " + printable(e.unavailable, 120)});
  return table.text(color);
}

std::string show_text(const Experiment& e, const std::vector<CellSpec>& cells, const std::string& scale) {
  std::string text = fmt::format("{}: {}\n\n", printable(e.name), printable(e.title, text_limit));
  if (!e.question.empty()) text += printable(e.question, 1000) + "\n";
  text += fmt::format("Source: {}. Kind: {}. File: {}\n", printable(e.source), name(e.kind), printable(e.file));
  if (!e.unavailable.empty()) text += "Not yet available: " + printable(e.unavailable, text_limit) + "\n";
  if (!e.shrinks.empty()) text += "Scales: " + printable(e.shrinks, text_limit) + "\n";
  if (!cells.empty()) {
    text += fmt::format("\n{} cell{} at scale {}:\n", cells.size(), cells.size() == 1 ? "" : "s", scale);
    for (auto& cell : cells) {
      std::vector<std::string> settings;
      for (auto& [key, value] : cell.settings) settings.push_back(key + "=" + value);
      auto variant = cell.keys.find("variant");
      std::string head = variant == cell.keys.end() ? "" : variant->second + ": ";
      text += "  " + printable(head + join(settings, " "), text_limit) + "\n";
    }
  }
  text += fmt::format("\n{} claim{}:\n", e.claims.size(), e.claims.size() == 1 ? "" : "s");
  for (auto& c : e.claims)
    text += fmt::format("  {} ({}; {})\n      {}\n", printable(c.text, text_limit), printable(c.subject),
                        printable(c.source), printable(c.check.text, text_limit));
  return text;
}

std::string result_text(const Result& r, bool color) {
  const Experiment& e = *r.experiment;
  std::string text = fmt::format("{}: {}\n", printable(e.name), printable(e.title, text_limit));
  if (!e.question.empty()) text += printable(e.question, 1000) + "\n";
  text += "\n" + rows_text(r, color) + quantities_text(r, color) + then_text(r, color) + claims_text(r);
  if (info(e.kind).timed && !r.floor_source.empty())
    text += fmt::format("noise floor {:.1f}%: {}\n", 100 * r.noise_floor, printable(r.floor_source, text_limit));
  size_t once = 0;
  for (auto& row : r.table.rows) once += row.columns.count("ms") && row.round_ms.empty();
  if (info(e.kind).rounds && once > 0) text += fmt::format("{} cells were measured in only one round\n", once);
  if (r.cells_left > 0) text += fmt::format("{} cells are not measured yet\n", r.cells_left);
  return text;
}

std::string summary_text(const std::vector<Result>& results, bool color) {
  crest::Table table({{"experiment", Align::left}, {"cells"}, {"left"}, {"upheld"}, {"refuted"}, {"inconclusive"}});
  std::array<size_t, 3> sums = {};
  for (auto& r : results) {
    size_t counts[3] = {};
    for (auto& c : r.claims) ++counts[int(c.verdict)], ++sums[int(c.verdict)];
    table.row({printable(r.experiment->name, 40), std::to_string(r.table.rows.size()), std::to_string(r.cells_left),
               std::to_string(counts[0]), std::to_string(counts[1]), std::to_string(counts[2])});
  }
  return table.text(color) + verdict_counts(sums) + " on this machine\n";
}

}  // namespace crest::lab
