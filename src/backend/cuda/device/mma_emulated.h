// The host's side of mma.h. Copies are done at the wait, as late as the device may do them, so that a missing wait
// shows.
#pragma once
#include <vector>

#include "backend/cuda/device/numeric.h"

namespace crest::cuda {

using SharedAddress = uintptr_t;
inline SharedAddress shared_address(const void* p) { return reinterpret_cast<SharedAddress>(p); }

namespace emulator {

// Copies of one thread of the block that runs, oldest first; ends: where its groups end.
struct PendingCopies {
  struct Copy {
    void* to;
    const void* from;  // null: zeros
    int bytes;
  };
  unsigned block = ~0u;
  std::vector<Copy> copies;
  std::vector<size_t> ends;
};

inline PendingCopies& pending_copies() {
  static std::vector<PendingCopies> threads(1024);
  unsigned block = blockIdx.x + gridDim.x * (blockIdx.y + gridDim.y * blockIdx.z);
  PendingCopies& mine = threads[threadIdx.x + blockDim.x * (threadIdx.y + blockDim.y * threadIdx.z)];
  if (mine.block != block) mine = {block, {}, {}};  // a block that ended without waiting
  return mine;
}

// The value of another lane's variable, all lanes giving theirs.
template <class T>
T of_lane(const T& mine, int lane) {
  return __shfl_sync(0xffffffffu, mine, lane);
}

inline int lane_id() { return int(lane()); }

// Element `column` of a row of 16-bit numbers.
inline uint32_t element16(uint64_t row, int column) { return reinterpret_cast<const uint16_t*>(row)[column]; }

}  // namespace emulator

template <int Bytes>
void copy_async(SharedAddress to, const void* from, bool valid) {
  emulator::require_aligned(reinterpret_cast<void*>(to), Bytes);
  if (valid) emulator::require_aligned(from, Bytes);
  emulator::pending_copies().copies.push_back({reinterpret_cast<void*>(to), valid ? from : nullptr, Bytes});
}
inline void copy_commit() {
  auto& p = emulator::pending_copies();
  p.ends.push_back(p.copies.size());
}
template <int Pending>
void copy_wait() {
  auto& p = emulator::pending_copies();
  if (p.ends.size() <= Pending) return;
  size_t groups = p.ends.size() - Pending, done = p.ends[groups - 1];
  for (size_t i = 0; i < done; ++i)
    if (const auto& c = p.copies[i]; c.from)
      std::memcpy(c.to, c.from, size_t(c.bytes));
    else
      std::memset(c.to, 0, size_t(c.bytes));
  p.copies.erase(p.copies.begin(), p.copies.begin() + std::ptrdiff_t(done));
  p.ends.erase(p.ends.begin(), p.ends.begin() + std::ptrdiff_t(groups));
  for (size_t& end : p.ends) end -= done;
}

inline void load_matrices(uint32_t (&r)[4], SharedAddress row) {
  emulator::require_aligned(reinterpret_cast<void*>(row), 16);
  int g = emulator::lane_id() / 4, t = emulator::lane_id() % 4;
  for (int i = 0; i < 4; ++i) {
    uint64_t from = emulator::of_lane(uint64_t(row), 8 * i + g);
    r[i] = emulator::element16(from, 2 * t) | emulator::element16(from, 2 * t + 1) << 16;
  }
}
inline void load_matrices_transposed(uint32_t (&r)[4], SharedAddress row) {
  emulator::require_aligned(reinterpret_cast<void*>(row), 16);
  int g = emulator::lane_id() / 4, t = emulator::lane_id() % 4;
  for (int i = 0; i < 4; ++i) {
    uint64_t low = emulator::of_lane(uint64_t(row), 8 * i + 2 * t);
    uint64_t high = emulator::of_lane(uint64_t(row), 8 * i + 2 * t + 1);
    r[i] = emulator::element16(low, g) | emulator::element16(high, g) << 16;
  }
}

template <class T>
void multiply_add(float (&c)[4], const uint32_t (&a)[4], uint32_t b0, uint32_t b1) {
  // The lanes' registers, by address: they stay where they are until all have read them.
  const uint32_t b[2] = {b0, b1};
  auto registers = [](const uint32_t* mine, int lane) {
    return reinterpret_cast<const uint32_t*>(emulator::of_lane(uint64_t(reinterpret_cast<uintptr_t>(mine)), lane));
  };
  auto element = [](uint32_t pair, int half) {
    auto bits = uint16_t(half ? pair >> 16 : pair);
    return widen(T{bits});
  };
  int g = emulator::lane_id() / 4, t = emulator::lane_id() % 4;
  const uint32_t *row[4], *column[2][4];
  for (int i = 0; i < 4; ++i) row[i] = registers(a, 4 * g + i);
  for (int n = 0; n < 2; ++n)
    for (int i = 0; i < 4; ++i) column[n][i] = registers(b, 4 * (2 * t + n) + i);
  float sum[4];
  for (int e = 0; e < 4; ++e) {
    sum[e] = c[e];
    int lower = e / 2, n = e % 2;
    for (int k = 0; k < 16; ++k) {
      int owner = k % 8 / 2, upper = k / 8;
      sum[e] += element(row[owner][2 * upper + lower], k % 2) * element(column[n][owner][upper], k % 2);
    }
  }
  __syncwarp();
  for (int e = 0; e < 4; ++e) c[e] = sum[e];
}

}  // namespace crest::cuda
