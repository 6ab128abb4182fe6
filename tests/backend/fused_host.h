// Builds the generated source of fused kernels as host code: CUDA's part comes from the emulator of
// the test program.
#pragma once
#include <string>
#include <vector>

#include "backend/cuda/device/platform.h"
#include "core/dtype.h"

#if !CREST_HAVE_CUDA

namespace crest::cuda {

// Callbacks of the built kernels; the same struct is in host_prelude.
struct HostDevice {
  uint3 *thread, *block;
  dim3 *block_dim, *grid_dim;
  void (*barrier)();
  float (*f16_to_float)(unsigned short);
  unsigned short (*float_to_f16)(float);
  unsigned short (*float_to_bf16)(float);
};

inline HostDevice host_device() {
  return {&threadIdx,
          &blockIdx,
          &blockDim,
          &gridDim,
          [] { __syncthreads(); },
          [](unsigned short x) { return to_float(float16{x}); },
          [](float x) { return to_float16(x).bits; },
          [](float x) { return to_bfloat16(x).bits; }};
}

inline const char* host_prelude = R"(
#include <math.h>
#include <string.h>
struct Index { unsigned x, y, z; };
struct HostDevice {
  Index *thread, *block, *block_dim, *grid_dim;
  void (*barrier)();
  float (*f16_to_float)(unsigned short);
  unsigned short (*float_to_f16)(float);
  unsigned short (*float_to_bf16)(float);
};
extern "C" { HostDevice device; }
#define threadIdx (*device.thread)
#define blockIdx (*device.block)
#define blockDim (*device.block_dim)
#define gridDim (*device.grid_dim)
#define __syncthreads() device.barrier()
#define __device__
#define __global__
#define __shared__ static
#define __forceinline__ inline
#define __launch_bounds__(...)
static void wait_for_predecessors() {}
static float __uint_as_float(unsigned x) { float y; memcpy(&y, &x, 4); return y; }
static unsigned __float_as_uint(float x) { unsigned y; memcpy(&y, &x, 4); return y; }
static float exp2_fast(float x) { return exp2f(x); }
static float reciprocal_fast(float x) { return 1.f / x; }
static float f16_to_float(unsigned short x) { return device.f16_to_float(x); }
static unsigned short float_to_f16(float x) { return device.float_to_f16(x); }
static unsigned short float_to_bf16(float x) { return device.float_to_bf16(x); }
static unsigned floats_to_f16(float a, float b) { return float_to_f16(a) | (unsigned)float_to_f16(b) << 16; }
static unsigned floats_to_bf16(float a, float b) { return float_to_bf16(a) | (unsigned)float_to_bf16(b) << 16; }
)";

// One file with the kernels of all sources; kernel i is vector_I(void** arguments) or scalar_I.
inline std::string host_source(const std::vector<std::string>& sources) {
  std::string text = host_prelude;
  for (size_t i = 0; i < sources.size(); ++i) {
    std::string number = std::to_string(i), source = sources[i];
    for (size_t at; (at = source.find("extern \"C\" ")) != std::string::npos;) source.erase(at, 11);
    text += "namespace body_" + number + " {\n" + source + "}\n";
    bool columns = source.find("float* partials") != std::string::npos;
    for (std::string kernel : {"vector", "scalar"}) {
      if (source.find("fused_" + kernel + "(") == std::string::npos) continue;
      text += "extern \"C\" void " + kernel + "_" + number + "(void** a) {\n  body_" + number + "::fused_" + kernel +
              "(*(body_" + number + "::Pointers*)a[0], ";
      text += columns ? "*(float**)a[1], *(long long*)a[2], *(long long*)a[3], *(long long*)a[4]);\n}\n"
                      : "*(long long*)a[1]);\n}\n";
    }
  }
  return text;
}

}  // namespace crest::cuda

#endif
