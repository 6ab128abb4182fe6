// crest plan --device A,B,...: what fits on each device, and how long a training takes there.
#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <nlohmann/json.hpp>

#include "cli/plan_flags.h"
#include "core/error.h"
#include "core/text.h"
#include "model/parameters.h"
#include "plan/plan_json.h"
#include "terminal/print_json.h"
#include "terminal/table.h"

namespace crest {

namespace {

using Json = nlohmann::ordered_json;

struct DeviceRow {
  std::string device;  // as given
  PlanReport report;
  Prediction prediction;
  // Absent where the step does not fit, or nothing is known of the device.
  const PredictedStep* step() const { return report.fits() ? prediction.step() : nullptr; }
};

std::vector<std::string> names_of_devices(const std::string& list) {
  std::vector<std::string> names = split(list, ',');
  for (auto& name : names)
    if (name.empty() || std::count(names.begin(), names.end(), name) > 1)
      fail_usage(fmt::format("'{}' has {}", printable(list), name.empty() ? "an empty name" : "a device twice"),
                 "--device", "Give names such as rtx4090,h100. crest devices --sheets lists them.");
  return names;
}

// With the batch that was given, else with the largest one.
DeviceRow plan_one(PlanFlags o, const std::string& device) {
  o.device.device = device;
  DeviceRow row = {device, make_report(o), {}};
  const int64_t most = row.report.batch_that_fits.value_or(0);
  if (o.recipe.given["batch"].empty() && most > 0 && most != row.report.session.recipe.batch) {
    // The rest as chosen for this device.
    o.recipe.given["batch"] = {std::to_string(most)};
    row.report = make_report(o);
  }
  row.prediction = predict(o, row.report);
  return row;
}

double hours(const DeviceRow& row, double tokens, double ms) {
  return tokens / double(row.step()->tokens) * ms / 3.6e6;
}

Json to_json(const DeviceRow& row, const PlanFlags& o) {
  const PlanReport& r = row.report;
  const PredictedStep* step = row.step();
  auto per_second = [&](double ms) { return step ? Json(1e3 * double(step->tokens) / ms) : Json(); };
  auto training = [&](double ms) { return step && o.tokens > 0 ? Json(hours(row, o.tokens, ms)) : Json(); };
  const double ms = step ? step->ms : 0, low = step ? step->low_ms : 0, high = step ? step->high_ms : 0;
  return {{"device", row.device},
          {"name", r.session.device.name},
          {"memory_bytes", r.limit},
          {"fits", r.fits()},
          {"batch", r.session.recipe.batch},
          {"seq", r.session.recipe.seq_length()},
          {"largest_batch", r.batch_that_fits ? Json(*r.batch_that_fits) : Json()},
          {"recompute", r.session.recipe.recompute},
          {"precision", r.session.recipe.precision},
          {"planned_bytes", r.planned()},
          {"tokens_per_second", per_second(ms)},
          {"tokens_per_second_range", step ? Json({per_second(high), per_second(low)}) : Json()},
          {"hours", training(ms)},
          {"hours_range", step && o.tokens > 0 ? Json({training(low), training(high)}) : Json()},
          {"not_predicted", step || !r.fits() ? Json() : Json(row.prediction.why_not)}};
}

std::string range(double low, double high) { return fmt::format("{} to {}", format_count(low), format_count(high)); }

}  // namespace

int plan_devices(const PlanFlags& o) {
  if (!o.explain.empty() || !o.as_profile.empty() || !o.calibration.empty() || o.price > 0)
    fail_usage("--explain, --as-profile, --calibration and --price are about one device", "--device",
               "Give one device, or omit them.");
  std::vector<DeviceRow> rows;
  for (auto& name : names_of_devices(o.device.device)) rows.push_back(plan_one(o, name));
  const ModelConfig& model = rows[0].report.model();
  if (o.json) {
    Json devices = Json::array();
    for (auto& row : rows) devices.push_back(to_json(row, o));
    print_json(
        {{"model", model_to_json(model)}, {"tokens", o.tokens > 0 ? Json(o.tokens) : Json()}, {"devices", devices}});
    return int(Exit::ok);
  }
  fmt::print("model       {}: {} parameters\n\n", printable(model.name), parameter_count(model));
  std::vector<Column> columns = {
      {"device", Align::left},    {"memory"},  {"fits"},     {"batch x seq"}, {"largest batch"},
      {"recompute", Align::left}, {"planned"}, {"tokens/s"}, {"range"}};
  if (o.tokens > 0) columns.insert(columns.end(), {{fmt::format("hours for {:g} tokens", o.tokens)}, {"range"}});
  Table table(columns);
  std::string notes;
  for (auto& row : rows) {
    const PlanReport& r = row.report;
    const Recipe& q = r.session.recipe;
    std::vector<std::string> cells = {row.device,
                                      format_bytes(double(r.limit)),
                                      r.fits() ? "yes" : "no",
                                      fmt::format("{} x {}", q.batch, q.seq_length()),
                                      r.batch_that_fits ? std::to_string(*r.batch_that_fits) : "",
                                      q.recompute,
                                      format_bytes(double(r.planned()))};
    if (const PredictedStep* s = row.step()) {
      const double tokens = 1e3 * double(s->tokens);
      cells.insert(cells.end(), {format_count(s->tokens_per_second()), range(tokens / s->high_ms, tokens / s->low_ms)});
      if (o.tokens > 0)
        cells.insert(cells.end(), {fmt::format("{:.3g}", hours(row, o.tokens, s->ms)),
                                   fmt::format("{:.3g} to {:.3g}", hours(row, o.tokens, s->low_ms),
                                               hours(row, o.tokens, s->high_ms))});
    } else if (r.fits()) {
      notes += fmt::format("{}: time not predicted: {}\n", row.device, row.prediction.why_not);
    }
    table.row(cells);
  }
  fmt::print("{}", table.text(use_color(STDOUT_FILENO)));
  if (!notes.empty()) fmt::print("\n{}", notes);
  return int(Exit::ok);
}

}  // namespace crest
