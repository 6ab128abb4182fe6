#include "backend/cuda/discover.h"

#include <fmt/format.h>

#include <algorithm>
#include <charconv>

#include "backend/cuda/cublaslt.h"
#include "backend/cuda/nvml.h"
#include "backend/cuda/nvrtc.h"
#include "core/text.h"
#if CREST_HAVE_CUDA
#include <cuda_runtime.h>
#endif

namespace crest::cuda {

namespace {

std::string version(int v) { return fmt::format("{}.{}", v / 1000, v % 1000 / 10); }

// "90a" is for 9.0 only; others have a number alone.
struct Arch {
  int sm = 0;
  bool portable = false;
};
std::vector<Arch> parse_archs(std::string_view archs) {
  std::vector<Arch> list;
  for (auto& text : split(archs, ',')) {
    Arch a;
    auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), a.sm);
    a.portable = error == std::errc() && end == text.data() + text.size();
    list.push_back(a);
  }
  return list;
}

std::string capability(int sm) { return fmt::format("{}.{}", sm / 10, sm % 10); }

}  // namespace

Found judge(const DriverAnswer& a) {
  Found out;
  out.driver = a.driver, out.runtime = a.runtime;
  if (a.driver == 0) {
    out.problem = "no NVIDIA driver is loaded (libcuda.so.1)";
    out.advice = "Install the NVIDIA driver (a container must be started with its GPUs), or use --device cpu.";
  } else if (a.driver < a.runtime / 1000 * 1000) {
    out.outdated = true;
    out.problem = fmt::format("the NVIDIA driver is too old: it supports CUDA {}, this build needs {}",
                              version(a.driver), version(a.runtime / 1000 * 1000));
    out.advice = "Update the driver, build Crest with an older CUDA toolkit, or use --device cpu.";
  } else if (!a.error.empty() || a.devices == 0) {
    out.problem = fmt::format("CUDA finds no GPU ({})", a.error.empty() ? "it counts none" : a.error);
    out.advice = "See nvidia-smi and CUDA_VISIBLE_DEVICES, or use --device cpu.";
  }
  return out;
}

std::string no_code_for(int sm, std::string_view archs) {
  std::vector<std::string> names;
  int oldest = 0;  // its PTX runs on all newer ones
  for (const Arch& a : parse_archs(archs)) {
    if (a.sm == sm) return "";
    if (a.portable && (oldest == 0 || a.sm < oldest)) oldest = a.sm;
    names.push_back(capability(a.sm));
  }
  if (oldest && oldest < sm) return "";
  return fmt::format("its compute capability is {}, this build has kernels for {}", capability(sm), join(names, ", "));
}

std::string ptx_note(int sm, std::string_view archs) {
  if (!no_code_for(sm, archs).empty()) return "";
  for (const Arch& a : parse_archs(archs))  // kernels also run on later GPUs of a major version
    if (a.sm == sm || (a.portable && a.sm / 10 == sm / 10 && a.sm < sm)) return "";
  return fmt::format(
      "this build has no kernels for compute capability {}: the driver compiles kernels of an older one at the first "
      "start, which takes longer, and they may be slower",
      capability(sm));
}

std::vector<UsedLibrary> used_libraries() {
  return {{"cuBLASLt", cublaslt_library(), "matrix products run on Crest's own kernels, which are many times slower"},
          {"cuDNN", library("cudnn", 9), "attention runs on Crest's own kernels"},
          {"NVRTC", nvrtc_library(), "fused instructions are interpreted, which is slower"}};
}

std::string note_of(const std::vector<UsedLibrary>& libraries) {
  std::vector<std::string> lines;
  for (auto& l : libraries)
    if (!l.library.handle) lines.push_back(fmt::format("{} is missing: {}. {}", l.name, l.without, l.library.problem));
  return join(lines, "\n");
}

#if CREST_HAVE_CUDA
static Device describe(int index, const std::vector<UsedLibrary>& libraries) {
  Device d;
  d.kind = "cuda";
  d.index = index;
  cudaDeviceProp p;
  if (cudaGetDeviceProperties(&p, index) != cudaSuccess) return d;
  d.name = p.name;
  d.sm = p.major * 10 + p.minor;
  d.multiprocessors = p.multiProcessorCount;
  d.shared_per_block = int64_t(p.sharedMemPerBlockOptin);
  d.native_bf16 = d.sm >= 80;
  d.total_memory = int64_t(p.totalGlobalMem);
  d.isa = fmt::format("sm_{}", d.sm);
  d.cublaslt = libraries[0].library.handle, d.cudnn = libraries[1].library.handle,
  d.nvrtc = libraries[2].library.handle;
  const std::string of_code = ptx_note(d.sm, CREST_CUDA_ARCHS), of_libraries = note_of(libraries);
  d.note = of_code + (of_code.empty() || of_libraries.empty() ? "" : "\n") + of_libraries;
  return d;
}

Found find_devices() {
  DriverAnswer a;
  a.runtime = CUDART_VERSION;
  cudaDriverGetVersion(&a.driver);
  if (cudaError_t code = cudaGetDeviceCount(&a.devices); code != cudaSuccess) a.error = cudaGetErrorString(code);
  Found out = judge(a);
  if (!out.problem.empty()) return out;
  std::vector<UsedLibrary> libraries = used_libraries();
  for (int i = 0; i < a.devices; ++i) out.devices.push_back(describe(i, libraries));
  return out;
}

std::string reject_device(const Device& device) { return no_code_for(device.sm, CREST_CUDA_ARCHS); }

bool compiled_for(std::string_view arch) {
  std::vector<std::string> archs = split(CREST_CUDA_ARCHS, ',');
  return std::find(archs.begin(), archs.end(), arch) != archs.end();
}

int64_t free_memory(int index) {
  size_t free = 0, total = 0;
  if (cudaSetDevice(index) != cudaSuccess || cudaMemGetInfo(&free, &total) != cudaSuccess) return 0;
  return int64_t(free);
}

std::string identity(int index) {
  cudaDeviceProp p;
  if (cudaGetDeviceProperties(&p, index) != cudaSuccess) return fmt::format("GPU {}", index);
  std::string text;
  for (char c : p.uuid.bytes) text += fmt::format("{:02x}", uint8_t(c));
  return text;
}
#else
int64_t free_memory(int) { return 0; }

std::string identity(int index) { return fmt::format("GPU {}", index); }

std::string reject_device(const Device&) { return ""; }

bool compiled_for(std::string_view) { return true; }

Found find_devices() {
  Found out;
  out.problem = "this build of Crest has no CUDA backend (it was made without nvcc, or for a machine without a GPU)";
  out.advice = "Use --device cpu, or build Crest on a GPU machine with the CUDA toolkit (docs/how-to/gpu.md).";
  return out;
}
#endif

int64_t usable_memory(int index) {
  int64_t free = 0;
  watch_context(index, [&] { free = free_memory(index); });
  return std::max<int64_t>(0, free - reserved_memory);
}

}  // namespace crest::cuda
