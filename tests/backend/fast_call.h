// Runs one instruction with the vector kernels on arrays of doubles rounded to the storage dtype:
// shared by the tests of the fast CPU kernels and the studies.
#pragma once
#include <algorithm>
#include <cmath>
#include <cstring>
#include <map>
#include <memory>
#include <random>
#include <stdexcept>
#include <string>
#include <vector>

#include "backend/cpu/index.h"
#include "program/op.h"

namespace crest::testing_call {

inline const OpDef* op_named(const char* name) {
  static std::map<std::string, std::unique_ptr<OpDef>> defs;
  auto& d = defs[name];
  if (!d) {
    d = std::make_unique<OpDef>();
    d->name = name, d->inputs = d->outputs = d->help = "", d->op_class = OpClass::elementwise;
  }
  return d.get();
}

struct Call {
  Program program;
  Instr instr;
  std::vector<std::vector<uint8_t>> memory;  // one per value, with a guard behind

  explicit Call(const char* op) { instr.op = op_named(op); }
  ValueId value(DType t, const Shape& shape) {
    auto id = ValueId(program.values.size());
    program.values.push_back({"v" + std::to_string(id), t, shape, {id, 0, shape.contiguous_strides()}});
    memory.emplace_back(size_t(shape.numel()) * size_of(t) + 64, 0xcd);
    return id;
  }
  ValueId in(DType t, const Shape& shape, const std::vector<double>& x) {
    ValueId v = value(t, shape);
    for (int64_t i = 0; i < shape.numel(); ++i) store_element(memory[size_t(v)].data(), t, i, x[size_t(i)]);
    instr.in.push_back(v);
    return v;
  }
  void absent() { instr.in.push_back(no_value); }
  template <class T>
  ValueId in_struct(const T& x) {
    ValueId v = value(DType::u8, Shape{int64_t(sizeof(T))});
    std::memcpy(memory[size_t(v)].data(), &x, sizeof(T));
    instr.in.push_back(v);
    return v;
  }
  ValueId out(DType t, const Shape& shape) {
    ValueId v = value(t, shape);
    instr.out.push_back(v);
    return v;
  }
  std::vector<double> read(ValueId v) const {
    std::vector<double> x(size_t(program.at(v).numel()));
    for (size_t i = 0; i < x.size(); ++i)
      x[i] = load_element(memory[size_t(v)].data(), program.at(v).dtype, int64_t(i));
    return x;
  }
  bool guards_intact() const {
    for (size_t v = 0; v < memory.size(); ++v)
      for (size_t i = memory[v].size() - 64; i < memory[v].size(); ++i)
        if (memory[v][i] != 0xcd) return false;
    return true;
  }

  Device device;  // without a class: this process' class, without hardware for bf16
  // Prepared once; run() launches.
  Kernel kernel{};
  std::shared_ptr<void> prepared;
  std::vector<uint8_t> workspace;
  size_t workspace_bytes = 0;
  std::string reject_reason(int threads = 2) {
    device.threads = threads;
    KernelQuery q{program, instr, device};
    for (const Kernel& k : cpu_kernels())
      if (std::string(k.op) == instr.op->name) return k.reject(q);
    return "no kernel";
  }
  void prepare(int threads) {
    device.threads = threads;
    for (const Kernel& k : cpu_kernels())
      if (std::string(k.op) == instr.op->name && k.reject({program, instr, device}).empty()) return prepare(k, threads);
    throw std::runtime_error("no kernel takes it: " + reject_reason(threads));
  }
  void prepare(const Kernel& k, int threads) {
    device.threads = threads;
    KernelQuery q{program, instr, device};
    kernel = k;
    workspace_bytes = k.workspace ? k.workspace(q) : 0;
    workspace.assign(workspace_bytes + 192, 0xcd);
    prepared = k.prepare ? k.prepare(q) : nullptr;
  }
  void launch(int threads) {
    std::vector<void*> in_pointers, out_pointers;
    for (ValueId v : instr.in) in_pointers.push_back(v == no_value ? nullptr : memory[size_t(v)].data());
    for (ValueId v : instr.out) out_pointers.push_back(memory[size_t(v)].data());
    auto* w = workspace.data() + (64 - reinterpret_cast<uintptr_t>(workspace.data()) % 64) % 64;
    kernel.launch({program, instr, in_pointers.data(), out_pointers.data(), w, prepared.get(), threads, nullptr,
                   nullptr, &device});
    for (size_t i = 0; i < 64; ++i)
      if (w[workspace_bytes + i] != 0xcd) throw std::runtime_error("workspace overrun");
  }
  void run(int threads = 2) {
    prepare(threads);
    launch_checked(threads);
  }
  void run(const Kernel& k, int threads) {
    prepare(k, threads);
    launch_checked(threads);
  }
  void launch_checked(int threads) {
    launch(threads);
    if (!guards_intact()) throw std::runtime_error("wrote behind a value");
  }
};

// Random numbers exact in the dtype.
inline std::vector<double> random_values(DType t, int64_t n, unsigned seed, double spread = 1) {
  std::mt19937 gen(seed);
  std::normal_distribution<double> normal(0, spread);
  std::vector<double> x(static_cast<size_t>(n));
  uint8_t cell[8];
  for (double& v : x) {
    store_element(cell, t, 0, normal(gen));
    v = load_element(cell, t, 0);
  }
  return x;
}

// |got - want| / (|want| + floor), the largest; infinity when any is NaN.
inline double worst(const std::vector<double>& got, const std::vector<double>& want, double floor) {
  double w = 0;
  for (size_t i = 0; i < want.size(); ++i) {
    double e = std::abs(got[i] - want[i]) / (std::abs(want[i]) + floor);
    if (!(e < INFINITY)) return INFINITY;
    w = std::max(w, e);
  }
  return w;
}

}  // namespace crest::testing_call
