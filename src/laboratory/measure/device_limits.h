// Measured limits of a device: memory bandwidth and arithmetic, in about ten seconds.
#pragma once
#include <functional>
#include <nlohmann/json_fwd.hpp>
#include <optional>
#include <string>
#include <vector>

#include "device/data_sheet.h"
#include "measure/gemm.h"
#include "measure/instruction_peaks.h"

namespace crest {

struct DeviceLimits {
  std::vector<Bandwidth> bandwidths;
  std::vector<PrecisionRate> rates;
  std::vector<InstructionPeak> peaks;  // CPU only
  const DataSheet* sheet = nullptr;    // null: none

  std::optional<double> sheet_peak(const std::string& precision) const {
    return sheet ? sheet->peak(precision) : std::nullopt;
  }
};

// say: gets the name of each measurement before it starts.
DeviceLimits measure_device_limits(const Device& device, const std::function<void(const std::string&)>& say);
// `measured` in crest devices --measure --json (docs/reference/contract.md).
nlohmann::ordered_json to_json(const DeviceLimits& limits);

}  // namespace crest
