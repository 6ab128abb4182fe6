#include "lab/result_text.h"

#include <fmt/format.h>

#include <algorithm>

#include "core/text.h"
#include "lab/columns.h"
#include "lab/sources.h"
#include "terminal/table.h"

namespace crest::lab {

namespace {

constexpr size_t text_limit = 400;

// Wrapped lines; first: before the first line, rest: before the others.
std::string paragraph(const std::string& text, const std::string& first = "", const std::string& rest = "") {
  return first + wrapped(text, {.indent = rest, .taken = first.size()}) + "\n";
}

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
  bool absent = std::any_of(r.table.rows.begin(), r.table.rows.end(), [](auto& row) { return !row.absent.empty(); });
  if (absent) columns.push_back({"", Align::left});
  crest::Table table(columns);
  for (auto& row : r.table.rows) {
    std::vector<std::string> cells;
    for (auto& key : keys) cells.push_back(key_of(row, key));
    for (auto& name : r.experiment->show) cells.push_back(format_value(name, column_of(row, name)));
    if (absent) cells.push_back(printable(row.absent, 60));
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
    // Both figures have the file's unit.
    std::string is = number && !unit.empty() ? describe(here.in(Unit::number)) + unit : describe(here);
    table.row({printable(t.what, 80), describe_number(t.document) + unit, here.known() ? printable(is) : "-",
               number && t.document != 0 ? fmt::format("{:.2f}", here.x / t.document) : "",
               printable(section_text(t.source), 40)});
  }
  std::vector<std::string> parts;
  if (!r.experiment->machine.empty()) parts.push_back("document: " + printable(r.experiment->machine, 200));
  parts.push_back(fmt::format("here: {}, scale {}", printable(r.device), r.scale));
  return table.text(color) + paragraph(join(parts, "; "), "  ", "  ") + "\n";
}

std::string quote_text(const Claim& c, const std::string& indent) {
  return c.quote.empty() ? "" : paragraph("source: \"" + printable(c.quote, text_limit) + "\"", indent, indent + "  ");
}

// The heading names the document of an experiment, so its claims name only the section.
std::string claim_text(const Experiment& e, const Claim& c, const std::string& text) {
  std::vector<std::string> keys = source_keys(c.source);
  bool same = keys.size() == 1 && keys == source_keys(e.source);
  std::string source = same ? section_text(c.source) : source_text(c.source);
  return fmt::format("{} ({}{})", printable(text, text_limit), printable(c.subject, 60),
                     source.empty() ? "" : "; " + printable(source, text_limit));
}

// Claims that are not comparable, by reason. Their checks and figures mean nothing here.
std::string not_comparable_text(const Result& r) {
  std::vector<std::string> reasons, texts;
  for (auto& c : r.experiment->claims) texts.push_back(c.text);
  for (auto& v : r.claims)
    if (v.verdict == Verdict::not_comparable && std::find(reasons.begin(), reasons.end(), v.reason) == reasons.end())
      reasons.push_back(v.reason);
  std::string text;
  for (auto& reason : reasons) {
    text +=
        paragraph(fmt::format("{} here: {}", label(Verdict::not_comparable), printable(reason, text_limit)), "", "  ");
    for (size_t i = 0; i < r.claims.size(); ++i)
      if (r.claims[i].verdict == Verdict::not_comparable && r.claims[i].reason == reason)
        text += paragraph(claim_text(*r.experiment, r.experiment->claims[i], whole_text(texts, i)), "  - ", "    ");
  }
  return text;
}

std::string claims_text(const Result& r) {
  std::string text;
  std::vector<std::string> texts;
  for (auto& c : r.experiment->claims) texts.push_back(c.text);
  for (size_t i = 0; i < r.claims.size(); ++i) {
    const Claim& c = r.experiment->claims[i];
    const ClaimResult& v = r.claims[i];
    if (v.verdict == Verdict::not_comparable) continue;
    bool follows = i > 0 && r.claims[i - 1].verdict != Verdict::not_comparable;
    std::string said = follows ? c.text : whole_text(texts, i);
    text += paragraph(fmt::format("{}: {}", label(v.verdict), claim_text(*r.experiment, c, said)), "", "  ");
    text += quote_text(c, "    ");
    if (!v.reason.empty()) text += paragraph("reason: " + printable(v.reason, text_limit), "    ", "      ");
    text += fmt::format("    {}\n", printable(c.check.text, text_limit));
    for (auto& [what, value] : v.figures)
      if (value.known()) text += fmt::format("    {} = {}\n", printable(what, text_limit), printable(describe(value)));
  }
  return text + not_comparable_text(r);
}

// The settings shared by all measurements, then the other settings of each.
std::string measurements_text(const std::vector<MeasurementSpec>& measurements, const std::string& scale) {
  using KeyValue = std::pair<std::string, std::string>;
  auto shared = [&](const KeyValue& s) {
    return measurements.size() > 1 && std::all_of(measurements.begin(), measurements.end(), [&](auto& measurement) {
             return std::find(measurement.settings.begin(), measurement.settings.end(), s) !=
                    measurement.settings.end();
           });
  };
  auto settings_text = [&](const MeasurementSpec& measurement, bool of_all) {
    std::vector<std::string> list;
    for (auto& s : measurement.settings)
      if (shared(s) == of_all) list.push_back(s.first + "=" + s.second);
    return join(list, " ");
  };
  std::string common = settings_text(measurements[0], true);
  std::string text =
      "\n" + paragraph(fmt::format("{} at scale {}{}:", format_number_of(int64_t(measurements.size()), "measurement"),
                                   scale, common.empty() ? "" : ", all with " + printable(common, text_limit)));
  for (auto& measurement : measurements) {
    auto variant = measurement.keys.find("variant");
    std::string head = variant == measurement.keys.end() ? "" : variant->second + ": ";
    text += "  " + printable(head + settings_text(measurement, false), text_limit) + "\n";
  }
  return text;
}

}  // namespace

