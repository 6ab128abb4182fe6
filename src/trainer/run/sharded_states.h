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
  // group: the ranks of different shards, in order of the shards. Its first rank gets all values;
  // on the others nothing is kept. passing: memory of the device for what passes from rank to rank;
  // its content is lost.
  void gather(Communicator& group, const TensorRef& passing);
  // Every rank's shard becomes what the whole tensors of the first rank of `world` hold; then they
  // are released. All ranks call it, each with the number of its shard.
  void scatter(Communicator& world, int own, const TensorRef& passing);
  // The same without other ranks' tensors: all have the same.
  void take(int shard);
  void release() { memory_.clear(); }

 private:
  struct Shard {
    TensorRef own;
    int64_t numel;
  };
  // The bytes of tensor t in shard r, and their place in the whole tensor.
  struct Part {
    char* own;  // where this rank has them, if shard r is its own
    int64_t offset, bytes;
  };
  Part part(const Tensor& t, int number) const;
  void copy(void* to, const void* from, int64_t bytes);
  int shard_count_ = 1;
  std::vector<Shard> shards_;  // by group of parameters
  std::vector<Tensor> tensors_;
  std::vector<std::vector<char>> memory_;  // by tensor
  Runtime* runtime_;                       // of the shards
  std::unique_ptr<Runtime> host_;          // of the whole tensors
};

}  // namespace crest
