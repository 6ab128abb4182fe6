#include "run/parameters.h"

#include <cstring>
#include <unordered_map>

#include "core/random.h"
#include "core/split_float.h"

namespace crest {

static std::vector<uint16_t> read_halves(const TensorRef& t, int64_t n) {
  std::vector<uint16_t> out(static_cast<size_t>(n));
  t.read(out.data(), n * 2);
  return out;
}

void ParameterRef::get(float* to) const {
  if (in_halves()) {
    std::vector<uint16_t> high = read_halves(weight, numel()), low = read_halves(master, numel());
#pragma omp parallel for
    for (int64_t i = 0; i < numel(); ++i) to[i] = join({high[size_t(i)]}, low[size_t(i)]);
    return;
  }
  const TensorRef& from = master.data ? master : weight;
  if (from.dtype == DType::f32) return from.read(to, numel() * 4);
  std::vector<float> values = from.floats(numel());
  std::memcpy(to, values.data(), values.size() * 4);
}

void ParameterRef::set(const float* from) const {
  if (in_halves()) {
    std::vector<uint16_t> high(size_t(master.shape.numel())), low = high;  // padding is zero
#pragma omp parallel for
    for (int64_t i = 0; i < numel(); ++i) {
      SplitFloat s = split(from[i]);
      high[size_t(i)] = s.high.bits, low[size_t(i)] = s.low;
    }
    weight.write(high.data()), master.write(low.data());
    return;
  }
  for (const TensorRef* t : {&master, &weight})
    if (t->data) t->set_floats(from, numel());
}

// States of a parameter by name, in the Program's order, without the master.
static std::vector<std::pair<std::string, ValueId>> states_of(const Program& p, const std::string& parameter) {
  std::vector<std::pair<std::string, ValueId>> list;
  std::string prefix = parameter + ".";
  for (size_t v = 0; v < p.values.size(); ++v) {
    const Value& value = p.values[v];
    if (value.role != Role::state || value.name.rfind(prefix, 0) != 0) continue;
    std::string name = value.name.substr(prefix.size());
    if (name != "master" && name.find('.') == std::string::npos) list.emplace_back(name, ValueId(v));
  }
  return list;
}

std::vector<ParameterRef> parameters(const Executor& executor) {
  const CompiledSession& s = executor.session();
  int update = s.find("update"), program = update >= 0 ? update : 0;
  const Program& p = s.programs[size_t(program)].program;
  std::unordered_map<std::string_view, ValueId> values;
  for (size_t v = 0; v < p.values.size(); ++v) values.emplace(p.values[v].name, ValueId(v));
  std::vector<ParameterRef> list;
  for (auto& q : p.params) {
    auto find = [&](const std::string& n) { return values.count(n) ? executor.tensor(program, n) : TensorRef{}; };
    ParameterRef r{q.name, q.shape, find(q.name), find(q.name + ".master"), {}, &q};
    for (auto& [name, v] : states_of(p, q.name))
      r.states.push_back({name, executor.tensor(program, p.at(v).name), p.at(v).shape == p.at(q.value).shape});
    if (update >= 0 && !r.master.data) r.master = r.weight;
    list.push_back(std::move(r));
  }
  return list;
}

void initialize(const Executor& executor, uint64_t seed) {
  uint64_t stream = 0;
  std::vector<float> buffer;
  for (auto& p : parameters(executor)) {
    buffer.resize(size_t(p.numel()));
    double mean = p.info->init_mean, std = p.info->init_std;
    uint64_t s = ++stream;
#pragma omp parallel for
    for (int64_t i = 0; i < p.numel(); ++i)
      buffer[size_t(i)] = float(std == 0 ? mean : mean + std * normal(seed, s, uint64_t(i)));
    p.set(buffer.data());
  }
}

}  // namespace crest
