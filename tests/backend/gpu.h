// The GPU of tests with kernels: a real one if the
// build has kernels for it, else the emulation.
#pragma once
#include "device.h"

namespace crest::test {

inline Device gpu() {
#if CREST_HAVE_CUDA
  return test_device(1);
#else
  return emulated_gpu(1);
#endif
}

}  // namespace crest::test

#define NEEDS_GPU() \
  if (crest::test::gpu().kind != "cuda") GTEST_SKIP() << "CREST_TEST_DEVICE is not cuda"
