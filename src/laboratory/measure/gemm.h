// The matmul rate of the linear layers' kernel, used as the device limit in measure/ceilings.h.
#pragma once
#include <memory>
#include <string>
#include <vector>

#include "backend/backend.h"
#include "backend/product_detail.h"
#include "measure/ceilings.h"

namespace crest {

// trained: the kernel of training, Crest's or a library's. library: always cuBLASLt or oneDNN.
enum class LinearKernel { trained, library };

// Multiplies with a kernel of `linear` (x w^T, so preparing a problem transposes b, untimed).
// Returns an empty function if no kernel but the reference supports the type. detail: receives the
// kernel of the last prepared problem.
GemmFactory linear_kernel_factory(const Device& device, bool tf32 = false,
                                  std::shared_ptr<ProductDetail> detail = nullptr,
                                  LinearKernel which = LinearKernel::trained);

// A matmul in any precision of a data sheet. The linear layers' kernel computes it, or for fp64,
// fp8 and int8 the GPU's library.
struct PrecisionRate {
  std::string precision;
  std::string how;      // kernel or library
  std::string problem;  // why the device does not support it; "": it does
  GemmRate rate;
  ProductDetail detail = {};  // for the last size
};
PrecisionRate measure_precision(const Device& device, const std::string& precision, const std::vector<GemmSize>& sizes,
                                const StoppingRule& rule, LinearKernel which = LinearKernel::trained);
// Takes about a second, with sizes to suit the device.
PrecisionRate quick_precision_rate(const Device& device, const std::string& precision);

// Measures the rate in about a second, also for f16 and f32. flops_per_second = 0 if the type has
// no fast kernel.
GemmRate quick_gemm_rate(const Device& device, DType type, bool tf32 = false);

// Copy bandwidth of GPU memory (bytes read plus written), with the scale kernel over buffers far
// larger than the caches.
Bandwidth measure_device_copy(const Device& device);

// Bytes/s between a GPU and pinned host memory, one direction at a time.
struct HostLink {
  double to_device = 0, to_host = 0;
};
HostLink measure_host_link(const Device& device);

}  // namespace crest
