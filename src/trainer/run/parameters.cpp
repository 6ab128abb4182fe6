#include "run/parameters.h"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <memory>
#include <optional>
#include <unordered_map>

#include "backend/cpu/runtime.h"
#include "core/error.h"
#include "core/int8.h"
#include "core/random.h"
#include "core/split_float.h"
#include "run/sharded_states.h"

namespace crest {

namespace {

TensorRef slice(const TensorRef& t, int64_t first, int64_t count) {
  return {static_cast<char*>(t.data) + first * int64_t(size_of(t.dtype)), t.dtype, {count}, t.runtime};
}

// A tensor's 16-bit elements on the host: in place if possible, else a copy.
class Halves {
 public:
  explicit Halves(const TensorRef& t) : tensor_(t) {
    if (!t.on_host()) copy_ = std::make_unique_for_overwrite<uint16_t[]>(size_t(t.shape.numel()));
  }
  uint16_t* data() { return tensor_.on_host() ? static_cast<uint16_t*>(tensor_.data) : copy_.get(); }
  const uint16_t* read() {
    if (!tensor_.on_host()) tensor_.read(copy_.get());
    return data();
  }
  void write() const {
    if (!tensor_.on_host()) tensor_.write(copy_.get());
  }

 private:
  TensorRef tensor_;
  std::unique_ptr<uint16_t[]> copy_;
};

// Rows of an 8-bit weight and their scales.
class Int8Rows {
 public:
  Int8Rows(const ParameterRef& p, int64_t first, int64_t count) : columns_(p.weight.shape[1]) {
    if (first % columns_ || count % columns_) fail_internal("a part of a row of a quantized weight", p.name);
    rows_ = count / columns_;
    codes_ = slice(p.weight, first, count), scales_ = slice(p.scale, first / columns_, rows_);
  }
  void set(const float* from) const {
    std::vector<int8_t> codes(size_t(rows_ * columns_));
    std::vector<float> scales(static_cast<size_t>(rows_));
#pragma omp parallel for if (rows_ * columns_ > (1 << 16))
    for (int64_t r = 0; r < rows_; ++r)
      quantize_row(from + r * columns_, columns_, codes.data() + r * columns_, scales[size_t(r)]);
    codes_.write(codes.data());
    scales_.write(scales.data());
  }
  void get(float* to) const {
    std::vector<int8_t> codes(size_t(rows_ * columns_));
    std::vector<float> scales(static_cast<size_t>(rows_));
    codes_.read(codes.data());
    scales_.read(scales.data());
#pragma omp parallel for if (rows_ * columns_ > (1 << 16))
    for (int64_t r = 0; r < rows_; ++r)
      dequantize_row(codes.data() + r * columns_, scales[size_t(r)], columns_, to + r * columns_);
  }

