// crest calibrate: measures a device once, so that crest plan predicts times and crest tune needs
// fewer measurements.
#include <fmt/format.h>

#include <CLI/CLI.hpp>
#include <chrono>
#include <cmath>
#include <nlohmann/json.hpp>

#include "cli/command.h"
#include "cli/options.h"
#include "core/error.h"
#include "core/io.h"
#include "core/text.h"
#include "core/to_stderr.h"
#include "host/stop_signal.h"
#include "stats/samples.h"
#include "terminal/print_json.h"
#include "tune/calibrate.h"

namespace crest {

namespace {

struct Options {
  DeviceOptions device;
  std::vector<std::string> precisions;
  std::string out;
  double max_seconds = 2;
  bool add = false, json = false;
};

nlohmann::ordered_json to_json(const Calibration& c, double seconds) {
  nlohmann::ordered_json errors = nlohmann::ordered_json::array();
  for (double e : c.times.errors()) errors.push_back(std::expm1(e));
  return {{"file", c.file},       {"date", c.date},           {"device", c.device},
          {"threads", c.threads}, {"steps", c.times.steps()}, {"held_out_errors", errors},
          {"seconds", seconds}};
}

int run(const Options& o) {
  if (!(o.max_seconds >= 0)) fail_usage("the time limit is negative", "--max-seconds");
  StopSignal signal;
  auto start = std::chrono::steady_clock::now();
  Device device = o.device.find();
  if (device.described)
    fail_usage("a device that is not here cannot be measured", "--device", "Run crest calibrate on it.");
  int64_t limit = o.device.limit(device);
  std::string file = o.out.empty() ? calibration_file(device) : o.out;
  if (file.empty())
    fail_usage("there is no cache folder to write to", "--out", "Give --out FILE, or set HOME or CREST_CACHE.");
  Calibration so_far;
  if (o.add) {
    std::optional<Calibration> found = find_calibration(path_exists(o.out) ? o.out : "", device);
    if (!found) fail("there is no calibration of this device to add to", printable(file), "Omit --add.");
    so_far = *found;
  }
  std::vector<CalibrationStep> steps = calibration_steps(device, limit, o.precisions);
  if (steps.size() < 3)
    throw Error(Exit::does_not_fit,
                fmt::format("only {} of the steps fit {}", steps.size(), format_bytes(double(limit))),
                "crest calibrate", "It needs more memory, or more precisions.");
  to_stderr("measuring the limits of the device ...\n");
  StepMeasure how{.max_seconds = o.max_seconds, .rates = step_rates(steps, device), .before_run = [] {
                    if (StopSignal::requested())
                      throw Error(Exit::interrupted, "interrupted: nothing was written", "crest calibrate");
                  }};
  auto since = [](auto t) { return std::chrono::duration<double>(std::chrono::steady_clock::now() - t).count(); };
  auto first = std::chrono::steady_clock::now();
  auto progress = [&](size_t i, const CalibrationStep& step) {
    std::string left;  // as long as the mean of those that are done
    if (i > 0)
      left = fmt::format(", about {} left", format_duration(since(first) / double(i) * double(steps.size() - i)));
    to_stderr("{:>3}/{}  {}{}\n", i + 1, steps.size(), step.text, left);
  };
  Calibration c = calibrate(device, limit, steps, how, progress, std::move(so_far));
  save(c, file);
  c.file = file;
  double seconds = since(start);
  if (o.json) {
    print_json(to_json(c, seconds));
    return 0;
  }
  Samples errors(c.times.errors());
  fmt::print("measured {} steps on {} in {}\n", steps.size(), printable(device.name), format_duration(seconds));
  fmt::print("each predicted from the others: median error {:.1f}%, largest {:.1f}%\n",
             100 * std::expm1(errors.median()), 100 * std::expm1(errors.max()));
  fmt::print("wrote {}: crest plan now predicts times on this device\n", printable(file));
  return 0;
}

}  // namespace

std::function<int()> setup_calibrate(CLI::App& app) {
  auto o = std::make_shared<Options>();
  app.add_option(
         "--precision", o->precisions,
         "precisions to measure: fp32, tf32, bf16, fp16, fp8; auto: fp32 and bf16 on a CPU that has it, bf16 on "
         "a GPU (default: auto)")
      ->delimiter(',')
      ->type_name("LIST");
  app.add_option("--max-seconds", o->max_seconds, "time limit per step (at least 6 runs are made)")
      ->capture_default_str();
  app.add_option("--out", o->out, "file to write (default: in the cache folder, by device)")->type_name("FILE");
  app.add_flag("--add", o->add,
               "keep what is known (of --out, else what crest plan would use) and add these steps: another precision, "
               "for example");
  add_json_option(app, o->json);
  add_device_options(app, o->device);
  add_config_option(app);
  return [o] { return run(*o); };
}

}  // namespace crest
