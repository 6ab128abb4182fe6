// CUDA on the host, as much as Crest's kernels use (platform.h): they run in tests on machines
// without a GPU.
//  * Blocks run one after the other in one OS thread, launches under a lock; the threads of a block
//    are fibers that switch only at barriers and warp operations. Waiting for another block in a
//    loop therefore hangs.
//  * __syncthreads waits for every running thread of the block. An Error with the place ends the
//    launch if threads wait at different barriers, if the mask of a warp operation names a lane that
//    does not exist or has returned, and after a deadlock.
//  * Dynamic shared memory has the size of the launch, is filled with 0xff (NaN) before every
//    block, and is seen by AddressSanitizer. __shared__ arrays are static: they keep what the block
//    before left there.
//  * Runnable threads are resumed forwards, backwards or shuffled, depending on block, pass and
//    set_order(), so that a missing barrier shows as a wrong or changing result.
//    CREST_EMULATOR_ORDER=forward|reverse|shuffled fixes one.
//  * Not seen: races within the code between two barriers of one thread, bank conflicts, the limit
//    of registers.
#pragma once
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <type_traits>

#include "backend/cuda/device/emulator_math.h"

#define __global__
#define __device__
#define __host__
#define __constant__
#define __grid_constant__
#define __forceinline__ inline __attribute__((always_inline))
#define __launch_bounds__(...)
#define __align__(n) __attribute__((aligned(n)))
#define __shared__ static
#define CREST_DYNAMIC_SHARED(T, name) T* name = static_cast<T*>(crest::cuda::emulator::dynamic_shared())

// Of the running thread.
extern uint3 threadIdx, blockIdx;
extern dim3 blockDim, gridDim;
constexpr int warpSize = 32;

namespace crest::cuda::emulator {

// Runs body once for every thread of every block. Throws an Error for a launch refused by CUDA, and
// for misuse of barriers and warp operations.
void run(dim3 grid, dim3 block, size_t shared, void (*body)(const void*), const void* context);
template <class Body>
void run(dim3 grid, dim3 block, size_t shared, const Body& body) {
  run(
      grid, block, shared, [](const void* b) { (*static_cast<const Body*>(b))(); }, &body);
}

// Another order of resuming for the following launches; deterministic.
void set_order(unsigned order);

// The place of a barrier or warp operation in the kernel.
struct Site {
  const char* call;
  const char* file;
  int line;
};

void* dynamic_shared();
// In launches of the calling OS thread: threads arrived at wait_for_predecessors().
void count_wait();
uint64_t waits();
// Returns the number of threads with a true predicate; *threads: the number of threads.
int barrier(bool predicate, Site site, int* threads = nullptr);

enum class WarpOp { sync, exchange, ballot, match, together };
// Waits for the lanes of mask; exchange returns the value of lane `source`, ballot and match a mask
// of lanes.
uint64_t warp(WarpOp op, unsigned mask, uint64_t value, unsigned source, Site site);
// Waits for all 32 lanes; the last one does the work of all: given[l] is lane l's value.
void together(const void* mine, void (*work)(const void* const* given), Site site);
unsigned lane();
unsigned live_lanes();  // of the calling thread's warp

// A misaligned vector access traps on the device.
void require_aligned(const void* p, size_t bytes);

// Built-in types have cached loads, stores and shuffles; structs of our own do not.
template <class T>
uint64_t bits_of(T x) {
  static_assert(std::is_arithmetic_v<T> && sizeof(T) >= 4, "CUDA shuffles 32 and 64 bit numbers");
  uint64_t bits = 0;
  std::memcpy(&bits, &x, sizeof x);
  return bits;
}
template <class T>
T from_bits(uint64_t bits) {
  T x;
  std::memcpy(&x, &bits, sizeof x);
  return x;
}
template <class T>
T shuffle(unsigned mask, T x, unsigned source, Site site) {
  return from_bits<T>(warp(WarpOp::exchange, mask, bits_of(x), source, site));
}

}  // namespace crest::cuda::emulator

#define CREST_SITE(call) \
  crest::cuda::emulator::Site { call, file, line }
#define CREST_HERE const char *file = __builtin_FILE(), int line = __builtin_LINE()

inline void __syncthreads(CREST_HERE) { crest::cuda::emulator::barrier(false, CREST_SITE("__syncthreads")); }
inline int __syncthreads_count(int p, CREST_HERE) {
  return crest::cuda::emulator::barrier(p, CREST_SITE("__syncthreads_count"));
}
inline int __syncthreads_or(int p, CREST_HERE) {
  return crest::cuda::emulator::barrier(p, CREST_SITE("__syncthreads_or")) > 0;
}
inline int __syncthreads_and(int p, CREST_HERE) {
  int threads = 0;
  return crest::cuda::emulator::barrier(p, CREST_SITE("__syncthreads_and"), &threads) == threads;
}

