#include "bench/bench_product.h"

#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <cmath>
#include <limits>

#include "core/error.h"
#include "core/json_number.h"
#include "core/text.h"
#include "device/data_sheet.h"
#include "terminal/fit_table.h"
#include "terminal/print_json.h"
#include "terminal/table.h"

namespace crest {

using Json = nlohmann::ordered_json;

namespace {

constexpr int64_t largest_size = int64_t(1) << 20;
constexpr int fewest_for_noise = 12;  // six per contender: the fewest for an interval of the median

std::string text_of(const GemmSize& s) { return fmt::format("{}x{}x{}", s.m, s.n, s.k); }

// Copies on the host and the device, and one transposed operand on its way.
int64_t bytes_of(const GemmSize& s, const std::string& precision) {
  int64_t element = precision == "fp64" ? 8 : precision == "bf16" || precision == "fp16" ? 2 : 4;
  return 2 * element * (s.m * s.k + s.n * s.k + s.m * s.n) + element * s.n * s.k;
}

}  // namespace

std::vector<GemmSize> parse_products(const std::string& text) {
  const char* example = "Write M, N and K, from 1 to 1048576, for example 4096x4096x4096,1024x50304x768.";
  std::vector<GemmSize> sizes;
  for (auto& product : split(text, ',')) {
    std::vector<std::string> parts = split(product, 'x');
    std::vector<int64_t> numbers;
    Setting row = {.name = "product", .group = "", .help = "", .min = 1, .max = double(largest_size)};
    row.type = SettingType::whole;
    for (auto& part : parts) try {
        numbers.push_back(std::get<int64_t>(parse_setting(row, part)));
      } catch (const Error&) {
        break;
      }
    if (parts.size() != 3 || numbers.size() != 3)
      fail_usage(fmt::format("'{}' is not a product", printable(product)), "--product", example);
    sizes.push_back({numbers[0], numbers[1], numbers[2]});
  }
  if (sizes.empty()) fail_usage("no product", "--product", example);
  return sizes;
}

std::vector<std::string> product_precisions(const BenchOptions& o, const Device& device) {
  std::vector<std::string> list;
  if (auto it = o.base.recipe.given.find("precision"); it != o.base.recipe.given.end())
    for (auto& text : it->second)
      for (auto& name : split(text, ',')) list.push_back(name);
  if (list.empty() || list == std::vector<std::string>{"auto"}) {
    if (device.kind == "cuda") return {"tf32", "bf16", "fp16"};
    return device.native_bf16 ? std::vector<std::string>{"fp32", "bf16"} : std::vector<std::string>{"fp32"};
  }
  for (auto& name : list)
    if (std::find(data_sheet_precisions.begin(), data_sheet_precisions.end(), name) == data_sheet_precisions.end())
      fail_usage(fmt::format("'{}' is not a precision of a product", printable(name)), "--precision",
                 fmt::format("{} Precisions: {}.", did_you_mean(name, data_sheet_precisions),
                             join(data_sheet_precisions, ", ")));
  return list;
}

double ProductRow::noise_floor() const {
  const std::vector<double>& all = seconds().values();
  if (int(all.size()) < fewest_for_noise) return std::numeric_limits<double>::quiet_NaN();
  Samples even, odd;
  for (size_t i = 0; i + 1 < all.size(); i += 2) even.add(all[i]), odd.add(all[i + 1]);
  return floor_of(compare_paired(even, odd, 0).ratio_interval);
}

Json to_json(const ProductRow& r) {
  const ProductDetail& d = r.measured.detail;
  Json json = {{"m", r.size.m}, {"n", r.size.n}, {"k", r.size.k}, {"precision", r.measured.precision}};
  if (!r.measured.problem.empty()) {
    json["error"] = r.measured.problem;
    return json;
  }
  Samples ms = r.seconds().scaled(1e3);
  auto rate = [&](double seconds) {
    return std::isfinite(seconds) && seconds > 0 ? Json(r.flops() / seconds) : Json();
  };
  Interval median = r.seconds().median_interval();
  json.update({{"kernel", d.kernel},
               {"algorithm", d.algorithm},
               {"tile", d.tile},
               {"ms_median", ms.median()},
               {"ms_min", ms.min()},
               {"ms_max", ms.max()},
               {"samples", ms.count()},
               {"flops_per_second", rate(r.seconds().median())},
               {"flops_per_second_low", rate(median.high)},
               {"flops_per_second_high", rate(median.low)},
               {"noise_floor", number_or_null(r.noise_floor())},
               {"data_sheet", r.peak > 0 ? Json(r.peak) : Json()}});
  return json;
}

std::string text_of(const std::vector<ProductRow>& rows, bool color, size_t width) {
  std::vector<std::vector<std::string>> cells;
  std::string problems;
  for (auto& r : rows) {
    if (!r.measured.problem.empty()) {
      problems += fmt::format("{} {}: {}\n", text_of(r.size), r.measured.precision, r.measured.problem);
      continue;
    }
    double seconds = r.seconds().median(), noise = r.noise_floor();
    Interval median = r.seconds().median_interval();
    auto tera = [&](double s) { return fmt::format("{:.3g}", r.flops() / s / 1e12); };
    cells.push_back({text_of(r.size), r.measured.precision, fmt::format("{:.4g}", seconds * 1e3), tera(seconds),
                     std::isfinite(median.high) ? fmt::format("{} to {}", tera(median.high), tera(median.low)) : "-",
                     std::isfinite(noise) ? fmt::format("{:.1f}%", 100 * noise) : "-",
                     r.peak > 0 ? fmt::format("{:.0f}%", 100 * r.flops() / seconds / r.peak) : "-",
                     r.measured.detail.kernel, r.measured.detail.tile.empty() ? "-" : r.measured.detail.tile});
  }
  std::string table = fit_table({{{"product", Align::left}},
                                 {{"precision", Align::left}},
                                 {{"ms"}},
                                 {{"TFLOP/s"}},
                                 {{"95%"}},
                                 {{"noise"}},
                                 {{"of sheet"}, 2},
                                 {{"kernel", Align::left}, 1},
                                 {{"tile", Align::left}, 3}},
                                cells, width, color);
  return table + problems +
         "\nM x N x K: c[M, N] = a[M, K] b[K, N], 2 M N K FLOPs. 95%: interval of the median. noise: odd samples\n"
         "against even ones.\n";
}

void record_product(BenchMeasure& bench, RunRecord& record, const GemmSize& size, const PrecisionRate& measured) {
  const Samples& seconds = measured.rate.seconds;
  std::vector<SampleRow> samples;
  for (double s : seconds.values()) samples.push_back({s * 1e3, int(samples.size()), "", false});
  bench.recorder().add_samples(record, samples);
  const ProductDetail& d = measured.detail;
  bench.finish(record, "done",
               {{"m", size.m},
                {"n", size.n},
                {"k", size.k},
                {"precision", measured.precision},
                {"kernel", d.kernel},
                {"algorithm", d.algorithm},
                {"tile", d.tile},
                {"workspace_requested_bytes", d.requested_workspace ? Json(*d.requested_workspace) : nullptr},
                {"workspace_reserved_bytes", d.reserved_workspace},
                {"ms_median", seconds.median() * 1e3},
                {"samples", seconds.count()}});
}

static ProductRow measured_row(BenchMeasure& bench, const Device& device, const GemmSize& size,
                               const std::string& precision, const std::string& grid) {
  const BenchOptions& o = bench.options();
  BenchMeasure::check_interrupt();
  std::string name = fmt::format("{} {}", text_of(size), precision);
  int64_t limit = o.base.device.limit(device), bytes = bytes_of(size, precision);
  if (bytes > limit)
    throw Error(Exit::does_not_fit,
                fmt::format("{} needs {} of {}", name, format_bytes(double(bytes)), format_bytes(double(limit))),
                "--product", "Measure a smaller product.");
  BenchMeasure::say(fmt::format("measuring {} ...", name));
  RunRecord record = bench.begin("gemm", device, o.store.name.empty() ? name : o.store.name, grid);
  ProductRow row{size, {}, 0};
  StoppingRule rule = stopping_rule(o.warmup, o.samples, 200, o.max_seconds);
  if (o.samples == 0) rule.min_samples = fewest_for_noise, rule.samples_at_limit = 1;
  try {
    row.measured = measure_precision(device, precision, {size}, rule);
  } catch (const Error& e) {
    bench.finish(record, "failed", nullptr, e.what());
    throw;
  }
  const DataSheet* sheet = device.kind == "cuda" ? data_sheet_of(device.name) : nullptr;
  row.peak = sheet ? sheet->peak(precision).value_or(0) : 0;
  if (row.measured.problem.empty())
    record_product(bench, record, size, row.measured);
  else
    bench.finish(record, "failed", nullptr, row.measured.problem);
  return row;
}

int run_products(BenchMeasure& bench) {
  const BenchOptions& o = bench.options();
  std::vector<GemmSize> sizes = parse_products(o.product);
  DeviceOptions where = o.base.device;
  if (!o.threads.empty()) {
    if (o.threads.size() > 1 || o.threads[0].find(',') != std::string::npos)
      fail_usage("products are measured with one number of threads", "--threads", "Give one number.");
    for (auto& row : device_settings())
      if (row.name == std::string("threads")) row.set(row, &where, parse_setting(row, o.threads[0]));
  }
  Device device = where.find();
  std::vector<std::string> precisions = product_precisions(o, device);
  bench.open_store();
  std::string grid = sizes.size() * precisions.size() > 1 ? new_uid() : "";
  std::vector<ProductRow> rows;
  for (auto& size : sizes)
    for (auto& precision : precisions) rows.push_back(measured_row(bench, device, size, precision, grid));
  if (std::all_of(rows.begin(), rows.end(), [](auto& r) { return !r.measured.problem.empty(); }))
    fail(rows[0].measured.problem, "--precision",
         fmt::format("Precisions of a product: {}.", join(data_sheet_precisions, ", ")));
  if (o.json) {
    Json list = Json::array();
    for (auto& r : rows) list.push_back(to_json(r));
    print_json({{"device", device.name}, {"products", list}});
  } else {
    fmt::print("{}\n\n{}", printable(device.name), text_of(rows, use_color(STDOUT_FILENO), output_width()));
  }
  return 0;
}

}  // namespace crest
