#include "lab/experiment.h"

#include <fmt/format.h>

#include <algorithm>

#include "core/embedded.h"
#include "core/error.h"
#include "core/io.h"
#include "core/text.h"
#include "lab/columns.h"
#include "lab/experiment_file.h"

namespace crest {
const std::vector<EmbeddedFile>& embedded_experiments();  // experiments/*.toml, by name
}

namespace crest::lab {

std::string place(const Formula& f, size_t at) {
  size_t line = f.line, column = f.column;
  for (size_t i = 0; i < std::min(at, f.text.size()); ++i)
    if (f.text[i] == '\n')
      ++line, column = 1;
    else
      ++column;
  return fmt::format("{} (line {}, column {})", printable(f.file), line, column);
}

bool Experiment::uses_column(const std::string& column) const {
  std::set<std::string> used(show.begin(), show.end());
  for (auto* list : {&columns, &quantities})
    for (auto& f : *list) collect_columns(f.expression, used);
  for (auto& c : claims) collect_columns(c.check.expression, used);
  for (auto& t : then) collect_columns(t.here.expression, used);
  return used.count(column) > 0;
}

namespace {

// A later setting replaces an earlier one in its position.
void overlay(Axes& axes, const Axes& over) {
  for (auto& axis : over) {
    auto same = std::find_if(axes.begin(), axes.end(), [&](auto& a) { return a.key == axis.key; });
    if (same == axes.end())
      axes.push_back(axis);
    else
      *same = axis;
  }
}

constexpr size_t most_measurements = 2000;

void add_product(const Axes& axes, const std::string& variant, const std::string& file,
                 std::vector<MeasurementSpec>& measurements) {
  size_t count = 1;
  for (auto& a : axes) {
    count *= a.values.size();
    if (count > most_measurements)
      fail_usage(fmt::format("the grid has more than {} recipes", most_measurements), printable(file),
                 "Use fewer values.");
  }
  for (size_t n = 0; n < count; ++n) {
    MeasurementSpec measurement;
    std::vector<std::string> label;
    if (!variant.empty()) measurement.keys["variant"] = variant, label.push_back(variant);
    size_t inner = count;
    for (auto& a : axes) {
      inner /= a.values.size();
      const std::string& value = a.values[n / inner % a.values.size()];
      measurement.settings.emplace_back(a.key, value);
      measurement.keys[a.key] = value, measurement.places[a.key] = a.place;
      if (a.values.size() > 1) label.push_back(a.key + " " + value);
    }
    measurement.label = join(label, ", ");
    measurements.push_back(std::move(measurement));
  }
}

void check_scale(const Experiment& e, const std::string& scale) {
  check_scale_name(scale);
  bool given = e.scales.empty();
  for (auto& [name, axes] : e.scales) given |= name.starts_with(scale);
  if (!given)
    fail_usage(fmt::format("{} has no [scale.{}]", printable(e.name), scale), printable(e.file),
               "Use one of its scales, or add one.");
}

}  // namespace

void check_scale_name(const std::string& scale) {
  if (std::find(scale_names.begin(), scale_names.end(), scale) == scale_names.end())
    fail_usage(fmt::format("'{}' is not a value of --scale", printable(scale)), "--scale",
               did_you_mean(scale, scale_names) + " Values: tiny, small, full.");
}

std::vector<MeasurementSpec> measurements_of(const Experiment& e, const std::string& scale, const std::string& device) {
  std::vector<MeasurementSpec> measurements;
  if (!info(e.kind).has_measurements) return measurements;
  check_scale(e, scale);
  Axes base = e.recipe;
  for (auto& wanted : {scale, scale + "." + device})
    for (auto& [name, axes] : e.scales)
      if (name == wanted) overlay(base, axes);
  if (e.variants.empty()) add_product(base, "", e.file, measurements);
  for (auto& v : e.variants) {
    if (!v.only.empty() && v.only != scale && v.only != device && v.only != scale + "." + device) continue;
    Axes axes = base;
    overlay(axes, v.axes);
    add_product(axes, v.name, e.file, measurements);
  }
  return measurements;
}

static std::string file_of(const EmbeddedFile& f) { return fmt::format("experiments/{}.toml", f.name); }

std::vector<Experiment> all_experiments() {
  std::vector<Experiment> list;
  for (auto& f : embedded_experiments()) list.push_back(parse_experiment(f.text, file_of(f)));
  return list;
}

Experiment find_experiment(const std::string& given) {
  constexpr size_t max_bytes = 1 << 20;
  if (given.size() > 5 && given.ends_with(".toml")) return parse_experiment(read_file(given, max_bytes), given);
  std::vector<std::string> names;
  for (auto& f : embedded_experiments()) {
    if (f.name == given) return parse_experiment(f.text, file_of(f));
    names.emplace_back(f.name);
  }
  fail_usage(fmt::format("no experiment '{}'", printable(given)), "crest lab",
             did_you_mean(given, names) + " crest lab list shows them; name your own as FILE.toml.");
}

const std::vector<KindInfo>& kinds() {
  static const std::vector<KindInfo> table = {
      {Kind::arithmetic, "arithmetic", "none: quantities only", false},
      {Kind::plan, "plan", "a recipe, planned and not run"},
      {Kind::bench, "bench", "a recipe, timed", true, true, false, false, true},
      {Kind::profile, "profile", "a recipe, timed instruction by instruction", true, true, true},
      {Kind::gemm, "gemm", "a matrix multiplication", true, true, false, false, true},
      {Kind::train, "train", "a recipe, trained on text", true, true, false, true},
      {Kind::comm, "comm", "a collective between ranks", true, true},
  };
  return table;
}

const KindInfo& info(Kind kind) { return kinds()[size_t(kind)]; }

}  // namespace crest::lab
