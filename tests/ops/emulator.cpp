// The emulation for tests of CUDA kernels: it must compute like CUDA, and find the promised
// mistakes.
#if !CREST_HAVE_CUDA
#include "backend/cuda/device/emulator.h"

#include <gtest/gtest.h>

#include <functional>
#include <string>
#include <vector>

#include "backend/cuda/device/numeric.h"
#include "backend/cuda/kernel.h"
#include "core/error.h"
#include "program/op.h"

namespace crest::cuda {
namespace {

void launch(dim3 grid, dim3 block, size_t shared, const std::function<void()>& body) {
  emulator::run(grid, block, shared, body);
}

void expect_error(const std::string& expected, unsigned threads, const std::function<void()>& body) {
  try {
    launch(2, threads, 64, body);
    ADD_FAILURE() << "no error; expected: " << expected;
  } catch (const Error& e) {
    EXPECT_NE(std::string(e.what()).find(expected), std::string::npos) << e.what();
  }
}

TEST(Emulator, IndicesCoverTheGrid) {
  std::vector<int> seen(2 * 3 * 2 * 8 * 3 * 2);
  launch({2, 3, 2}, {8, 3, 2}, 0, [&] {
    unsigned b = (blockIdx.z * gridDim.y + blockIdx.y) * gridDim.x + blockIdx.x;
    unsigned t = (threadIdx.z * blockDim.y + threadIdx.y) * blockDim.x + threadIdx.x;
    seen[b * 48 + t]++;
  });
  for (int n : seen) EXPECT_EQ(n, 1);
}

TEST(Emulator, BlockSumsAndBarriers) {
  for (unsigned order = 0; order < 3; ++order) {
    emulator::set_order(order);
    std::vector<float> sums(3 * 256), largest(3 * 256);
    launch(3, 256, 256 * sizeof(int), [&] {
      CREST_DYNAMIC_SHARED(int, shared);
      unsigned i = blockIdx.x * 256 + threadIdx.x;
      shared[threadIdx.x] = int(threadIdx.x);
      __syncthreads();
      int neighbor = shared[(threadIdx.x + 1) % 256];
      for (int repeat = 0; repeat < 3; ++repeat) sums[i] = block_sum<256>(float(neighbor));
      largest[i] = block_max<256>(float(neighbor) + float(blockIdx.x));
    });
    for (unsigned i = 0; i < 3 * 256; ++i) {
      EXPECT_EQ(sums[i], 255 * 128);
      EXPECT_EQ(largest[i], float(255 + i / 256));
    }
  }
  emulator::set_order(0);
}

TEST(Emulator, WarpOperations) {
  launch(1, 64, 0, [&] {
    int lane = int(threadIdx.x % 32);
    EXPECT_EQ(__shfl_sync(~0u, lane, 5), 5);
    EXPECT_EQ(__shfl_sync(~0u, lane, 2, 8), lane / 8 * 8 + 2);
    EXPECT_EQ(__shfl_up_sync(~0u, lane, 3), lane < 3 ? lane : lane - 3);
    EXPECT_EQ(__shfl_down_sync(~0u, double(lane), 3, 16), lane % 16 + 3 < 16 ? lane + 3 : lane);
    EXPECT_EQ(__shfl_xor_sync(~0u, 1ll << lane, 16), 1ll << (lane ^ 16));
    EXPECT_EQ(__ballot_sync(~0u, lane % 2), 0xaaaaaaaau);
    EXPECT_EQ(__any_sync(~0u, lane == 7), 1);
    EXPECT_EQ(__all_sync(~0u, lane != 7), 0);
    EXPECT_EQ(__match_any_sync(~0u, lane % 4), 0x11111111u << lane % 4);
    if (lane < 16) {
      EXPECT_EQ(__shfl_xor_sync(0xffffu, float(lane), 1), float(lane ^ 1));
    }
    __syncwarp();
    EXPECT_EQ(__syncthreads_count(threadIdx.x < 40), 40);
    EXPECT_EQ(__syncthreads_and(threadIdx.x < 40), 0);
    EXPECT_EQ(__syncthreads_or(threadIdx.x == 40), 1);
  });
}

struct Lane {
  unsigned number;
  unsigned* seen;
};
void show_next(const void* const* given) {
  auto lane = [&](unsigned l) { return static_cast<const Lane*>(given[l % 32]); };
  for (unsigned l = 0; l < 32; ++l) *lane(l)->seen = lane(l + 1)->number;
}
void show_none(const void* const*) {}

TEST(Emulator, TheLastLaneWorksForItsWarp) {
  launch(2, 64, 0, [&] {
    for (unsigned repeat = 0; repeat < 3; ++repeat) {
      unsigned seen = 0;
      Lane mine = {threadIdx.x + repeat, &seen};
      emulator::together(&mine, show_next, {"show_next", __FILE__, 0});
      EXPECT_EQ(seen, threadIdx.x / 32 * 32 + (threadIdx.x + 1) % 32 + repeat);
    }
  });
  expect_error("of the same warp and mask is at show_", 32, [] {
    emulator::together(nullptr, threadIdx.x ? show_none : show_next, {"show_", __FILE__, 0});
  });
}

TEST(Emulator, BitsAndAtomics) {
  EXPECT_EQ(__byte_perm(0x33221100, 0x77665544, 0x7410), 0x77441100u);
  EXPECT_EQ(__brev(1), 0x80000000u);
  EXPECT_EQ(__clz(1), 31);
  EXPECT_EQ(__umulhi(0x80000000u, 6), 3u);
  EXPECT_EQ(__funnelshift_l(0x80000000u, 1, 1), 3u);
  EXPECT_EQ(min(3, 4u), 3u);
  EXPECT_EQ(max(1.5f, NAN), 1.5f);
  int sum = 0, largest = 0;
  unsigned ticket = 0;
  launch(4, 96, 0, [&] {
    atomicAdd(&sum, int(threadIdx.x));
    atomicMax(&largest, int(threadIdx.x * blockIdx.x));
    atomicInc(&ticket, 99);
  });
  EXPECT_EQ(sum, 4 * 95 * 48);
  EXPECT_EQ(largest, 95 * 3);
  EXPECT_EQ(ticket, 84u);
}

TEST(Emulator, SharedMemoryIsPoisoned) {
  launch(2, 32, 128, [&] {
    CREST_DYNAMIC_SHARED(float, shared);
    EXPECT_TRUE(isnan(shared[threadIdx.x]));
    __syncthreads();
    shared[threadIdx.x] = 1;
  });
}

// Without the barrier the value of a later thread is missing.
TEST(Emulator, ShowsAMissingBarrier) {
  for (unsigned order = 0; order < 3; ++order) {
    emulator::set_order(order);
    int wrong = 0;
    launch(1, 64, 256, [&] {
      CREST_DYNAMIC_SHARED(int, shared);
      shared[threadIdx.x] = int(threadIdx.x);
      wrong += shared[threadIdx.x ^ 32] != int(threadIdx.x ^ 32);
    });
    EXPECT_GT(wrong, 0);
  }
  emulator::set_order(0);
}

TEST(Emulator, ThreadsMayReturnBeforeABarrier) {
  int after = 0;
  launch(1, 96, 0, [&] {
    if (threadIdx.x >= 50) return;
    __syncthreads();
    ++after;
  });
  EXPECT_EQ(after, 50);
}

__global__ void waits_first(int n, int* out) {
  wait_for_predecessors();
  if (int(threadIdx.x) < n) out[blockIdx.x] += 1;
}
__global__ void waits_in_some_threads(int n, int* out) {
  if (int(threadIdx.x) >= n) return;
  wait_for_predecessors();
  out[blockIdx.x] += 1;
}

// tests/backend/launch_source.cpp reads the source of all kernels; a launch counts.
TEST(Emulator, EveryThreadOfAKernelWaitsForItsPredecessors) {
  Program program;
  Instr instr;
  instr.op = &op("gelu");
  KernelCall call{program, instr, nullptr, nullptr, nullptr, nullptr, 1, nullptr};
  int out[2] = {};
  cuda::launch(call, waits_first, 2, 64, 0, 40, out);
  EXPECT_EQ(out[1], 40);
  cuda::launch(call, waits_in_some_threads, 2, 64, 0, 64, out);
  EXPECT_THROW(cuda::launch(call, waits_in_some_threads, 2, 64, 0, 40, out), Error);
}

TEST(Emulator, ReportsMisuse) {
  expect_error("is at __syncthreads (emulator.cpp:", 64, [] {
    if (threadIdx.x < 32)
      __syncthreads();
    else
      __syncthreads();
  });
  expect_error("deadlock: thread (0,0,0) of block (0,0,0) waits at __syncthreads", 64, [] {
    if (threadIdx.x < 16)
      __syncthreads();
    else
      __syncwarp();
  });
  expect_error("which have returned or are beyond the block", 48, [] { __syncwarp(); });
  expect_error("waits for it at __shfl_sync", 32, [] {
    if (threadIdx.x < 31) __shfl_sync(~0u, 1, 0);
  });
  expect_error("is not in its own mask", 32, [] { __ballot_sync(0xffffu, 1); });
  expect_error("of the same warp and mask is at __ballot_sync", 32, [] {
    if (threadIdx.x < 16)
      __ballot_sync(~0u, 1);
    else
      __any_sync(~0u, 1);
  });
  expect_error("not a multiple of 16", 32, [] {
    alignas(16) static float x[8] = {};
    load_vec<4>(x + 1);
  });
  expect_error("refuses to launch", 1025, [] {});
  launch(1, 64, 0, [] { __syncthreads(); });  // usable after errors
}

}  // namespace
}  // namespace crest::cuda
#endif
