// Runs single instructions and tiny Programs on kernels, in memory of its own (no planner): guarded, poisoned with NaN.
#pragma once
#include <string>
#include <vector>

#include "backend/backend.h"
#include "ops/case.h"
#include "program/program.h"

namespace crest::test {

// Memory of a Program's values. Every storage is filled with bytes 0xff (NaN in every floating-point dtype) and guarded
// on both sides.
class Memory {
 public:
  explicit Memory(const Program& program);
  void* at(ValueId id) const;
  void write(ValueId id, const std::vector<double>& values);
  std::vector<double> read(ValueId id) const;
  std::vector<uint8_t> bytes(ValueId id) const;  // of the whole storage
  // Puts an output at the address of an input of the same size.
  void overlay(ValueId output, ValueId input) { moved_[size_t(output)] = at(input); }
  bool guards_intact() const;

 private:
  const Program& program_;
  std::vector<std::vector<uint8_t>> blocks_;  // by storage
  std::vector<size_t> sizes_;                 // bytes by storage
  std::vector<void*> moved_;
  uint8_t* start(ValueId storage) const;
};

// A Program of one instruction, its inputs declared in order.
struct Single {
  Program program;
  explicit Single(const Case& c);
  const Instr& instr() const { return program.code[0]; }
  void fill(Memory& memory, const Values& values) const;
};

// The same case with f64 in place of every floating-point dtype.
Case in_double(const Case& c);
// Inputs of the case, rounded to their dtypes; the same for every call.
Values make_values(const Case& c);

// The machine under test, with two threads.
const Device& device();
std::vector<const Kernel*> kernels_for(const std::string& op);
const Kernel& reference_kernel(const std::string& op);
// A kernel with its prepared state, workspace and pointers: may be launched again and again.
class BoundKernel {
 public:
  BoundKernel(const Kernel& kernel, const Program& program, const Instr& instr, const Memory& memory);
  void launch();  // throws when the kernel wrote beyond its workspace

 private:
  uint8_t* scratch();
  const Kernel& kernel_;
  const Program& program_;
  const Instr& instr_;
  size_t scratch_size_ = 0;
  std::vector<uint8_t> scratch_;
  std::shared_ptr<void> prepared_;
  std::vector<void*> in_, out_;
};
void launch(const Kernel& kernel, const Program& program, const Instr& instr, const Memory& memory);
// Runs a whole Program on the reference kernels.
void run_reference(const Program& program, const Memory& memory);
// Outputs of the case computed by the reference kernel, in logical row-major order.
Values reference_outputs(const Case& c, const Values& in);

// ||a - b|| / ||b||; infinity when a NaN appears, or an infinity at different places.
double relative_error(const std::vector<double>& a, const std::vector<double>& b);
// max |a - b| / rms(b) over the finite elements.
double worst_element(const std::vector<double>& a, const std::vector<double>& b);

// A name that GoogleTest accepts.
std::string identifier(const std::string& text);

}  // namespace crest::test
