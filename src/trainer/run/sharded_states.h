// Optimizer states and weights kept in parts by the ranks (passes/shard.cpp, tensor_parallel.cpp),
// as whole tensors on the host, for checkpoints of any mesh. They exist only from whole() or
// gather() to take() or release().
#pragma once
#include <memory>
#include <string>
#include <vector>

#include "backend/runtime.h"
#include "plan/compile.h"
#include "program/mesh.h"

namespace crest {

class Communicator;
class Executor;

inline constexpr const char* weights_state = "weights";

class ShardedStates {
 public:
  explicit ShardedStates(const Executor& executor);

  // `PARAMETER.STATE` of a run of one rank, in the order of the parameters; of weights the state is
  // weights_state.
  struct Tensor {
    size_t parameter;  // index in Program::params
    std::string state;
    DType dtype;
    Shape shape;
    bool of_elements;    // one number for each element of the parameter
    Axes axes;           // along which the ranks have other parts
    Placement cut;       // along the tensor axis
    int64_t padded = 0;  // elements, on all ranks, of the dimension that is cut
    char* own;           // this rank's part of the group
    int64_t first = 0;   // elements of the group before the tensor
    int64_t share = 0;   // elements of the group for each rank along the data axis; 0: all
  };
  const std::vector<Tensor>& tensors() const { return tensors_; }
  // Zeros, until they are written. All tensors, or none.
  TensorRef whole(size_t tensor);
  // Rank 0 of `world` gets all values; the others keep nothing. All ranks call it. passing: device
  // memory for the bytes between ranks; its content is lost.
  void gather(Communicator& world, const TensorRef& passing);
  // Every rank's part is set from the whole tensors of rank 0; then they are released.
  void scatter(Communicator& world, const TensorRef& passing);
  // The same without other ranks' tensors: all have the same. rank: this one.
  // Of one parameter.
  void take(int rank, size_t parameter);
  void release() { memory_.clear(); }

 private:
  // Adjacent bytes in a rank's part, from `own` on, and in the whole tensor. Between two of them is
  // padding.
  struct Run {
    int64_t own, whole, bytes;
  };
  // A rank's part of a tensor, in the order of its memory.
  std::vector<Run> runs(const Tensor& t, int rank) const;
  // Copies `bytes` of a part, from byte `from` on, between `part` and the whole tensor.
  static void place(char* whole, const char* part, int64_t from, int64_t bytes, const std::vector<Run>& runs);
  static void pick(char* part, const char* whole, int64_t from, int64_t bytes, const std::vector<Run>& runs);
  // Calls work(tensor, rank, from, bytes, runs) for each piece of a part, once for all its ranks.
  template <class F>
  void in_pieces(int64_t most, F work) const;
  Mesh mesh_;
  std::vector<Tensor> tensors_;
  Runtime* runtime_;               // of the shards
  std::unique_ptr<Runtime> host_;  // of the whole tensors
  // By tensor, null where there is none, released by host_. Pages that nobody has written take no
  // memory.
  std::vector<std::shared_ptr<char>> memory_;
};

}  // namespace crest
