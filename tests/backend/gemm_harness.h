// Runs one kernel of the contraction, loss, embedding and update family on arrays of a test,
// without a planner.
#pragma once
#include <gtest/gtest.h>

#include <cstring>
#include <memory>
#include <string>
#include <vector>

#include "backend/cpu/index.h"
#include "core/random.h"
#include "device.h"
#include "program/op.h"

namespace crest {

using test::cpu_without_bf16;
using test::this_cpu;

// A contiguous array; `view` shows it to kernels with another shape, offset and strides. The memory
// starts `shift` elements after an aligned address.
struct Array {
  DType dtype = DType::f32;
  Shape shape;
  std::vector<char> memory;
  int64_t shift = 0;
  Shape view_shape, view_strides;
  int64_t view_offset = 0;

  Array() = default;
  Array(DType t, const Shape& s, int64_t misalign = 0) : dtype(t), shape(s), shift(misalign), view_shape(s) {
    memory.resize((size_t(s.numel()) + size_t(misalign)) * size_of(t) + 128);
    view_strides = s.contiguous_strides();
    std::memset(memory.data(), 0xff, memory.size());  // poison: NaN in every float format
  }
  char* data() {
    auto address = reinterpret_cast<uintptr_t>(memory.data());
    return memory.data() + ((64 - address % 64) % 64) + size_t(shift) * size_of(dtype);
  }
  double at(int64_t i) { return load_element(data(), dtype, i); }
  std::vector<double> values() {
    std::vector<double> x(size_t(shape.numel()));
    for (size_t i = 0; i < x.size(); ++i) x[i] = at(int64_t(i));
    return x;
  }
  void set(int64_t i, double x) { store_element(data(), dtype, i, x); }
  // Normal numbers of the given deviation, rounded to the dtype.
  Array& random(uint64_t seed, double deviation = 1) {
    for (int64_t i = 0; i < shape.numel(); ++i) set(i, deviation * normal(seed, 7, uint64_t(i)));
    return *this;
  }
};

struct KernelRun {
  std::string op;
  std::vector<Array*> in, out;  // null: absent. An output may be an input (in place).
  Attrs attrs;
  Device device = this_cpu(2);
  std::string rejected;  // set by run() when all fast kernels refuse: the reason of the last

  void run() {
    OpDef def{};
    def.name = op.c_str();
    Program program;
    Instr instr;
    instr.op = &def, instr.attrs = attrs;
    std::vector<void*> in_pointers, out_pointers;
    auto add = [&](Array* a, std::vector<ValueId>& ids, std::vector<void*>& pointers) {
      if (!a) {
        ids.push_back(no_value), pointers.push_back(nullptr);
        return;
      }
      Value v;
      v.name = op + std::to_string(program.values.size());
      v.dtype = a->dtype, v.shape = a->view_shape;
      v.layout = {ValueId(program.values.size()), a->view_offset, a->view_strides};
      ids.push_back(ValueId(program.values.size()));
      program.values.push_back(v);
      pointers.push_back(a->data() + a->view_offset * int64_t(size_of(a->dtype)));
    };
    for (Array* a : in) add(a, instr.in, in_pointers);
    for (Array* a : out) add(a, instr.out, out_pointers);
    KernelQuery query{program, instr, device};
    for (const Kernel& kernel : cpu_kernels()) {
      if (op != kernel.op || std::string_view(kernel.name).ends_with(".reference")) continue;
      rejected = kernel.reject(query);
      if (!rejected.empty()) continue;
      size_t bytes = kernel.workspace ? kernel.workspace(query) : 0;
      std::shared_ptr<void> prepared = kernel.prepare ? kernel.prepare(query) : nullptr;
      // Guard bytes behind the workspace find a kernel with more workspace than it said.
      std::unique_ptr<char, void (*)(void*)> workspace(
          static_cast<char*>(std::aligned_alloc(64, (bytes + 127) / 64 * 64)), std::free);
      std::memset(workspace.get(), 0xff, (bytes + 127) / 64 * 64);
      KernelCall call{program,         instr,          in_pointers.data(), out_pointers.data(),
                      workspace.get(), prepared.get(), device.threads,     nullptr,
                      nullptr,         &device};
      kernel.launch(call);
      for (size_t i = bytes; i < (bytes + 127) / 64 * 64; ++i)
        ASSERT_EQ(workspace.get()[i], char(0xff)) << kernel.name << " wrote behind its workspace of " << bytes;
      return;
    }
    if (rejected.empty()) FAIL() << "no kernel for " << op;
  }
};

// Unit roundoff of a storage format: 2^-p for p significant bits.
inline double roundoff(DType t) {
  return t == DType::bf16 ? 0x1p-8 : t == DType::f16 ? 0x1p-11 : t == DType::f32 ? 0x1p-24 : 0;
}
inline const std::vector<DType>& float_types() {
  static const std::vector<DType> t = {DType::f32, DType::bf16, DType::f16};
  return t;
}

}  // namespace crest
