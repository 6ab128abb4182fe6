#include "run/sharded_states.h"

#include <algorithm>
#include <cstring>

#include "backend/cpu/runtime.h"
#include "comm/comm.h"
#include "run/executor.h"

namespace crest {

ShardedStates::ShardedStates(const Executor& executor)
    : runtime_(&executor.runtime()), host_(make_host_runtime(executor.session().device, nullptr)) {
  const CompiledSession& s = executor.session();
  // Without an update, weights may be shared all the same.
  int program = std::max(0, s.find("update"));
  const Program& p = s.programs[size_t(program)].program;
  shard_count_ = s.recipe.data_ranks();
  for (size_t v = 0; v < p.values.size(); ++v) {
    const Value& shard = p.values[v];
    size_t dot = shard.name.find('.');
    if (shard.layout.storage != ValueId(v) || shard.lifetime != Lifetime::persistent || dot == std::string::npos ||
        shard.placement[size_t(Axis::data)].kind != Placement::Kind::shard)
      continue;
    ValueId weights = p.find(weights_state + shard.name.substr(dot));  // of the same group
    if (weights == no_value) continue;
    std::string state = shard.role == Role::weight ? weights_state : shard.name.substr(0, dot);
    // Elements of the weights for one of the shard.
    int64_t block = p.at(weights).numel() / (shard.numel() * shard_count_);
    shards_.push_back({executor.tensor(program, shard.name), shard.numel()});
    for (size_t q = 0; q < p.params.size(); ++q) {
      const Value& weight = p.at(p.params[q].value);
      if (weight.layout.storage != weights) continue;
      int64_t count = (weight.numel() + block - 1) / block;
      tensors_.push_back({q, state, shard.dtype, block == 1 ? weight.shape : Shape{count}, int(shards_.size()) - 1,
                          weight.layout.offset / block, count});
    }
  }
  std::stable_sort(tensors_.begin(), tensors_.end(), [](auto& a, auto& b) { return a.parameter < b.parameter; });
}

TensorRef ShardedStates::whole(size_t tensor) {
  memory_.resize(tensors_.size());
  const Tensor& t = tensors_[tensor];
  auto& memory = memory_[tensor];
  memory.resize(size_t(t.count) * size_of(t.dtype));
  return {memory.data(), t.dtype, t.shape, host_.get()};
}

ShardedStates::Part ShardedStates::part(const Tensor& t, int number) const {
  const Shard& shard = shards_[size_t(t.group)];
  auto size = int64_t(size_of(t.dtype));
  int64_t begin = std::max(t.first, shard.numel * number),
          end = std::min(t.first + t.count, shard.numel * (number + 1));
  if (begin >= end) return {nullptr, 0, 0};
  return {static_cast<char*>(shard.own.data) + (begin - shard.numel * number) * size, (begin - t.first) * size,
          (end - begin) * size};
}

// Of what passes from rank to rank at once.
static constexpr int64_t most_bytes = 64 << 20;

void ShardedStates::gather(Communicator& group, const TensorRef& passing) {
  if (tensors_.empty()) return;
  runtime_->synchronize();
  group.set_stream(nullptr);
  for (size_t i = 0; i < tensors_.size(); ++i) {
    char* data = group.rank() == 0 ? static_cast<char*>(whole(i).data) : nullptr;
    for (int r = 0; r < group.size(); ++r) {
      Part p = part(tensors_[i], r);
      if (r == group.rank() && r == 0 && p.bytes) runtime_->read(data + p.offset, p.own, p.bytes);
      if (r == 0) continue;
      for (int64_t done = 0, n; done < p.bytes; done += n) {
        n = std::min({passing.bytes(), most_bytes, p.bytes - done});
        if (r == group.rank()) copy(passing.data, p.own + done, n);
        group.broadcast(passing.data, DType::u8, n, r);
        group.synchronize();
        if (data) runtime_->read(data + p.offset + done, passing.data, n);
      }
    }
  }
}

void ShardedStates::scatter(Communicator& world, int own, const TensorRef& passing) {
  if (tensors_.empty()) return;
  world.set_stream(nullptr);
  for (size_t i = 0; i < tensors_.size(); ++i) {
    char* data = world.rank() == 0 ? static_cast<char*>(whole(i).data) : nullptr;
    for (int r = 0; r < shard_count_; ++r) {
      Part p = part(tensors_[i], r);
      for (int64_t done = 0, n; done < p.bytes; done += n) {
        n = std::min({passing.bytes(), most_bytes, p.bytes - done});
        if (data) runtime_->write(passing.data, data + p.offset + done, n);
        runtime_->synchronize();
        world.broadcast(passing.data, DType::u8, n, 0);
        world.synchronize();
        if (r == own) copy(p.own + done, passing.data, n);
      }
    }
  }
  release();
}

// Within the device, through the host: rarely used, and then only for the states of one rank.
void ShardedStates::copy(void* to, const void* from, int64_t bytes) {
  if (runtime_->host_memory()) {
    std::memcpy(to, from, size_t(bytes));
    return;
  }
  std::vector<char> between(size_t(bytes), 0);
  runtime_->read(between.data(), from, bytes);
  runtime_->write(to, between.data(), bytes);
  runtime_->synchronize();
}

void ShardedStates::take(int shard) {
  for (size_t i = 0; i < memory_.size(); ++i)
    if (Part p = part(tensors_[i], shard); p.bytes && !memory_[i].empty())
      runtime_->write(p.own, memory_[i].data() + p.offset, p.bytes);
  runtime_->synchronize();
  release();
}

}  // namespace crest
