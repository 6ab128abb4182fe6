#include "profile/profile_rates.h"

#include <fmt/format.h>

#include <algorithm>
#include <charconv>
#include <cmath>

#include "core/error.h"
#include "core/text.h"
#include "device/data_sheet.h"
#include "measure/gemm.h"

namespace crest {

namespace {

const std::vector<std::string> rate_names = {"bf16", "fp16", "tf32", "fp32", "fp8", "bandwidth", "host_link"};

ProfileRate measured_bandwidth(const Device& device) {
  bool gpu = device.kind == "cuda" && !device.emulated;
  Bandwidth b = gpu ? measure_device_copy(device) : measure_copy_bandwidth();
  return {"bandwidth", b.bytes_per_second, fmt::format("measured copy bandwidth of {}, reads + writes", b.level)};
}

// On a CPU, host memory is device memory: a copy reads and writes it.
ProfileRate measured_host_link(const Device& device) {
  std::string name(host_link_rate);
  if (device.kind == "cuda" && !device.emulated) {
    HostLink link = measure_host_link(device);
    return {name, std::min(link.to_device, link.to_host),
            fmt::format("measured copies of pinned memory, {} to the device, {} to the host",
                        format_si(link.to_device, "B/s"), format_si(link.to_host, "B/s"))};
  }
  ProfileRate bandwidth = measured_bandwidth(device);
  return {name, bandwidth.per_second / 2, "half of the " + bandwidth.source};
}

ProfileRate measured_gemm(const Device& device, const std::string& name) {
  if (name == "fp8") {  // a CPU computes 8-bit floats as fp32
    if (device.kind == "cpu" || device.emulated)
      return {name, measured_gemm(device, "fp32").per_second, "rate of fp32: fp8 is emulated"};
    GemmRate rate = quick_precision_rate(device, name).rate;
    if (rate.flops_per_second > 0)
      return {name, rate.flops_per_second,
              fmt::format("measured fp8 matmul {} x {} x {} of cuBLASLt", rate.m, rate.n, rate.k)};
    return {name, measured_gemm(device, "bf16").per_second, "rate of bf16: cuBLASLt has no fp8 matmul"};
  }
  DType type = name == "bf16" ? DType::bf16 : name == "fp16" ? DType::f16 : DType::f32;
  GemmRate rate = quick_gemm_rate(device, type, name == "tf32");
  if (rate.flops_per_second > 0)
    return {name, rate.flops_per_second,
            fmt::format("measured {} matmul {} x {} x {} of the linear kernel", name, rate.m, rate.n, rate.k)};
  if (name == "fp32") fail("no fast kernel for fp32 matmuls", "measured rates", "Give the rate: --rates fp32=FLOPS.");
  ProfileRate fp32 = measured_gemm(device, "fp32");
  return {name, fp32.per_second, "rate of fp32: no fast kernel for " + name + " matmuls"};
}

void set_rate(std::vector<ProfileRate>& rates, const ProfileRate& rate) {
  auto it = std::find_if(rates.begin(), rates.end(), [&](auto& r) { return r.name == rate.name; });
  if (it == rates.end())
    rates.push_back(rate);
  else
    *it = rate;
}

void add_sheet(std::vector<ProfileRate>& rates, const DataSheet& sheet) {
  std::string source = "data sheet of " + sheet.title;
  for (auto& name : rate_names)
    if (name == host_link_rate)
      set_rate(rates, {name, sheet.host_link_one_way(),
                       sheet.host_link.empty() ? "PCIe 4.0 x16, since the sheet does not say" : source});
    else if (auto peak = name == "bandwidth" ? std::optional(sheet.bandwidth) : sheet.peak(name))
      set_rate(rates, {name, *peak, source});
}

}  // namespace

std::vector<ProfileRate> sheet_rates(const DataSheet& sheet) {
  std::vector<ProfileRate> rates;
  add_sheet(rates, sheet);
  return rates;
}

std::vector<ProfileRate> parse_rates(const std::string& text, const std::string& where) {
  std::vector<ProfileRate> rates;
  if (text.empty()) return rates;
  for (auto& part : split(text, ',')) {
    size_t equals = part.find('=');
    if (equals == std::string::npos && is_data_sheet(part)) {
      add_sheet(rates, find_data_sheet(part));
      continue;
    }
    std::string name = part.substr(0, equals);
    if (std::find(rate_names.begin(), rate_names.end(), name) == rate_names.end())
      fail_usage(fmt::format("unknown rate '{}'", printable(name)), where,
                 fmt::format("{} Write for example bf16=9.9e14,bandwidth=4.8e12 (names: {}), or a device file: h200.",
                             did_you_mean(name, rate_names), join(rate_names, ", ")));
    const char *begin = part.data() + (equals == std::string::npos ? part.size() : equals + 1),
               *end = part.data() + part.size();
    double value = 0;
    auto [stop, error] = std::from_chars(begin, end, value);
    if (error != std::errc() || stop != end || !std::isfinite(value) || value <= 0)
      fail_usage(fmt::format("'{}' gives no rate for {}", printable(part), name), where,
                 "A positive number of FLOP/s or bytes/s, for example bf16=9.9e14.");
    set_rate(rates, {name, value, "given by --rates"});
  }
  return rates;
}

std::vector<ProfileRate> device_rates(const Device& device, const std::set<std::string>& names,
                                      const std::vector<ProfileRate>& given) {
  std::vector<ProfileRate> rates;
  for (auto& name : names) {
    auto it = std::find_if(given.begin(), given.end(), [&](auto& r) { return r.name == name; });
    if (it != given.end())
      rates.push_back(*it);
    else
      rates.push_back(name == "bandwidth"      ? measured_bandwidth(device)
                      : name == host_link_rate ? measured_host_link(device)
                                               : measured_gemm(device, name));
  }
  return rates;
}

}  // namespace crest
