// The flat form of a fused body (or of a single
// pointwise instruction), run tile by tile on a CPU.
#pragma once
#include <string>
#include <vector>

#include "backend/cpu/simd/pointwise.h"
#include "program/program.h"

namespace crest::cpu {

struct FusedPlan {
  // Where a tile of a value lies: in a scratch slot, or (f32) directly in the memory of an input or
  // output.
  struct Operand {
    enum Kind : uint8_t { none, slot, input, output } kind = none;
    int index = 0;
  };
  struct Step {
    PointwiseStep run;
    Operand out, a, b;
    float value;
  };
  struct Load {  // an input of another dtype than f32 into a slot, before step `before`
    int input, slot, before;
  };
  struct Store {
    int output;
    Operand from;
  };
  struct ColumnSum {
    int output;
    int acc;  // input, -1 for none
    Operand from;
  };
  std::vector<Load> loads;
  std::vector<Step> steps;
  std::vector<Store> stores;
  std::vector<ColumnSum> sums;
  std::vector<DType> input_dtypes, output_dtypes;  // of the storage
  int slots = 0;
  int64_t tile = 0;     // elements
  int64_t numel = 0;    // with the shape of the body's work
  int64_t columns = 0;  // last dimension

  int64_t chunks() const;  // fixed parts of the rows for column sums
};

// Compiles `code`. inputs / outputs: values of `body` in the order of the instruction's inputs and
// outputs; dtypes: of the stored values. Inside a body intermediates stay f32, whatever their dtype
// there (also a cast's result); only outputs are rounded. `why`: the reason if it cannot be
// compiled, else empty.
FusedPlan compile_fused(const Program& body, const std::vector<const Instr*>& code, const std::vector<ValueId>& inputs,
                        const std::vector<ValueId>& outputs, std::string& why);

}  // namespace crest::cpu
