// A backend: for every operation a list of kernels, best first,
// the reference last. Choosing (reject, workspace) is host
// code, compiled on every machine; launching needs the device.
#pragma once
#include <memory>
#include <string>
#include <vector>

#include "program/program.h"

namespace crest {

class Choices;
class Communicator;
class MeshGroups;

// The device a Program is planned for.
struct Device {
  std::string kind = "cpu";  // "cpu" or "cuda"
  int index = 0;
  std::string name;          // "AMD EPYC 9655 (2 threads)"
  int threads = 1;           // CPU: OpenMP threads of a step
  std::string isa;           // CPU: the class of processors (host/isa.h); GPU: "sm_90"
  bool native_bf16 = false;  // matrix units or dot products for bf16
  bool amx = false;          // CPU: matrix units for bf16 (class amx)
  int64_t memory = 0;        // bytes usable

  // CUDA only.
  int sm = 0;                                           // compute capability times ten: 90
  int multiprocessors = 0;                              // of the device
  int64_t shared_per_block = 0;                         // shared memory available to a block, in bytes
  bool cublaslt = false, cudnn = false, nvrtc = false;  // libraries found
  int64_t total_memory = 0;                             // bytes of the device
  bool described = false;                               // known by its data sheet only: for planning
  bool deterministic = false;  // time nothing, and use no kernels with bits varying from run to run
  std::string note;            // for the user: libraries not found
  // For tests: a GPU with kernels on the host,
  // or a CPU with emulated matrix units.
  bool emulated = false;
};

struct KernelQuery {
  const Program& program;
  const Instr& instr;
  const Device& device;
  const Value& in(size_t i) const { return program.at(instr.in[i]); }
  const Value& out(size_t i) const { return program.at(instr.out[i]); }
  bool has(size_t i) const { return i < instr.in.size() && instr.in[i] != no_value; }
};

// One bound instruction: pointers already include a view's offset; absent optional inputs are null.
struct KernelCall {
  const Program& program;
  const Instr& instr;
  void* const* in;
  void* const* out;
  void* workspace;                 // as many bytes as workspace() said, 64-byte aligned
  void* prepared;                  // what prepare() returned
  int threads;                     // OpenMP threads to use
  const MeshGroups* groups;        // of this rank; null: it is the only one
  void* stream = nullptr;          // CUDA: the cudaStream_t to launch on
  const Device* device = nullptr;  // never null
  Choices* choices = nullptr;      // of the session, while it is tuned; null: nobody keeps them
  bool overlap = false;            // CUDA: its kernels may begin while the ones before them end (LaunchOn)
  const char* instr_name() const;  // of the operation, for errors
  // The ranks along the instruction's axes (axes_of): the place of this one, and their
  // communicator.
  int index() const;
  Communicator& group() const;
  // For a dimension cut along attribute `axes` into parts of `size`: the beginning of this rank's
  // part. Without the attribute, 0. Along the axis context, ranks have chunks of tokens instead:
  // the ranks that share a sequence, and the place of this one; 1 and 0 if the attribute lacks the
  // axis.
  int64_t part_begin(int64_t size) const;
  int64_t chunk_ranks() const;
  int64_t chunk_place() const;
  const Value& in_value(size_t i) const { return program.at(instr.in[i]); }
  const Value& out_value(size_t i) const { return program.at(instr.out[i]); }
  bool has(size_t i) const { return i < instr.in.size() && instr.in[i] != no_value; }
  template <class T>
  const T* input(size_t i) const {
    return static_cast<const T*>(in[i]);
  }
  template <class T>
  T* output(size_t i) const {
    return static_cast<T*>(out[i]);
  }
};

struct Kernel {
  const char* op;
  const char* name;  // "cpu.norm.simd"; patterns of --kernel match it
  // Why the kernel cannot run this instruction; empty when it can.
  std::string (*reject)(const KernelQuery&);
  // Bytes of workspace during the launch; null means none.
  size_t (*workspace)(const KernelQuery&) = nullptr;
  // Prepares data once per instruction (library primitives, packed tables); null: nothing to
  // prepare.
  std::shared_ptr<void> (*prepare)(const KernelQuery&) = nullptr;
  void (*launch)(const KernelCall&) = nullptr;
  // Chooses between variants by timing them on the call's own memory, whose content it may
  // overwrite, and keeps the choice in call.prepared. A choice in call.choices for this problem
  // replaces timing; every choice is reported there. Called once after binding, before any tensor
  // has a meaning, and never with --deterministic. Null: nothing to choose.
  void (*tune)(const KernelCall&) = nullptr;
};

}  // namespace crest
