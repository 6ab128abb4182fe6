// The host's side of mma.h. Copies are done at the wait, as late as the device may do them, so that
// a missing wait shows.
#pragma once
#include <cmath>
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

// What every lane of the calling thread's warp shows the others, by lane; valid up to the next
// __syncwarp.
template <class T>
const T* of_lanes(const T& mine) {
  static T shown[1024];
  unsigned thread = threadIdx.x + blockDim.x * (threadIdx.y + blockDim.y * threadIdx.z);
  shown[thread] = mine;
  __syncwarp();
  return shown + thread / 32 * 32;
}

// Registers of a lane that others read: they stay where they are until the next __syncwarp.
struct Operands {
  const uint32_t *a, *b;
};

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
  const SharedAddress* rows = emulator::of_lanes(row);
  for (int i = 0; i < 4; ++i) {
    SharedAddress from = rows[8 * i + g];
    r[i] = emulator::element16(from, 2 * t) | emulator::element16(from, 2 * t + 1) << 16;
  }
  __syncwarp();
}
inline void load_matrices_transposed(uint32_t (&r)[4], SharedAddress row) {
  emulator::require_aligned(reinterpret_cast<void*>(row), 16);
  int g = emulator::lane_id() / 4, t = emulator::lane_id() % 4;
  const SharedAddress* rows = emulator::of_lanes(row);
  for (int i = 0; i < 4; ++i)
    r[i] = emulator::element16(rows[8 * i + 2 * t], g) | emulator::element16(rows[8 * i + 2 * t + 1], g) << 16;
  __syncwarp();
}

template <class T>
void multiply_add(float (&c)[4], const uint32_t (&a)[4], uint32_t b0, uint32_t b1) {
  const uint32_t b[2] = {b0, b1};
  auto element = [](uint32_t pair, int half) {
    auto bits = uint16_t(half ? pair >> 16 : pair);
    return widen(T{bits});
  };
  int g = emulator::lane_id() / 4, t = emulator::lane_id() % 4;
  const emulator::Operands* lanes = emulator::of_lanes(emulator::Operands{a, b});
  float sum[4];
  for (int e = 0; e < 4; ++e) {
    sum[e] = c[e];
    int lower = e / 2, n = e % 2;
    for (int k = 0; k < 16; ++k) {
      int owner = k % 8 / 2, upper = k / 8;
      sum[e] += element(lanes[4 * g + owner].a[2 * upper + lower], k % 2) *
                element(lanes[4 * (2 * t + n) + owner].b[upper], k % 2);
    }
  }
  __syncwarp();
  for (int e = 0; e < 4; ++e) c[e] = sum[e];
}

// Like the device: operands lose the 13 low bits, sums are rounded towards zero, so that long
// chains of them drift.
inline void multiply_add_tf32(float (&c)[4], const uint32_t (&a)[4], uint32_t b0, uint32_t b1) {
  const uint32_t b[2] = {b0, b1};
  auto value = [](uint32_t bits) { return double(__uint_as_float(bits & ~0x1fffu)); };
  int g = emulator::lane_id() / 4, t = emulator::lane_id() % 4;
  const emulator::Operands* lanes = emulator::of_lanes(emulator::Operands{a, b});
  double exact[4] = {c[0], c[1], c[2], c[3]};
  for (int k = 0; k < 8; ++k) {
    const uint32_t* row = lanes[4 * g + k % 4].a + k / 4 * 2;
    const emulator::Operands* column = lanes + 4 * 2 * t + k % 4;
    double a0 = value(row[0]), a1 = value(row[1]), b0 = value(column[0].b[k / 4]), b1 = value(column[4].b[k / 4]);
    exact[0] += a0 * b0, exact[1] += a0 * b1, exact[2] += a1 * b0, exact[3] += a1 * b1;
  }
  float sum[4];
  for (int e = 0; e < 4; ++e) {
    sum[e] = float(exact[e]);
    // The next number towards zero.
    if (std::abs(double(sum[e])) > std::abs(exact[e])) sum[e] = __uint_as_float(__float_as_uint(sum[e]) - 1);
  }
  __syncwarp();
  for (int e = 0; e < 4; ++e) c[e] = sum[e];
}

}  // namespace crest::cuda
