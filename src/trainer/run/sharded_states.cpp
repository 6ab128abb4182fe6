#include "run/sharded_states.h"

#include <algorithm>
#include <cstring>

#include "backend/cpu/runtime.h"
#include "comm/comm.h"
#include "comm/exchange.h"
#include "core/error.h"
#include "plan/program_after.h"
#include "program/placement.h"
#include "run/executor.h"

namespace crest {

// The Program with the states. Weights may be divided without an update, too.
static int states_program(const CompiledSession& s) { return std::max(0, s.find("update")); }

ShardedStates::ShardedStates(const Executor& executor)
    : mesh_(executor.session().recipe.layout()),
      stage_(executor.session().stage),
      runtime_(&executor.runtime()),
      host_(make_host_runtime(executor.session().device, nullptr)) {
  const CompiledSession& s = executor.session();
  const CompiledProgram& own = s.programs[size_t(states_program(s))];
  const int stages = mesh_.size(Axis::pipeline);
  if (stages == 1) {
    params_ = own.program.params;
    add_groups(executor, own.program, 0);
  } else {
    params_ = model_parameters(s);
    for (int stage = 0; stage < stages; ++stage) {
      const Program p = of_stage(s, own, stage);
      add_groups(executor, p, stage);
      add_tensors(executor, p, stage);
    }
  }
  std::stable_sort(tensors_.begin(), tensors_.end(), [](auto& a, auto& b) { return a.parameter < b.parameter; });
}

size_t ShardedStates::index_of(const std::string& parameter) const {
  for (size_t q = 0; q < params_.size(); ++q)
    if (params_[q].name == parameter) return q;
  fail_internal("no parameter is called " + parameter, "sharded_states");
}

bool ShardedStates::here(size_t parameter) const {
  bool elsewhere = false;
  for (const Tensor& t : tensors_) {
    if (t.parameter != parameter) continue;
    if (t.stage == stage_) return true;
    elsewhere = true;
  }
  return !elsewhere;
}

// Groups shared by the ranks along data, context or tensor.
void ShardedStates::add_groups(const Executor& executor, const Program& p, int stage) {
  const int program = states_program(executor.session());
  auto cut = [](const Value& v, Axis axis) { return v.placement[size_t(axis)].cut(); };
  auto copies = [&](const Value& v) {  // the axes with shards of what ranks would have copies of
    Axes axes;
    for (Axis axis : {Axis::data, Axis::context})
      if (cut(v, axis)) axes = axes | axis;
    return axes;
  };
  // Heads of zeros are on the ranks only (passes/tensor_parallel.cpp). Of a padded vocabulary all
  // ranks have the last rows.
  auto whole_shape = [&](const Value& weight, const Shape& logical) {
    const Placement at = weight.placement[size_t(Axis::tensor)];
    Shape shape = weight.shape;
    if (at.cut()) shape[at.dim] *= mesh_.size(Axis::tensor);
    const bool rows = at.dim == 0 && at.queries == 0;
    if (at.cut() && !rows) shape[at.dim] = logical[at.dim];
    return shape;
  };
  for (size_t v = 0; v < p.values.size(); ++v) {
    const Value& group = p.values[v];
    size_t dot = group.name.find('.');
    if (group.layout.storage != ValueId(v) || group.lifetime != Lifetime::persistent || dot == std::string::npos ||
        (copies(group).empty() && !cut(group, Axis::tensor)))
      continue;
    ValueId weights = p.find(weights_state + group.name.substr(dot));  // in the same group
    if (weights == no_value) continue;
    const Axes sharing = copies(group);
    const bool shared = !sharing.empty();
    std::string state = group.role == Role::weight ? weights_state : group.name.substr(0, dot);
    const int64_t elements = group.numel() * mesh_.size(sharing);
    const int64_t block = p.at(weights).numel() / elements;  // elements of the weights for one of the group
    for (const Param& param : p.params) {
      const Value& weight = p.at(param.value);
      if (weight.layout.storage != weights) continue;
      Tensor t;
      t.parameter = index_of(param.name), t.state = state, t.dtype = group.dtype, t.stage = stage;
      t.of_elements = block == 1;
      t.shape = t.of_elements ? whole_shape(weight, param.shape) : Shape{(weight.numel() + block - 1) / block};
      t.cut = weight.placement[size_t(Axis::tensor)];
      if (t.cut.cut()) t.padded = weight.shape[t.cut.dim] * mesh_.size(Axis::tensor);
      if (t.cut.cut()) t.axes = t.axes | Axis::tensor;
      t.axes = t.axes | sharing, t.sharing = sharing;
      if (mesh_.size(Axis::pipeline) > 1) t.axes = t.axes | Axis::pipeline;
      t.first = weight.layout.offset / block, t.share = shared ? group.numel() : 0;
      t.own = stage == stage_ ? static_cast<char*>(executor.tensor(program, group.name).data) : nullptr;
      tensors_.push_back(t);
    }
  }
}

// A stage's whole tensors. Other stages lack them.
void ShardedStates::add_tensors(const Executor& executor, const Program& p, int stage) {
  const int program = states_program(executor.session());
  for (const Param& param : p.params) {
    if (param.borrowed) continue;
    const size_t q = index_of(param.name);
    auto added = [&](const std::string& state) {
      return std::any_of(tensors_.begin(), tensors_.end(),
                         [&](const Tensor& t) { return t.parameter == q && t.state == state; });
    };
    for (const Value& v : p.values) {
      const bool weight = v.name == param.name;
      if (!weight && (v.role != Role::state || !v.name.starts_with(param.name + "."))) continue;
      const std::string state = weight ? weights_state : v.name.substr(param.name.size() + 1);
      if (state.find('.') != std::string::npos || v.lifetime != Lifetime::persistent || added(state)) continue;
      Tensor t;
      t.parameter = q, t.state = state, t.dtype = v.dtype, t.stage = stage;
      t.of_elements = v.shape == p.at(param.value).shape;
      t.shape = v.shape, t.axes = Axis::pipeline;
      t.own = stage == stage_ ? static_cast<char*>(executor.tensor(program, v.name).data) : nullptr;
      tensors_.push_back(t);
    }
  }
}

TensorRef ShardedStates::whole(size_t tensor) {
  memory_.resize(tensors_.size());
  const Tensor& t = tensors_[tensor];
  auto& memory = memory_[tensor];
  const int64_t bytes = t.shape.numel() * int64_t(size_of(t.dtype));
  if (!memory)
    memory.reset(static_cast<char*>(host_->allocate(bytes)),
                 [host = host_.get(), bytes](char* p) { host->release(p, bytes); });
  return {memory.get(), t.dtype, t.shape, host_.get()};
}

std::vector<ShardedStates::Run> ShardedStates::runs(const Tensor& t, int rank) const {
  // The part along the tensor axis, in elements from its start.
  std::vector<Run> parts;
  if (t.cut.cut()) {
    int64_t outer = 1, inner = 1, n = t.shape[t.cut.dim], at = 0;
    for (int d = 0; d < t.cut.dim; ++d) outer *= t.shape[d];
    for (int d = t.cut.dim + 1; d < t.shape.rank(); ++d) inner *= t.shape[d];
    const auto ranges = ranges_of(t.cut, t.padded, mesh_.coordinate(rank, Axis::tensor), mesh_.size(Axis::tensor));
    for (int64_t o = 0; o < outer; ++o)
      for (const DimRange& range : ranges) {
        const DimRange whole = without_padding(t.cut, n, t.padded, range);
        if (whole.begin < whole.end)
          parts.push_back({at, (o * n + whole.begin) * inner, (whole.end - whole.begin) * inner});
        at += (range.end - range.begin) * inner;
      }
  } else {
    parts.push_back({0, 0, t.shape.numel()});
  }
  // Of its place in the group, this rank's share; in bytes.
  const int64_t begin = t.share * mesh_.index(rank, t.sharing), size = int64_t(size_of(t.dtype));
  std::vector<Run> own;
  for (const Run& part : parts) {
    int64_t first = t.first + part.own, end = first + part.bytes;
    if (t.share) end = std::min(end, begin + t.share);
    const int64_t from = t.share ? std::max(first, begin) : first;
    if (from < end) own.push_back({(from - begin) * size, (part.whole + from - first) * size, (end - from) * size});
  }
  return own;
}

// A part is contiguous in its rank's memory.
template <class F>
static void for_overlaps(const auto& runs, int64_t from, int64_t bytes, F work) {
  for (auto& run : runs) {
    const int64_t begin = std::max(run.own, from), end = std::min(run.own + run.bytes, from + bytes);
    if (begin < end) work(run.whole + begin - run.own, begin - from, size_t(end - begin));
  }
}
void ShardedStates::place(char* whole, const char* part, int64_t from, int64_t bytes, const std::vector<Run>& runs) {
  for_overlaps(runs, from, bytes, [&](int64_t to, int64_t at, size_t n) { std::memcpy(whole + to, part + at, n); });
}
void ShardedStates::pick(char* part, const char* whole, int64_t from, int64_t bytes, const std::vector<Run>& runs) {
  for_overlaps(runs, from, bytes, [&](int64_t at, int64_t to, size_t n) { std::memcpy(part + to, whole + at, n); });
}

// Bytes transferred at once.
static constexpr int64_t most_bytes = 64 << 20;

template <class F>
void ShardedStates::in_pieces(size_t tensor, int64_t most, F work) const {
  most = std::min(most, most_bytes);
  for (int rank = 0; rank < mesh_.ranks(); ++rank) {
    if (mesh_.index(rank, Axes::all().without(tensors_[tensor].axes)) != 0) continue;  // another rank has the same part
    if (mesh_.coordinate(rank, Axis::pipeline) != tensors_[tensor].stage && tensors_[tensor].axes.has(Axis::pipeline))
      continue;
    const std::vector<Run> parts = runs(tensors_[tensor], rank);
    if (parts.empty()) continue;
    const int64_t end = parts.back().own + parts.back().bytes;
    for (int64_t from = parts.front().own; from < end; from += most)
      work(rank, from, std::min(most, end - from), parts);
  }
}

void ShardedStates::gather(size_t tensor) {
  Communicator& world = *exchange_->world;
  const TensorRef& passing = exchange_->passing;
  const bool keeps = world.rank() == 0;
  std::vector<char> between;
  in_pieces(tensor, exchange_->most, [&](int rank, int64_t from, int64_t bytes, const std::vector<Run>& parts) {
    between.resize(size_t(bytes));
    if (rank == world.rank()) runtime_->read(between.data(), tensors_[tensor].own + from, bytes);
    if (rank != 0) {
      if (rank == world.rank()) runtime_->write(passing.data, between.data(), bytes), runtime_->synchronize();
      world.broadcast(passing.data, DType::u8, bytes, rank);
      world.synchronize();
      if (keeps) runtime_->read(between.data(), passing.data, bytes);
    }
    if (keeps) place(static_cast<char*>(whole(tensor).data), between.data(), from, bytes, parts);
  });
}

void ShardedStates::scatter(size_t tensor) {
  Communicator& world = *exchange_->world;
  const TensorRef& passing = exchange_->passing;
  std::vector<char> between;
  in_pieces(tensor, exchange_->most, [&](int rank, int64_t from, int64_t bytes, const std::vector<Run>& parts) {
    between.assign(size_t(bytes), 0);
    if (world.rank() == 0) {
      pick(between.data(), static_cast<char*>(whole(tensor).data), from, bytes, parts);
      runtime_->write(passing.data, between.data(), bytes);
    }
    runtime_->synchronize();
    world.broadcast(passing.data, DType::u8, bytes, 0);
    world.synchronize();
    if (mesh_.index(rank, tensors_[tensor].axes) != mesh_.index(world.rank(), tensors_[tensor].axes)) return;
    runtime_->read(between.data(), passing.data, bytes);
    runtime_->write(tensors_[tensor].own + from, between.data(), bytes);
    runtime_->synchronize();
  });
}

void ShardedStates::request(Request r) { exchange_->host->broadcast(&r, DType::u8, sizeof r, 0); }

void ShardedStates::pass(Request r) { r.to_ranks ? scatter(size_t(r.tensor)) : gather(size_t(r.tensor)); }

void ShardedStates::exchange(Communicator& host, Communicator& world, const TensorRef& passing,
                             const std::function<void()>& work) {
  if (tensors_.empty()) {
    if (world.rank() == 0) work();
    return;
  }
  runtime_->synchronize();
  world.set_stream(nullptr);
  exchange_ = Exchange{&host, &world, passing, passing.bytes()};
  if (mesh_.size(Axis::pipeline) > 1)  // arenas of stages differ in size
    for (auto& rank : crest::gather(host, {double(passing.bytes())}))
      exchange_->most = std::min(exchange_->most, int64_t(rank[0]));
  if (world.rank() == 0) {
    work();
    request({-1, 0});
  } else {
    for (Request r{};;) {
      host.broadcast(&r, DType::u8, sizeof r, 0);
      if (r.tensor < 0) break;
      pass(r);
    }
  }
  // Updates work on padding, too: it was zero (plan/gradient_storage.h).
  runtime_->zero(passing.data, std::min(exchange_->most, most_bytes));
  runtime_->synchronize();
  exchange_.reset();
}

std::vector<size_t> ShardedStates::find(size_t parameter, std::string_view state) const {
  std::vector<size_t> list;
  for (size_t i = 0; i < tensors_.size(); ++i) {
    const bool same = tensors_[i].state == state || (state == weights_state && tensors_[i].state == "master");
    if (tensors_[i].parameter == parameter && same) list.push_back(i);
  }
  return list;
}

void ShardedStates::read(size_t parameter, std::string_view state, const std::function<void()>& work) {
  const std::vector<size_t> tensors = find(parameter, state);
  if (tensors.empty()) return work();
  if (!exchange_) fail_internal("tensors in parts are read without the other ranks");
  const std::lock_guard lock(one_);
  for (size_t i : tensors) {
    request({int64_t(i), 0});
    pass({int64_t(i), 0});
  }
  work();
  for (size_t i : tensors) forget(i);
}

void ShardedStates::write(size_t parameter, std::string_view state, const std::function<void()>& work) {
  const std::vector<size_t> tensors = find(parameter, state);
  if (tensors.empty()) return work();
  if (!exchange_) fail_internal("tensors in parts are written without the other ranks");
  const std::lock_guard lock(one_);
  work();
  for (size_t i : tensors) {
    request({int64_t(i), 1});
    pass({int64_t(i), 1});
    forget(i);
  }
}

void ShardedStates::forget(size_t tensor) {
  if (memory_[tensor]) forget_pages(memory_[tensor].get(), whole(tensor).bytes());
}

void ShardedStates::take(int rank, size_t parameter) {
  for (size_t i = 0; i < memory_.size(); ++i) {
    if (tensors_[i].parameter != parameter || !memory_[i]) continue;
    if (const std::vector<Run> parts = runs(tensors_[i], rank); tensors_[i].own && !parts.empty()) {
      const int64_t from = parts.front().own, bytes = parts.back().own + parts.back().bytes - from;
      std::vector<char> part(static_cast<size_t>(bytes));
      pick(part.data(), memory_[i].get(), from, bytes, parts);
      runtime_->write(tensors_[i].own + from, part.data(), bytes);
      runtime_->synchronize();
    }
    memory_[i].reset();
  }
}

}  // namespace crest
