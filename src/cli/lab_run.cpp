#include "cli/lab_run.h"

#include <fmt/format.h>

#include <algorithm>
#include <charconv>
#include <cmath>

#include "cli/new_record.h"
#include "cli/recipe_json.h"
#include "core/error.h"
#include "core/sha256.h"
#include "core/text.h"
#include "lab/result_json.h"
#include "train/stop_signal.h"

namespace crest {

double parse_duration(const std::string& text, const std::string& where) {
  double x = 0;
  auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), x);
  std::string unit(end, text.data() + text.size());
  double factor = unit.empty() || unit == "s" ? 1 : unit == "m" ? 60 : unit == "h" ? 3600 : 0;
  if (error != std::errc() || factor == 0 || !(x > 0 && x * factor < 1e9))
    fail_usage(fmt::format("'{}' is no length of time", printable(text)), where, "Write for example 90s, 10m or 1h.");
  return x * factor;
}

// One experiment on its way.
struct LabRunner::Progress {
  lab::Result result;
  RunRecord record;
  std::string identity, grid;
  std::vector<lab::Row> earlier;
  size_t measured = 0;  // in this process, and how long they took
  double seconds = 0;
  const LabCell* first = nullptr;  // the first one with a time, and its median
  double first_ms = 0;
};

namespace {

// What must be equal for a cell's row to be taken over: cells and columns, not claims.
std::string identity_of(const lab::Experiment& e, const std::string& scale, const LabCells& cells, const Device& device,
                        uint64_t seed) {
  std::string text =
      fmt::format("{} {} {} {} {} {}", e.name, lab::name(e.kind), scale, device.name, device.threads, seed);
  for (auto& c : cells) {
    text += "\n" + c->identity();
    for (auto& [key, value] : c->spec().keys) text += fmt::format(" {}={}", key, value);
  }
  for (auto& f : e.columns) text += "\n" + f.name + "=" + f.text;
  return sha256_hex(text.data(), text.size()).substr(0, 8);
}

bool of_cell(const lab::Row& row, const LabCell& cell) {
  auto keys = row.keys;
  keys.erase("status");
  return keys == cell.spec().keys;
}

}  // namespace

void LabRunner::find_earlier(const lab::Experiment& e, Progress& p) const {
  Store* store = bench_.recorder().store();
  if (!o_.resume || !store) return;
  RunFilter filter;
  filter.kind = "experiment";
  for (auto& run : store->list(filter)) {
    if (run.grid.rfind(p.identity, 0) != 0) continue;
    Json document;
    try {
      document = store->document(run.id, "lab");
    } catch (const Error&) {
      continue;  // it ended before its first cell
    }
    for (auto& row : document.value("rows", Json::array())) p.earlier.push_back(lab::row_from_json(row));
    p.result.noise_floor = document.value("noise_floor", 0.0);
    p.result.floor_source = document.value("noise_floor_source", "");
    p.grid = run.grid;
    BenchMeasure::say(fmt::format("{}: {} cells of run {} are taken over", e.name, p.earlier.size(), run.id));
    return;
  }
}

void LabRunner::keep(const Progress& p) {
  if (p.record.id != 0) bench_.recorder().set_document(p.record, "lab", lab::to_json(p.result));
}