 private:
  int64_t columns_, rows_ = 0;
  TensorRef codes_, scales_;
};

}  // namespace

void ParameterRef::get(float* to, int64_t first, int64_t count) const {
  if (scale.data) return Int8Rows(*this, first, count).get(to);
  TensorRef from = slice(master.data ? master : weight, first, count);
  if (in_halves()) {
    Halves high_halves(slice(weight, first, count)), low_halves(from);
    const uint16_t *high = high_halves.read(), *low = low_halves.read();
#pragma omp parallel for if (count > (1 << 16))
    for (int64_t i = 0; i < count; ++i) to[i] = join({high[i]}, low[i]);
  } else if (from.dtype == DType::f32) {
    from.read(to);
  } else {
    std::vector<float> values = from.floats();
    std::memcpy(to, values.data(), values.size() * sizeof(float));
  }
}

void ParameterRef::set(const float* from, int64_t first, int64_t count) const {
  if (scale.data) return Int8Rows(*this, first, count).set(from);
  if (weight.dtype == DType::bf16) {
    Halves high_halves(slice(weight, first, count));
    std::optional<Halves> low_halves;
    if (in_halves()) low_halves.emplace(slice(master, first, count));
    uint16_t *high = high_halves.data(), *low = low_halves ? low_halves->data() : nullptr;
#pragma omp parallel for if (count > (1 << 16))
    for (int64_t i = 0; i < count; ++i) {
      SplitFloat s = split(from[i]);
      high[i] = s.high.bits;
      if (low) low[i] = s.low;
    }
    high_halves.write();
    if (low_halves) return low_halves->write();
    if (!master.data || master.data == weight.data) return;
    slice(master, first, count).set_floats(from, count);
    return;
  }
  for (const TensorRef* t : {&master, &weight})
    if (t->data) slice(*t, first, count).set_floats(from, count);
}

void ParameterRef::zero_padding() const {
  // The parameter's rows, as in its scales.
  for (auto [t, elements] :
       {std::pair{&master, numel()}, {&weight, numel()}, {&scale, scale.data ? shape[0] : int64_t(0)}}) {
    if (!t->data) continue;
    int64_t used = elements * int64_t(size_of(t->dtype));
    if (used < t->bytes()) t->runtime->zero(static_cast<char*>(t->data) + used, t->bytes() - used);
  }
}

// A parameter's states by name, without the master, in Program order.
static std::vector<std::pair<std::string, ValueId>> states_of(const Program& p, const std::string& parameter) {
  std::vector<std::pair<std::string, ValueId>> list;
  std::string prefix = parameter + ".";
  for (size_t v = 0; v < p.values.size(); ++v) {
    const Value& value = p.values[v];
    if (value.role != Role::state || !value.name.starts_with(prefix)) continue;
    std::string name = value.name.substr(prefix.size());
    if (name != "master" && name.find('.') == std::string::npos) list.emplace_back(name, ValueId(v));
  }
  return list;
}

// The Program with the states, if there is one.
static int program_of_states(const CompiledSession& s) { return std::max(0, s.find("update")); }

std::vector<ParameterRef> own_parameters(const Executor& executor) {
  int program = program_of_states(executor.session());
  const Program& p = executor.session().programs[size_t(program)].program;
  std::unordered_map<std::string_view, ValueId> values;
  for (size_t v = 0; v < p.values.size(); ++v) values.emplace(p.values[v].name, ValueId(v));
  std::vector<ParameterRef> list;
  for (auto& q : p.params) {
    auto find = [&](const std::string& n) {
      auto it = values.find(n);
      if (it == values.end()) return TensorRef{};
      const Value& group = p.at(p.at(it->second).layout.storage);
      const bool absent = std::any_of(group.placement.begin(), group.placement.end(),
                                      [](Placement at) { return at.kind == Placement::Kind::absent; });
      return group.lifetime == Lifetime::persistent && !absent ? executor.tensor(program, n) : TensorRef{};
    };
    ParameterRef r{q.name, q.shape, find(q.name), find(q.name + int8_scale), find(q.name + ".master"), {}, &q, {}};
    for (Axis axis : axes_outermost_first)
      if (p.at(q.value).placement[size_t(axis)].kind == Placement::Kind::shard) r.cut = r.cut | axis;
    if (executor.session().recipe.layout().size(Axis::pipeline) > 1) r.cut = r.cut | Axis::pipeline;
    for (auto& [name, v] : states_of(p, q.name))
      r.states.push_back({name, executor.tensor(program, p.at(v).name), p.at(v).shape == p.at(q.value).shape});
    list.push_back(std::move(r));
  }
  return list;
}

std::vector<ParameterRef> parameters(const Executor& executor) {
  ShardedStates& sharded = executor.sharded();
  std::vector<ParameterRef> list;
  if (executor.session().recipe.layout().size(Axis::pipeline) == 1) {
    list = own_parameters(executor);
    for (ParameterRef& r : list)
      if (r.cut.has(Axis::tensor)) r.weight = r.master = {}, r.states.clear();
  } else {
    for (const Param& q : sharded.params()) list.push_back({q.name, q.shape, {}, {}, {}, {}, &q, Axis::pipeline});
  }
  for (size_t i = 0; i < sharded.tensors().size(); ++i) {
    auto& t = sharded.tensors()[i];
    ParameterRef& r = list[t.parameter];
    if (t.state == weights_state)
      r.weight = sharded.whole(i);
    else if (t.state == "master")
      r.master = sharded.whole(i);
    else
      r.states.push_back({t.state, sharded.whole(i), t.of_elements});
  }
  for (ParameterRef& r : list)
    if (executor.session().find("update") >= 0 && !r.master.data) r.master = r.weight;
  return list;
}

// A parameter's tensors with their own memory.
static std::vector<const TensorRef*> tensors_of(const ParameterRef& p) {
  std::vector<const TensorRef*> list = {&p.weight};
  if (p.scale.data) list.push_back(&p.scale);
  if (p.master.data && p.master.data != p.weight.data) list.push_back(&p.master);
  for (auto& s : p.states) list.push_back(&s.tensor);
  return list;
}

ParameterCopy::ParameterCopy(const Executor& executor)
    : parameters_(crest::parameters(executor)), device_(std::make_unique<Device>()) {
  device_->threads = executor.session().device.threads;
  host_ = make_host_runtime(*device_, nullptr);
  auto space = [](const TensorRef& t) { return (t.bytes() + 63) / 64 * 64; };
  int64_t bytes = 0;
  for (auto& p : parameters_) {
    if (p.info->frozen) continue;
    for (auto* t : tensors_of(p)) bytes += space(*t);
  }
  memory_.reset(static_cast<char*>(host_->allocate(bytes)),
                [host = host_.get(), bytes](char* p) { host->release(p, bytes); });
  char* free = memory_.get();
  auto copy = [&](TensorRef& t) {
    TensorRef to{free, t.dtype, t.shape, host_.get()};
    free += space(to);
    if (t.on_host())
      to.write(t.data);
    else
      t.read(to.data);
    t = to;
  };
  ShardedStates& sharded = executor.sharded();
  for (size_t q = 0; q < parameters_.size(); ++q) {
    ParameterRef& p = parameters_[q];
    if (p.info->frozen) continue;
    sharded.read(q, weights_state, [&] {
      const bool one = p.master.data == p.weight.data;
      copy(p.weight);
      if (p.scale.data) copy(p.scale);
      if (one)
        p.master = p.weight;
      else if (p.master.data)
        copy(p.master);
    });
    for (auto& s : p.states) sharded.read(q, s.name, [&] { copy(s.tensor); });
  }
}

// Uniform in (0, 1).
static double unit(uint64_t seed, uint64_t stream, uint64_t n) {
  return (double(random_bits(seed, stream, n)) + 0.5) * 0x1p-32;
}

// Elements of a parameter set at a time: these stay in the caches, while whole matrices of large
// models do not.
static constexpr int64_t initialized_at_once = int64_t(1) << 21;

void initialize(const Executor& executor, int rank, uint64_t seed, int64_t period, bool trained_only) {
  std::vector<ParameterRef> list = parameters(executor);
  int64_t elements = 0;
  for (auto& p : list) elements += p.numel();
  if (elements <= period) period = 0;
  std::vector<double> normals(static_cast<size_t>(period));
#pragma omp parallel for
  for (int64_t i = 0; i < period; ++i) normals[size_t(i)] = normal(seed, 0, uint64_t(i));
  uint64_t stream = 0;
  std::vector<float> buffer;
  for (size_t q = 0; q < list.size(); ++q) {
    const ParameterRef& p = list[q];
    if (trained_only && p.info->frozen) {
      ++stream;
      continue;
    }
    const bool uniform = p.info->uniform;
    double mean = p.info->init_mean, std = p.info->init_std;
    uint64_t s = ++stream;
    if (!executor.sharded().here(q)) continue;
    uint64_t first = random_bits(seed, s, 0), mask = uint64_t(period) - 1;
    const int64_t row = std::max<int64_t>(1, p.numel() / p.shape[0]);  // 8-bit weights are set by rows
    const int64_t part = std::max<int64_t>(1, initialized_at_once / row) * row;
    buffer.resize(std::max(buffer.size(), size_t(std::min(part, p.numel()))));
    for (int64_t begin = 0; begin < p.numel(); begin += part) {
      const int64_t count = std::min(part, p.numel() - begin);
#pragma omp parallel for
      for (int64_t i = 0; i < count; ++i) {
        uint64_t n = uint64_t(begin + i);
        double x = std == 0     ? 0
                   : uniform    ? std::sqrt(12.0) * (unit(seed, s, n) - 0.5)
                   : period > 0 ? normals[(first + n) & mask]
                                : normal(seed, s, n);
        buffer[size_t(i)] = float(mean + std * x);
      }
      p.set(buffer.data(), begin, count);
    }
    p.zero_padding();
    executor.sharded().take(rank, q);
  }
}

}  // namespace crest
