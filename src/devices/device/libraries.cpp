#include "device/libraries.h"

#include <dlfcn.h>
#include <fmt/format.h>
#include <oneapi/dnnl/dnnl.h>
#include <utf8proc.h>

#include <map>

#include "backend/cuda/discover.h"
#include "backend/cuda/nvml.h"

namespace crest {

namespace {

using States = std::vector<LibraryState>;

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

// The file with this function.
std::string path_of(void* function) {
  Dl_info info;
  return dladdr(function, &info) && info.dli_fname ? info.dli_fname : "";
}

void add_cuda(States& states) {
  auto cuda_version = [](int v) { return fmt::format("{}.{}", v / 1000, v % 1000 / 10); };
  cuda::Found found = cuda::find_devices();
  if (std::string driver = cuda::Nvml::instance().driver_version(); !driver.empty())
    states.push_back({"NVIDIA driver", driver});
  if (found.driver) states.push_back({"CUDA driver", cuda_version(found.driver)});
  if (found.runtime) states.push_back({"CUDA runtime", cuda_version(found.runtime)});
  for (auto& used : cuda::used_libraries())
    states.push_back({used.name, version_of(used), used.library.path,
                      used.library.handle ? "" : install_command(used.name, found.runtime / 1000)});
}

}  // namespace

std::string install_command(const std::string& name, int cuda_major) {
  static const std::map<std::string, std::string> packages = {
      {"cuBLASLt", "nvidia-cublas"}, {"cuDNN", "nvidia-cudnn"}, {"NVRTC", "nvidia-cuda-nvrtc"}};
  auto package = packages.find(name);
  if (package == packages.end() || cuda_major < 12) return "";
  // Since CUDA 13 the names of the toolkit's own libraries have no version.
  bool suffix = cuda_major < 13 || name == "cuDNN";
  return fmt::format("pip install {}{}", package->second, suffix ? fmt::format("-cu{}", cuda_major) : "");
}

States library_states(const Device& device) {
  const dnnl_version_t* d = dnnl_version();
  States states = {{"oneDNN", fmt::format("{}.{}.{}", d->major, d->minor, d->patch),
                    path_of(reinterpret_cast<void*>(&dnnl_version))},
                   {"utf8proc", utf8proc_version(), path_of(reinterpret_cast<void*>(&utf8proc_version))}};
  if (device.kind == "cuda" && !device.described) add_cuda(states);
  return states;
}

std::vector<std::pair<std::string, std::string>> library_versions(const Device& device) {
  std::vector<std::pair<std::string, std::string>> versions;
  for (auto& l : library_states(device)) versions.emplace_back(l.name, l.version);
  return versions;
}

}  // namespace crest
