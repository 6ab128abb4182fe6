// crest calibrate: measures a device once, and collectives between several, for predictions of
// crest plan and for fewer measurements in crest tune.
#include <fmt/format.h>
#include <unistd.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <cmath>
#include <nlohmann/json.hpp>

#include "bench/comm_options.h"
#include "cli/command.h"
#include "cli/options.h"
#include "comm/environment.h"
#include "core/error.h"
#include "core/io.h"
#include "core/output_file.h"
#include "core/text.h"
#include "core/timer.h"
#include "core/to_stderr.h"
#include "device/find.h"
#include "device/rank_device.h"
#include "host/stop_signal.h"
#include "predict/rank_time.h"
#include "stats/samples.h"
#include "terminal/print_json.h"
#include "terminal/table.h"
#include "tune/calibrate.h"
#include "tune/measure_collectives.h"

namespace crest {

namespace {

struct CalibrateFlags {
  DeviceOptions device;
  std::vector<std::string> precisions;
  std::string out, ranks;
  double max_seconds = 2;
  bool add = false, json = false;
};

nlohmann::ordered_json to_json(const Calibration& c, double seconds) {
  nlohmann::ordered_json errors = nlohmann::ordered_json::array();
  for (double e : c.times.errors()) errors.push_back(std::expm1(e));
  return {{"file", c.file},
          {"date", c.date()},
          {"device", c.device()},
          {"threads", c.threads},
          {"steps", c.times.steps()},
          {"sources", sources_json(c)},
          {"held_out_errors", errors},
          {"seconds", seconds},
          {"collectives", c.collectives.to_json()}};
}

// --ranks: the numbers of processes for measuring collectives.
std::vector<int> ranks_of(const CalibrateFlags& o) {
  if (o.ranks.empty()) return {};
  std::vector<int> ranks = parse_ranks(o.ranks, "--ranks", 2);
  if (int most = *std::max_element(ranks.begin(), ranks.end()); most > most_measured_ranks)
    fail_usage(fmt::format("times of {} ranks are not predicted", most), "--ranks",
               fmt::format("Give at most {}; crest comm measures more.", most_measured_ranks));
  if (auto environment = rank_environment(); environment && environment->size > 1)
    fail_usage(fmt::format("it starts its ranks by itself, and {} started this one", environment->launcher), "--ranks",
               "Run crest calibrate without a launcher.");
  return ranks;
}

// The device of a rank: ranks of a CPU share its threads.
Device calibrated_device(const CalibrateFlags& o, const std::vector<int>& ranks) {
  Device device = o.device.find();
  if (device.described)
    fail_usage("this machine does not have the device, so it cannot be measured", "--device",
               "Run crest calibrate on it.");
  if (ranks.empty()) return device;
  check_devices_of_ranks(o.device.device, ranks.back());
  if (device.kind == "cpu" && ranks.size() > 1)
    fail_usage(fmt::format("--ranks {}: ranks of a CPU share its threads, and a calibration has one number of them",
                           printable(o.ranks)),
               "--ranks", "Calibrate for one number of ranks at a time.");
  return with_threads(device, std::max(1, device.threads / (device.kind == "cpu" ? ranks.back() : 1)));
}

void measure_steps(const CalibrateFlags& o, const Device& device, const std::vector<CalibrationStep>& steps,
                   Calibration& c) {
  to_stderr("measuring the limits of the device ...\n");
  StepMeasure how{.max_seconds = o.max_seconds, .rates = step_rates(steps, device), .before_run = [] {
                    if (StopSignal::requested())
                      throw Error(Exit::interrupted, "interrupted: nothing was written", "crest calibrate");
                  }};
  if (c.times.rate(std::string(host_link_update_rate)) == 0)
    for (const ProfileRate& rate : link_rates(device, o.device.limit(device), how)) how.rates.push_back(rate);
  Timer timer;
  auto progress = [&](size_t i, const CalibrationStep& step) {
    std::string left;  // as long as the mean of the finished ones
    if (i > 0)
      left = fmt::format(", about {} left", format_duration(timer.seconds() / double(i) * double(steps.size() - i)));
    to_stderr("{:>3}/{}  {}{}\n", i + 1, steps.size(), step.text, left);
  };
  c = calibrate(device, o.device.limit(device), steps, how, progress, std::move(c));
}

void measure_between(const CalibrateFlags& o, const Device& device, const std::vector<int>& ranks, Calibration& c) {
  CollectivesToMeasure what{.ranks = ranks,
                            .dtypes = {"fp32"},
                            .sizes = collective_sizes(device.kind == "cuda"),
                            .max_seconds = std::min(1.0, o.max_seconds),
                            .flags = o.device.flags()};
  if (device.native_bf16) what.dtypes.emplace_back("bf16");
  for (auto& table : measure_collectives(what, [](const std::string& line) { to_stderr("{}\n", line); }))
    c.collectives.add(table);
}

// An earlier run's measurements between ranks: newly measured steps do not change them.
CollectiveTimes collectives_in(const std::string& file, const Device& device) {
  CollectiveTimes known;
  try {
    if (path_exists(file)) known = find_calibration(file, device)->collectives;
  } catch (const Error&) {  // an unreadable or foreign file is written anew
  }
  if (!known.tables().empty())
    to_stderr("the collectives of {} stay; --ranks measures them again\n", known.tables().front().date);
  return known;
}

std::string collectives_text(const Calibration& c, const std::vector<int>& ranks) {
  Table table({{"collective", Align::left}, {"ranks"}, {"start"}, {"largest"}, {"ms"}, {"bus GB/s"}});
  for (auto& t : c.collectives.tables()) {
    if (std::find(ranks.begin(), ranks.end(), t.ranks) == ranks.end()) continue;
    const TransferPoint& last = t.points.back();
    table.row({fmt::format("{} of {}", name(t.collective), t.dtype), std::to_string(t.ranks),
               format_duration(t.points.front().seconds), format_si(last.bytes, "B"),
               fmt::format("{:.3f}", 1e3 * last.seconds),
               fmt::format("{:.2f}", last.bytes * bus_factor(t.collective, t.ranks) / last.seconds / 1e9)});
  }
  return table.text(use_color(STDOUT_FILENO));
}

int run_calibrate(const CalibrateFlags& o) {
  if (!(o.max_seconds >= 0)) fail_usage("the time limit is negative", "--max-seconds");
  StopSignal signal(StopSignal::measuring_grace);
  Timer timer;
  std::vector<int> ranks = ranks_of(o);
  Device device = calibrated_device(o, ranks);
  std::string file = o.out.empty() ? calibration_file(device) : o.out;
  if (file.empty())
    fail_usage("there is no cache folder to write to", "--out", "Give --out FILE, or set HOME or CREST_CACHE.");
  create_directories(parent_path(file));
  require_place_for(file, "--out");
  Calibration c;
  if (o.add) {
    std::optional<Calibration> found = find_calibration(path_exists(o.out) ? o.out : "", device);
    if (!found) fail("there is no calibration of this device to add to", printable(file), "Omit --add.");
    c = *found;
    to_stderr("adding to {}\n", join(sources_text(c), " and "));
  } else if (ranks.empty()) {
    c.collectives = collectives_in(file, device);
  }
  // First, since they take seconds and fail where the machine lacks something; steps take minutes.
  if (!ranks.empty()) measure_between(o, device, ranks, c);
  // Collectives alone are added to known steps.
  const bool steps_are_known = o.add && !ranks.empty() && o.precisions.empty();
  std::vector<CalibrationStep> steps;
  if (!steps_are_known) {
    int64_t limit = o.device.limit(device);
    steps = calibration_steps(device, limit, o.precisions);
    if (steps.size() < 3)
      throw Error(Exit::does_not_fit,
                  fmt::format("only {} of the steps fit {}", steps.size(), format_bytes(double(limit))),
                  "crest calibrate", "It needs more memory, or more precisions.");
    measure_steps(o, device, steps, c);
  }
  save(c, file);
  c.file = file;
  double seconds = timer.seconds();
  if (o.json) {
    print_json(to_json(c, seconds));
    return 0;
  }
  if (!steps.empty()) {
    Samples errors(c.times.errors());
    fmt::print("measured {} steps on {} in {}\n", steps.size(), printable(device.name), format_duration(seconds));
    fmt::print("each predicted from the others: median error {:.1f}%, largest {:.1f}%\n",
               100 * std::expm1(errors.median()), 100 * std::expm1(errors.max()));
  }
  if (!ranks.empty()) fmt::print("{}", collectives_text(c, ranks));
  fmt::print("wrote {}: crest plan{} now predicts times on this device\n", printable(file),
             ranks.empty() ? "" : fmt::format(" --ranks {}", ranks.back()));
  return 0;
}

}  // namespace

std::function<int()> setup_calibrate(CLI::App& app) {
  auto o = std::make_shared<CalibrateFlags>();
  app.add_option(
         "--precision", o->precisions,
         "precisions to measure: fp32, tf32, bf16, fp16, fp8; auto: fp32 and bf16 on a CPU that has it, bf16 on "
         "a GPU (default: auto)")
      ->delimiter(',')
      ->type_name("LIST");
  app.add_option("--max-seconds", o->max_seconds,
                 "time limit of a step's plain runs, and of its profiled ones (at least 1 of each)")
      ->capture_default_str();
  app.add_option("--out", o->out, "file to write (default: in the cache folder, by device)")->type_name("FILE");
  app.add_flag("--add", o->add,
               "add steps to an existing calibration (--out, else the one that crest plan would use), for example of "
               "another precision");
  app.add_option(
         "--ranks", o->ranks,
         "also measure collectives between this many processes (on GPUs a list, e.g. 2,4,8); on a CPU, steps are "
         "measured with the threads of one process. With --add and without --precision, only collectives are measured")
      ->type_name("LIST");
  add_json_option(app, o->json);
  add_device_options(app, o->device);
  add_config_option(app);
  return [o] { return run_calibrate(*o); };
}

}  // namespace crest
