#include "checkpoint/weights_io.h"

#include <fmt/format.h>

#include <atomic>
#include <cstring>
#include <mutex>
#include <unordered_map>

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

// The tensor, as part of a parameter with only its rows.
CanonicalTensor of_rows(CanonicalTensor t) {
  t.row = 0;
  return t;
}

// A parameter and its canonical tensors.
struct Part {
  ParameterRef parameter;
  std::vector<size_t> tensors;  // indices into canonical
};
struct ParameterLayout {
  std::vector<CanonicalTensor> canonical;
  std::vector<Part> parts;
};

ParameterLayout layout_of(const ModelConfig& model, const std::vector<ParameterRef>& parameters) {
  ParameterLayout out;
  out.canonical = canonical_tensors(model);
  std::unordered_map<std::string, size_t> by_name;
  for (auto& p : parameters) {
    by_name[p.name] = out.parts.size();
    out.parts.push_back({p, {}});
  }
  for (size_t i = 0; i < out.canonical.size(); ++i) {
    auto it = by_name.find(out.canonical[i].parameter);
    if (it == by_name.end()) fail_internal("the program has no parameter " + out.canonical[i].parameter, "weights_io");
    out.parts[it->second].tensors.push_back(i);
  }
  for (auto& part : out.parts) {
    int64_t elements = 0;
    for (size_t i : part.tensors) elements += out.canonical[i].elements();
    if (elements != part.parameter.numel())
      fail_internal("the canonical tensors do not cover parameter " + part.parameter.name, "weights_io");
  }
  return out;
}

ParameterLayout layout_of(const Executor& executor) {
  return layout_of(executor.session().recipe.model, parameters(executor));
}

NameMatch match(const Executor& executor, const ParameterLayout& layout, const std::vector<TensorSpec>& specs,
                const std::string& where) {
  std::vector<OfferedTensor> offered;
  for (auto& s : specs) offered.push_back({s.name, s.shape});
  return match_names(executor.session().recipe.model, layout.canonical, offered, where);
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

// p is on the host.
TensorSource source_of(const ParameterRef& p, const CanonicalTensor& t) {
  TensorSource source{{t.name, DType::f32, t.shape}};
  const float* data = direct(truth(p));
  if (data && !t.transposed)
    source.data = data + t.row * t.columns;
  else
    source.make = [p, t, data](void* to) {
      auto* out = static_cast<float*>(to);
      if (data) return gather(t, data, out);
      if (!t.transposed) return p.get(out, t.row * t.columns, t.elements());
      std::vector<float> rows(size_t(t.elements()));
      p.get(rows.data(), t.row * t.columns, t.elements());
      gather(of_rows(t), rows.data(), out);
    };
  return source;
}

// The stored form of an optimizer state.
TensorSpec spec_of(const ParameterRef& p, const StateRef& s) {
  return {p.name + "." + s.name, s.tensor.dtype, (s.padded ? p.shape : s.tensor.shape).dims()};
}

// Of a tensor kept in parts: produced anew each time, so that few are whole at once.
TensorSource from_parts(ShardedStates& sharded, size_t parameter, std::string state, const TensorSource& whole) {
  TensorSource source{whole.spec};
  source.make = [&sharded, parameter, state = std::move(state), whole](void* to) {
    sharded.read(parameter, state, [&] {
      if (whole.make)
        whole.make(to);
      else
        std::memcpy(to, whole.data, byte_count(whole.spec));
    });
  };
  return source;
}

}  // namespace

TensorsToSave tensors_to_save(const Executor& executor, bool copied) {
  TensorsToSave out;
  if (copied || !executor.runtime().host_memory()) out.copy = std::make_shared<const ParameterCopy>(executor);
  ParameterLayout layout =
      layout_of(executor.session().recipe.model, out.copy ? out.copy->parameters() : parameters(executor));
  ShardedStates& sharded = executor.sharded();
  auto add = [&](std::vector<TensorSource>& list, size_t q, const std::string& state, TensorSource source) {
    const bool in_parts = !out.copy && sharded.has(q, state);
    list.push_back(in_parts ? from_parts(sharded, q, state, source) : std::move(source));
  };
  for (size_t q = 0; q < layout.parts.size(); ++q) {
    const ParameterRef& p = layout.parts[q].parameter;
    for (size_t i : layout.parts[q].tensors) add(out.weights, q, weights_state, source_of(p, layout.canonical[i]));
    for (auto& s : p.states) add(out.optimizer, q, s.name, {spec_of(p, s), s.tensor.data});
    auto check = [&] { out.finite = out.finite && is_finite(p); };
    out.copy ? check() : sharded.read(q, weights_state, check);
  }
  return out;
}

uint64_t checkpoint_bytes(const Executor& executor) {
  uint64_t bytes = 0;
  for (const ParameterRef& p : parameters(executor)) {
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
    reader.read(list[q].name, values);
    if (int64_t(values.size()) != list[q].numel())
      fail_internal("the canonical tensors do not cover parameter " + list[q].name, "weights_io");
    executor.sharded().write(q, weights_state, [&] { list[q].set(values.data()); });
  }
}

void load_weights(const Executor& executor, const Checkpoint& checkpoint) {
  ParameterLayout layout = layout_of(executor);
  // Reports how the models differ. load_weights below then requires exactly the canonical tensors.
  match(executor, layout, checkpoint.weight_specs(), join_path(checkpoint.path(), "model.safetensors"));
  ShardedStates& sharded = executor.sharded();
  std::vector<std::atomic<size_t>> left(layout.parts.size());  // tensors of each parameter
  std::mutex device;                                           // one thread at a time copies to it
  std::vector<TensorTarget> targets;
  for (size_t q = 0; q < layout.parts.size(); ++q) {
    const ParameterRef& p = layout.parts[q].parameter;
    left[q] = layout.parts[q].tensors.size();
    for (size_t i : layout.parts[q].tensors) {
      const CanonicalTensor& t = layout.canonical[i];
      targets.push_back({{t.name, DType::f32, t.shape}, nullptr, [&, q](const void* from) {
                           std::vector<float> rows(t.transposed ? size_t(t.elements()) : 0);
                           if (t.transposed) scatter(of_rows(t), from, DType::f32, rows.data());
                           std::unique_lock lock(device, std::defer_lock);
                           if (!executor.runtime().host_memory()) lock.lock();
                           p.set(t.transposed ? rows.data() : static_cast<const float*>(from), t.row * t.columns,
                                 t.elements());
                           if (--left[q] == 0) sharded.write(q, weights_state, [&] { p.zero_padding(); });
                         }});
    }
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

void load_weights(const Executor& executor, const LoadedModel& model) {
  if (model.checkpoint) return load_weights(executor, *model.checkpoint);
  load_weights(executor, WeightsFolder::open(model.weights_path));
}

}  // namespace crest
