#include "comm/link.h"

namespace crest {

namespace {

struct Sheet {
  const char* name;  // part of the driver's name
  double both;       // bytes per second in both directions together, as data sheets state it
  const char* source;
};
// Cards for PCIe slots are not among them: whether bridges join them is not in their names.
constexpr Sheet sheets[] = {
    {"B200", 1800e9, "NVLink 5, data sheet of NVIDIA B200"},
    {"H200 NVL", 0, ""},
    {"H200", 900e9, "NVLink 4, data sheet of NVIDIA H200"},
    {"H100 80GB HBM3", 900e9, "NVLink 4, data sheet of NVIDIA H100 SXM"},
    {"A100-SXM", 600e9, "NVLink 3, data sheet of NVIDIA A100 SXM"},
    {"V100-SXM", 300e9, "NVLink 2, data sheet of NVIDIA V100 SXM"},
};

}  // namespace

LinkRate data_sheet_link(const std::string& device_name) {
  for (auto& s : sheets)
    if (device_name.find(s.name) != std::string::npos) return {s.both / 2, s.source};
  return {};
}

}  // namespace crest
