#include "ops/harness.h"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <limits>

#include "backend/cpu/isa.h"
#include "core/error.h"
#include "core/random.h"
#include "program/builder.h"

namespace crest::test {

static constexpr size_t guard = 64;
static constexpr uint8_t guard_byte = 0xa5;

// One past the last byte of the storage that a value reaches.
static size_t extent(const Value& v) {
  int64_t last = v.layout.offset;
  for (int d = 0; d < v.shape.rank(); ++d) last += (v.shape[d] - 1) * v.layout.strides[d];
  return size_t(last + 1) * size_of(v.dtype);
}

// Calls f(k, place) for the elements of a value: logical number, place in elements from the value's first element.
template <class F>
static void for_each_element(const Value& v, F f) {
  int64_t n = v.numel();
  for (int64_t k = 0; k < n; ++k) {
    int64_t rest = k, place = 0;
    for (int d = v.shape.rank() - 1; d >= 0; --d) place += rest % v.shape[d] * v.layout.strides[d], rest /= v.shape[d];
    f(size_t(k), place);
  }
}

Memory::Memory(const Program& program) : program_(program) {
  sizes_.assign(program.values.size(), 0);
  for (const Value& v : program.values) {
    size_t& size = sizes_[size_t(v.layout.storage)];
    size = std::max(size, extent(v));
  }
  moved_.assign(sizes_.size(), nullptr);
  for (size_t size : sizes_) {
    std::vector<uint8_t> block(size ? size + 3 * guard : 0, guard_byte);
    blocks_.push_back(std::move(block));
    if (size) std::memset(start(ValueId(blocks_.size() - 1)), 0xff, size);
  }
}

uint8_t* Memory::start(ValueId storage) const {
  auto p = reinterpret_cast<uintptr_t>(blocks_[size_t(storage)].data()) + guard;
  return reinterpret_cast<uint8_t*>((p + 63) / 64 * 64);
}

void* Memory::at(ValueId id) const {
  const Value& v = program_.at(id);
  if (moved_[size_t(id)]) return moved_[size_t(id)];
  return start(v.layout.storage) + size_t(v.layout.offset) * size_of(v.dtype);
}

void Memory::write(ValueId id, const std::vector<double>& values) {
  const Value& v = program_.at(id);
  for_each_element(v, [&](size_t k, int64_t place) { store_element(at(id), v.dtype, place, values[k]); });
}

std::vector<double> Memory::read(ValueId id) const {
  const Value& v = program_.at(id);
  std::vector<double> values(size_t(v.numel()));
  for_each_element(v, [&](size_t k, int64_t place) { values[k] = load_element(at(id), v.dtype, place); });
  return values;
}

std::vector<uint8_t> Memory::bytes(ValueId id) const {
  ValueId storage = program_.at(id).layout.storage;
  const auto* p = moved_[size_t(id)] ? static_cast<uint8_t*>(moved_[size_t(id)]) : start(storage);
  return {p, p + sizes_[size_t(storage)]};
}

bool Memory::guards_intact() const {
  for (size_t s = 0; s < blocks_.size(); ++s) {
    if (!sizes_[s]) continue;
    const uint8_t *first = start(ValueId(s)), *last = first + sizes_[s];
    const uint8_t *begin = blocks_[s].data(), *end = begin + blocks_[s].size();
    auto intact = [](uint8_t b) { return b == guard_byte; };
    if (!std::all_of(begin, first, intact) || !std::all_of(last, end, intact)) return false;
  }
  return true;
}

Single::Single(const Case& c) {
  Builder b(program);
  b.origin = Origin("test");
  Instr instr;
  instr.op = &op(c.op);
  for (size_t i = 0; i < c.in.size(); ++i) {
    const Arg& a = c.in[i];
    if (a.fill == Arg::Fill::absent) {
      instr.in.push_back(no_value);
      continue;
    }
    ValueId v = b.declare("in" + std::to_string(i), a.dtype, a.shape, Role::input, Lifetime::micro);
    if (a.strides.rank()) program.at(v).layout = {v, a.offset, a.strides};
    instr.in.push_back(v);
  }
  instr.attrs = c.attrs;
  instr.body = c.body;
  instr.origin = b.origin;
  b.append(std::move(instr));
}

void Single::fill(Memory& memory, const Values& values) const {
  for (size_t i = 0; i < instr().in.size(); ++i)
    if (instr().in[i] != no_value) memory.write(instr().in[i], values[i]);
}

static void attrs_in_double(Attrs& attrs) {
  if (attrs.has("dtype")) attrs.set("dtype", "f64");
}

Case in_double(const Case& c) {
  Case d = c;
  for (Arg& a : d.in)
    if (is_float(a.dtype)) a.dtype = DType::f64;
  attrs_in_double(d.attrs);
  if (c.body) {
    auto body = std::make_shared<Program>(*c.body);
    for (Value& v : body->values) v.dtype = DType::f64;
    for (Instr& i : body->code) attrs_in_double(i.attrs);
    d.body = body;
  }
  return d;
}

static std::vector<double> fill_arg(const Case& c, const Arg& a, uint64_t stream) {
  std::vector<double> x(a.fill == Arg::Fill::absent ? 0 : size_t(a.shape.numel()));
  uint64_t seed = std::hash<std::string>{}(c.op);
  for (size_t e = 0; e < x.size(); ++e) {
    uint32_t bits = random_bits(seed, stream, e);
    switch (a.fill) {
      case Arg::Fill::normal: x[e] = a.deviation * normal(seed, stream, e); break;
      case Arg::Fill::positive: x[e] = 0.5 + double(uniform(bits)); break;
      case Arg::Fill::ids: x[e] = double(bits % uint64_t(a.limit)); break;
      case Arg::Fill::targets: x[e] = e % 5 == 3 ? -1 - double(e % 2) * 99 : double(bits % uint64_t(a.limit)); break;
      case Arg::Fill::scalars: x[e] = reinterpret_cast<const uint8_t*>(&c.scalars)[e]; break;
      case Arg::Fill::absent: break;
    }
  }
  return x;
}

static void round_values(const Case& c, Values& values) {
  double cell = 0;
  for (size_t i = 0; i < c.in.size(); ++i)
    for (double& x : values[i]) {
      store_element(&cell, c.in[i].dtype, 0, x);
      x = load_element(&cell, c.in[i].dtype, 0);
    }
}

Values make_values(const Case& c) {
  Values values;
  for (size_t i = 0; i < c.in.size(); ++i) values.push_back(fill_arg(c, c.in[i], i));
  round_values(c, values);
  if (c.complete) {
    c.complete(values);
    round_values(c, values);
  }
  return values;
}

const Device& device() {
  static const Device d = [] {
    Device d;
    d.threads = 2;
    d.memory = int64_t(1) << 30;
    d.isa = name(active_isa());
    d.native_bf16 = has_native_bf16();
    return d;
  }();
  return d;
}

std::vector<const Kernel*> kernels_for(const std::string& op) {
  std::vector<const Kernel*> found;
  for (const Kernel& k : kernels_of("cpu"))
    if (k.op == op) found.push_back(&k);
  return found;
}

const Kernel& reference_kernel(const std::string& op) {
  for (const Kernel* k : kernels_for(op))
    if (k->name == "cpu." + op + ".reference") return *k;
  fail_internal("no reference kernel for '" + op + "'");
}

// Scratch is poisoned and guarded on its far side; its start is aligned as the executor aligns it.
BoundKernel::BoundKernel(const Kernel& kernel, const Program& program, const Instr& instr, const Memory& memory)
    : kernel_(kernel), program_(program), instr_(instr) {
  KernelQuery query{program, instr, device()};
  scratch_size_ = kernel.workspace ? kernel.workspace(query) : 0;
  scratch_.assign(scratch_size_ + 2 * guard, 0xff);
  std::memset(scratch() + scratch_size_, guard_byte,
              size_t(scratch_.data() + scratch_.size() - scratch()) - scratch_size_);
  prepared_ = kernel.prepare ? kernel.prepare(query) : nullptr;
  for (ValueId v : instr.in) in_.push_back(v == no_value ? nullptr : memory.at(v));
  for (ValueId v : instr.out) out_.push_back(memory.at(v));
}

uint8_t* BoundKernel::scratch() {
  return reinterpret_cast<uint8_t*>((reinterpret_cast<uintptr_t>(scratch_.data()) + 63) / 64 * 64);
}

void BoundKernel::launch() {
  kernel_.launch({program_, instr_, in_.data(), out_.data(), scratch_size_ ? scratch() : nullptr, prepared_.get(),
                  device().threads, nullptr});
  const uint8_t* end = scratch_.data() + scratch_.size();
  if (!std::all_of<const uint8_t*>(scratch() + scratch_size_, end, [](uint8_t b) { return b == guard_byte; }))
    fail_internal(std::string(kernel_.name) + " wrote beyond its workspace");
}

void launch(const Kernel& kernel, const Program& program, const Instr& instr, const Memory& memory) {
  BoundKernel(kernel, program, instr, memory).launch();
}

void run_reference(const Program& program, const Memory& memory) {
  for (const Instr& i : program.code) launch(reference_kernel(i.op->name), program, i, memory);
}

Values reference_outputs(const Case& c, const Values& in) {
  Single s(c);
  Memory memory(s.program);
  s.fill(memory, in);
  run_reference(s.program, memory);
  Values out;
  for (ValueId v : s.instr().out) out.push_back(memory.read(v));
  return out;
}

static constexpr double infinity = std::numeric_limits<double>::infinity();

double relative_error(const std::vector<double>& a, const std::vector<double>& b) {
  double difference = 0, norm = 0;
  for (size_t i = 0; i < b.size(); ++i) {
    if (a[i] == b[i] && std::isinf(b[i])) continue;
    if (!std::isfinite(a[i]) || !std::isfinite(b[i])) return infinity;
    difference += (a[i] - b[i]) * (a[i] - b[i]);
    norm += b[i] * b[i];
  }
  return difference == 0 ? 0 : std::sqrt(difference / norm);
}

double worst_element(const std::vector<double>& a, const std::vector<double>& b) {
  double worst = 0, norm = 0, count = 0;
  for (size_t i = 0; i < b.size(); ++i) {
    if (!std::isfinite(b[i])) continue;
    worst = std::max(worst, std::abs(a[i] - b[i]));
    norm += b[i] * b[i], count += 1;
  }
  return worst == 0 ? 0 : worst / std::sqrt(norm / count);
}

std::string identifier(const std::string& text) {
  std::string s;
  for (char ch : text) s += std::isalnum(static_cast<unsigned char>(ch)) ? ch : '_';
  return s;
}

}  // namespace crest::test
