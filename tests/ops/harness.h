// Runs single instructions and tiny Programs on kernels, in memory of its own (no planner):
// guarded, poisoned with NaN.
#pragma once
#include <memory>
#include <string>
#include <vector>

#include "backend/backend.h"
#include "one_rank.h"
#include "ops/case.h"
#include "program/program.h"

namespace crest::test {

// Memory of a Program's values on the host. Every storage is filled with bytes 0xff (NaN in every
// floating-point dtype) and guarded on both sides; AddressSanitizer sees accesses to the guards at
// once. Aligned as the planner aligns: 256.
class Memory {
 public:
  explicit Memory(const Program& program);
  ~Memory();
  Memory(const Memory&) = delete;
  Memory& operator=(const Memory&) = delete;
  void* at(ValueId id) const;
  void write(ValueId id, const std::vector<double>& values);
  std::vector<double> read(ValueId id) const;
  std::vector<uint8_t> bytes(ValueId id) const;  // of the whole storage
  // Puts an output at the address of an input of the same size.
  void overlay(ValueId output, ValueId input) { moved_[size_t(output)] = at(input); }
  bool guards_intact() const;
  void poison();  // all storages, as the constructor does

  // A storage with its guards.
  struct Block {
    uint8_t* data;
    size_t size;
  };
  std::vector<Block> blocks() const;

 private:
  const Program& program_;
  std::vector<std::vector<uint8_t>> blocks_;  // by storage
  std::vector<size_t> sizes_;                 // bytes by storage
  std::vector<void*> moved_;
  uint8_t* start(ValueId storage) const;
  void hide_guards(bool hidden) const;
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
// The same Program with `t` in place of every floating-point dtype.
Program with_dtype(const Program& program, DType t);
// Inputs of the case, rounded to their dtypes; the same for every call.
Values make_values(const Case& c);

// This machine with two threads.
const Device& cpu();
// Devices for tests of kernels: the CPU and CUDA (GPU 0), or the emulator in a build without CUDA.
// A build with CUDA on a machine without a GPU tests the CPU only; why_no_gpu() then gives the
// reason.
const std::vector<Device>& devices();
// "cpu", "emulated_cpu" or "cuda", for names of tests.
std::string device_name(const Device&);
const std::string& why_no_gpu();
bool is_gpu(const Device& device);  // not emulated
std::vector<const Kernel*> kernels_for(const std::string& op, const Device& device);
const Kernel& reference_kernel(const std::string& op);
// A kernel with its prepared state, workspace and pointers: may be launched again and again. On a
// GPU it has copies of the memory there; every launch takes them from `memory` and returns them to
// it.
class BoundKernel {
 public:
  BoundKernel(const Kernel& kernel, const Device& device, const Program& program, const Instr& instr,
              const Memory& memory);
  ~BoundKernel();
  // Throws when the kernel wrote beyond its workspace. The emulator resumes threads in another
  // order every time.
  void launch();
  void tune();  // the content of `memory` stays

 private:
  class OnGpu;
  KernelCall call();
  uint8_t* scratch();
  bool scratch_guard_intact();
  const Kernel& kernel_;
  const Device& device_;
  const Program& program_;
  const Instr& instr_;
  [[maybe_unused]] const Memory& memory_;  // read on a GPU
  size_t scratch_size_ = 0;
  unsigned launches_ = 0;
  std::vector<uint8_t> scratch_;
  const OneRank rank_;  // as the Program's properties `rank` and `ranks` say
  std::shared_ptr<void> prepared_;
  std::vector<void*> in_, out_;
  std::unique_ptr<OnGpu> gpu_;
};
void launch(const Kernel& kernel, const Device& device, const Program& program, const Instr& instr,
            const Memory& memory);
// Runs a whole Program on the reference kernels.
void run_reference(const Program& program, const Memory& memory);
// Outputs of the case computed by the reference kernel, in logical row-major order.
Values reference_outputs(const Case& c, const Values& in);

// The f32 numbers of two halves (core/split_float.h).
std::vector<double> joined(const std::vector<double>& low, const std::vector<double>& high);

// ||a - b|| / ||b||; infinity when a NaN appears, or an infinity at different places.
double relative_error(const std::vector<double>& a, const std::vector<double>& b);
// max |a - b| / rms(b) over the finite elements.
double worst_element(const std::vector<double>& a, const std::vector<double>& b);

// A name accepted by GoogleTest.
std::string identifier(const std::string& text);

}  // namespace crest::test
