// Why two profiled recipes differ, from the comparison module.
#include <fmt/format.h>

#include <algorithm>
#include <cmath>

#include "charts/figure.h"
#include "core/error.h"
#include "report/phrases.h"
#include "report/report_colors.h"
#include "report/report_parts.h"
#include "report/report_profile.h"

namespace crest {

namespace {

constexpr size_t most_comparisons = 4;

struct Compared {
  ProfiledMeasurement a, b;
  size_t settings = 0;  // number of differing settings
};

// Pairs in one group, sorted by the number of differing settings. A is the slower one.
std::vector<Compared> pairs_of(const ReportData& data) {
  std::vector<ProfiledMeasurement> measurements = profiled_measurements(data);
  std::vector<Compared> pairs;
  for (size_t i = 0; i < measurements.size(); ++i)
    for (size_t j = i + 1; j < measurements.size(); ++j) {
      if (measurements[i].group != measurements[j].group) continue;
      Compared c{measurements[i], measurements[j]};
      if (c.a.measurement->speed() > c.b.measurement->speed()) std::swap(c.a, c.b);
      for (auto& name : c.a.group->varying)
        c.settings += c.a.measurement->setting(name) != c.b.measurement->setting(name);
      pairs.push_back(c);
    }
  std::stable_sort(pairs.begin(), pairs.end(), [](auto& a, auto& b) { return a.settings < b.settings; });
  if (pairs.size() > most_comparisons) pairs.resize(most_comparisons);
  return pairs;
}

// Replaces the terminal's arrows with typographic ones.
std::string with_arrows(std::string text) {
  for (size_t at = text.find("->"); at != std::string::npos; at = text.find("->", at)) text.replace(at, 2, "→");
  return text;
}

// The letters of the measurements in all figures, or A and B.
std::string letter_of(const ProfiledMeasurement& measurement, const char* otherwise) {
  return measurement.group->lettered ? measurement.row_label : otherwise;
}
std::string end_of(const ProfiledMeasurement& measurement, const std::string& letter) {
  return measurement.group->lettered ? letter : letter + ": " + measurement.row_label;
}

void add_waterfall(Page& page, const RunComparison& c, const Compared& pair) {
  if (c.waterfall.empty()) return;
  // Per step in milliseconds, or per token in microseconds if the tokens per step differ.
  auto scaled = [&](double ms, double ms_per_token) { return c.per_token ? 1e3 * ms_per_token : ms; };
  auto sum = [&](const ComparedRun& r) {
    return scaled(r.step_ms, r.step_ms / double(std::max<int64_t>(1, r.tokens)));
  };
  auto said = [&](double v) { return c.per_token ? fmt::format("{:.3g} us", v) : say_ms(v); };
  Waterfall chart;
  chart.axis = c.per_token ? "microseconds per token" : "milliseconds";
  chart.from = end_of(pair.a, c.a.title), chart.to = end_of(pair.b, c.b.title);
  chart.start = sum(c.a), chart.end = sum(c.b);
  chart.start_text = said(chart.start), chart.end_text = said(chart.end);
  PageTable numbers;
  numbers.columns = {{"cause", Align::left},
                     {"difference, " + std::string(c.per_token ? "us per token" : "ms")},
                     {"from and to", Align::left}};
  for (auto& bar : c.waterfall) {
    double v = scaled(bar.ms, bar.ms_per_token);
    if (std::abs(v) < 5e-4 * std::max(chart.start, chart.end)) continue;  // too small to see
    std::string text = c.per_token ? fmt::format("{:+.3g} us", v) : say_signed_ms(v);
    chart.steps.push_back({label(bar.factor), text, v, with_arrows(bar.detail)});
    numbers.rows.push_back({label(bar.factor), fmt::format("{:+.3f}", v), with_arrows(bar.detail)});
  }
  Figure f;
  f.title = "Time from " + c.a.title + " to " + c.b.title;
  f.caption.add(
      "The time difference, split by cause. Bars to the left save time, bars to the right cost time; together they "
      "are the whole difference.");
  chart.label = f.title + ". " + f.caption.plain();
  f.draw = [chart](double width) { return draw_waterfall(chart, width); };
  f.numbers = numbers;
  page.blocks.push_back(f);
}

void add_memory_difference(Page& page, const RunComparison& c, const Compared& pair) {
  Waterfall chart;
  chart.bytes = true;
  chart.axis = "planned memory";
  chart.from = end_of(pair.a, c.a.title), chart.to = end_of(pair.b, c.b.title);
  PageTable numbers;
  numbers.columns = {{"category", Align::left}, {c.a.title}, {c.b.title}, {"difference"}};
  for (auto& row : c.memory) {
    chart.start += double(row.a), chart.end += double(row.b);
    double delta = double(row.b) - double(row.a);
    if (row.a || row.b)
      numbers.rows.push_back(
          {spaced(row.label), say_bytes(double(row.a)), say_bytes(double(row.b)), say_signed_bytes(delta)});
    if (delta != 0) chart.steps.push_back({spaced(row.label), say_signed_bytes(delta), delta, ""});
  }
  if (chart.steps.empty()) return;
  chart.start_text = say_bytes(chart.start), chart.end_text = say_bytes(chart.end);
  Figure f;
  f.title = "Memory from " + c.a.title + " to " + c.b.title;
  f.caption.add("The difference in planned memory by category.");
  chart.label = f.title + ". " + f.caption.plain();
  f.draw = [chart](double width) { return draw_waterfall(chart, width); };
  f.numbers = numbers;
  page.blocks.push_back(f);
}

void add_causes(Page& page, const RunComparison& c) {
  PageTable t;
  t.columns = {{"part of the model", Align::left},
               {"phase", Align::left},
               {c.a.title + ", ms"},
               {c.b.title + ", ms"},
               {"difference"},
               {"share"},
               {"main factor", Align::left}};
  for (auto& cause : c.causes) {
    if (t.rows.size() >= 12) break;
    t.rows.push_back({cause.label, cause.phase, fmt::format("{:.3f}", cause.a.ms), fmt::format("{:.3f}", cause.b.ms),
                      fmt::format("{:+.3f}", cause.ms), say_percent(cause.share), label(cause.main_factor)});
    if (!cause.significant)
      for (auto& cell : t.rows.back()) cell.look = Look::soft;
  }
  if (t.rows.empty()) return;
  if (c.causes.size() > t.rows.size())
    t.note = fmt::format("{} smaller parts are left out.", c.causes.size() - t.rows.size());
  page.blocks.push_back(t);
}

void add_differences(Page& page, const RunComparison& c) {
  PageTable t;
  t.columns = {{"section", Align::left}, {"key", Align::left}, {c.a.title, Align::left}, {c.b.title, Align::left}};
  for (auto& d : c.differences) t.rows.push_back({d.section, spaced(d.key), d.a, d.b});
  if (t.rows.empty()) return;
  t.folded = true;
  t.summary = "Everything that differs between the runs";
  page.blocks.push_back(t);
}

void add_pair(Page& page, const Compared& pair) {
  RunComparison c;
  CompareOptions options;
  options.title_a = letter_of(pair.a, "A"), options.title_b = letter_of(pair.b, "B");
  if (pair.a.group->noise > 0) options.noise_floor = std::max(0.01, pair.a.group->noise);
  try {
    c = compare_runs(*pair.a.measurement->profiled, *pair.b.measurement->profiled, options);
  } catch (const Error& e) {
    page.blocks.push_back(
        Paragraph{pair.a.title + " and " + pair.b.title + " cannot be compared: " + e.problem() + "."});
    return;
  }
  page.blocks.push_back(Heading{3, pair.a.title + " against " + pair.b.title});
  if (!pair.a.group->lettered)
    page.blocks.push_back(
        Paragraph{Text().strong("A").add(" is " + pair.a.title + "; ").strong("B").add(" is " + pair.b.title + ".")});
  Bullets said;
  for (auto& s : c.sentences) said.items.push_back(with_arrows(s));
  if (!said.items.empty()) page.blocks.push_back(said);
  add_waterfall(page, c, pair);
  add_causes(page, c);
  add_memory_difference(page, c, pair);
  add_differences(page, c);
  Bullets notes;
  for (auto& n : c.notes) notes.items.push_back(with_arrows(n));
  if (!notes.items.empty()) page.blocks.push_back(notes);
}

}  // namespace

void add_comparisons(Page& page, const ReportData& data) {
  std::vector<Compared> pairs = pairs_of(data);
  if (pairs.empty()) return;
  page.blocks.push_back(Heading{2, "Why they differ"});
  for (auto& pair : pairs) add_pair(page, pair);
}

}  // namespace crest
