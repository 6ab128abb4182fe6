#include "backend/runtime.h"

#include <fmt/format.h>

#include <cstring>

#include "backend/cpu/cast.h"
#include "backend/cpu/runtime.h"
#include "comm/local.h"
#include "core/error.h"
#include "device/communicators.h"
#include "device/find.h"
#include "host/isa.h"
#if CREST_HAVE_CUDA
#include "backend/cuda/runtime.h"
#include "backend/cuda/shared_gpu.h"
#endif

namespace crest {

std::unique_ptr<Runtime> make_runtime(const Device& device, const MeshGroups* groups,
                                      [[maybe_unused]] const RuntimeOptions& options) {
  check_here(device);
  if (device.kind == "cpu" && (device.isa != name(active_isa()) || active_isa() > best_isa()))
    throw Error(Exit::no_device,
                fmt::format("this machine does not support {}: you can plan for it, but not run on it", device.isa),
                "environment variable CREST_ISA", fmt::format("Unset it; this machine supports {}.", name(best_isa())));
  if (device.kind == "cpu" || device.emulated) return make_host_runtime(device, groups);
#if CREST_HAVE_CUDA
  if (device.kind == "cuda") return cuda::make_runtime(device, groups, options);
#endif
  throw Error(Exit::no_device, fmt::format("this build cannot run on '{}'", device.kind), "--device",
              "Use --device cpu, or build with the CUDA toolkit (docs/how-to/gpu.md).");
}

std::vector<std::unique_ptr<Communicator>> make_thread_communicators(int ranks, [[maybe_unused]] const Device& device) {
#if CREST_HAVE_CUDA
  if (device.kind == "cuda" && !device.emulated) return cuda::make_shared_gpu_communicators(ranks, device);
#endif
  return make_local_communicators(ranks);
}

std::vector<float> TensorRef::floats(int64_t count) const {
  int64_t n = count < 0 ? shape.numel() : count;
  std::vector<float> out(static_cast<size_t>(n));
  if (dtype == DType::f32) {
    read(out.data(), n * 4);
    return out;
  }
  std::vector<char> raw(size_t(n) * size_of(dtype));
  read(raw.data(), int64_t(raw.size()));
  if (is_half(dtype)) {
    cpu::convert_rows(out.data(), DType::f32, n, raw.data(), dtype, n, 1, n, 1);
    return out;
  }
#pragma omp parallel for
  for (int64_t i = 0; i < n; ++i) out[size_t(i)] = float(load_element(raw.data(), dtype, i));
  return out;
}

void TensorRef::set_floats(const float* from, int64_t count) const {
  if (dtype == DType::f32) {
    write(from, count * 4);
  } else {
    std::vector<char> raw(size_t(count) * size_of(dtype));
#pragma omp parallel for
    for (int64_t i = 0; i < count; ++i) store_element(raw.data(), dtype, i, from[i]);
    write(raw.data(), int64_t(raw.size()));
  }
  int64_t done = count * int64_t(size_of(dtype));
  if (done < bytes()) runtime->zero(static_cast<char*>(data) + done, bytes() - done);
}

}  // namespace crest
