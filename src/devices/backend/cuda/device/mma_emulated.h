// The host's side of mma.h. Copies are done at the wait, as late as the device may do them, to
// expose a missing wait.
#pragma once
#include <cmath>
#include <vector>

#include "backend/cuda/device/numeric.h"

namespace crest::cuda {

using SharedAddress = uintptr_t;
inline SharedAddress shared_address(const void* p) { return reinterpret_cast<SharedAddress>(p); }

namespace emulator {

// Copies of one thread of the running block, oldest first; ends: where its groups end.
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
  if (mine.block != block) mine = {block, {}, {}};  // a block ended without waiting
  return mine;
}

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

namespace emulator {

// A lane's part of a product: its accumulators and operands.
struct ProductLane {
  float* c;
  const uint32_t *a, *b;
};
struct MatrixLane {
  uint32_t* r;
  SharedAddress row;
};

// Rows of eight, kept in vector registers by the compiler.
using Floats8 [[gnu::vector_size(32)]] = float;
using Doubles8 [[gnu::vector_size(64)]] = double;

template <class Lane>
const Lane& lane_of(const void* const* given, int lane) {
  return *static_cast<const Lane*>(given[lane]);
}

inline void load(uint32_t* r, SharedAddress row, void (*work)(const void* const*)) {
  require_aligned(reinterpret_cast<void*>(row), 16);
  MatrixLane mine = {r, row};
  together(&mine, work, {"ldmatrix", __FILE__, __LINE__});
}
inline void multiply(float* c, const uint32_t* a, const uint32_t* b, void (*work)(const void* const*)) {
  ProductLane mine = {c, a, b};
  together(&mine, work, {"mma.sync", __FILE__, __LINE__});
}

}  // namespace emulator

inline void load_matrices(uint32_t (&r)[4], SharedAddress row) {
  auto work = [](const void* const* given) {
    for (int lane = 0; lane < 32; ++lane)
      for (int i = 0; i < 4; ++i)
        std::memcpy(
            emulator::lane_of<emulator::MatrixLane>(given, lane).r + i,
            reinterpret_cast<const uint16_t*>(emulator::lane_of<emulator::MatrixLane>(given, 8 * i + lane / 4).row) +
                lane % 4 * 2,
            4);
  };
  emulator::load(r, row, work);
}
inline void load_matrices_transposed(uint32_t (&r)[4], SharedAddress row) {
  auto work = [](const void* const* given) {
    for (int lane = 0; lane < 32; ++lane)
      for (int i = 0; i < 4; ++i) {
        auto element = [&](int k) {
          return emulator::element16(emulator::lane_of<emulator::MatrixLane>(given, 8 * i + k).row, lane / 4);
        };
        emulator::lane_of<emulator::MatrixLane>(given, lane).r[i] = element(lane % 4 * 2) | element(lane % 4 * 2 + 1)
                                                                                                << 16;
      }
  };
  emulator::load(r, row, work);
}

template <class T>
void multiply_add(float (&c)[4], const uint32_t (&a)[4], uint32_t b0, uint32_t b1) {
  auto work = [](const void* const* given) {
    float x[16][16];                        // A
    emulator::Floats8 y[16], sum[16] = {};  // B, C
    for (int lane = 0; lane < 32; ++lane) {
      auto& l = emulator::lane_of<emulator::ProductLane>(given, lane);
      int g = lane / 4, t = lane % 4 * 2;
      auto element = [](uint32_t pair, int half) { return widen(T{uint16_t(half ? pair >> 16 : pair)}); };
      for (int e = 0; e < 2; ++e) {
        for (int i = 0; i < 4; ++i) x[g + i % 2 * 8][t + i / 2 * 8 + e] = element(l.a[i], e);
        for (int i = 0; i < 2; ++i) y[t + i * 8 + e][g] = element(l.b[i], e), sum[g + i * 8][t + e] = l.c[2 * i + e];
      }
    }
    for (int m = 0; m < 16; ++m)
      for (int k = 0; k < 16; ++k) sum[m] += x[m][k] * y[k];
    for (int lane = 0; lane < 32; ++lane)
      for (int e = 0; e < 4; ++e)
        emulator::lane_of<emulator::ProductLane>(given, lane).c[e] = sum[lane / 4 + e / 2 * 8][lane % 4 * 2 + e % 2];
  };
  const uint32_t b[2] = {b0, b1};
  emulator::multiply(c, a, b, work);
}

// Like the device: operands lose the 13 low bits, sums are rounded towards zero, so long chains
// drift.
inline void multiply_add_tf32(float (&c)[4], const uint32_t (&a)[4], uint32_t b0, uint32_t b1) {
  auto work = [](const void* const* given) {
    double x[16][8];
    emulator::Doubles8 y[8], exact[16] = {};
    for (int lane = 0; lane < 32; ++lane) {
      auto& l = emulator::lane_of<emulator::ProductLane>(given, lane);
      int g = lane / 4, t = lane % 4;
      auto value = [](uint32_t bits) { return double(__uint_as_float(bits & ~0x1fffu)); };
      for (int i = 0; i < 4; ++i) {
        x[g + i % 2 * 8][t + i / 2 * 4] = value(l.a[i]);
        exact[g + i / 2 * 8][2 * t + i % 2] = l.c[i];
      }
      for (int i = 0; i < 2; ++i) y[t + i * 4][g] = value(l.b[i]);
    }
    for (int m = 0; m < 16; ++m)
      for (int k = 0; k < 8; ++k) exact[m] += x[m][k] * y[k];
    for (int lane = 0; lane < 32; ++lane)
      for (int e = 0; e < 4; ++e) {
        double wanted = exact[lane / 4 + e / 2 * 8][lane % 4 * 2 + e % 2];
        auto sum = float(wanted);
        // The next number towards zero.
        if (std::abs(double(sum)) > std::abs(wanted)) sum = __uint_as_float(__float_as_uint(sum) - 1);
        emulator::lane_of<emulator::ProductLane>(given, lane).c[e] = sum;
      }
  };
  const uint32_t b[2] = {b0, b1};
  emulator::multiply(c, a, b, work);
}

}  // namespace crest::cuda
