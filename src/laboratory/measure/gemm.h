// The matmul rate of the linear layers' kernel, used as the device limit in measure/ceilings.h.
#pragma once
#include <memory>
#include <string>
#include <vector>

#include "backend/backend.h"
#include "backend/product_detail.h"
#include "measure/ceilings.h"

namespace crest {

// trained: the kernel that training would choose, Crest's or a library's. library: cuBLASLt or
// oneDNN, whatever training would choose.
enum class LinearKernel { trained, library };

// Multiplies with a kernel of `linear` (x w^T, so preparing a problem transposes b, outside the
// measured time). An empty function where no kernel, or only the reference kernel, supports the
// type. detail: receives what computes the problem that was made last.
GemmFactory linear_kernel_factory(const Device& device, bool tf32 = false,
                                  std::shared_ptr<ProductDetail> detail = nullptr,
                                  LinearKernel which = LinearKernel::trained);

// A matmul in any precision of a data sheet: with the linear layers' kernel; fp64, fp8 and int8,
// which it does not support, with the GPU's library.
struct PrecisionRate {
  std::string precision;
  std::string how;      // with which kernel or library
  std::string problem;  // why this device does not support it; empty: it does
  GemmRate rate;
  ProductDetail detail = {};  // of the last of the sizes
};
PrecisionRate measure_precision(const Device& device, const std::string& precision, const std::vector<GemmSize>& sizes,
                                const StoppingRule& rule, LinearKernel which = LinearKernel::trained);
// Takes about a second, with sizes that suit the device.
PrecisionRate quick_precision_rate(const Device& device, const std::string& precision);

// Measures the rate in about a second; also f16 and f32. flops_per_second = 0 without a fast kernel
// for the type.
GemmRate quick_gemm_rate(const Device& device, DType type, bool tf32 = false);

// Copy bandwidth of GPU memory (bytes read plus bytes written), with the scale kernel over buffers
// far larger than the caches.
Bandwidth measure_device_copy(const Device& device);

// Bytes/s between a GPU and pinned memory of the host, one direction at a time.
struct HostLink {
  double to_device = 0, to_host = 0;
};
HostLink measure_host_link(const Device& device);

}  // namespace crest
