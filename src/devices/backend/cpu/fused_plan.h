// The flat form of a fused body (or of a single pointwise instruction) that the CPU runs tile by
// tile.
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
  int64_t numel = 0;    // of the shape that the body works on
  int64_t columns = 0;  // last dimension

  int64_t chunks() const;  // fixed parts of the rows over which column sums are formed
};

// Compiles `code`. inputs / outputs: values of `body` in the order of the instruction's inputs and
// outputs; dtypes are those of the stored values. Intermediates stay f32 inside a body whatever
// dtype the body gives them (also a cast's result): only outputs are rounded. `why` says what
// cannot be compiled; it stays empty on success.
FusedPlan compile_fused(const Program& body, const std::vector<const Instr*>& code, const std::vector<ValueId>& inputs,
                        const std::vector<ValueId>& outputs, std::string& why);

}  // namespace crest::cpu