std::string list_text(const std::vector<Experiment>& experiments, bool color) {
  crest::Table table({{"experiment", Align::left}, {"claims"}, {"title", Align::left}});
  for (auto& e : experiments)
    table.row({printable(e.name, 40), std::to_string(e.claims.size()),
               e.unavailable.empty() ? printable(e.title, 80) : "not yet available: " + printable(e.unavailable, 120)});
  return table.text(color);
}

std::string show_text(const Experiment& e, const std::vector<MeasurementSpec>& measurements, const std::string& scale) {
  std::string text = paragraph(fmt::format("{}: {}", printable(e.name), printable(e.title, text_limit))) + "\n";
  if (!e.question.empty()) text += paragraph(printable(e.question, 1000));
  text += paragraph("Source: " + printable(source_text(e.source), text_limit));
  text += fmt::format("Kind: {}. File: {}\n", name(e.kind), printable(e.file));
  if (!e.unavailable.empty()) text += paragraph("Not yet available: " + printable(e.unavailable, text_limit));
  if (!e.shrinks.empty()) text += paragraph("Scales: " + printable(e.shrinks, text_limit));
  if (!measurements.empty()) text += measurements_text(measurements, scale);
  text += "\n" + format_number_of(int64_t(e.claims.size()), "claim") + ":\n";
  for (auto& c : e.claims)
    text +=
        paragraph(fmt::format("{} ({}; {})", printable(c.text, text_limit), printable(c.subject),
                              printable(source_text(c.source), text_limit)),
                  "  ", "    ") +
        quote_text(c, "      ") +
        (c.conditions.about.empty() ? "" : paragraph("about: " + printable(c.conditions.about), "      ", "        ")) +
        fmt::format("      {}\n", printable(c.check.text, text_limit));
  return text;
}

std::string result_text(const Result& r, bool color) {
  const Experiment& e = *r.experiment;
  std::string text = paragraph(fmt::format("{}: {}", printable(e.name), printable(e.title, text_limit)));
  if (!e.question.empty()) text += paragraph(printable(e.question, 1000));
  if (!source_keys(e.source).empty()) text += paragraph("Document: " + printable(source_text(e.source), text_limit));
  text += "\n" + rows_text(r, color) + quantities_text(r, color) + then_text(r, color) + claims_text(r);
  if (info(e.kind).timed && !r.floor_source.empty())
    text += fmt::format("noise floor {:.1f}%: {}\n", 100 * r.noise_floor, printable(r.floor_source, text_limit));
  int64_t once = 0;
  for (auto& row : r.table.rows) once += row.columns.count("ms") && row.round_ms.empty();
  if (info(e.kind).rounds && once > 0)
    text += format_number_of(once, "measurement") + (once == 1 ? " was" : " were") + " measured in only one round\n";
  if (r.measurements_left > 0)
    text += format_number_of(int64_t(r.measurements_left), "measurement") +
            (r.measurements_left == 1 ? " is" : " are") + " not measured yet\n";
  VerdictCounts counts = {};
  for (auto& c : r.claims) ++counts[size_t(c.verdict)];
  return text + (r.claims.empty() ? "" : verdict_counts(counts) + " on this machine\n");
}

std::string summary_text(const std::vector<Result>& results, bool color) {
  std::vector<Column> columns = {{"experiment", Align::left}, {"measurements"}, {"left"}};
  for (Verdict v : verdicts) columns.push_back({label(v)});
  crest::Table table(columns);
  VerdictCounts sums = {};
  for (auto& r : results) {
    VerdictCounts counts = {};
    for (auto& c : r.claims) ++counts[size_t(c.verdict)], ++sums[size_t(c.verdict)];
    std::vector<std::string> row = {printable(r.experiment->name, 40), std::to_string(r.table.rows.size()),
                                    std::to_string(r.measurements_left)};
    for (size_t n : counts) row.push_back(std::to_string(n));
    table.row(row);
  }
  return table.text(color) + verdict_counts(sums) + " on this machine\n";
}

}  // namespace crest::lab
