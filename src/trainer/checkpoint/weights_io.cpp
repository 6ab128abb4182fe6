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

// Parameters by name.
using ByName = std::unordered_map<std::string, size_t>;
ByName by_name(const std::vector<ParameterRef>& parameters) {
  ByName out;
  for (size_t i = 0; i < parameters.size(); ++i) out[parameters[i].name] = i;
  return out;
}

// Throws unless the tensors cover the parameters.
void require_cover(const std::vector<CanonicalTensor>& tensors, const std::vector<ParameterRef>& parameters) {
  std::unordered_map<std::string, int64_t> elements;
  for (auto& t : tensors)
    for (auto& part : t.parts) elements[part.parameter] += part.rows * t.columns;
  for (auto& p : parameters)
    if (elements[p.name] != p.numel())
      fail_internal("the canonical tensors do not cover parameter " + p.name, "weights_io");
  if (elements.size() != parameters.size()) fail_internal("a tensor has a parameter the program lacks", "weights_io");
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

// The parameters are on the host.
TensorSource source_of(const std::vector<const ParameterRef*>& parts, const CanonicalTensor& t) {
  TensorSource source{{t.name, DType::f32, t.shape}};
  const float* data = direct(truth(*parts[0]));
  if (data && t.plain()) {
    source.data = data + t.parts[0].row * t.columns;
    return source;
  }
  std::vector<ParameterRef> copies;
  for (auto* p : parts) copies.push_back(*p);
  source.make = [copies, t](void* to) {
    std::vector<float> rows;
    gather(
        t,
        [&](const TensorPart& part) -> const float* {
          const ParameterRef& p = copies[size_t(&part - t.parts.data())];
          const int64_t first = part.row * t.columns, n = part.rows * t.columns;
          if (const float* all = direct(truth(p))) return all + first;
          rows.resize(size_t(n));
          p.get(rows.data(), first, n);
          return rows.data();
        },
        static_cast<float*>(to));
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
  const auto tensors = canonical_tensors(executor.session().recipe.model);
  require_cover(tensors, list);
  const ByName index = by_name(list);
  for (auto& t : tensors) {
    std::vector<const ParameterRef*> parts;
    for (auto& part : t.parts) parts.push_back(&list[index.at(part.parameter)]);
    out.weights.push_back(source_of(parts, t));
  }
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
  // Reports how the models differ. load_weights below then requires exactly these tensors.
  std::vector<OfferedTensor> offered;
  for (auto& s : checkpoint.weight_specs()) offered.push_back({s.name, s.shape});
  const NameMatch match =
      match_names(executor.session().recipe.model, offered, join_path(checkpoint.path(), "model.safetensors"));
  const std::vector<ParameterRef> all = parameters(executor);
  require_cover(match.tensors, all);
  const ByName index = by_name(all);
  // fp32 parameters are read into their own memory. Others on the host take their rows one tensor
  // at a time; the rest go through buffers.
  std::vector<std::vector<float>> buffers(all.size());
  std::vector<float*> places;
  for (size_t k = 0; k < all.size(); ++k) {
    places.push_back(direct(truth(all[k])));
    if (places[k] || truth(all[k]).on_host()) continue;
    buffers[k].resize(size_t(all[k].numel()));
    places[k] = buffers[k].data();
  }
  std::vector<TensorTarget> targets;
  for (size_t i = 0; i < match.tensors.size(); ++i) {
    const CanonicalTensor& t = match.tensors[i];
    TensorTarget target = {{offered[match.source[i]].name, DType::f32, t.shape}, nullptr};
    if (float* place = places[index.at(t.parts[0].parameter)]; place && t.plain()) {
      target.data = place + t.parts[0].row * t.columns;
    } else {
      target.take = [&](const void* from) {
        std::vector<float> rows(size_t(t.elements()));
        auto next = rows.begin();
        std::vector<float*> parts;
        scatter(t, from, DType::f32, [&](const TensorPart& part) {
          float* to = places[index.at(part.parameter)];
          parts.push_back(to ? to + part.row * t.columns : &*next);
          next += part.rows * t.columns;
          return parts.back();
        });
        for (size_t j = 0; j < t.parts.size(); ++j) {
          const size_t k = index.at(t.parts[j].parameter);
          if (!places[k]) all[k].set(parts[j], t.parts[j].row * t.columns, t.parts[j].rows * t.columns);
        }
      };
    }
    targets.push_back(std::move(target));
  }
  checkpoint.load_weights(targets);
  std::vector<float> values;
  for (size_t k = 0; k < all.size(); ++k) {
    if (!places[k]) {
      all[k].zero_padding();
      continue;
    }
    values.assign(places[k], places[k] + all[k].numel());
    all[k].set(values.data());
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
