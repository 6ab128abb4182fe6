#include "backend/cuda/discover.h"

#include <fmt/format.h>

#include <algorithm>

#include "backend/cuda/loader.h"
#ifdef CREST_HAVE_CUDA
#include <cuda_runtime.h>
#endif

namespace crest::cuda {

namespace {

// What Crest keeps free for the context, code, library handles and graphs when it plans against the free memory.
constexpr int64_t reserve = int64_t(768) << 20;

#ifdef CREST_HAVE_CUDA
std::string version(int v) { return fmt::format("{}.{}", v / 1000, v % 1000 / 10); }

Device describe(int index) {
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
  auto find = [&](const char* stem, int major, const char* instead) {
    const Library& l = library(stem, major);
    if (!l.handle) d.note += fmt::format("{}{} ({})", d.note.empty() ? "" : "\n", l.problem, instead);
    return l.handle != nullptr;
  };
  d.cublaslt = find("cublasLt", 13, "matrix products run on Crest's own kernels, which are many times slower");
  d.cudnn = find("cudnn", 9, "attention runs on Crest's own kernels");
  d.nvrtc = find("nvrtc", 13, "fused instructions are interpreted, which is slower");
  return d;
}
#endif

}  // namespace

#ifdef CREST_HAVE_CUDA
Found find_devices() {
  Found out;
  out.runtime = CUDART_VERSION;
  cudaDriverGetVersion(&out.driver);
  int count = 0;
  cudaError_t code = cudaGetDeviceCount(&count);
  if (out.driver == 0) {
    out.problem = "no NVIDIA driver is loaded (libcuda.so.1)";
    out.advice = "Install the NVIDIA driver, or use --device cpu.";
  } else if (code == cudaErrorInsufficientDriver || out.driver < CUDART_VERSION / 1000 * 1000) {
    out.problem = fmt::format("the NVIDIA driver is too old: it supports CUDA {}, this build needs {}",
                              version(out.driver), version(CUDART_VERSION));
    out.advice = "Update the driver, build Crest with an older CUDA toolkit, or use --device cpu.";
  } else if (code != cudaSuccess || count == 0) {
    out.problem = fmt::format("CUDA finds no GPU ({})", cudaGetErrorString(code));
    out.advice = "See nvidia-smi and CUDA_VISIBLE_DEVICES, or use --device cpu.";
  } else {
    for (int i = 0; i < count; ++i) out.devices.push_back(describe(i));
  }
  return out;
}

int64_t free_memory(int index) {
  size_t free = 0, total = 0;
  if (cudaSetDevice(index) != cudaSuccess || cudaMemGetInfo(&free, &total) != cudaSuccess) return 0;
  return int64_t(free);
}
#else
int64_t free_memory(int) { return 0; }

Found find_devices() {
  Found out;
  out.problem = "this build of Crest has no CUDA backend (no nvcc was found when it was built)";
  out.advice = "Use --device cpu, or build with the CUDA toolkit (docs/gpu.md).";
  return out;
}
#endif

int64_t usable_memory(int index) { return std::max<int64_t>(0, free_memory(index) - reserve); }

Device describe_h200() {
  Device d;
  d.kind = "cuda";
  d.name = "NVIDIA H200 (described)";
  d.isa = "sm_90";
  d.sm = 90;
  d.multiprocessors = 132;
  d.shared_per_block = 232448;
  d.native_bf16 = true;
  d.cublaslt = d.cudnn = d.nvrtc = true;
  d.described = true;
  d.total_memory = int64_t(143771) << 20;
  d.memory = d.total_memory - reserve;
  return d;
}

}  // namespace crest::cuda
