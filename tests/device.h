// The device that tests of whole Programs and runs use: the CPU, or what CREST_TEST_DEVICE names (cuda, emulated).
#pragma once
#include <cstdlib>

#include "plan/device.h"

namespace crest::test {

// The CPU as the class of processors that this process runs (CREST_ISA, else the machine's own).
inline Device this_cpu(int threads) { return cpu_device(active_isa(), threads); }

// The same without hardware for bf16.
inline Device cpu_without_bf16(int threads) {
  Device d = this_cpu(threads);
  d.native_bf16 = d.amx = false;
  return d;
}

// Matrix units whose work is done without them.
inline Device emulated_amx(int threads) {
  Device d = this_cpu(threads);
  d.native_bf16 = d.amx = d.emulated = true;
  return d;
}

inline Device test_device(int threads) {
  const char* name = std::getenv("CREST_TEST_DEVICE");
  return find_device(name ? name : "cpu", threads);
}

}  // namespace crest::test
