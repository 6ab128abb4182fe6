#include "checkpoint/weights_io.h"

#include <fmt/format.h>

#include <atomic>
#include <cstring>
#include <mutex>
#include <unordered_map>
#include <utility>

#include "checkpoint/parameter_reader.h"
#include "core/error.h"
#include "core/text.h"
#include "model/weights_map.h"
#include "run/sharded_states.h"

namespace crest {

namespace {

const TensorRef& truth(const ParameterRef& p) { return p.master.data ? p.master : p.weight; }

// The tensor's fp32 values, if the host can access them in place; else null.
float* direct(const TensorRef& t) {
  return t.data && t.on_host() && t.dtype == DType::f32 ? static_cast<float*>(t.data) : nullptr;
}

// The parameter of each part of a tensor.
using ParametersOf = std::function<size_t(const TensorPart&)>;
ParametersOf by_name(const std::vector<ParameterRef>& parameters) {
  std::unordered_map<std::string, size_t> index;
  for (size_t q = 0; q < parameters.size(); ++q) index[parameters[q].name] = q;
  return [index = std::move(index)](const TensorPart& part) {
    auto it = index.find(part.parameter);
    if (it == index.end()) fail_internal("the program has no parameter " + part.parameter, "weights_io");
    return it->second;
  };
}

// adapters: the tensors are those of the adapters, else of all other parameters.
void require_cover(const std::vector<CanonicalTensor>& tensors, const std::vector<ParameterRef>& parameters,
                   bool adapters) {
  const ParametersOf parameter_of = by_name(parameters);
  std::vector<int64_t> elements(parameters.size(), 0);
  for (auto& t : tensors)
    for (auto& part : t.parts) elements[parameter_of(part)] += part.rows * t.columns;
  for (size_t q = 0; q < parameters.size(); ++q)
    if (elements[q] != (is_adapter(*parameters[q].info) == adapters ? parameters[q].numel() : 0))
      fail_internal("the canonical tensors do not cover parameter " + parameters[q].name, "weights_io");
}

template <class Bits>
bool all_finite(const TensorRef& t, Bits exponent) {
  auto* bits = static_cast<const Bits*>(t.data);
  int64_t n = t.shape.numel(), found = 0;
#pragma omp parallel for reduction(+ : found) if (n > (1 << 16))
  for (int64_t i = 0; i < n; ++i) found += (bits[i] & exponent) == exponent;
  return found == 0;
}

// On the host. For a split master weight, the upper half is enough.
bool is_finite(const ParameterRef& p) {
  bool finite = true;
  for (const TensorRef* t : {&p.weight, &p.master}) {
    if (!t->data) continue;
    if (t->dtype == DType::f32) finite = finite && all_finite<uint32_t>(*t, 0x7f800000u);
    if (t->dtype == DType::bf16) finite = finite && all_finite<uint16_t>(*t, 0x7f80u);
    if (t->dtype == DType::f16) finite = finite && all_finite<uint16_t>(*t, 0x7c00u);
  }
  return finite;
}

// The parameters are on the host. sharded: of the executor; null for a copy. Parts of tensors that
// are kept in parts by ranks are produced anew each time, so that few are whole at once.
TensorSource source_of(const std::vector<ParameterRef>& list, const CanonicalTensor& t,
                       const ParametersOf& parameter_of, ShardedStates* sharded) {
  TensorSource source{{t.name, DType::f32, t.shape}};
  const size_t first = parameter_of(t.parts[0]);
  const float* data = direct(truth(list[first]));
  if (data && t.plain() && !(sharded && sharded->has(first, weights_state))) {
    source.data = data + t.parts[0].row * t.columns;
    return source;
  }
  std::vector<std::pair<size_t, ParameterRef>> parameters;
  for (auto& part : t.parts) parameters.emplace_back(parameter_of(part), list[parameter_of(part)]);
  source.make = [parameters = std::move(parameters), t, sharded](void* to) {
    std::vector<float> rows;
    auto read = [&](const TensorPart& part) -> const float* {
      const auto& [q, p] = parameters[size_t(&part - t.parts.data())];
      rows.resize(size_t(part.rows * t.columns));
      auto get = [&, &p = p] { p.get(rows.data(), part.row * t.columns, part.rows * t.columns); };
      sharded ? sharded->read(q, weights_state, get) : get();
      return rows.data();
    };
    gather(t, read, static_cast<float*>(to));
  };
  return source;
}

// The stored form of an optimizer state.
TensorSpec spec_of(const ParameterRef& p, const StateRef& s) {
  return {p.name + "." + s.name, s.tensor.dtype, (s.padded ? p.shape : s.tensor.shape).dims()};
}

// Of a state kept in parts, as above.
TensorSource from_parts(ShardedStates& sharded, size_t parameter, std::string state, const TensorSource& whole) {
  TensorSource source{whole.spec};
  source.make = [&sharded, parameter, state = std::move(state), whole](void* to) {
    sharded.read(parameter, state, [&] { std::memcpy(to, whole.data, byte_count(whole.spec)); });
  };
  return source;
}

}  // namespace

TensorsToSave tensors_to_save(const Executor& executor, bool copied) {
  TensorsToSave out;
  if (copied || !executor.runtime().host_memory()) out.copy = std::make_shared<const ParameterCopy>(executor);
  const std::vector<ParameterRef> list = out.copy ? out.copy->parameters() : parameters(executor);
  const ModelConfig& model = executor.session().recipe.model;
  const std::vector<CanonicalTensor> tensors = saved_tensors(model);
  require_cover(tensors, list, model.lora.rank > 0);
  ShardedStates& sharded = executor.sharded();
  const ParametersOf parameter_of = by_name(list);
  for (auto& t : tensors) out.weights.push_back(source_of(list, t, parameter_of, out.copy ? nullptr : &sharded));
  for (size_t q = 0; q < list.size(); ++q) {
    if (list[q].info->frozen) continue;
    for (auto& s : list[q].states) {
      TensorSource source = {spec_of(list[q], s), s.tensor.data};
      const bool in_parts = !out.copy && sharded.has(q, s.name);
      out.optimizer.push_back(in_parts ? from_parts(sharded, q, s.name, source) : std::move(source));
    }
    auto check = [&] { out.finite = out.finite && is_finite(list[q]); };
    out.copy ? check() : sharded.read(q, weights_state, check);
  }
  return out;
}

uint64_t checkpoint_bytes(const Executor& executor) {
  uint64_t bytes = 0;
  for (const ParameterRef& p : parameters(executor)) {
    if (p.info->frozen) continue;
    bytes += uint64_t(p.numel()) * sizeof(float);
    for (const StateRef& s : p.states) bytes += byte_count(spec_of(p, s));
  }
  return bytes;
}

std::string not_finite_weight(const Executor& executor) {
  std::vector<float> values;
  const std::vector<ParameterRef> list = parameters(executor);
  for (size_t q = 0; q < list.size(); ++q) {
    values.resize(size_t(list[q].numel()));
    executor.sharded().read(q, weights_state, [&] { list[q].get(values.data()); });
    TensorRef all;
    all.data = values.data(), all.shape = Shape{list[q].numel()}, all.dtype = DType::f32;
    if (!all_finite<uint32_t>(all, 0x7f800000u)) return list[q].name;
  }
  return "";
}

void load_weights(const Executor& executor, const WeightsFolder& folder) {
  ParameterReader reader(executor.session().recipe.model, folder);
  std::vector<float> values;
  const std::vector<ParameterRef> list = parameters(executor);
  for (size_t q = 0; q < list.size(); ++q) {
    if (is_adapter(*list[q].info)) continue;
    reader.read(list[q].name, values);
    if (int64_t(values.size()) != list[q].numel())
      fail_internal("the canonical tensors do not cover parameter " + list[q].name, "weights_io");
    executor.sharded().write(q, weights_state, [&] { list[q].set(values.data()); });
  }
}

// Adapters of a checkpoint, under Crest's own names.
static NameMatch match_adapters(const ModelConfig& model, const Checkpoint& checkpoint,
                                const std::vector<OfferedTensor>& offered) {
  NameMatch match;
  match.tensors = saved_tensors(model);
  std::vector<TensorSpec> expected;
  for (auto& t : match.tensors) expected.push_back({t.name, DType::f32, t.shape});
  checkpoint.require_weights(expected);
  std::unordered_map<std::string, size_t> position;
  for (size_t i = 0; i < offered.size(); ++i) position[offered[i].name] = i;
  for (auto& t : match.tensors) match.source.push_back(position.at(t.name));
  return match;
}

void load_weights(const Executor& executor, const Checkpoint& checkpoint, bool adapters) {
  // Reports how the models differ. load_weights below then requires exactly these tensors.
  std::vector<OfferedTensor> offered;
  for (auto& s : checkpoint.weight_specs()) offered.push_back({s.name, s.shape});
  const ModelConfig& model = executor.session().recipe.model;
  const NameMatch match = adapters ? match_adapters(model, checkpoint, offered)
                                   : match_names(model, offered, join_path(checkpoint.path(), "model.safetensors"));
  const std::vector<ParameterRef> list = parameters(executor);
  require_cover(match.tensors, list, adapters);
  const ParametersOf parameter_of = by_name(list);
  ShardedStates& sharded = executor.sharded();
  std::vector<std::atomic<size_t>> left(list.size());  // parts of each parameter
  for (auto& t : match.tensors)
    for (auto& part : t.parts) ++left[parameter_of(part)];
  std::mutex device;  // one thread at a time copies to it
  std::vector<TensorTarget> targets;
  for (size_t i = 0; i < match.tensors.size(); ++i) {
    const CanonicalTensor& t = match.tensors[i];
    targets.push_back({{offered[match.source[i]].name, DType::f32, t.shape}, nullptr, [&](const void* from) {
                         std::vector<float> rows(t.plain() ? 0 : size_t(t.elements()));
                         float* next = rows.data();
                         if (!t.plain())
                           scatter(t, from, DType::f32, [&](const TensorPart& part) {
                             return std::exchange(next, next + part.rows * t.columns);
                           });
                         const float* all = t.plain() ? static_cast<const float*>(from) : rows.data();
                         std::unique_lock lock(device, std::defer_lock);
                         if (!executor.runtime().host_memory()) lock.lock();
                         for (auto& part : t.parts) {
                           const size_t q = parameter_of(part);
                           const int64_t n = part.rows * t.columns;
                           list[q].set(all, part.row * t.columns, n);
                           all += n;
                           if (--left[q] == 0) sharded.write(q, weights_state, [&] { list[q].zero_padding(); });
                         }
                       }});
  }
  checkpoint.load_weights(targets);
}

void load_optimizer(const Executor& executor, const Checkpoint& checkpoint) {
  ShardedStates& sharded = executor.sharded();
  std::mutex device;
  std::vector<TensorTarget> targets;
  const std::vector<ParameterRef> list = parameters(executor);
  for (size_t q = 0; q < list.size(); ++q)
    for (const StateRef& s : list[q].states) {
      const TensorSpec spec = spec_of(list[q], s);
      targets.push_back({spec, nullptr, [&, q, bytes = byte_count(spec)](const void* from) {
                           std::unique_lock lock(device, std::defer_lock);
                           if (!executor.runtime().host_memory()) lock.lock();
                           sharded.write(q, s.name, [&] {
                             s.tensor.runtime->write(s.tensor.data, from, int64_t(bytes));
                             const int64_t padding = s.tensor.bytes() - int64_t(bytes);
                             if (padding) s.tensor.runtime->zero(static_cast<char*>(s.tensor.data) + bytes, padding);
                           });
                         }});
    }
  checkpoint.load_optimizer(targets);
}

static void load_base(const Executor& executor, const LoadedModel& model) {
  if (model.checkpoint) return load_weights(executor, *model.checkpoint);
  load_weights(executor, WeightsFolder::open(model.weights_path));
}

void load_weights(const Executor& executor, const LoadedModel& model) {
  if (model.config.lora.rank == 0) return load_base(executor, model);
  load_base(executor, open_base(model));
  if (model.checkpoint) return load_weights(executor, *model.checkpoint, true);
  const std::vector<ParameterRef> list = parameters(executor);
  for (size_t q = 0; q < list.size(); ++q)
    if (is_adapter(*list[q].info))
      executor.sharded().write(q, weights_state, [&] { list[q].set(model.adapter->at(list[q].name).data()); });
}

}  // namespace crest
