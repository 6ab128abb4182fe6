// crest flops: FLOP/s, MFU and HFU of a step that any program timed.
#include <fmt/format.h>
#include <unistd.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <cmath>
#include <nlohmann/json.hpp>

#include "cli/command.h"
#include "cli/options.h"
#include "core/error.h"
#include "core/text.h"
#include "device/data_sheet.h"
#include "model/parameters.h"
#include "plan/flops_rate.h"
#include "terminal/print_json.h"
#include "terminal/table.h"

namespace crest {

namespace {

struct FlopsFlags {
  std::string model, recompute = "none", device, precision = "bf16";
  double parameters = 0, step_ms = 0;
  int64_t ranks = 1, sequences = 0, seq = 0;
  bool json = false;
};

TimedStep step_of(const FlopsFlags& o) {
  auto in = [](double value, double least, double most, const char* flag) {
    if (!(value >= least && value <= most))
      fail_usage(fmt::format("'{}' is out of range", value), flag,
                 fmt::format("It must be from {:g} to {:g}.", least, most));
  };
  TimedStep s;
  if (o.model.empty() == (o.parameters == 0))
    fail_usage(o.model.empty() ? "the model is missing" : "the model has its own parameters", "--model, --parameters",
               "Give --model, or the number of parameters alone: --parameters 52e9.");
  if (!o.model.empty()) {
    s.model = load_model_config(o.model);
    s.parameters = double(parameter_count(*s.model));
  } else {
    in(o.parameters, 1, 1e15, "--parameters");
    s.parameters = o.parameters;
  }
  in(o.step_ms, 1e-6, 1e12, "--step-ms");
  in(double(o.ranks), 1, 1e6, "--ranks");
  in(double(o.sequences), 1, 1e9, "--global-batch");
  if (o.seq == 0 && !s.model)
    fail_usage("the tokens of a sequence are missing", "--seq", "Give --seq, such as --seq 2048.");
  s.seq = o.seq == 0 ? s.model->context : o.seq;
  in(double(s.seq), 1, 1 << 24, "--seq");
  s.sequences = o.sequences, s.ranks = int(o.ranks), s.seconds = o.step_ms / 1e3;
  if (std::find(timed_recompute.begin(), timed_recompute.end(), o.recompute) == timed_recompute.end())
    fail_usage(fmt::format("'{}' is not a value of --recompute", printable(o.recompute)), "--recompute",
               fmt::format("{} Values: {}.", did_you_mean(o.recompute, timed_recompute), join(timed_recompute, ", ")));
  if (o.recompute == "selective" && !s.model)
    fail_usage("the FLOPs of attention follow from the model", "--recompute", "Give --model.");
  s.recompute = o.recompute;
  if (!o.device.empty()) {
    const DataSheet sheet = find_data_sheet(o.device);
    const std::optional<double> peak = sheet.peak(o.precision);
    std::vector<std::string> known;
    for (auto& [name, rate] : sheet.peaks) known.push_back(name);
    if (!peak)
      fail_usage(fmt::format("the data sheet of {} has no peak of '{}'", printable(o.device), printable(o.precision)),
                 "--precision", fmt::format("Values: {}.", join(known, ", ")));
    s.peak = *peak;
  }
  return s;
}

int run_flops(const FlopsFlags& o) {
  const TimedStep s = step_of(o);
  const std::vector<FlopsRate> rates = flops_rates(s);
  if (o.json) {
    print_json(to_json(s, rates));
    return int(Exit::ok);
  }
  fmt::print("model       {}{} parameters\n", s.model ? printable(s.model->name) + ": " : "",
             format_count(s.parameters));
  fmt::print("step        {}: {} = {} x seq {}, {}, recompute {}\n", format_duration(s.seconds),
             format_number_of(int64_t(s.tokens()), "token"), format_number_of(s.sequences, "sequence"), s.seq,
             format_number_of(int64_t(s.ranks), "GPU"), s.recompute);
  fmt::print("speed       {} tokens/s, {} for each GPU\n\n", format_count(s.tokens_per_second()),
             format_count(s.tokens_per_second() / s.ranks));
  std::vector<Column> columns = {{"TFLOP/s a GPU", Align::left}, {"model"}, {"with recompute"}};
  if (s.peak > 0) columns.insert(columns.end(), {{"MFU"}, {"HFU"}});
  columns.push_back({"formula", Align::left});
  Table table(columns);
  const double gpu_seconds = s.seconds * s.ranks;
  for (const FlopsRate& r : rates) {
    std::vector<std::string> cells = {r.name, fmt::format("{:.1f}", r.model / gpu_seconds / 1e12),
                                      fmt::format("{:.1f}", r.hardware / gpu_seconds / 1e12)};
    if (s.peak > 0)
      for (double flops : {r.model, r.hardware})
        cells.push_back(fmt::format("{:.1f}%", 100 * flops / gpu_seconds / s.peak));
    cells.push_back(r.formula);
    table.row(cells);
  }
  fmt::print("{}", table.text(use_color(STDOUT_FILENO)));
  for (const FlopsRate& r : rates) fmt::print("  {}: {}\n", r.name, r.source);
  if (s.peak > 0)
    fmt::print("  MFU and HFU: of {} in {}, by the data sheet of {}\n", format_si(s.peak, "FLOP/s"), o.precision,
               printable(o.device));
  const bool impossible = s.peak > 0 && std::all_of(rates.begin(), rates.end(), [&](const FlopsRate& r) {
                            return r.hardware > gpu_seconds * s.peak;
                          });
  if (impossible)
    fmt::print("above the peak of {}: check --step-ms, --ranks, --global-batch and --precision\n", printable(o.device));
  return int(Exit::ok);
}

}  // namespace

std::function<int()> setup_flops(CLI::App& app) {
  auto o = std::make_shared<FlopsFlags>();
  app.add_option("--model", o->model, "the model: a preset, a TOML file, or a folder with a config.json")
      ->type_name("MODEL");
  app.add_option("--parameters", o->parameters, "number of parameters, where no model is given");
  app.add_option("--step-ms", o->step_ms, "time of a step in milliseconds, as any program measured it");
  app.add_option("--ranks", o->ranks, "number of GPUs")->capture_default_str();
  app.add_option("--global-batch,--batch", o->sequences, "sequences per step, of all GPUs together");
  app.add_option("--seq", o->seq, "tokens per sequence (default: the model's context)");
  app.add_option("--recompute", o->recompute,
                 "what the backward pass repeats: nothing (none), attention (selective), or all layers (full)")
      ->type_name("VALUE")
      ->capture_default_str();
  app.add_option("--device", o->device, "data sheet with the peak for MFU and HFU, such as a100, or a TOML file")
      ->type_name("DEVICE");
  app.add_option("--precision", o->precision, "the peak of this precision: fp64, fp32, tf32, bf16, fp16, fp8 or int8")
      ->type_name("VALUE")
      ->capture_default_str();
  add_json_option(app, o->json);
  add_config_option(app);
  return [o] { return run_flops(*o); };
}

}  // namespace crest
