// Crest's own matrix product on bf16 matrix units (AMX, Sapphire Rapids and later). Operands are
// packed into consecutive tiles (simd/amx.h), blocks of them stay in the second-level cache, sums
// in tile registers, and results get bias, GELU, earlier sums and their type on the way out. The
// cut was measured: docs/results/cpu_gemm.md.
#pragma once
#include "backend/cpu/gemm_packed.h"

namespace crest::cpu {

// The work of a thread at a time. Elements of operands are bf16.
struct AmxBlocking {
  int64_t rows = 256, columns = 256;  // of a block of c: its sums and its part of both operands lie in the cache
  int64_t steps = 24;                 // of 32 terms between loading and storing sums
  int64_t panel_elements = 4 << 20;   // of an operand packed at a time by all threads
  bool emulated = false;              // without the instructions: tests on other machines
};

// Bytes of workspace of amx_gemm(). s.ab is bf16, s.c f32 or bf16.
size_t amx_gemm_workspace(const PackedShape& s, int threads, const AmxBlocking& = {});
// Every element of c is summed in the same order for any number of threads.
void amx_gemm(const PackedShape&, const PackedOperands&, void* workspace, int threads, const AmxBlocking& = {});

}  // namespace crest::cpu
