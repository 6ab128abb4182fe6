// Devices of tests. test_device() is the CPU, or CREST_TEST_DEVICE: cuda, or emulated, a GPU with
// kernels on the host (in a build without CUDA).
#pragma once
#include <cstdlib>

#include "device/find.h"

namespace crest::test {

// The CPU as the class of this process (CREST_ISA, else the machine's own).
inline Device this_cpu(int threads) { return cpu_device(active_isa(), threads); }

// The same without hardware for bf16.
inline Device cpu_without_bf16(int threads) {
  Device d = this_cpu(threads);
  d.native_bf16 = d.amx = false;
  return d;
}

// Emulated matrix units.
inline Device emulated_amx(int threads) {
  Device d = this_cpu(threads);
  d.native_bf16 = d.amx = d.emulated = true;
  return d;
}

// An H100 or H200 as far as kernels ask, with four multiprocessors; its kernels run on the host
// (device/emulator.h).
inline Device emulated_gpu(int threads) {
  Device d;
  d.kind = "cuda", d.name = "emulated GPU", d.isa = "sm_90", d.emulated = true;
  d.threads = threads, d.memory = int64_t(1) << 30, d.native_bf16 = true;
  d.sm = 90, d.multiprocessors = 4, d.shared_per_block = 232448;
  return d;
}

inline Device test_device(int threads) {
  const char* set = std::getenv("CREST_TEST_DEVICE");
  std::string name = set ? set : "cpu";
  return name == "emulated" ? emulated_gpu(threads) : find_device(name, threads);
}

}  // namespace crest::test
