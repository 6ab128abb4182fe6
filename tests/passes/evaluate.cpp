#include "passes/evaluate.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstring>

#include "backend/backend.h"
#include "core/error.h"
#include "core/random.h"
#include "core/scalars.h"
#include "device.h"
#include "device/kernels.h"
#include "program/op.h"

namespace crest::test {

namespace {

const Device& device() {
  static const Device d = this_cpu(1);
  return d;
}

}  // namespace

Memory::Memory(const Program& p, Kernels kernels, std::shared_ptr<OneRank> rank)
    : p_(p), kernels_(kernels), rank_(std::move(rank)), blocks_(p.values.size()) {
  for (size_t v = 0; v < p.values.size(); ++v)
    if (p.values[v].layout.storage == ValueId(v)) {
      auto bytes = size_t(p.values[v].storage_bytes());
      blocks_[v].assign(bytes / 64 + 2, Line());
      // A group's gaps belong to no parameter: zero, as in an arena.
      bool group = p.values[v].lifetime != Lifetime::micro_step;
      std::memset(static_cast<void*>(blocks_[v].data()), group ? 0 : 0xff, blocks_[v].size() * sizeof(Line));
    }
  std::vector<int> producer = p.producers();
  group_.assign(p.values.size(), false);
  for (const Value& value : p.values) {
    ValueId root = value.layout.storage;
    if (p.at(root).role != Role::input && !(value.shape == p.at(root).shape)) group_[size_t(root)] = true;
  }
  for (size_t v = 0; v < p.values.size(); ++v) {
    const Value& value = p.values[v];
    const Value& root = p.at(value.layout.storage);
    bool version = &root != &value && value.shape == root.shape;  // replaced by a pass
    if (producer[v] >= 0 || group_[v] || version) continue;
    if (p.values[v].name == "scalars") {
      Scalars s{};
      s.seed = 5, s.sample_base = 3, s.lr = 0.01f, s.adam_step = 2, s.loss_scale = 1, s.grad_factor = 1, s.length = 4;
      std::memcpy(at(ValueId(v)), &s, sizeof s);
    } else {
      write(ValueId(v), start(p.values[v]));
    }
  }
}

uint8_t* Memory::at(ValueId v) const {
  const Value& value = p_.at(v);
  auto* start = const_cast<Line*>(blocks_[size_t(value.layout.storage)].data());
  const MeshGroups* groups = rank_ ? rank_->groups() : nullptr;
  const int64_t offset = value.offset_on(groups ? groups->index(Axis::tensor) : 0);
  return reinterpret_cast<uint8_t*>(start) + size_t(offset) * size_of(value.dtype);
}

std::vector<double> Memory::read(ValueId v) const {
  const Value& value = p_.at(v);
  std::vector<double> x(size_t(value.numel()));
  for (size_t i = 0; i < x.size(); ++i) {
    auto rest = int64_t(i);
    int64_t place = 0;
    for (int d = value.shape.rank(); d-- > 0; rest /= value.shape[d])
      place += rest % value.shape[d] * value.layout.strides[d];
    x[i] = load_element(at(v), value.dtype, place);
  }
  return x;
}

void Memory::write(ValueId v, const std::vector<double>& numbers) const {
  for (size_t i = 0; i < numbers.size(); ++i) store_element(at(v), p_.at(v).dtype, int64_t(i), numbers[i]);
}

std::vector<double> Memory::numbers(ValueId v) const {
  const Value& value = p_.at(v);
  std::vector<double> x;
  int64_t columns = value.shape.rank() ? value.shape.back() : 1, count = logical(value);
  int64_t kept = value.name == "logits" ? vocab() : columns;
  for (int64_t i = 0; i < count; ++i)
    if (i % columns < kept) x.push_back(load_element(at(v), value.dtype, i));
  return x;
}

int64_t Memory::vocab() const {
  return std::find_if(p_.params.begin(), p_.params.end(), [](auto& q) { return q.name == "wte.weight"; })->shape[0];
}

// Elements without the padding rows of a parameter, its gradient or its states.
int64_t Memory::logical(const Value& value) const {
  for (auto& q : p_.params)
    for (const std::string& name : {q.name, "grad." + q.name, q.name + ".m", q.name + ".v", q.name + ".master"})
      if (value.name == name) return q.shape.numel();
  return value.numel();
}

std::vector<double> Memory::start(const Value& v) const {
  std::vector<double> numbers(size_t(v.numel()));
  uint64_t stream = std::hash<std::string>{}(v.name);
  int64_t count = logical(v);
  bool square = false;
  for (const char* mean_of_squares : {".v", ".row", ".col", "_max"}) square |= v.name.ends_with(mean_of_squares);
  square |= v.name.find("_max.") != std::string::npos;  // of a group of one
  for (int64_t i = 0; i < v.numel(); ++i) {
    double x = normal(1, stream, uint64_t(i));
    if (v.dtype == DType::i32) x = double(random_bits(1, stream, uint64_t(i)) % 11);
    if (v.name == "positions") x = double(i % v.shape.back() % 3);  // documents of three tokens
    if (square) x = 0.1 + x * x;
    if (v.dtype == DType::u8) x = double(random_bits(1, stream, uint64_t(i)) % 127);  // 127: NaN in e4m3
    if (v.dtype == DType::u8 && i % 2) x += 128;
    if (v.dtype == DType::u16) x = double(random_bits(1, stream, uint64_t(i)) % 65536);
    if (i >= count) x = v.role == Role::gradient ? 0 : 100;
    numbers[size_t(i)] = v.role == Role::weight ? 0.5 * x : x;
  }
  return numbers;
}

void Memory::launch(const Instr& instr) const {
  KernelQuery query{p_, instr, device()};
  const Kernel* chosen = nullptr;
  for (auto& k : kernels_of("cpu")) {
    if (std::string_view(k.op) != instr.op->name || (k.reject && !k.reject(query).empty())) continue;
    if (!chosen || kernels_ == Kernels::reference) chosen = &k;  // fast ones come first, the reference last
  }
  if (!chosen) fail_internal(std::string("no kernel takes ") + instr.op->name);
  std::vector<Line> workspace(chosen->workspace ? chosen->workspace(query) / 64 + 1 : 1);
  std::vector<void*> in, out;
  for (ValueId v : instr.in) in.push_back(v == no_value ? nullptr : at(v));
  for (ValueId v : instr.out) out.push_back(at(v));
  auto prepared = chosen->prepare ? chosen->prepare(query) : nullptr;
  chosen->launch({p_, instr, in.data(), out.data(), workspace.data(), prepared.get(), 1,
                  rank_ ? rank_->groups() : nullptr, nullptr, &device()});
}

std::map<std::string, std::vector<double>> evaluate(const Program& program, Kernels kernels) {
  Memory memory(program, kernels);
  if (kernels != Kernels::none)
    for (const Instr& instr : program.code) memory.launch(instr);
  std::map<std::string, std::vector<double>> r;
  for (ValueId v : program.outputs) r[program.at(v).name] = memory.numbers(v);
  // Read afterwards by the host or another Program: under the name of the first version.
  std::vector<int> producer = program.producers();
  for (size_t v = 0; v < program.values.size(); ++v)
    if (program.values[v].lifetime != Lifetime::micro_step && producer[v] < 0 && !memory.is_group(ValueId(v)))
      r[program.values[v].name] = memory.numbers(ValueId(v));
  return r;
}

double distance(const std::map<std::string, std::vector<double>>& a,
                const std::map<std::string, std::vector<double>>& b, std::string* where) {
  double worst = 0;
  size_t common = 0;
  for (auto& [name, x] : a) {
    auto it = b.find(name);
    if (it == b.end()) continue;
    auto& y = it->second;
    EXPECT_EQ(x.size(), y.size()) << name;
    if (x.size() != y.size()) return INFINITY;
    ++common;
    double difference = 0, norm = 0;
    for (size_t i = 0; i < x.size(); ++i) difference += (x[i] - y[i]) * (x[i] - y[i]), norm += y[i] * y[i];
    EXPECT_TRUE(std::isfinite(difference) && std::isfinite(norm)) << name << " is not finite";
    double relative = difference == 0 ? 0 : std::sqrt(difference / norm);
    if (!(relative <= worst)) worst = relative, *where = name;
  }
  EXPECT_GT(common, 1u);
  return worst;
}

}  // namespace crest::test
