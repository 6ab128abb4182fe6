#include "measure/device_limits.h"

#include <nlohmann/json.hpp>

namespace crest {

using Json = nlohmann::ordered_json;

DeviceLimits measure_device_limits(const Device& device, const std::function<void(const std::string&)>& say) {
  DeviceLimits m;
  if (device.kind == "cuda") {
    say("copy bandwidth");
    m.bandwidths.push_back(measure_device_copy(device));
    for (auto& precision : data_sheet_precisions) {
      say(precision + " matmuls");
      m.rates.push_back(quick_precision_rate(device, precision));
    }
    m.sheet = data_sheet_of(device.name);
    return m;
  }
  say("read bandwidth");
  m.bandwidths.push_back(measure_read_bandwidth({.threads = device.threads}));
  say("copy bandwidth");
  m.bandwidths.push_back(measure_copy_bandwidth({.threads = device.threads}));
  GemmFactory factory = linear_kernel_factory(device);
  for (DType type : {DType::f32, DType::bf16}) {
    say(type == DType::f32 ? "fp32 matmuls" : "bf16 matmuls");
    GemmRate rate = measure_gemm_rate(type, factory);
    std::string problem = rate.flops_per_second > 0 ? "" : "no fast kernel for this type";
    m.rates.push_back({type == DType::f32 ? "fp32" : "bf16", "linear kernel", problem, rate});
  }
  say("arithmetic instructions");
  m.peaks = measure_instruction_peaks(device.threads);
  return m;
}

// Median, mean, standard deviation, minimum and maximum of the samples in milliseconds.
static Json spread(const Samples& seconds) {
  Samples ms = seconds.scaled(1e3);
  return {{"ms_median", ms.median()}, {"ms_mean", ms.mean()}, {"ms_std", ms.std_dev()},
          {"ms_min", ms.min()},       {"ms_max", ms.max()},   {"samples", ms.count()}};
}

Json to_json(const DeviceLimits& m) {
  Json json = Json::object();
  for (auto& b : m.bandwidths) {
    Json entry = {{"bytes_per_second", b.bytes_per_second},
                  {"level", b.level},
                  {"buffer_bytes", b.buffer_bytes},
                  {"threads", b.threads}};
    entry.update(spread(b.seconds));
    json[b.kind + "_bandwidth"] = entry;
  }
  for (auto& r : m.rates) {
    Json entry = {{"flops_per_second", nullptr}, {"reason", r.problem}};
    if (r.problem.empty()) {
      entry = {{"flops_per_second", r.rate.flops_per_second}, {"m", r.rate.m}, {"n", r.rate.n}, {"k", r.rate.k}};
      entry["how"] = r.how;
      if (auto peak = m.sheet_peak(r.precision)) entry["data_sheet"] = *peak;
      entry.update(spread(r.rate.seconds));
    }
    json["gemm_" + r.precision] = entry;
  }
  if (!m.peaks.empty()) json["instructions"] = Json::object();
  for (auto& p : m.peaks) {
    Json entry = {{"instruction", p.instruction}, {"operations_per_second", nullptr}, {"threads", p.threads}};
    if (p.operations_per_second > 0) {
      entry["operations_per_second"] = p.operations_per_second;
      entry.update(spread(p.seconds));
    }
    json["instructions"][p.precision] = entry;
  }
  return json;
}

}  // namespace crest
