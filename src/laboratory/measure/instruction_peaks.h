// Peak operations per second of this CPU's arithmetic units by precision, using only registers: an
// upper limit for any kernel.
#pragma once
#include <string>
#include <vector>

#include "stats/samples.h"

namespace crest {

struct InstructionPeak {
  std::string precision;    // "fp64", "fp32", "bf16", "int8"
  std::string instruction;  // "vfmadd231ps, 512 bit", or the missing feature
  int threads = 0;
  Samples seconds;                   // per run
  double operations_per_second = 0;  // multiplications and additions; 0: no such instruction
};

// All precisions on `threads` threads, each with this machine's widest instruction: fused
// multiply-add, or a dot product (bf16 with avx512_bf16, int8 with avx512_vnni). Every result is
// compared with scalar arithmetic. Matrix units (AMX) are not measured here but in the matmul rate.
std::vector<InstructionPeak> measure_instruction_peaks(
    int threads, const StoppingRule& rule = {
                     .warmup = 1, .min_samples = 7, .max_samples = 30, .max_seconds = 0.3, .target_relative_ci = 0.01});

}  // namespace crest
