// Features of compute capability 9.0 only: mbarriers, copies by the tensor memory accelerator
// (TMA), products of a warpgroup (wgmma). Thin wrappers around PTX, included only by files compiled
// for sm_90a.
#pragma once
// Whether this is compiled for sm_90a (or the host): kernels are empty elsewhere.
#if defined(__CUDA_ARCH__) && !defined(__CUDA_ARCH_FEAT_SM90_ALL)
#define CREST_HOPPER_CODE 0
#else
#define CREST_HOPPER_CODE 1
#endif
#ifndef __CUDACC__
#include "backend/cuda/device/hopper_emulated.h"
#else
#include <cuda.h>
#include <cuda_fp16.h>
#include <cuda_runtime.h>

#include <cstdint>

#include "core/dtype.h"

namespace crest::cuda::hopper {

// --- threads, in words shared with the emulation ---

__device__ inline int thread_index() { return int(threadIdx.x); }
// The same register for all lanes, known to the compiler.
__device__ inline int warp_index() { return __shfl_sync(0xffffffffu, int(threadIdx.x) / 32, 0); }
__device__ inline int block_index() { return int(blockIdx.x); }
__device__ inline int block_count() { return int(gridDim.x); }
__device__ inline unsigned char* dynamic_shared() {
  extern __shared__ unsigned char crest_hopper_shared[];
  return crest_hopper_shared;
}
__device__ inline void sync_block() { __syncthreads(); }
__device__ inline void sync_warp() { __syncwarp(); }
__device__ inline float shuffle_xor(float x, int flip) { return __shfl_xor_sync(0xffffffffu, x, flip); }
__device__ inline uint32_t shuffle(uint32_t x, int lane) { return __shfl_sync(0xffffffffu, x, lane); }
// The number of lane 0, so the compiler knows that all lanes have the same.
__device__ inline int of_lane_0(int x) { return __shfl_sync(0xffffffffu, x, 0); }

// For tests: a warp now and then falls behind, to expose missing order.
__device__ inline void delay() {
#ifdef CREST_HOPPER_DELAYS
  uint32_t x = (uint32_t(clock()) ^ (threadIdx.x / 32 * 40503u + blockIdx.x * 9973u)) * 2654435761u;
  if (x >> 26 == 0) __nanosleep(x >> 8 & 0x1fff);
#endif
}

__device__ inline uint32_t shared_address(const void* p) { return uint32_t(__cvta_generic_to_shared(p)); }

// --- mbarrier: a barrier in shared memory; its phases also count bytes delivered by copies ---

__device__ inline void barrier_init(uint32_t barrier, uint32_t arrivals) {
  asm volatile("mbarrier.init.shared::cta.b64 [%0], %1;" ::"r"(barrier), "r"(arrivals));
}
// Makes initialized barriers visible to copies.
__device__ inline void barrier_init_fence() { asm volatile("fence.mbarrier_init.release.cluster;" ::: "memory"); }
__device__ inline void barrier_arrive(uint32_t barrier) {
  delay();
  asm volatile("mbarrier.arrive.shared::cta.b64 _, [%0];" ::"r"(barrier) : "memory");
}
// Arrives and announces bytes of copies in this phase.
__device__ inline void barrier_arrive_expect(uint32_t barrier, uint32_t bytes) {
  asm volatile("mbarrier.arrive.expect_tx.shared::cta.b64 _, [%0], %1;" ::"r"(barrier), "r"(bytes) : "memory");
}
// Waits until the phase of this parity is complete. A fresh barrier: parity 1 is complete, 0 is
// not.
__device__ inline void barrier_wait(uint32_t barrier, uint32_t parity) {
  delay();
  asm volatile(
      "{\n"
      ".reg .pred done;\n"
      "again:\n"
      "mbarrier.try_wait.parity.shared::cta.b64 done, [%0], %1;\n"
      "@done bra over;\n"
      "bra again;\n"
      "over:\n"
      "}\n" ::"r"(barrier),
      "r"(parity)
      : "memory");
}

// --- barriers of several warps by number; 0 is __syncthreads ---

__device__ inline void named_sync(int id, int threads) {
  asm volatile("bar.sync %0, %1;" ::"r"(id), "r"(threads) : "memory");
}
__device__ inline void named_arrive(int id, int threads) {
  asm volatile("bar.arrive %0, %1;" ::"r"(id), "r"(threads) : "memory");
}

// --- copies; `barrier` counts the arrived bytes ---

// Of a box of a tensor of three dimensions, `c0` the fastest. Places outside the tensor arrive as
// zeros.
__device__ inline void tensor_load(uint32_t to, const CUtensorMap* map, int c0, int c1, int c2, uint32_t barrier) {
  asm volatile(
      "cp.async.bulk.tensor.3d.shared::cluster.global.tile.mbarrier::complete_tx::bytes [%0], [%1, {%2, %3, %4}], "
      "[%5];" ::"r"(to),
      "l"(map), "r"(c0), "r"(c1), "r"(c2), "r"(barrier)
      : "memory");
}
// Asks the second-level cache for a box.
__device__ inline void tensor_prefetch(const CUtensorMap* map, int c0, int c1, int c2) {
  asm volatile("cp.async.bulk.prefetch.tensor.3d.L2.global.tile [%0, {%1, %2, %3}];" ::"l"(map), "r"(c0), "r"(c1),
               "r"(c2)
               : "memory");
}
// Places outside the tensor are not written.
__device__ inline void tensor_store(const CUtensorMap* map, int c0, int c1, int c2, uint32_t from) {
  asm volatile("cp.async.bulk.tensor.3d.global.shared::cta.tile.bulk_group [%0, {%1, %2, %3}], [%4];" ::"l"(map),
               "r"(c0), "r"(c1), "r"(c2), "r"(from)
               : "memory");
}
__device__ inline void bulk_load(uint32_t to, const void* from, uint32_t bytes, uint32_t barrier) {
  asm volatile("cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes [%0], [%1], %2, [%3];" ::"r"(to),
               "l"(from), "r"(bytes), "r"(barrier)
               : "memory");
}
__device__ inline void bulk_store(void* to, uint32_t from, uint32_t bytes) {
  asm volatile("cp.async.bulk.global.shared::cta.bulk_group [%0], [%1], %2;" ::"l"(to), "r"(from), "r"(bytes)
               : "memory");
}
// Adds floats.
__device__ inline void bulk_add(float* to, uint32_t from, uint32_t bytes) {
  asm volatile("cp.reduce.async.bulk.global.shared::cta.bulk_group.add.f32 [%0], [%1], %2;" ::"l"(to), "r"(from),
               "r"(bytes)
               : "memory");
}
__device__ inline void bulk_commit() {
  delay();
  asm volatile("cp.async.bulk.commit_group;" ::: "memory");
}
// Until at most N groups of stores of this thread still read shared memory.
template <int N>
__device__ inline void bulk_wait_read() {
  asm volatile("cp.async.bulk.wait_group.read %0;" ::"n"(N) : "memory");
}
// Until at most N groups are not complete.
template <int N>
__device__ inline void bulk_wait() {
  asm volatile("cp.async.bulk.wait_group %0;" ::"n"(N) : "memory");
}
// Orders ordinary accesses of this thread before later copies and wgmma.
__device__ inline void async_fence() { asm volatile("fence.proxy.async;" ::: "memory"); }
__device__ inline void async_fence_shared() { asm volatile("fence.proxy.async.shared::cta;" ::: "memory"); }

// --- counters in device memory ---

__device__ inline uint32_t load_acquire(const uint32_t* p) {
  uint32_t x;
  asm volatile("ld.acquire.gpu.global.u32 %0, [%1];" : "=r"(x) : "l"(p) : "memory");
  return x;
}
__device__ inline void store_release(uint32_t* p, uint32_t x) {
  asm volatile("st.release.gpu.global.u32 [%0], %1;" ::"l"(p), "r"(x) : "memory");
}

// --- registers ---

template <int N>
__device__ inline void registers_take() {
  asm volatile("setmaxnreg.inc.sync.aligned.u32 %0;" ::"n"(N));
}
template <int N>
__device__ inline void registers_give() {
  asm volatile("setmaxnreg.dec.sync.aligned.u32 %0;" ::"n"(N));
}

// --- shared memory, rows of 128 bytes with the swizzle of TMA and wgmma ---

// Of 16-byte chunk `chunk` of row `row`; tiles begin at multiples of 1024.
__device__ inline uint32_t swizzled(int row, int chunk) { return uint32_t(row * 128 + ((chunk ^ (row & 7)) << 4)); }

__device__ inline void store_matrices(uint32_t to, uint32_t a, uint32_t b, uint32_t c, uint32_t d) {
  asm volatile("stmatrix.sync.aligned.m8n8.x4.shared.b16 [%0], {%1, %2, %3, %4};" ::"r"(to), "r"(a), "r"(b), "r"(c),
               "r"(d)
               : "memory");
}

// --- wgmma: D[64, N] (+)= A[64, 16] B[16, N] of four warps; warp w has rows 16 w .. + 15 of D (and
// of A in registers) ---

// An operand in shared memory: rows of 128 bytes, swizzled, groups of 8 rows 1024 bytes apart.
// `across`: bytes between blocks of 64 columns if the columns are not the summed dimension (else
// 0).
__device__ inline uint64_t operand(uint32_t address, uint32_t across = 0) {
  return uint64_t(address >> 4 & 0x3fff) | uint64_t(across ? across >> 4 : 1) << 16 | uint64_t(64) << 32 |
         uint64_t(1) << 62;
}

__device__ inline void wgmma_fence() { asm volatile("wgmma.fence.sync.aligned;" ::: "memory"); }
__device__ inline void wgmma_commit() { asm volatile("wgmma.commit_group.sync.aligned;" ::: "memory"); }
template <int N>
__device__ inline void wgmma_wait() {
  asm volatile("wgmma.wait_group.sync.aligned %0;" ::"n"(N) : "memory");
}
// Keeps the compiler from moving uses of these registers over this point.
template <int N>
__device__ inline void pin(float (&x)[N]) {
#pragma unroll
  for (int i = 0; i < N; ++i) asm volatile("" : "+f"(x[i])::"memory");
}
template <int N>
__device__ inline void pin(uint32_t (&x)[N]) {
#pragma unroll
  for (int i = 0; i < N; ++i) asm volatile("" : "+r"(x[i])::"memory");
}

// Gives an accumulator a value here, and not where the compiler would like to (while wgmma is in
// flight).
__device__ inline void define(float& x) { asm volatile("mov.f32 %0, 0f00000000;" : "=f"(x)); }

#define CREST_F8(c, d, i) \
  c(d[i]), c(d[i + 1]), c(d[i + 2]), c(d[i + 3]), c(d[i + 4]), c(d[i + 5]), c(d[i + 6]), c(d[i + 7])
#define CREST_F32(c, d, i) CREST_F8(c, d, i), CREST_F8(c, d, i + 8), CREST_F8(c, d, i + 16), CREST_F8(c, d, i + 24)
#define CREST_F64(c, d, i) CREST_F32(c, d, i), CREST_F32(c, d, i + 32)
#define CREST_F96(c, d, i) CREST_F64(c, d, i), CREST_F32(c, d, i + 64)
#define CREST_F128(c, d, i) CREST_F64(c, d, i), CREST_F64(c, d, i + 64)
#define CREST_R32                                                                                                  \
  "%0,%1,%2,%3,%4,%5,%6,%7,%8,%9,%10,%11,%12,%13,%14,%15,%16,%17,%18,%19,%20,%21,%22,%23,%24,%25,%26,%27,%28,%29," \
  "%30,%31"
#define CREST_R64                                                                                         \
  CREST_R32                                                                                               \
  ",%32,%33,%34,%35,%36,%37,%38,%39,%40,%41,%42,%43,%44,%45,%46,%47,%48,%49,%50,%51,%52,%53,%54,%55,%56," \
  "%57,%58,%59,%60,%61,%62,%63"
#define CREST_R96                                                                                         \
  CREST_R64                                                                                               \
  ",%64,%65,%66,%67,%68,%69,%70,%71,%72,%73,%74,%75,%76,%77,%78,%79,%80,%81,%82,%83,%84,%85,%86,%87,%88," \
  "%89,%90,%91,%92,%93,%94,%95"
#define CREST_R128                                                                                            \
  CREST_R64                                                                                                   \
  ",%64,%65,%66,%67,%68,%69,%70,%71,%72,%73,%74,%75,%76,%77,%78,%79,%80,%81,%82,%83,%84,%85,%86,%87,%88,%89," \
  "%90,%91,%92,%93,%94,%95,%96,%97,%98,%99,%100,%101,%102,%103,%104,%105,%106,%107,%108,%109,%110,%111,%112," \
  "%113,%114,%115,%116,%117,%118,%119,%120,%121,%122,%123,%124,%125,%126,%127"
// Operands from shared memory (SS), or A from registers (RS).
#define CREST_SS(SHAPE, TYPE, OUT, REGS, A, B, P, TA, TB)                                                            \
  asm volatile("{.reg .pred p; setp.ne.b32 p, " P                                                                    \
               ", 0;\n"                                                                                              \
               "wgmma.mma_async.sync.aligned." SHAPE ".f32." TYPE "." TYPE " {" REGS "}, " A ", " B ", p, 1, 1, " TA \
               ", " TB ";}\n"                                                                                        \
               : OUT                                                                                                 \
               : "l"(a), "l"(b), "r"(accumulate), "n"(AT), "n"(BT))
#define CREST_RS(SHAPE, TYPE, OUT, REGS, A, B, P, TB)                                                                  \
  asm volatile("{.reg .pred p; setp.ne.b32 p, " P                                                                      \
               ", 0;\n"                                                                                                \
               "wgmma.mma_async.sync.aligned." SHAPE ".f32." TYPE "." TYPE " {" REGS "}, {" A "}, " B ", p, 1, 1, " TB \
               ";}\n"                                                                                                  \
               : OUT                                                                                                   \
               : "r"(a0), "r"(a1), "r"(a2), "r"(a3), "l"(b), "r"(accumulate), "n"(BT))
#define CREST_READ_WRITE(x) "+f"(x)
#define CREST_WRITE(x) "=f"(x)

// A and B from shared memory. AT, BT: the summed dimension is the slow one (rows) of A, B. Zero: D
// has no value before, and `accumulate` is 0.
template <class T, int N, bool AT, bool BT, bool Zero = false>
__device__ inline void wgmma(float (&d)[N / 2], uint64_t a, uint64_t b, int accumulate) {
  static_assert(N == 64 || N == 128 || N == 192 || N == 256);
#define CREST_WGMMA(TYPE, MODE)                                                                         \
  if constexpr (N == 64)                                                                                \
    CREST_SS("m64n64k16", TYPE, CREST_F32(MODE, d, 0), CREST_R32, "%32", "%33", "%34", "%35", "%36");   \
  else if constexpr (N == 128)                                                                          \
    CREST_SS("m64n128k16", TYPE, CREST_F64(MODE, d, 0), CREST_R64, "%64", "%65", "%66", "%67", "%68");  \
  else if constexpr (N == 192)                                                                          \
    CREST_SS("m64n192k16", TYPE, CREST_F96(MODE, d, 0), CREST_R96, "%96", "%97", "%98", "%99", "%100"); \
  else                                                                                                  \
    CREST_SS("m64n256k16", TYPE, CREST_F128(MODE, d, 0), CREST_R128, "%128", "%129", "%130", "%131", "%132")
  if constexpr (std::is_same_v<T, bfloat16> && Zero) {
    CREST_WGMMA("bf16", CREST_WRITE);
  } else if constexpr (std::is_same_v<T, bfloat16>) {
    CREST_WGMMA("bf16", CREST_READ_WRITE);
  } else if constexpr (Zero) {
    CREST_WGMMA("f16", CREST_WRITE);
  } else {
    CREST_WGMMA("f16", CREST_READ_WRITE);
  }
#undef CREST_WGMMA
}

// A from registers: a0, a1 of rows g and g + 8 and columns 2 t, 2 t + 1; a2, a3 the same 8 columns
// later.
template <class T, int N, bool BT>
__device__ inline void wgmma(float (&d)[N / 2], uint32_t a0, uint32_t a1, uint32_t a2, uint32_t a3, uint64_t b,
                             int accumulate) {
  static_assert(N == 64 || N == 128);
#define CREST_WGMMA(TYPE)                                                                                          \
  if constexpr (N == 64)                                                                                           \
    CREST_RS("m64n64k16", TYPE, CREST_F32(CREST_READ_WRITE, d, 0), CREST_R32, "%32, %33, %34, %35", "%36", "%37",  \
             "%38");                                                                                               \
  else                                                                                                             \
    CREST_RS("m64n128k16", TYPE, CREST_F64(CREST_READ_WRITE, d, 0), CREST_R64, "%64, %65, %66, %67", "%68", "%69", \
             "%70")
  if constexpr (std::is_same_v<T, bfloat16>) {
    CREST_WGMMA("bf16");
  } else {
    CREST_WGMMA("f16");
  }
#undef CREST_WGMMA
}

#undef CREST_SS
#undef CREST_RS
#undef CREST_F8
#undef CREST_F32
#undef CREST_F64
#undef CREST_F96
#undef CREST_F128
#undef CREST_R32
#undef CREST_R64
#undef CREST_R96
#undef CREST_R128
#undef CREST_READ_WRITE
#undef CREST_WRITE

// Two floats to one register of two halves, `low` in the lower one.
template <class T>
__device__ inline uint32_t pack(float low, float high) {
  uint32_t x;
  if constexpr (std::is_same_v<T, bfloat16>)
    asm("cvt.rn.bf16x2.f32 %0, %1, %2;" : "=r"(x) : "f"(high), "f"(low));
  else
    asm("cvt.rn.f16x2.f32 %0, %1, %2;" : "=r"(x) : "f"(high), "f"(low));
  return x;
}

template <class T>
__device__ inline float low_half(uint32_t x) {
  if constexpr (std::is_same_v<T, bfloat16>)
    return __uint_as_float(x << 16);
  else
    return __half2float(__ushort_as_half(uint16_t(x)));
}
template <class T>
__device__ inline float high_half(uint32_t x) {
  if constexpr (std::is_same_v<T, bfloat16>)
    return __uint_as_float(x & 0xffff0000u);
  else
    return __half2float(__ushort_as_half(uint16_t(x >> 16)));
}

}  // namespace crest::cuda::hopper
#endif
