// The time of an instruction by its roofline: a lower bound, for choices made before anything runs.
#pragma once
#include <functional>
#include <string>

#include "backend/backend.h"

namespace crest {

// Rates of devices without a data sheet, per second. Only their ratios matter.
struct AssumedRates {
  double flops, bytes;
};
AssumedRates assumed_rates(const Device& device);

struct RooflineTimes {
  // Seconds of an instruction. Copies between host and device memory take none: they have a link.
  std::function<double(const Program&, const Instr&)> seconds;
  double host_link = 0;  // bytes/s of the link to host memory in one direction
};
// By the data sheet of the device's model, if Crest has one, else at assumed rates and PCIe 4.0
// x16. A CPU's two memories are one: a copy reads and writes it.
RooflineTimes roofline_of(const Device& device);

}  // namespace crest