inline void __syncwarp(unsigned mask = 0xffffffffu, CREST_HERE) {
  crest::cuda::emulator::warp(crest::cuda::emulator::WarpOp::sync, mask, 0, 0, CREST_SITE("__syncwarp"));
}
template <class T>
T __shfl_sync(unsigned mask, T x, int source, int width = 32, CREST_HERE) {
  unsigned lane = crest::cuda::emulator::lane(), first = lane & ~unsigned(width - 1);
  return crest::cuda::emulator::shuffle(mask, x, first + (unsigned(source) & unsigned(width - 1)),
                                        CREST_SITE("__shfl_sync"));
}
template <class T>
T __shfl_up_sync(unsigned mask, T x, unsigned delta, int width = 32, CREST_HERE) {
  unsigned lane = crest::cuda::emulator::lane(), first = lane & ~unsigned(width - 1);
  return crest::cuda::emulator::shuffle(mask, x, lane < first + delta ? lane : lane - delta,
                                        CREST_SITE("__shfl_up_sync"));
}
template <class T>
T __shfl_down_sync(unsigned mask, T x, unsigned delta, int width = 32, CREST_HERE) {
  unsigned lane = crest::cuda::emulator::lane(), end = (lane & ~unsigned(width - 1)) + unsigned(width);
  return crest::cuda::emulator::shuffle(mask, x, lane + delta >= end ? lane : lane + delta,
                                        CREST_SITE("__shfl_down_sync"));
}
template <class T>
T __shfl_xor_sync(unsigned mask, T x, int flip, int width = 32, CREST_HERE) {
  unsigned lane = crest::cuda::emulator::lane(), end = (lane & ~unsigned(width - 1)) + unsigned(width);
  unsigned source = lane ^ unsigned(flip);
  return crest::cuda::emulator::shuffle(mask, x, source >= end ? lane : source, CREST_SITE("__shfl_xor_sync"));
}
inline unsigned __ballot_sync(unsigned mask, int p, CREST_HERE) {
  return unsigned(
      crest::cuda::emulator::warp(crest::cuda::emulator::WarpOp::ballot, mask, p != 0, 0, CREST_SITE("__ballot_sync")));
}
inline int __any_sync(unsigned mask, int p, CREST_HERE) { return __ballot_sync(mask, p, file, line) != 0; }
inline int __all_sync(unsigned mask, int p, CREST_HERE) { return __ballot_sync(mask, p, file, line) == mask; }
template <class T>
unsigned __match_any_sync(unsigned mask, T x, CREST_HERE) {
  return unsigned(crest::cuda::emulator::warp(crest::cuda::emulator::WarpOp::match, mask,
                                              crest::cuda::emulator::bits_of(x), 0, CREST_SITE("__match_any_sync")));
}
inline unsigned __activemask() { return crest::cuda::emulator::live_lanes(); }
#undef CREST_SITE
#undef CREST_HERE

inline void __threadfence() {}
inline void __threadfence_block() {}
inline void __threadfence_system() {}

// Only one thread runs at a time, so plain reads
// and writes are atomic. All return the old value.
template <class T, class F>
T crest_emulator_update(T* p, F f) {
  T old = *p;
  *p = T(f(old));
  return old;
}
template <class T>
T atomicAdd(T* p, std::type_identity_t<T> x) {
  static_assert(std::is_same_v<T, int> || std::is_same_v<T, unsigned> || std::is_same_v<T, unsigned long long> ||
                std::is_same_v<T, float> || std::is_same_v<T, double>);
  return crest_emulator_update(p, [&](T old) { return old + x; });
}
template <class T>
concept CrestEmulatorAtomic = std::is_same_v<T, int> || std::is_same_v<T, unsigned> || std::is_same_v<T, long long> ||
    std::is_same_v<T, unsigned long long>;
template <CrestEmulatorAtomic T>
T atomicSub(T* p, std::type_identity_t<T> x) {
  static_assert(sizeof(T) == 4);
  return crest_emulator_update(p, [&](T old) { return old - x; });
}
template <CrestEmulatorAtomic T>
T atomicMax(T* p, std::type_identity_t<T> x) {
  return crest_emulator_update(p, [&](T old) { return old > x ? old : x; });
}
template <CrestEmulatorAtomic T>
T atomicMin(T* p, std::type_identity_t<T> x) {
  return crest_emulator_update(p, [&](T old) { return old < x ? old : x; });
}
template <CrestEmulatorAtomic T>
T atomicOr(T* p, std::type_identity_t<T> x) {
  return crest_emulator_update(p, [&](T old) { return old | x; });
}
template <CrestEmulatorAtomic T>
T atomicAnd(T* p, std::type_identity_t<T> x) {
  return crest_emulator_update(p, [&](T old) { return old & x; });
}
template <class T>
T atomicExch(T* p, std::type_identity_t<T> x) {
  static_assert(CrestEmulatorAtomic<T> || std::is_same_v<T, float>);
  return crest_emulator_update(p, [&](T) { return x; });
}
template <CrestEmulatorAtomic T>
T atomicCAS(T* p, std::type_identity_t<T> expected, std::type_identity_t<T> x) {
  return crest_emulator_update(p, [&](T old) { return old == expected ? x : old; });
}
// Counts from 0 to limit and starts again.
inline unsigned atomicInc(unsigned* p, unsigned limit) {
  return crest_emulator_update(p, [&](unsigned old) { return old >= limit ? 0 : old + 1; });
}

// Loads and stores with a cache policy.
template <CrestEmulatorBuiltin T>
T crest_emulator_load(const T* p) {
  crest::cuda::emulator::require_aligned(p, sizeof(T));
  return *p;
}
template <CrestEmulatorBuiltin T>
void crest_emulator_store(T* p, T x) {
  crest::cuda::emulator::require_aligned(p, sizeof(T));
  *p = x;
}
#define CREST_LOAD(name)            \
  template <CrestEmulatorBuiltin T> \
  T name(const T* p) {              \
    return crest_emulator_load(p);  \
  }
CREST_LOAD(__ldg)
CREST_LOAD(__ldcs)
CREST_LOAD(__ldcg)
CREST_LOAD(__ldca)
CREST_LOAD(__ldlu)
CREST_LOAD(__ldcv)
#undef CREST_LOAD
#define CREST_STORE(name)                      \
  template <CrestEmulatorBuiltin T>            \
  void name(T* p, std::type_identity_t<T> x) { \
    crest_emulator_store(p, x);                \
  }
CREST_STORE(__stcs)
CREST_STORE(__stcg)
CREST_STORE(__stwb)
CREST_STORE(__stwt)
#undef CREST_STORE
