// Large writes to the CPU's memory are shared by the threads: every byte arrives, nothing behind
// the last is touched.
#include "backend/cpu/runtime.h"

#include <gtest/gtest.h>

#include <cstdint>
#include <vector>

#include "backend/backend.h"

namespace crest {
namespace {

TEST(HostRuntime, WritesOfAnySizeArriveWhole) {
  Device device;
  device.threads = 3;
  std::unique_ptr<Runtime> runtime = make_host_runtime(device, nullptr);
  for (int64_t bytes : {int64_t(0), int64_t(1), int64_t(4) << 20, (int64_t(13) << 20) + 7}) {
    std::vector<uint8_t> from(size_t(bytes) + 1, 0xff), back(size_t(bytes) + 1, 0xee);
    for (int64_t i = 0; i < bytes; ++i) from[size_t(i)] = uint8_t(i * 2654435761u >> 13);
    auto* memory = static_cast<uint8_t*>(runtime->allocate(bytes + 1));
    runtime->write(memory, from.data(), bytes);
    EXPECT_EQ(memory[bytes], 0) << bytes;
    runtime->read(back.data(), memory, bytes);
    EXPECT_TRUE(std::equal(from.begin(), from.end() - 1, back.begin())) << bytes;
    runtime->release(memory, bytes + 1);
  }
}

}  // namespace
}  // namespace crest
