// The recipes of a group: overview, table, bars, memory by category, sweeps.
#include <fmt/format.h>

#include <algorithm>
#include <cctype>
#include <cmath>
#include <cstdint>
#include <map>
#include <set>

#include "charts/figure.h"
#include "plan/memory_plan.h"
#include "report/phrases.h"
#include "report/report_colors.h"
#include "report/report_parts.h"

namespace crest {

namespace {

constexpr size_t most_rows = 40;  // in a figure

std::string number(double v, int digits) { return std::isfinite(v) ? fmt::format("{:.{}f}", v, digits) : "-"; }
// Milliseconds in a table: four digits or more.
std::string ms_text(double ms) { return number(ms, ms < 100 ? 2 : ms < 1000 ? 1 : 0); }

PageCell best(std::string text, bool is_best) {
  PageCell cell(std::move(text));
  if (is_best) cell.look = Look::best;
  return cell;
}

// Rows and columns of the overview: one setting across, all others down.
struct Grid {
  std::string across;
  std::vector<std::string> columns;
  std::vector<std::string> rows;
  std::map<std::pair<std::string, std::string>, const ReportMeasurement*> measurements;  // row, column
};

std::string label_without(const ReportGroup& g, const ReportMeasurement& c, const std::string& setting) {
  std::vector<std::string> parts;
  for (auto& name : g.varying)
    if (std::string value = c.setting(name); name != setting && !value.empty())
      parts.push_back(setting_label({name, value}));
  std::string label;
  for (auto& p : parts) label += (label.empty() ? "" : ", ") + p;
  return label;
}

Grid grid_across(const ReportGroup& g, const std::string& setting) {
  Grid grid{setting, {}, {}, {}};
  for (auto& c : g.measurements) {
    std::string row = label_without(g, c, setting), column = c.setting(setting);
    if (std::find(grid.rows.begin(), grid.rows.end(), row) == grid.rows.end()) grid.rows.push_back(row);
    if (std::find(grid.columns.begin(), grid.columns.end(), column) == grid.columns.end())
      grid.columns.push_back(column);
    grid.measurements[{row, column}] = &c;
  }
  std::sort(grid.columns.begin(), grid.columns.end(), [&](auto& a, auto& b) { return before(setting, a, b); });
  return grid;
}

// The last setting with few values and few empty cells; an empty `across` if there is none.
Grid choose_grid(const ReportGroup& g) {
  for (auto name = g.varying.rbegin(); !g.lettered && g.varying.size() > 1 && name != g.varying.rend(); ++name) {
    Grid grid = grid_across(g, *name);
    size_t all = grid.rows.size() * grid.columns.size();
    if (grid.columns.size() <= 6 && grid.rows.size() > 1 && 10 * g.measurements.size() >= 6 * all) return grid;
  }
  return {};
}

void add_overview(Page& page, const ReportGroup& g, const Grid& grid) {
  PageTable t;
  t.columns.push_back({g.same_tokens ? "median, ms" : "tokens/s", Align::left});
  for (auto& c : grid.columns) t.columns.push_back({setting_label({grid.across, c}), Align::right});
  double fastest = g.fastest >= 0 ? g.measurements[size_t(g.fastest)].speed() : 1;
  for (auto& row : grid.rows) {
    std::vector<PageCell> cells = {row};
    for (auto& column : grid.columns) {
      auto it = grid.measurements.find({row, column});
      if (it == grid.measurements.end()) {
        cells.push_back({});
        continue;
      }
      const ReportMeasurement& c = *it->second;
      PageCell cell(c.out_of_memory ? "out of memory"
                    : g.same_tokens ? ms_text(c.median)
                                    : say_rate(c.tokens_per_second));
      if (c.out_of_memory) cell.look = Look::missing;
      if (c.measured()) cell.bar = c.speed() / fastest;
      if (g.fastest >= 0 && &c == &g.measurements[size_t(g.fastest)]) cell.look = Look::best;
      cells.push_back(cell);
    }
    t.rows.push_back(cells);
  }
  t.note = "Bars show speed; the longest is the fastest.";
  t.compact = true;
  page.blocks.push_back(t);
}

// Distinguishing settings come first, then speed and memory, for narrow screens.
void add_table(Page& page, const ReportGroup& g, bool folded) {
  PageTable t;
  t.folded = folded;
  t.summary = "All figures of all recipes";
  bool by_name = g.lettered || g.varying.empty();
  std::vector<std::string> settings = g.varying;
  if (by_name) t.columns.push_back({g.lettered ? "" : "run", Align::left});
  auto add_settings = [&](const std::vector<std::string>& names) {
    for (auto& name : names) t.columns.push_back({spaced(name), Align::left});
  };
  if (!by_name) add_settings(settings);
  size_t keep = t.columns.size();
  for (auto& header : {"tokens/s", "MFU", "median, ms", "95% of the median", "planned memory", "peak on device",
                       "mean ± deviation, ms", "samples"})
    t.columns.push_back({header});
  if (by_name) add_settings(settings);
  const bool notes = std::any_of(g.measurements.begin(), g.measurements.end(),
                                 [](auto& c) { return !json_text(c.timed->result, "/note").empty(); });
  if (notes) t.columns.push_back({"note of the text", Align::left});
  for (size_t i = 0; i < g.measurements.size(); ++i) {
    const ReportMeasurement& c = g.measurements[i];
    bool fastest = int(i) == g.fastest && g.measurements.size() > 1,
         smallest = int(i) == g.smallest && g.measurements.size() > 1;
    bool fits = !c.out_of_memory;
    std::vector<PageCell> row;
    auto add_values = [&] {
      for (auto& name : settings) row.push_back(c.setting(name));
    };
    if (by_name) row.push_back(c.short_label);
    if (!by_name) add_values();
    row.push_back(fits ? best(say_rate(c.tokens_per_second), fastest) : PageCell("out of memory"));
    if (!fits) row.back().look = Look::missing;
    row.push_back(fits ? say_percent(c.mfu, 1) : "");
    row.push_back(fits ? best(ms_text(c.median), fastest && g.same_tokens) : PageCell());
    bool interval = std::isfinite(c.interval.low);
    row.push_back(!fits ? "" : interval ? ms_text(c.interval.low) + " to " + ms_text(c.interval.high) : "-");
    row.push_back(best(say_bytes(c.planned_bytes), smallest));
    row.push_back(fits ? say_bytes(c.device_bytes) : "");
    row.push_back(fits ? ms_text(c.mean) + " ± " + ms_text(c.deviation) : "");
    row.push_back(!fits          ? ""
                  : c.ms.empty() ? say_rate(json_number(c.timed->result, "/samples"))
                                 : std::to_string(c.ms.count()));
    if (c.throttled) row.back().text += fmt::format(", {} throttled", c.throttled);
    if (by_name) add_values();
    if (notes) row.emplace_back(json_text(c.timed->result, "/note"));
    t.rows.push_back(row);
  }
  if (!g.following.empty()) {
    std::vector<std::string> names;
    for (auto& name : g.following) names.push_back(spaced(name));
    t.note = say_list(names) + (names.size() == 1 ? " follows" : " follow") + " from the other settings.";
    t.note[0] = char(std::toupper(uint8_t(t.note[0])));
  }
  move_constants_to_note(t, keep);
  page.blocks.push_back(t);
}

Bar bar_of(const ReportGroup& g, const ReportMeasurement& c) {
  Bar b;
  b.best = g.fastest >= 0 && &c == &g.measurements[size_t(g.fastest)];
  b.tip = c.label;
  if (c.out_of_memory) {
    b.missing = "out of memory";
  } else if (g.same_tokens) {
    b.value = c.median, b.low = c.interval.low, b.high = c.interval.high;
    b.text = say_ms(c.median);
  } else {
    b.value = c.speed(), b.text = say_rate(b.value);
    b.low = b.value * c.median / c.interval.high, b.high = b.value * c.median / c.interval.low;
  }
  return b;
}

void add_bars(Page& page, const ReportGroup& g, const Grid& grid) {
  BarChart chart;
  chart.axis = g.same_tokens ? "milliseconds (lower is better)" : "tokens/s (higher is better)";
  size_t left_out = 0;
  PageTable numbers;
  numbers.columns = {{"recipe", Align::left}, {g.same_tokens ? "median, ms" : "tokens/s"}, {"95% interval"}};
  auto note = [&](const ReportMeasurement& c) {
    Bar b = bar_of(g, c);
    numbers.rows.push_back({c.label, b.missing.empty() ? number(b.value, 2) : b.missing,
                            std::isfinite(b.low) ? number(b.low, 2) + " to " + number(b.high, 2) : "-"});
  };
  if (!grid.across.empty()) {
    for (auto& column : grid.columns) chart.series.push_back(setting_label({grid.across, column}));
    for (auto& row : grid.rows) {
      BarGroup bars{row, {}};
      for (auto& column : grid.columns) {
        auto it = grid.measurements.find({row, column});
        bars.bars.push_back(it == grid.measurements.end() ? Bar{} : bar_of(g, *it->second));
        if (it != grid.measurements.end()) note(*it->second);
      }
      if (chart.groups.size() * grid.columns.size() < most_rows)
        chart.groups.push_back(bars);
      else
        ++left_out;
    }
  } else {
    chart.series = {""};
    for (auto& c : g.measurements) {
      note(c);
      if (chart.groups.size() < most_rows)
        chart.groups.push_back({c.short_label, {bar_of(g, c)}});
      else
        ++left_out;
    }
  }
  Figure f;
  f.title = g.same_tokens ? "Time by recipe" : "Speed by recipe";
  f.caption.add(g.same_tokens ? "Median time of a " : "Tokens/s, from the median time of a ")
      .add(say_phase(g.phase))
      .add("; whiskers: 95% interval of the median. The fastest is in bold.");
  if (g.lettered) f.caption.add(" The table below has the settings of each row.");
  if (left_out) f.caption.add(fmt::format(" {} more rows are in the table.", left_out));
  chart.label = f.title + ": " + f.caption.plain();
  f.draw = [chart](double width) { return draw_bars(chart, width); };
  f.numbers = numbers;
  page.blocks.push_back(f);
}

void add_memory(Page& page, const ReportGroup& g) {
  StackChart chart;
  chart.bytes = true;
  std::vector<std::string> names;
  for (int i = 0; i < category_count; ++i) {
    names.emplace_back(name(Category(i)));
    chart.parts.push_back({spaced(names.back()), category_color(names.back())});
  }
  PageTable numbers;
  numbers.columns = {{"recipe", Align::left}};
  for (auto& p : chart.parts) numbers.columns.push_back({p.name});
  numbers.columns.push_back({"planned"});
  bool missing = false;
  std::vector<std::string> unknown;
  for (auto& c : g.measurements) {
    if (c.categories.empty()) {
      unknown.push_back(c.label);
      continue;
    }
    StackRow row{c.short_label, say_bytes(c.planned_bytes), std::vector<double>(chart.parts.size()), "", {}};
    std::vector<PageCell> cells = {c.label};
    for (size_t i = 0; i < names.size(); ++i) {
      for (auto& [category, bytes] : c.categories)
        if (category == names[i]) row.values[i] = bytes;
      row.tips.push_back(chart.parts[i].name + ": " + say_bytes(row.values[i]));
      cells.push_back(say_bytes(row.values[i]));
    }
    cells.push_back(say_bytes(c.planned_bytes));
    numbers.rows.push_back(cells);
    if (c.out_of_memory) row.missing = "does not fit", row.text += ", does not fit", missing = true;
    if (chart.rows.size() < most_rows) chart.rows.push_back(row);
  }
  if (chart.rows.empty()) return;
  Figure f;
  f.title = "Memory by category";
  f.caption.add("Planned bytes of a recipe: the size of its arenas, known before anything runs.");
  if (missing) f.caption.add(" Hatched: does not fit in memory.");
  if (!unknown.empty()) f.caption.add(" Not recorded: " + say_list(unknown) + ".");
  chart.label = f.title + ": " + f.caption.plain();
  f.draw = [chart](double width) { return draw_stack(chart, width); };
  f.numbers = numbers;
  page.blocks.push_back(f);
}

// The results of interleaved measurements.
void add_side_by_side(Page& page, const ReportGroup& g) {
  Bullets b;
  std::set<std::string> said;
  for (auto& c : g.measurements)
    for (auto* r : c.runs) {
      auto document = r->documents.find("comparison");
      std::string sentence = document == r->documents.end() ? "" : json_text(document->second, "/sentence");
      if (sentence.empty() || !said.insert(r->grid + sentence).second) continue;
      b.items.push_back(Text("Measured side by side, in interleaved rounds: ").add(sentence + "."));
    }
  if (!b.items.empty()) page.blocks.push_back(b);
}

}  // namespace

void add_matrix(Page& page, const ReportGroup& g) {
  Grid grid = choose_grid(g);
  if (!grid.across.empty()) add_overview(page, g, grid);
  if (g.measurements.size() > 1) add_bars(page, g, grid);
  add_side_by_side(page, g);
  add_table(page, g, g.measurements.size() > 12);
  add_memory(page, g);
}

void add_sweeps(Page& page, const ReportGroup& g) {
  for (auto& setting : g.varying) {
    std::map<std::string, std::vector<const ReportMeasurement*>> lines;
    std::set<std::string> values;
    for (auto& c : g.measurements)
      if (std::string v = c.setting(setting); is_number(v) && c.measured()) {
        lines[label_without(g, c, setting)].push_back(&c);
        values.insert(v);
      }
    if (values.size() < 3) continue;
    std::vector<Series> speed, memory;
    PageTable numbers;
    std::string name = spaced(setting);
    numbers.columns = {{name}, {"recipe", Align::left}, {"tokens/s"}, {"median, ms"}, {"planned memory"}};
    double low = 1e300, high = 0;
    for (auto& [label, measurements] : lines) {
      if (measurements.size() < 2 || speed.size() >= 8) continue;
      Series s{label, {}, {}}, m{label, {}, {}};
      for (auto* c : measurements) {
        double x = std::strtod(c->setting(setting).c_str(), nullptr);
        low = std::min(low, x), high = std::max(high, x);
        s.x.push_back(x), s.y.push_back(c->speed());
        m.x.push_back(x), m.y.push_back(c->planned_bytes / (1 << 20));
        numbers.rows.push_back(
            {c->setting(setting), label, say_rate(c->speed()), number(c->median, 2), say_bytes(c->planned_bytes)});
      }
      speed.push_back(s), memory.push_back(m);
    }
    if (speed.empty()) continue;
    ChartOptions options{"Speed over " + name, name, "tokens/s", low > 0 && high / low > 20, false};
    Figure f;
    f.title = options.title;
    f.caption.add("Tokens/s over " + name +
                  (speed.size() > 1 ? ", one line per combination of the other settings." : "."));
    f.draw = [speed, options](double width) { return draw_lines(speed, options, width); };
    f.numbers = numbers;
    page.blocks.push_back(f);
    bool known = std::all_of(memory.begin(), memory.end(), [](auto& s) {
      return std::all_of(s.y.begin(), s.y.end(), [](double y) { return std::isfinite(y); });
    });
    if (!known) continue;
    options.title = "Memory over " + name, options.y_label = "planned memory, MiB";
    f.title = options.title;
    f.caption = Text("Planned memory over " + name + ".");
    f.draw = [memory, options](double width) { return draw_lines(memory, options, width); };
    page.blocks.push_back(f);
  }
}

}  // namespace crest
