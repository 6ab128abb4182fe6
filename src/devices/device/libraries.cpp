#include "device/libraries.h"

#include <dlfcn.h>
#include <fmt/format.h>
#include <oneapi/dnnl/dnnl.h>
#include <utf8proc.h>

#include "backend/cuda/discover.h"
#include "backend/cuda/nvml.h"

namespace crest {

namespace {

using Versions = std::vector<std::pair<std::string, std::string>>;

// 130200 -> "13.2.0": the encoding of cuBLASLt and cuDNN 9.
std::string packed_version(size_t v) { return fmt::format("{}.{}.{}", v / 10000, v % 10000 / 100, v % 100); }

std::string version_of(const cuda::UsedLibrary& used) {
  void* handle = used.library.handle;
  if (!handle) return "missing";
  if (auto cublaslt = reinterpret_cast<size_t (*)()>(dlsym(handle, "cublasLtGetVersion")))
    return packed_version(cublaslt());
  if (auto cudnn = reinterpret_cast<size_t (*)()>(dlsym(handle, "cudnnGetVersion"))) return packed_version(cudnn());
  int major = 0, minor = 0;
  if (auto nvrtc = reinterpret_cast<int (*)(int*, int*)>(dlsym(handle, "nvrtcVersion"));
      nvrtc && !nvrtc(&major, &minor))
    return fmt::format("{}.{}", major, minor);
  return "unknown";
}

void add_cuda(Versions& versions) {
  auto cuda_version = [](int v) { return fmt::format("{}.{}", v / 1000, v % 1000 / 10); };
  cuda::Found found = cuda::find_devices();
  if (std::string driver = cuda::Nvml::instance().driver_version(); !driver.empty())
    versions.emplace_back("NVIDIA driver", driver);
  if (found.driver) versions.emplace_back("CUDA driver", cuda_version(found.driver));
  if (found.runtime) versions.emplace_back("CUDA runtime", cuda_version(found.runtime));
  for (auto& used : cuda::used_libraries()) versions.emplace_back(used.name, version_of(used));
}

}  // namespace

Versions library_versions(const Device& device) {
  const dnnl_version_t* d = dnnl_version();
  Versions versions = {{"oneDNN", fmt::format("{}.{}.{}", d->major, d->minor, d->patch)},
                       {"utf8proc", utf8proc_version()}};
  if (device.kind == "cuda" && !device.described) add_cuda(versions);
  return versions;
}

}  // namespace crest
