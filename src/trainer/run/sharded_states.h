// Optimizer states and weights of which this rank has a shard (passes/shard.cpp), as whole tensors
// on the host: what checkpoints read and write. They exist only from whole() or gather() to
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

inline constexpr const char* weights_state = "weights";

class ShardedStates {
 public:
  explicit ShardedStates(const Executor& executor);

  // `PARAMETER.STATE` of the Program without shards, in the order of the parameters; of weights the
  // state is weights_state.
  struct Tensor {
    size_t parameter;  // index in Program::params
    std::string state;
    DType dtype;
    Shape shape;
    int group;             // index of the shard
    int64_t first, count;  // its elements in the whole group
  };
  const std::vector<Tensor>& tensors() const { return tensors_; }
  // Zeros, until they are written. All tensors, or none.
  TensorRef whole(size_t tensor);
  // Rank 0 gets the values of all ranks; on the others nothing is kept. All ranks call it.
  // passing: memory of the device for what passes from rank to rank; its content is lost.
  void gather(Communicator& comm, const TensorRef& passing);
  // Every rank's shard becomes what the whole tensors of rank 0 hold; then they are released. All
  // ranks call it.
  void scatter(Communicator& comm, const TensorRef& passing);
  // The same without other ranks' tensors: all have the same.
  void take(int rank);
  void release() { memory_.clear(); }

 private:
  struct Shard {
    TensorRef own;
    int64_t numel;
  };
  // The bytes of tensor t that rank r has: in the shard, and their place in the whole tensor.
  struct Part {
    char* own;  // on rank r
    int64_t offset, bytes;
  };
  Part part(const Tensor& t, int rank) const;
  void copy(void* to, const void* from, int64_t bytes);
  std::vector<Shard> shards_;
  std::vector<Tensor> tensors_;
  std::vector<std::vector<char>> memory_;  // by tensor
  Runtime* runtime_;                       // of the shards
  std::unique_ptr<Runtime> host_;          // of the whole tensors
};

}  // namespace crest
