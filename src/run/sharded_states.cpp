#include "run/sharded_states.h"

#include <algorithm>
#include <cstring>

#include "comm/comm.h"
#include "program/shares.h"
#include "run/executor.h"

namespace crest {

ShardedStates::ShardedStates(const Executor& executor) : runtime_(&executor.runtime()) {
  const CompiledSession& s = executor.session();
  int program = s.find("update");
  if (program < 0) return;
  const Program& p = s.programs[size_t(program)].program;
  int64_t ranks = p.properties.integer(shares_property, 1);
  if (ranks == 1) return;
  for (size_t v = 0; v < p.values.size(); ++v) {
    const Value& share = p.values[v];
    size_t dot = share.name.rfind('.');
    if (share.role != Role::state || share.layout.storage != ValueId(v) || dot == std::string::npos) continue;
    ValueId weights = p.find("weights" + share.name.substr(dot));
    if (weights == no_value) continue;
    int64_t block = p.at(weights).numel() / (share.numel() * ranks);  // elements of the weights for one of the state
    shares_.push_back({executor.tensor(program, share.name), share.numel()});
    for (size_t q = 0; q < p.params.size(); ++q) {
      const Value& weight = p.at(p.params[q].value);
      if (weight.layout.storage != weights) continue;
      int64_t count = (weight.numel() + block - 1) / block;
      tensors_.push_back({q, share.name.substr(0, dot), share.dtype, block == 1 ? weight.shape : Shape{count},
                          int(shares_.size()) - 1, weight.layout.offset / block, count});
    }
  }
  std::stable_sort(tensors_.begin(), tensors_.end(), [](auto& a, auto& b) { return a.parameter < b.parameter; });
}

TensorRef ShardedStates::whole(size_t tensor) {
  memory_.resize(tensors_.size());
  const Tensor& t = tensors_[tensor];
  auto& memory = memory_[tensor];
  memory.resize(size_t(t.count) * size_of(t.dtype));
  return {memory.data(), t.dtype, t.shape, runtime_};
}

void ShardedStates::gather(Communicator& comm) {
  std::vector<char> passing;
  for (size_t i = 0; i < tensors_.size(); ++i) {
    const Tensor& t = tensors_[i];
    const Share& share = shares_[size_t(t.group)];
    size_t size = size_of(t.dtype);
    char* data = nullptr;
    if (comm.rank() == 0) {
      data = static_cast<char*>(whole(i).data);
    } else {
      passing.resize(size_t(t.count) * size);
      data = passing.data();
    }
    for (int r = 0; r < comm.size(); ++r) {
      int64_t begin = std::max(t.first, share.numel * r), end = std::min(t.first + t.count, share.numel * (r + 1));
      if (begin >= end) continue;
      char* part = data + size_t(begin - t.first) * size;
      if (r == comm.rank())
        std::memcpy(part, static_cast<char*>(share.own.data) + size_t(begin - share.numel * r) * size,
                    size_t(end - begin) * size);
      comm.broadcast(part, DType::u8, (end - begin) * int64_t(size), r);
    }
  }
}

void ShardedStates::take(int rank) {
  for (size_t i = 0; i < memory_.size(); ++i) {
    const Tensor& t = tensors_[i];
    const Share& share = shares_[size_t(t.group)];
    int64_t begin = std::max(t.first, share.numel * rank), end = std::min(t.first + t.count, share.numel * (rank + 1));
    if (begin >= end || memory_[i].empty()) continue;
    size_t size = size_of(t.dtype);
    std::memcpy(static_cast<char*>(share.own.data) + size_t(begin - share.numel * rank) * size,
                memory_[i].data() + size_t(begin - t.first) * size, size_t(end - begin) * size);
  }
  release();
}

}  // namespace crest
