#include "lab/run.h"

#include <fmt/format.h>

#include <algorithm>
#include <charconv>
#include <cmath>

#include "backend/device_json.h"
#include "core/error.h"
#include "core/sha256.h"
#include "core/text.h"
#include "host/stop_signal.h"
#include "lab/judged.h"
#include "lab/result_json.h"
#include "lab/rounds.h"
#include "store/new_record.h"

namespace crest {

double parse_duration(const std::string& text, const std::string& where) {
  double x = 0;
  auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), x);
  std::string unit(end, text.data() + text.size());
  double factor = unit.empty() || unit == "s" ? 1 : unit == "m" ? 60 : unit == "h" ? 3600 : 0;
  if (error != std::errc() || factor == 0 || !(x > 0 && x * factor < 1e9))
    fail_usage(fmt::format("'{}' is not a duration", printable(text)), where, "Write for example 90s, 10m or 1h.");
  return x * factor;
}

// One experiment in progress.
struct LabRunner::Progress {
  lab::Result result;
  RunRecord record;
  std::string identity, grid;
  std::vector<lab::Row> earlier;
  std::vector<std::optional<lab::Row>> rows;  // of the measurements
  size_t measured = 0;                        // in this process, and their total time
  double seconds = 0;
};

namespace {

// A measurement's row is reused only if this is equal: measurements and columns, not claims.
std::string identity_of(const lab::Experiment& e, const std::string& scale, const LabMeasurements& measurements,
                        const Device& device, uint64_t seed) {
  std::string text =
      fmt::format("{} {} {} {} {} {}", e.name, lab::name(e.kind), scale, device.name, device.threads, seed);
  for (auto& c : measurements) {
    text += "\n" + c->identity();
    for (auto& [key, value] : c->spec().keys) text += fmt::format(" {}={}", key, value);
  }
  for (auto& f : e.columns) text += "\n" + f.name + "=" + f.text;
  return sha256_hex(text.data(), text.size()).substr(0, 8);
}

bool is_row_of(const lab::Row& row, const LabMeasurement& measurement) {
  auto keys = row.keys;
  keys.erase("status");
  return keys == measurement.spec().keys;
}

}  // namespace

void LabRunner::find_earlier(const lab::Experiment& e, Progress& p) const {
  Store* store = bench_.recorder().store();
  if (!o_.resume || !store) return;
  RunFilter filter;
  filter.kind = "experiment";
  for (auto& run : store->list(filter)) {
    if (!run.grid.starts_with(p.identity)) continue;
    Json document;
    try {
      document = store->document(run.id, "lab");
    } catch (const Error&) {
      continue;  // ended before its first measurement
    }
    for (auto& json : document.value("rows", Json::array())) {
      lab::Row row = lab::row_from_json(json);
      bool tried = row.keys["status"] != "absent" && !row.columns.empty();
      if (tried) p.earlier.push_back(row);  // failed measurements are tried again
    }
    p.result.noise_floor = document.value("noise_floor", 0.0);
    p.result.floor_source = document.value("noise_floor_source", "");
    p.grid = run.grid;
    BenchMeasure::say(fmt::format("{}: reusing {} measurements of run {}", e.name, p.earlier.size(), run.id));
    return;
  }
}

// Existing rows, in the order of the measurements.
void LabRunner::keep(Progress& p) {
  p.result.table.rows.clear();
  for (auto& row : p.rows)
    if (row) p.result.table.rows.push_back(*row);
  p.result.measurements_left = p.rows.size() - p.result.table.rows.size();
  if (p.record.id != 0) bench_.recorder().set_document(p.record, "lab", lab::to_json(p.result));
}

bool LabRunner::time_is_up() const {
  return interrupted_ || (o_.budget_seconds > 0 && timer_.seconds() >= o_.budget_seconds);
}

// None if interrupted.
std::optional<lab::Row> LabRunner::measure_row(const LabMeasurement& measurement, const std::string& grid) {
  try {
    return measurement.measure(context_, grid);
  } catch (const Error& error) {
    if (error.code() != Exit::interrupted) throw;
    interrupted_ = true;
    return std::nullopt;
  }
}

// Takes measurement i and reports progress. Round 2 is combined with the existing row. False: out
// of time.
bool LabRunner::measure_next(const lab::Experiment& e, const LabMeasurements& measurements, size_t i, int round,
                             Progress& p) {
  if (time_is_up()) return false;
  const LabMeasurement& measurement = *measurements[i];
  size_t done = round == 1 ? i : 2 * measurements.size() - 1 - i, all = measurements.size() * size_t(context_.rounds);
  double left = p.measured > 0 ? p.seconds / double(p.measured) * double(all - done) : 0;
  if (measurement.absent().empty() && lab::info(e.kind).timed && measurement.device().name == device_.name)
    BenchMeasure::say(fmt::format("{} [{}/{}] {} ...{}{}", e.name, i + 1, measurements.size(), measurement.spec().label,
                                  round == 2 ? " (round 2)" : "",
                                  left >= 1 ? fmt::format(" (about {} left)", format_duration(left)) : ""));
  Timer timer;
  std::optional<lab::Row> row = measure_row(measurement, p.grid);
  if (!row) return false;
  if (round == 1)
    p.rows[i] = row;
  else if (row->columns.count("ms"))
    p.rows[i] = lab::combine_rounds(*p.rows[i], *row);
  ++p.measured, p.seconds += timer.seconds();
  keep(p);
  return true;
}

