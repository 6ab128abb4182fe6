// Optimizer states of which this rank has a share (passes/shard.cpp), as whole tensors on the host:
// what checkpoints read and write. They exist only from whole() or gather() to
// take() or release().
#pragma once
#include <memory>
#include <string>
#include <vector>

#include "backend/runtime.h"
#include "plan/compile.h"

namespace crest {

class Communicator;
class Executor;

class ShardedStates {
 public:
  explicit ShardedStates(const Executor& executor);

  // `PARAMETER.STATE` of the Program without shares, in the order of the parameters.
  struct Tensor {
    size_t parameter;  // index in Program::params
    std::string state;
    DType dtype;
    Shape shape;
    int group;             // index of the share
    int64_t first, count;  // its elements in the whole group
  };
  const std::vector<Tensor>& tensors() const { return tensors_; }
  // Zeros, until they are written. All tensors, or none.
  TensorRef whole(size_t tensor);
  // Rank 0 gets the values of all ranks; on the others nothing is kept. All ranks call it.
  void gather(Communicator& comm);
  // This rank's share becomes what the whole tensors hold; then they are released.
  void take(int rank);
  void release() { memory_.clear(); }

 private:
  struct Share {
    TensorRef own;
    int64_t numel;
  };
  std::vector<Share> shares_;
  std::vector<Tensor> tensors_;
  std::vector<std::vector<char>> memory_;  // by tensor
  Runtime* runtime_;
};

}  // namespace crest
