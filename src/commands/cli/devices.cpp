// crest devices: the devices of this machine. --measure: how fast they are.
#include <fmt/format.h>
#include <unistd.h>

#include <CLI/CLI.hpp>
#include <nlohmann/json.hpp>

#include "backend/cuda/discover.h"
#include "cli/command.h"
#include "cli/options.h"
#include "core/error.h"
#include "core/text.h"
#include "core/to_stderr.h"
#include "device/data_sheet.h"
#include "device/find.h"
#include "device/libraries.h"
#include "device/list_devices.h"
#include "host/environment.h"
#include "measure/device_limits.h"
#include "terminal/print_json.h"
#include "terminal/table.h"

namespace crest {

namespace {

struct DevicesFlags {
  DeviceOptions device;
  bool measure = false, sheets = false, json = false;
};

const char* operations(const std::string& precision) { return precision == "int8" ? "OP/s" : "FLOP/s"; }

// Spread of the samples: half the 95% interval of the median, and the range, in percent of the
// median.
std::vector<std::string> spread_cells(const Samples& s) {
  double median = s.median();
  return {fmt::format("+-{:.1f}%", 100 * s.median_relative_half_width()),
          fmt::format("{:+.1f}% .. {:+.1f}%", 100 * (s.min() / median - 1), 100 * (s.max() / median - 1)),
          fmt::format("{}", s.count())};
}

void print_measured(const DeviceLimits& m) {
  Table table({{"measured limit", Align::left},
               {"rate"},
               {"median time, 95%"},
               {"range of times"},
               {"samples"},
               {"how", Align::left}});
  auto add = [&](std::string what, std::string rate, const Samples& s, std::string how) {
    std::vector<std::string> cells = {what, rate};
    for (auto& c : spread_cells(s)) cells.push_back(c);
    cells.push_back(how);
    table.row(cells);
  };
  for (auto& b : m.bandwidths)
    add(fmt::format("{} {}", b.level, b.kind), format_si(b.bytes_per_second, "B/s"), b.seconds,
        fmt::format("{}{} buffer{}", b.threads ? format_number_of(b.threads, "thread") + ", " : "",
                    format_bytes(double(b.buffer_bytes)), b.kind == "copy" ? "s, read + written bytes" : ""));
  for (auto& r : m.rates) {
    std::string what = r.precision + " matmul", sheet;
    if (auto peak = m.sheet_peak(r.precision))
      sheet = fmt::format("; {:.0f}% of the data sheet's {}", 100 * r.rate.flops_per_second / *peak,
                          format_si(*peak, operations(r.precision)));
    if (r.problem.empty())
      add(what, format_si(r.rate.flops_per_second, operations(r.precision)), r.rate.seconds,
          fmt::format("{}, m {} n {} k {}{}", r.how, r.rate.m, r.rate.n, r.rate.k, sheet));
    else
      table.row({what, "none", "", "", "", printable(r.problem, 300)});
  }
  for (auto& p : m.peaks) {
    std::string what = p.precision + " instructions";
    if (p.operations_per_second > 0)
      add(what, format_si(p.operations_per_second, operations(p.precision)), p.seconds,
          fmt::format("{}, {} thread{}, registers only", p.instruction, p.threads, p.threads == 1 ? "" : "s"));
    else
      table.row({what, "none", "", "", "", p.instruction});
  }
  fmt::print("\n{}", table.text(use_color(STDOUT_FILENO)));
}

void print_gpus(const cuda::Found& found) {
  if (found.devices.empty()) return fmt::print("cuda        none: {}\n", found.problem);
  for (auto& d : found.devices) {
    fmt::print("cuda:{}      {}\n", d.index, d.name);
    fmt::print("  kernels   compute capability {}.{}, {} multiprocessors{}\n", d.sm / 10, d.sm % 10, d.multiprocessors,
               d.native_bf16 ? ", bf16 and tf32 in hardware" : ", no bf16: fp16 or fp32");
    fmt::print("  memory    {} of {} free\n", format_bytes(double(cuda::free_memory(d.index))),
               format_bytes(double(d.total_memory)));
    if (std::string why = cuda::reject_device(d); !why.empty()) fmt::print("  unusable  {}\n", why);
  }
  for (auto& l : links_between(found.devices)) fmt::print("  link      cuda:{} - cuda:{}  {}\n", l.from, l.to, l.kind);
  fmt::print("  driver    CUDA {}.{}, built with {}.{}\n", found.driver / 1000, found.driver % 1000 / 10,
             found.runtime / 1000, found.runtime % 1000 / 10);
  for (auto& l : cuda::used_libraries())
    fmt::print("  {:<9} {}\n", l.name,
               l.library.handle ? printable(l.library.path, 300)
                                : fmt::format("not found: {}. {}", l.without, printable(l.library.problem, 1000)));
}

void print_devices(const Device& d, const Environment& e, const cuda::Found& found) {
  fmt::print("cpu         {}\n", d.name);
  fmt::print("  kernels   {}{}\n", d.isa,
             d.amx           ? ", bf16 on matrix units (AMX)"
             : d.native_bf16 ? ", bf16 in hardware"
                             : ", bf16 emulated (fp32 is faster)");
  fmt::print("  cores     {} online, {:.4g} usable, {} thread{} per step\n", e.cores_online, e.cores_usable, d.threads,
             d.threads == 1 ? "" : "s");
  fmt::print("  flags     {}\n", e.isa_flags.empty() ? "none that select kernels" : join(e.isa_flags, " "));
  fmt::print("  cache     {} last level\n",
             e.last_level_cache_bytes ? format_bytes(double(e.last_level_cache_bytes)) : std::string("unknown size,"));
  fmt::print("  memory    {} of {} available\n", format_bytes(double(e.memory_available_bytes)),
             format_bytes(double(e.memory_total_bytes)));
  print_gpus(found);
  fmt::print("system      {}, load {:.2f}\n", e.kernel, e.load_average);
  std::string libraries;
  for (auto& [library, version] : e.libraries) libraries += fmt::format(", {} {}", library, version);
  fmt::print("crest       {}, {}{}\n", e.crest_version, e.compiler, libraries);
}

int list_sheets(bool json) {
  if (json) {
    print_json(to_json(data_sheets()));
    return 0;
  }
  std::vector<Column> columns = {{"name", Align::left}, {"device", Align::left}, {"memory"}, {"bandwidth"}, {"link"}};
  for (auto& p : data_sheet_precisions) columns.push_back({p});
  Table table(columns);
  for (auto& s : data_sheets()) {
    std::vector<std::string> cells = {s.name, s.title, format_bytes(double(s.memory_bytes)),
                                      format_si(s.bandwidth, "B/s"), format_si(s.link_bandwidth, "B/s")};
    for (auto& p : data_sheet_precisions) cells.push_back(s.peak(p) ? fmt::format("{:.4g}", *s.peak(p) / 1e12) : "-");
    table.row(cells);
  }
  fmt::print("{}\nPeaks: dense TFLOP/s of matrix multiplication (int8: TOP/s). Sources:\n",
             table.text(use_color(STDOUT_FILENO)));
  for (auto& s : data_sheets())
    fmt::print("  {:<8} {}\n", s.name, wrapped(s.source, {.indent = std::string(11, ' '), .taken = 11}));
  return 0;
}

int run_devices(const DevicesFlags& o) {
  if (o.sheets) return list_sheets(o.json);
  o.device.libraries.use();
  Device device = find_device(o.device.device, o.device.threads), cpu = find_device("cpu", o.device.threads);
  Environment environment = read_environment(library_versions(device));
  cuda::Found found = cuda::find_devices();
  DeviceLimits measured;
  if (!o.json) print_devices(cpu, environment, found);
  std::fflush(stdout);
  if (o.measure)
    measured = measure_device_limits(device, [](const std::string& what) { to_stderr("measuring {} ...\n", what); });
  if (!o.json) {
    if (o.measure) print_measured(measured);
    return 0;
  }
  auto document = to_json(list_devices(cpu, found), environment);
  if (o.measure) document["measured"] = to_json(measured);
  print_json(document);
  return 0;
}

}  // namespace

std::function<int()> setup_devices(CLI::App& app) {
  auto o = std::make_shared<DevicesFlags>();
  app.add_flag("--measure", o->measure, "measure memory bandwidth and matmul rates (about ten seconds)");
  app.add_flag("--sheets", o->sheets, "list the device files: the vendors' sizes and peak rates, with sources");
  app.add_option("--device", o->device.device, "device to measure: auto, cpu or cuda[:N]")->capture_default_str();
  app.add_option("--threads", o->device.threads, "CPU threads to measure with (0: all usable)")->capture_default_str();
  add_library_options(app, o->device.libraries);
  add_json_option(app, o->json);
  add_config_option(app);
  return [o] { return run_devices(*o); };
}

}  // namespace crest
