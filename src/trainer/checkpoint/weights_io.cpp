#include "checkpoint/weights_io.h"

#include <fmt/format.h>

#include <cstring>
#include <unordered_map>

#include "checkpoint/parameter_reader.h"
#include "core/error.h"
#include "core/text.h"
#include "model/weights_map.h"

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

}  // namespace

TensorsToSave tensors_to_save(const Executor& executor, bool copied) {
  TensorsToSave out;
  if (copied || !executor.runtime().host_memory()) out.copy = std::make_shared<const ParameterCopy>(executor);
  auto list = out.copy ? out.copy->parameters() : parameters(executor);
  ParameterLayout layout = layout_of(executor.session().recipe.model, list);
  for (auto& part : layout.parts)
    for (size_t i : part.tensors) out.weights.push_back(source_of(part.parameter, layout.canonical[i]));
  for (auto& p : list) out.finite = out.finite && is_finite(p);
  for (auto& p : list)
    for (auto& s : p.states) out.optimizer.push_back({spec_of(p, s), s.tensor.data});
  return out;
}

std::string not_finite_weight(const Executor& executor) {
  std::vector<float> values;
  for (auto& p : parameters(executor)) {
    values.resize(size_t(p.numel()));
    p.get(values.data());
    TensorRef all;
    all.data = values.data(), all.shape = Shape{p.numel()}, all.dtype = DType::f32;
    if (!all_finite<uint32_t>(all, 0x7f800000u)) return p.name;
  }
  return "";
}

void load_weights(const Executor& executor, const WeightsFolder& folder) {
  ParameterReader reader(executor.session().recipe.model, folder);
  std::vector<float> values;
  for (auto& p : parameters(executor)) {
    reader.read(p.name, values);
    if (int64_t(values.size()) != p.numel())
      fail_internal("the canonical tensors do not cover parameter " + p.name, "weights_io");
    p.set(values.data());
  }
}

void load_weights(const Executor& executor, const Checkpoint& checkpoint) {
  ParameterLayout layout = layout_of(executor);
  // Reports how the models differ. load_weights below then requires exactly the canonical tensors.
  match(executor, layout, checkpoint.weight_specs(), join_path(checkpoint.path(), "model.safetensors"));
  // fp32 parameters are read into their own memory, first in the file's orientation. Others go
  // through a buffer, one tensor at a time.
  auto takes = [](const ParameterRef& p) { return truth(p).on_host() && !direct(truth(p)); };
  std::vector<std::vector<float>> buffers;
  std::vector<float*> places;
  std::vector<TensorTarget> targets;
  for (auto& part : layout.parts) {
    const ParameterRef& p = part.parameter;
    float* place = direct(truth(p));
    if (!place && !takes(p)) {
      buffers.emplace_back(size_t(p.numel()));
      place = buffers.back().data();
    }
    places.push_back(place);
    for (size_t i : part.tensors) {
      const CanonicalTensor& t = layout.canonical[i];
      TensorTarget target = {{t.name, DType::f32, t.shape}, place ? place + t.row * t.columns : nullptr};
      if (!place) {
        target.take = [&p, &t](const void* from) {
          std::vector<float> rows(t.transposed ? size_t(t.elements()) : 0);
          if (t.transposed) scatter(of_rows(t), from, DType::f32, rows.data());
          p.set(t.transposed ? rows.data() : static_cast<const float*>(from), t.row * t.columns, t.elements());
        };
      }
      targets.push_back(std::move(target));
    }
  }
  checkpoint.load_weights(targets);
  std::vector<float> values;
  for (size_t k = 0; k < layout.parts.size(); ++k) {
    auto& part = layout.parts[k];
    if (!places[k]) {
      part.parameter.zero_padding();
      continue;
    }
    values.resize(size_t(part.parameter.numel()));
    for (size_t i : part.tensors) {
      const CanonicalTensor& t = layout.canonical[i];
      scatter(t, places[k] + t.row * t.columns, DType::f32, values.data());
    }
    part.parameter.set(values.data());
  }
}

void load_optimizer(const Executor& executor, const Checkpoint& checkpoint) {
  struct Copy {
    TensorRef to;
    std::vector<char> bytes;  // including the padding (zeros)
  };
  std::vector<Copy> copies;
  std::vector<TensorTarget> targets;
  for (auto& p : parameters(executor))
    for (auto& s : p.states) {
      TensorSpec spec = spec_of(p, s);
      auto* place = static_cast<char*>(s.tensor.data);
      if (s.tensor.on_host()) {
        std::memset(place + byte_count(spec), 0, size_t(s.tensor.bytes()) - byte_count(spec));
      } else {
        copies.push_back({s.tensor, std::vector<char>(size_t(s.tensor.bytes()))});
        place = copies.back().bytes.data();
      }
      targets.push_back({spec, place});
    }
  checkpoint.load_optimizer(targets);
  for (auto& c : copies) c.to.write(c.bytes.data());
}

void load_weights(const Executor& executor, const LoadedModel& model) {
  if (model.checkpoint) return load_weights(executor, *model.checkpoint);
  load_weights(executor, WeightsFolder::open(model.weights_path));
}

}  // namespace crest
