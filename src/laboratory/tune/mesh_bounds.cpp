#include "tune/mesh_bounds.h"

#include <algorithm>

#include "model/parameters.h"
#include "passes/offload.h"
#include "passes/stages.h"
#include "plan/memory_choices.h"
#include "plan/schedule.h"

namespace crest {

namespace {

// Kept weights of fp8 may have 8 bits only.
double bytes_of_weight(const Recipe& r) { return r.precision == "fp8" ? 1 : double(size_of(weight_dtype(r))); }

double bytes_of_frozen_matrix(const Recipe& r) {
  const std::string base = pass_setting_of(r, "base-weights");
  return base == "int8" ? 1 : base == "bf16" ? 2 : bytes_of_weight(r);
}

// Residual sums have the weights' dtype at least; passes may store rows in 8 bits.
double bytes_of_row_element(const Recipe& r) {
  return r.precision == "fp8" ? 1 : r.precision == "fp32" || r.precision == "tf32" ? 4 : 2;
}

// Micro steps of a chunk that a rank has in memory at once, at least (plan/schedule.cpp, order_of).
double in_flight(const Pipeline& p, int rank, int chunk) {
  const bool last = chunk == p.chunks - 1;
  const int most = p.chunks == 1 ? p.ranks - rank : last ? std::min(p.ranks, 2 * (p.ranks - rank) - 1) : p.ranks;
  return double(std::min<int64_t>(most, p.micro_steps));
}

}  // namespace

MeshBounds::MeshBounds(const ModelConfig& model) : model_(model), layers_(size_t(model.layers)) {
  const std::vector<Param> parameters = parameters_of(model);
  const bool adapts = model.lora.rank > 0;
  if (adapts)
    layers_adapt_ = std::any_of(parameters.begin(), parameters.end(),
                                [](auto& q) { return !q.frozen && q.name.starts_with("h."); });
  for (const Param& q : parameters) {
    const auto n = double(q.shape.numel());
    const bool head = q.name.starts_with("lm_head.") || (model.tied && q.name == "wte.weight");
    const bool in_layer = q.name.starts_with("h."), multiplied = q.shape.rank() == 2 && (in_layer || head);
    Part& part = part_of(q.name);
    (!q.frozen ? part.trained : multiplied ? part.frozen_matrices : part.other_frozen) += n;
    if (!multiplied) continue;
    // The gradient of the input of a frozen layer 0 is not needed.
    const bool to_input = !adapts || (layers_adapt_ && (head || Origin(q.name).layer() > 0));
    Part& user = head ? behind_ : part;
    user.forward += 2 * n;
    user.backward += (to_input ? 2 * n : 0) + (q.frozen ? 0 : 2 * n);
  }
}

MeshBounds::Part& MeshBounds::part_of(const std::string& parameter) {
  if (const int layer = Origin(parameter).layer(); layer >= 0) return layers_[size_t(layer)];
  // With two stages of any layers.
  return stage_of_parameter(parameter, {1, 1}) == 0 ? before_ : behind_;
}

std::vector<MeshBounds::Part> MeshBounds::stages(const std::vector<int64_t>& layers) const {
  std::vector<Part> sums(layers.size());
  auto add = [](Part& to, const Part& from) {
    to.trained += from.trained, to.frozen_matrices += from.frozen_matrices, to.other_frozen += from.other_frozen;
    to.forward += from.forward, to.backward += from.backward;
  };
  add(sums.front(), before_), add(sums.back(), behind_);
  size_t layer = 0;
  for (size_t stage = 0; stage < layers.size(); ++stage)
    for (int64_t n = 0; n < layers[stage]; ++n) add(sums[stage], layers_[layer++]);
  return sums;
}

// A rank runs all its passes, and starts after the first micro step has come through the ranks
// before it. After its last backward pass these ranks have one, too. Separate passes for gradients
// of weights may come before the end.
double MeshBounds::least_ms(const Recipe& r, double peak) const {
  if (!(peak > 0)) return 0;
  const Pipeline p = pipeline_of(r);
  const std::vector<Part> parts = stages(stage_layers(r));
  double most = 0, before = 0;
  for (int rank = 0; rank < p.ranks; ++rank) {
    double own = 0;
    for (int chunk = 0; chunk < p.chunks; ++chunk) {
      const Part& part = parts[size_t(chunk * p.ranks + rank)];
      own += part.forward + part.backward;
    }
    most = std::max(most, double(p.micro_steps) * own + before);
    const Part& first = parts[size_t(rank)];
    before += first.forward + (p.splits_weights() ? 0 : first.backward);
  }
  const Mesh mesh = r.layout();
  const double tokens = double(r.batch * r.seq_length()) / mesh.size(Axis::context);
  return 1e3 * most * tokens / mesh.size(Axis::tensor) / peak;
}

int64_t MeshBounds::least_bytes(const Recipe& r) const {
  const Pipeline p = pipeline_of(r);
  const std::vector<int64_t> layers = stage_layers(r);
  const std::vector<Part> parts = stages(layers);
  const Mesh mesh = r.layout();
  const std::string shard = pass_setting_of(r, "shard", "none");
  const double copies = r.copies();
  const double weights = shard == "weights" ? copies : 1, gradients = shard == "gradients" ? copies : weights,
               state = shard == "none" ? 1 : copies;
  const OffloadChoice offload = offload_choice(pass_setting_of(r, "offload", "none"));
  const bool keeps_inputs = layers_adapt_ && offload.activations == OffloadChoice::Activations::none;
  double trained = bytes_of_weight(r) / weights;
  if (r.grad_accumulation > 1) trained += (r.grad_dtype == "bf16" ? 2 : 4) / gradients;
  if (r.optimizer == "adamw" && !offload.optimizer) trained += 8 / state;
  const double row =
      bytes_of_row_element(r) * double(r.batch * r.seq_length() * model_.width) / mesh.size(Axis::context);
  double most = 0;
  for (int rank = 0; rank < p.ranks; ++rank) {
    double bytes = 0;
    for (int chunk = 0; chunk < p.chunks; ++chunk) {
      const int stage = chunk * p.ranks + rank;
      const Part& part = parts[size_t(stage)];
      bytes += trained * part.trained + bytes_of_frozen_matrix(r) * part.frozen_matrices +
               bytes_of_weight(r) * part.other_frozen;
      // The input of layer 0 can be repeated from the tokens.
      if (keeps_inputs) bytes += row * double(layers[size_t(stage)] - (stage == 0)) * in_flight(p, rank, chunk);
    }
    most = std::max(most, bytes / mesh.size(Axis::tensor));
  }
  return int64_t(most);
}

}  // namespace crest