void LabRunner::measure_cells(const lab::Experiment& e, const LabCells& cells, Progress& p) {
  for (size_t i = 0; i < cells.size(); ++i) {
    const LabCell& cell = *cells[i];
    auto known = std::find_if(p.earlier.begin(), p.earlier.end(), [&](auto& row) { return of_cell(row, cell); });
    if (known != p.earlier.end()) {
      p.result.table.rows.push_back(*known);
      continue;
    }
    if (interrupted_ || (o_.budget_seconds > 0 && spent() >= o_.budget_seconds)) {
      ++p.result.cells_left;
      continue;
    }
    double left = p.measured > 0 ? p.seconds / double(p.measured) * double(cells.size() - i) : 0;
    std::string eta = left > 0 ? fmt::format(" (about {} left)", format_duration(left)) : "";
    if (cell.absent().empty() && lab::info(e.kind).timed)
      BenchMeasure::say(fmt::format("{} [{}/{}] {} ...{}", e.name, i + 1, cells.size(), cell.spec().label, eta));
    double before = spent();
    try {
      p.result.table.rows.push_back(cell.measure(context_, p.grid));
    } catch (const Error& error) {
      if (error.code() != Exit::interrupted) throw;
      interrupted_ = true;
      ++p.result.cells_left;
      continue;
    }
    const lab::Row& row = p.result.table.rows.back();
    auto ms = row.columns.find("ms");
    if (!p.first && ms != row.columns.end()) p.first = &cell, p.first_ms = ms->second.x;
    ++p.measured, p.seconds += spent() - before;
    keep(p);
  }
}

// Cells run one after the other, so what the machine does meanwhile is part of their differences: the first one is
// measured again after the last.
void LabRunner::find_floor(const lab::Experiment& e, const LabCells& cells, Progress& p) {
  constexpr double assumed = 0.01;
  lab::Result& r = p.result;
  if (!lab::info(e.kind).timed) return;
  if (r.noise_floor < assumed) r.noise_floor = assumed, r.floor_source = "assumed";
  auto raise = [&](double floor, const std::string& source) {
    if (floor > r.noise_floor || r.floor_source == "assumed")
      r.noise_floor = std::max(floor, assumed), r.floor_source = source;
  };
  if (Store* store = bench_.recorder().store(); store)
    for (auto& cell : cells)
      if (auto floor = cell->key().empty() ? std::nullopt : noise_floor_of(*store, cell->key(), cell->device().name);
          floor && floor->relative > r.noise_floor)
        raise(floor->relative, fmt::format("measured by run {}", floor->run));
  if (!p.first || p.measured < 2 || interrupted_ || (o_.budget_seconds > 0 && spent() >= o_.budget_seconds)) return;
  BenchMeasure::say(fmt::format("{} the first cell again, for the noise floor ...", e.name));
  try {
    lab::Row again = p.first->measure(context_, p.grid);
    auto ms = again.columns.find("ms");
    if (ms == again.columns.end()) return;
    double drift = std::abs(std::log(ms->second.x / p.first_ms));
    raise(std::expm1(drift), fmt::format("the first cell again after the others: {:.4g} and {:.4g} ms{}", p.first_ms,
                                         ms->second.x, std::expm1(drift) < assumed ? "; at least 1% is taken" : ""));
  } catch (const Error& error) {
    if (error.code() != Exit::interrupted) throw;
    interrupted_ = true;
  }
}

lab::Result LabRunner::run(const lab::Experiment& e, const LabCells& cells) {
  Progress p;
  p.result.experiment = &e, p.result.scale = o_.scale,
  p.result.device = cells.empty() ? device_.name : cells[0]->device().name;
  p.identity = identity_of(e, o_.scale, cells, device_, bench_.options().seed);
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
    measure_cells(e, cells, p);
    find_floor(e, cells, p);
    lab::Result measured = p.result;  // the stored rows carry no floor: a later run may find another
    lab::widen_times(p.result.table, p.result.noise_floor);
    judge(p.result, device_);
    Json document = lab::to_json(p.result);
    Json rows = Json::array();
    for (auto& row : measured.table.rows) rows.push_back(lab::to_json(row));
    document["rows"] = rows;
    if (p.record.id != 0) bench_.recorder().set_document(p.record, "lab", document);
    p.record.result = {
        {"name", e.name}, {"scale", o_.scale}, {"claims", document["claims"]}, {"cells_left", p.result.cells_left}};
    finish(interrupted_ ? "interrupted" : "done", interrupted_ ? "interrupted" : "");
  } catch (const Error& error) {
    finish("failed", error.what());
    throw;
  }
  return p.result;
}

}  // namespace crest
