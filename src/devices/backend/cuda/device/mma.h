// Tensor cores and asynchronous copies (compute capability 8.0 and newer): mma.sync, ldmatrix,
// cp.async, each with an emulation for the host. Fragments lie in registers as the PTX ISA says
// ("Matrix fragments for mma.m16n8k16 with floating point type"). With g = lane / 4 and t = lane %
// 4 a lane holds, two 16-bit elements in a register:
//   A 16 x 16: a[0] (row g; columns 2t, 2t + 1), a[1] (row g + 8), a[2] (row g; columns 2t + 8, + 9), a[3] (g + 8)
//   B 16 x 8:  b[0] (rows 2t, 2t + 1; column g), b[1] (rows 2t + 8, 2t + 9; column g)
//   C 16 x 8:  c[0], c[1] (row g; columns 2t, 2t + 1), c[2], c[3] (row g + 8)
// Of m16n8k8 on TF32 numbers, one in a register:
//   A 16 x 8:  a[0] (row g; column t), a[1] (row g + 8; t), a[2] (row g; column t + 4), a[3] (row g + 8; t + 4)
//   B 8 x 8:   b[0] (row t; column g), b[1] (row t + 4; column g)
#pragma once
#include "backend/cuda/device/exp2.h"
#include "backend/cuda/device/numeric.h"
#ifndef __CUDACC__
#include "backend/cuda/device/mma_emulated.h"
#endif

namespace crest::cuda {

// Two floats rounded to T, `low` in the low half.
template <class T>
__device__ inline uint32_t pack2(float low, float high) {
#ifdef __CUDACC__
  uint32_t r;
  if constexpr (std::is_same_v<T, bfloat16>)
    asm("cvt.rn.bf16x2.f32 %0, %1, %2;" : "=r"(r) : "f"(high), "f"(low));
  else
    asm("cvt.rn.f16x2.f32 %0, %1, %2;" : "=r"(r) : "f"(high), "f"(low));
  return r;
#else
  return uint32_t(narrow<T>(low).bits) | uint32_t(narrow<T>(high).bits) << 16;
#endif
}

// To the nearest TF32 number: a float with 10 bits of mantissa.
__device__ inline uint32_t round_tf32(float x) {
#ifdef __CUDACC__
  uint32_t r;
  asm("cvt.rna.tf32.f32 %0, %1;" : "=r"(r) : "f"(x));
  return r;
#else
  uint32_t bits = __float_as_uint(x);
  return std::isfinite(x) ? (bits + 0x1000u) & ~0x1fffu : bits;
#endif
}

#ifdef __CUDACC__

// Addresses of shared memory in bytes: 32 bits are enough on the device.
using SharedAddress = uint32_t;
__device__ inline SharedAddress shared_address(const void* p) { return uint32_t(__cvta_generic_to_shared(p)); }

// Copies Bytes (4, 8 or 16) from global to shared memory without waiting; fills with zeros when
// !valid, and then does not read. Both addresses are aligned to Bytes.
template <int Bytes>
__device__ inline void copy_async(SharedAddress to, const void* from, bool valid) {
  int size = valid ? Bytes : 0;
  if constexpr (Bytes == 16)  // past the first-level cache
    asm volatile("cp.async.cg.shared.global [%0], [%1], 16, %2;" ::"r"(to), "l"(__cvta_generic_to_global(from)),
                 "r"(size)
                 : "memory");
  else
    asm volatile("cp.async.ca.shared.global [%0], [%1], %2, %3;" ::"r"(to), "l"(__cvta_generic_to_global(from)),
                 "n"(Bytes), "r"(size)
                 : "memory");
}
// Ends a group of copies of this thread.
__device__ inline void copy_commit() { asm volatile("cp.async.commit_group;" ::: "memory"); }
// Waits until at most Pending of the newest groups of this thread are not done. A barrier shows the
// data to others.
template <int Pending>
__device__ inline void copy_wait() {
  asm volatile("cp.async.wait_group %0;" ::"n"(Pending) : "memory");
}

// Loads four 8 x 8 matrices of 16-bit elements; lane 8 i + r gives the address of row r (16 bytes)
// of matrix i. Lane l gets elements (l / 4; 2 (l % 4), + 1) of matrix i in r[i], transposed: of its
// transpose.
__device__ inline void load_matrices(uint32_t (&r)[4], SharedAddress row) {
  asm volatile("ldmatrix.sync.aligned.m8n8.x4.shared.b16 {%0, %1, %2, %3}, [%4];"
               : "=r"(r[0]), "=r"(r[1]), "=r"(r[2]), "=r"(r[3])
               : "r"(row)
               : "memory");
}
__device__ inline void load_matrices_transposed(uint32_t (&r)[4], SharedAddress row) {
  asm volatile("ldmatrix.sync.aligned.m8n8.x4.trans.shared.b16 {%0, %1, %2, %3}, [%4];"
               : "=r"(r[0]), "=r"(r[1]), "=r"(r[2]), "=r"(r[3])
               : "r"(row)
               : "memory");
}

// C += A B of 16 x 16 and 16 x 8 elements of T, summed in float.
template <class T>
__device__ inline void multiply_add(float (&c)[4], const uint32_t (&a)[4], uint32_t b0, uint32_t b1) {
  if constexpr (std::is_same_v<T, bfloat16>)
    asm volatile(
        "mma.sync.aligned.m16n8k16.row.col.f32.bf16.bf16.f32 {%0,%1,%2,%3}, {%4,%5,%6,%7}, {%8,%9}, {%0,%1,%2,%3};"
        : "+f"(c[0]), "+f"(c[1]), "+f"(c[2]), "+f"(c[3])
        : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b0), "r"(b1));
  else
    asm volatile(
        "mma.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32 {%0,%1,%2,%3}, {%4,%5,%6,%7}, {%8,%9}, {%0,%1,%2,%3};"
        : "+f"(c[0]), "+f"(c[1]), "+f"(c[2]), "+f"(c[3])
        : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b0), "r"(b1));
}

// C += A B of 16 x 8 and 8 x 8 floats; their 13 low bits are ignored.
__device__ inline void multiply_add_tf32(float (&c)[4], const uint32_t (&a)[4], uint32_t b0, uint32_t b1) {
  asm("mma.sync.aligned.m16n8k8.row.col.f32.tf32.tf32.f32 {%0,%1,%2,%3}, {%4,%5,%6,%7}, {%8,%9}, {%0,%1,%2,%3};"
      : "+f"(c[0]), "+f"(c[1]), "+f"(c[2]), "+f"(c[3])
      : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b0), "r"(b1));
}

#endif

}  // namespace crest::cuda
