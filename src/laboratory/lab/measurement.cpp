#include "lab/measurement.h"

#include <fmt/format.h>

#include <charconv>

#include "core/error.h"
#include "core/text.h"

namespace crest {

std::string LabMeasurement::where() const {
  return printable(e_.file) + (spec_.label.empty() ? "" : ", measurement " + printable(spec_.label));
}

void LabMeasurement::read() {
  auto placed = [](const std::string& place, auto act) {
    try {
      act();
    } catch (const Error& error) {
      std::string where = place + (error.where().empty() ? "" : ", " + error.where());
      throw Error(error.code(), error.problem(), where, error.advice());
    }
  };
  for (auto& [key, value] : spec_.settings)
    placed(spec_.places[key], [&, &key = key, &value = value] {
      if (set(key, value)) return;
      std::vector<std::string> known = split(keys(), ',');
      for (auto& name : known) name.erase(0, name.find_first_not_of(' '));
      std::string hint = did_you_mean(key, known);
      fail_usage(fmt::format("a {} experiment has no key '{}'", lab::name(e_.kind), printable(key)), "",
                 (hint.empty() ? "" : hint + " ") + "Keys: " + keys() + ".");
    });
  placed(where(), [&] { finish(); });
}

double LabMeasurement::number(const std::string& key, const std::string& value, double low, double high) {
  double x = 0;
  auto [end, error] = std::from_chars(value.data(), value.data() + value.size(), x);
  if (error != std::errc() || end != value.data() + value.size() || !(x >= low && x <= high))
    fail_usage(fmt::format("'{}' is not a valid {}", printable(value), key), "",
               fmt::format("It must be a number from {} to {}.", low, high));
  return x;
}

bool LabMeasurement::set(const std::string& key, const std::string& value) {
  if (key == "max_seconds")
    max_seconds_ = number(key, value, 0, 3600);
  else if (key == "samples")
    samples_ = int(number(key, value, 1, 100'000));
  else if (key == "warmup")
    warmup_ = int(number(key, value, 0, 100'000));
  else if (key == "threads")
    device_.threads = int(number(key, value, 1, 100'000));
  else
    return false;
  return true;
}

std::string LabMeasurement::identity() const {
  return fmt::format("{} {} {} {}", key(), samples_, warmup_, max_seconds_);
}

StoppingRule LabMeasurement::rule(int rounds) const {
  StoppingRule rule = stopping_rule(warmup_, (samples_ + rounds - 1) / rounds, 100, max_seconds_ / rounds);
  if (samples_ == 0) rule.min_samples = (rule.min_samples + rounds - 1) / rounds;
  return rule;
}

namespace {

// Reasons go into tables, so "no kernel takes it:\n  NAME: why" becomes one line.
std::string in_one_line(const std::string& text) {
  std::string line;
  for (char c : text)
    if (c != '\n' && c != ' ')
      line += c;
    else if (!line.empty() && line.back() != ' ')
      line += ' ';
  return line;
}

}  // namespace

lab::Row LabMeasurement::measure(LabContext& context, const std::string& grid) const {
  lab::Row row;
  row.keys = spec_.keys;
  row.keys["status"] = "absent";
  row.absent = absent_;
  if (absent_.empty()) {
    row.keys["status"] = "done";
    measure(context, grid, row);
  }
  row.absent = in_one_line(row.absent);
  return row;
}

lab::Value median_of(const Samples& s) {
  Interval i = s.count() >= 6 ? s.median_interval() : Interval{s.min(), s.max()};
  return lab::Value::range(s.median(), i.low, i.high);
}

lab::Value mean_of(const Samples& s) {
  Interval i = s.count() >= 2 ? s.mean_interval() : Interval{s.mean(), s.mean()};
  return lab::Value::range(s.mean(), i.low > 0 ? i.low : s.min(), i.high);
}

void time_columns(lab::Row& row, const Samples& seconds) {
  Samples ms = seconds.scaled(1e3);
  row.columns["ms"] = median_of(ms);
  row.columns["ms_mean"] = mean_of(ms);
  row.columns["ms_std"] = lab::Value::number(ms.std_dev());
  row.columns["ms_min"] = lab::Value::number(ms.min());
  row.columns["ms_max"] = lab::Value::number(ms.max());
  row.columns["samples"] = lab::Value::number(double(ms.count()));
}

lab::Value rate(double figure, const lab::Value& ms) {
  return lab::calculate('/', lab::Value::number(figure * 1e3), ms);
}

}  // namespace crest
