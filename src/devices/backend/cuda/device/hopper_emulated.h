// hopper.h on the host: mbarriers, TMA copies and wgmma, for kernels with blocks waiting for each
// other. All blocks of a launch are resident, and their threads are fibers that switch at every
// possible wait.
//  * Copies and products are late: they happen at a random time before the wait for them
//    (Timing::late), or at once (Timing::early). A kernel is right if its results with both are
//    bitwise identical: memory overwritten too early, read too early, or waited for at the wrong
//    phase shows as a wrong result or a deadlock.
//  * Not seen: proxy fences, the order of ordinary accesses to device memory, bank conflicts,
//    registers.
#pragma once
#include <cstddef>
#include <cstdint>
#include <functional>

#include "backend/cuda/device/platform.h"
#include "core/dtype.h"

struct CUtensorMap {
  unsigned char* base;
  int64_t width, tokens, batch;  // of 16-bit floats
  int64_t pitch;                 // elements from row to row
  int box_rows;
};

namespace crest::cuda::hopper {

namespace emulated {

enum class Timing { early, late };
// For the following launches; `seed` of the random times and orders.
void set_timing(Timing timing, uint64_t seed);
void run(unsigned blocks, unsigned threads, size_t shared, const std::function<void()>& body);

unsigned char* shared_memory();
unsigned char* shared_at(uint32_t address);
unsigned thread();
unsigned block();
unsigned block_count();
void sync_block();
void sync_warp();
// Of the lane differing in the bits of `flip`.
uint32_t exchange(uint32_t x, unsigned lane);
void yield();

// A product of this thread's part of a wgmma. a: operand in shared memory, or null and a0..a3 in
// registers.
struct Product {
  float* d;
  int n;
  bool a_shared, a_rows_summed, b_rows_summed, accumulate;
  uint64_t a, b;
  uint32_t registers[4];
  float (*widen)(uint16_t);
};
void issue(const Product& p);

}  // namespace emulated

uint32_t shared_address(const void* p);
void barrier_init(uint32_t barrier, uint32_t arrivals);
inline void barrier_init_fence() {}
void barrier_arrive(uint32_t barrier);
void barrier_arrive_expect(uint32_t barrier, uint32_t bytes);
void barrier_wait(uint32_t barrier, uint32_t parity);
void named_sync(int id, int threads);
void named_arrive(int id, int threads);

void tensor_load(uint32_t to, const CUtensorMap* map, int c0, int c1, int c2, uint32_t barrier);
inline void tensor_prefetch(const CUtensorMap*, int, int, int) {}
void tensor_store(const CUtensorMap* map, int c0, int c1, int c2, uint32_t from);
void bulk_load(uint32_t to, const void* from, uint32_t bytes, uint32_t barrier);
void bulk_store(void* to, uint32_t from, uint32_t bytes);
void bulk_add(float* to, uint32_t from, uint32_t bytes);
void bulk_commit();
void bulk_wait_groups(int pending, bool only_read);
template <int N>
void bulk_wait_read() {
  bulk_wait_groups(N, true);
}
template <int N>
void bulk_wait() {
  bulk_wait_groups(N, false);
}
inline void async_fence() {}
inline void async_fence_shared() {}

inline uint32_t load_acquire(const uint32_t* p) {
  emulated::yield();
  return *p;
}
inline void store_release(uint32_t* p, uint32_t x) { *p = x; }

template <int N>
void registers_take() {}
template <int N>
void registers_give() {}

inline int thread_index() { return int(emulated::thread()); }
inline int warp_index() { return int(emulated::thread()) / 32; }
inline int block_index() { return int(emulated::block()); }
inline int block_count() { return int(emulated::block_count()); }
inline unsigned char* dynamic_shared() { return emulated::shared_memory(); }
inline void sync_block() { emulated::sync_block(); }
inline void sync_warp() { emulated::sync_warp(); }
inline float shuffle_xor(float x, int flip) {
  return __uint_as_float(emulated::exchange(__float_as_uint(x), (emulated::thread() % 32) ^ unsigned(flip)));
}
inline uint32_t shuffle(uint32_t x, int lane) { return emulated::exchange(x, unsigned(lane)); }
inline int of_lane_0(int x) { return int(emulated::exchange(uint32_t(x), 0)); }

inline uint32_t swizzled(int row, int chunk) { return uint32_t(row * 128 + ((chunk ^ (row & 7)) << 4)); }
void store_matrices(uint32_t to, uint32_t a, uint32_t b, uint32_t c, uint32_t d);

inline uint64_t operand(uint32_t address, uint32_t across = 0) {
  return uint64_t(address >> 4 & 0x3fff) | uint64_t(across ? across >> 4 : 1) << 16 | uint64_t(64) << 32 |
         uint64_t(1) << 62;
}
inline void wgmma_fence() {}
void wgmma_commit();
void wgmma_wait_groups(int pending);
template <int N>
void wgmma_wait() {
  wgmma_wait_groups(N);
}
template <int N>
void pin(float (&)[N]) {}
template <int N>
void pin(uint32_t (&)[N]) {}
inline void define(float& x) { x = 0; }

template <class T>
float widen_half(uint16_t bits) {
  return to_float(T{bits});
}
template <class T, int N, bool AT, bool BT, bool Zero = false>
void wgmma(float (&d)[N / 2], uint64_t a, uint64_t b, int accumulate) {
  emulated::issue({d, N, true, AT, BT, accumulate != 0, a, b, {}, widen_half<T>});
}
template <class T, int N, bool BT>
void wgmma(float (&d)[N / 2], uint32_t a0, uint32_t a1, uint32_t a2, uint32_t a3, uint64_t b, int accumulate) {
  emulated::issue({d, N, false, false, BT, accumulate != 0, 0, b, {a0, a1, a2, a3}, widen_half<T>});
}

template <class T>
uint16_t half_bits(float x) {
  if constexpr (std::is_same_v<T, bfloat16>)
    return to_bfloat16(x).bits;
  else
    return to_float16(x).bits;
}
template <class T>
uint32_t pack(float low, float high) {
  return uint32_t(half_bits<T>(low)) | uint32_t(half_bits<T>(high)) << 16;
}
template <class T>
float low_half(uint32_t x) {
  return widen_half<T>(uint16_t(x));
}
template <class T>
float high_half(uint32_t x) {
  return widen_half<T>(uint16_t(x >> 16));
}

}  // namespace crest::cuda::hopper