// Takes every measurement once and, if the kind allows it, again in reverse order. The two rounds
// of every measurement are then centered on the middle of the run, so a steady drift cancels.
void LabRunner::measure_all(const lab::Experiment& e, const LabMeasurements& measurements, Progress& p) {
  context_.rounds = lab::info(e.kind).rounds ? o_.rounds : 1;
  for (auto& measurement : measurements) {
    auto known =
        std::find_if(p.earlier.begin(), p.earlier.end(), [&](auto& row) { return is_row_of(row, *measurement); });
    p.rows.push_back(known != p.earlier.end() ? std::optional(*known) : std::nullopt);
  }
  keep(p);
  for (size_t i = 0; i < measurements.size(); ++i)
    if (!p.rows[i] && !measure_next(e, measurements, i, 1, p)) return;
  for (size_t i = measurements.size(); context_.rounds == 2 && i-- > 0;) {
    bool once = p.rows[i]->columns.count("ms") && p.rows[i]->round_ms.empty();
    if (once && measurements[i]->in_both_rounds() && !measure_next(e, measurements, i, 2, p)) return;
  }
}

// The noise floor between measurements: from this experiment, or from an earlier run of one of its
// measurements.
void LabRunner::find_floor(const lab::Experiment& e, const LabMeasurements& measurements, Progress& p) {
  constexpr double assumed = 0.01;  // covers effects that are constant within a process, such as memory placement
  lab::Result& r = p.result;
  if (!lab::info(e.kind).timed) return;
  auto take = [&](double floor, const std::string& source) {
    r.noise_floor = std::max(floor, assumed);
    r.floor_source = source + (floor < assumed ? fmt::format(" ({:.2g}%; at least 1% is used)", 100 * floor) : "");
  };
  if (auto noise = lab::noise_of_rounds(r.table.rows))
    return take(noise->relative, "from the differences of " +
                                     format_number_of(int64_t(noise->measurements), "measurement") +
                                     " between two rounds");
  if (r.noise_floor < assumed) r.noise_floor = assumed, r.floor_source = "assumed";
  if (Store* store = bench_.recorder().store(); store)
    for (auto& measurement : measurements)
      if (auto floor = measurement->key().empty()
                           ? std::nullopt
                           : noise_floor_of(*store, measurement->key(), measurement->device().name);
          floor && floor->relative > r.noise_floor)
        take(floor->relative, fmt::format("measured by run {}", floor->run));
  if (context_.rounds == 1) repeat_first(measurements, p, take);
}

// For a kind without rounds: repeats the first timed measurement after the last.
void LabRunner::repeat_first(const LabMeasurements& measurements, Progress& p,
                             const std::function<void(double, const std::string&)>& take) {
  auto timed = [](auto& row) { return row && row->columns.count("ms"); };
  auto first = std::find_if(p.rows.begin(), p.rows.end(), timed);
  if (p.measured < 2 || first == p.rows.end() || time_is_up()) return;
  BenchMeasure::say(fmt::format("{} the first measurement again, for the noise floor ...", p.result.experiment->name));
  std::optional<lab::Row> again = measure_row(*measurements[size_t(first - p.rows.begin())], p.grid);
  if (!timed(again)) return;
  double before = (*first)->columns.at("ms").x, after = again->columns.at("ms").x;
  double floor = std::expm1(std::abs(std::log(after / before)));
  if (floor > p.result.noise_floor || p.result.floor_source == "assumed")
    take(floor, fmt::format("the first measurement before and after the others: {:.4g} and {:.4g} ms", before, after));
}

lab::Result LabRunner::run(const lab::Experiment& e, const LabMeasurements& measurements) {
  Progress p;
  p.result.experiment = &e, p.result.scale = o_.scale;
  bool elsewhere = e.kind == lab::Kind::plan && !measurements.empty();
  p.result.device = elsewhere ? measurements[0]->device().name : device_.name;
  p.identity = identity_of(e, o_.scale, measurements, device_, bench_.options().seed);
  find_earlier(e, p);
  if (p.grid.empty()) p.grid = p.identity + new_uid().substr(0, 8);
  Conditions before = read_conditions(device_);
  p.record.kind = "experiment", p.record.name = fmt::format("lab-{}-{}", e.name, o_.scale);
  p.record.command = command_line(), p.record.grid = p.grid;
  p.record.device = device_to_json(device_), p.record.environment = environment_json(device_, before);
  bench_.recorder().begin(p.record);
  auto finish = [&](const char* status, const std::string& error) {
    p.record.status = status, p.record.error = error;
    p.record.environment_after = environment_after_json(device_, before);
    bench_.recorder().finish(p.record);
  };
  try {
    measure_all(e, measurements, p);
    find_floor(e, measurements, p);
    Json document = lab::judged_document(p.result, device_);
    if (p.record.id != 0) bench_.recorder().set_document(p.record, "lab", document);
    p.record.result = lab::judged_result(p.result, document);
    finish(interrupted_ ? "interrupted" : "done", interrupted_ ? "interrupted" : "");
  } catch (const Error& error) {
    finish("failed", error.what());
    throw;
  }
  return p.result;
}

}  // namespace crest
