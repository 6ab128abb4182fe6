// The peak operations per second of this CPU's arithmetic units, by precision, using registers
// only: an upper limit for any kernel.
#pragma once
#include <string>
#include <vector>

#include "stats/samples.h"

namespace crest {

struct InstructionPeak {
  std::string precision;    // "fp64", "fp32", "bf16", "int8"
  std::string instruction;  // "vfmadd231ps, 512 bit", or what is missing
  int threads = 0;
  Samples seconds;                   // per run
  double operations_per_second = 0;  // multiplications and additions; 0: no such instruction
};

// All precisions, each with the widest instruction of this machine (fused multiply-add, or a dot
// product: bf16 with avx512_bf16, int8 with avx512_vnni), on `threads` threads. Every result is
// compared with the same arithmetic in scalar code. Matrix units (AMX) are not measured here; the
// matmul rate includes them.
std::vector<InstructionPeak> measure_instruction_peaks(
    int threads, const StoppingRule& rule = {
                     .warmup = 1, .min_samples = 7, .max_samples = 30, .max_seconds = 0.3, .target_relative_ci = 0.01});

}  // namespace crest
