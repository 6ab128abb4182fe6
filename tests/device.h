// The device that tests of whole Programs and runs use: the CPU, or what CREST_TEST_DEVICE names (cuda, emulated).
#pragma once
#include <cstdlib>

#include "plan/device.h"

namespace crest::test {

inline Device test_device(int threads) {
  const char* name = std::getenv("CREST_TEST_DEVICE");
  return find_device(name ? name : "cpu", threads);
}

}  // namespace crest::test
