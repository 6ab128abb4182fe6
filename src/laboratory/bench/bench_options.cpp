#include "bench/bench_options.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>

#include "core/error.h"
#include "core/text.h"
#include "plan/recipe_settings.h"

namespace crest {

namespace {

using List = std::vector<std::string>;

constexpr size_t most_measurements = 10000;

// "4,8" and repeated flags as one list. An empty entry is an error.
List values_of(const List& given, const Setting& row) {
  if (row.commas) return {given.back()};
  const std::string flag = row.flag();
  List values;
  for (auto& text : given)
    for (auto& v : split(text, ',')) {
      if (v.empty())
        fail_usage(fmt::format("'{}' has an empty value", printable(text)), flag, "Write for example 4,8.");
      values.push_back(v);
    }
  if (values.empty()) fail_usage("an empty list", flag, "Write for example 4,8.");
  return values;
}

struct GridList {
  const Setting* row;
  std::vector<std::string> values;
};

// The settings given with at least one value, outermost first.
std::vector<GridList> grid_lists(const BenchOptions& o) {
  std::vector<GridList> lists;
  auto add = [&](const Setting& row, const List& given) {
    if (!given.empty() && row.type != SettingType::list) lists.push_back({&row, values_of(given, row)});
  };
  for (auto& row : recipe_settings())
    if (auto it = o.base.recipe.given.find(row.name); it != o.base.recipe.given.end()) add(row, it->second);
  for (auto& row : device_settings())
    if (row.name == std::string("threads")) add(row, o.threads);
  auto inner = [](const GridList& l) {
    std::string name = l.row->name;
    return name == "seq" ? 2 : name == "batch" ? 1 : 0;
  };
  std::stable_sort(lists.begin(), lists.end(), [&](auto& a, auto& b) { return inner(a) < inner(b); });
  return lists;
}

}  // namespace

std::vector<MeasurementOptions> measurements_of(const BenchOptions& o) {
  std::vector<GridList> lists = grid_lists(o);
  for (auto& l : lists)
    for (auto& v : l.values) parse_setting(*l.row, v);
  size_t count = 1;
  for (auto& l : lists)
    if ((count *= l.values.size()) > most_measurements)
      fail_usage(fmt::format("the grid has more than {} recipes", most_measurements), l.row->flag(),
                 "Measure it in parts.");
  std::vector<MeasurementOptions> measurements;
  for (size_t measurement = 0; measurement < count; ++measurement) {
    MeasurementOptions options = o.base;
    List label;
    size_t inner = count;  // measurements between two changes of the value
    for (auto& l : lists) {
      inner /= l.values.size();
      const std::string& value = l.values[measurement / inner % l.values.size()];
      if (l.row->name == std::string("threads"))
        l.row->set(*l.row, &options.device, parse_setting(*l.row, value));
      else
        options.recipe.given[l.row->name] = {value};
      if (l.values.size() > 1) label.push_back(std::string(l.row->name) + " " + value);
    }
    options.label = join(label, ", ");
    measurements.push_back(std::move(options));
  }
  return measurements;
}

std::vector<BenchPhase> phases_of(const std::string& text) {
  if (text == "all") return {BenchPhase::forward, BenchPhase::backward, BenchPhase::step};
  return {parse_phase(text, {"all"})};
}

void validate(const BenchOptions& o) {
  if (o.samples < 0 || o.samples > 1'000'000)
    fail_usage(fmt::format("'{}' is out of range", o.samples), "--samples",
               "Give 1 to 1000000; 0 uses the stopping rule.");
  if (o.warmup < 0 || o.warmup > 1'000'000)
    fail_usage(fmt::format("'{}' is out of range", o.warmup), "--warmup", "Give 0 to 1000000.");
  if (!(o.max_seconds >= 0) || !(o.timeout > 0))
    fail_usage("a time limit must be positive", "--max-seconds, --timeout");
  if (o.peak < 0 || !std::isfinite(o.peak))
    fail_usage(fmt::format("'{}' is out of range", o.peak), "--peak", "FLOP/s, e.g. 2.5e11.");
  if (o.resume && (o.store.off || o.compares()))
    fail_usage("only a recorded grid can be resumed", "--resume", "Omit --no-store, --ab, --peer and --noise.");
}

}  // namespace crest
