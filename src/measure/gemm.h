// The rate at which the linear layers' own kernel multiplies: what measure/ceilings.h takes as the device's limit.
#pragma once
#include <string>
#include <vector>

#include "backend/backend.h"
#include "measure/ceilings.h"

namespace crest {

// Multiplies with the kernel that training would choose for `linear` (x w^T, so b is transposed when a problem is
// prepared, outside the measured time). An empty function where only the reference kernel takes the type.
GemmFactory linear_kernel_factory(const Device& device, bool tf32 = false);

// A product in any precision of a data sheet: by the linear layers' kernel, and fp64, fp8 and int8, which have none, by
// the GPU's library.
struct PrecisionRate {
  std::string precision;
  std::string how;      // by what
  std::string problem;  // why this device cannot; empty: it can
  GemmRate rate;
};
PrecisionRate measure_precision(const Device& device, const std::string& precision, const std::vector<GemmSize>& sizes,
                                const StoppingRule& rule);
// In about a second, of sizes that suit the device.
PrecisionRate quick_precision_rate(const Device& device, const std::string& precision);

// The measured rate in about a second; for f16 and f32 too. flops_per_second = 0 when no fast kernel takes the type.
GemmRate quick_gemm_rate(const Device& device, DType type, bool tf32 = false);

// Copy bandwidth of a GPU's memory (bytes read plus bytes written), by the scale kernel over buffers far larger than
// its caches.
Bandwidth measure_device_copy(const Device& device);

}  // namespace crest
