// Optimizer states and weights divided among ranks (passes/shard.cpp, tensor_parallel.cpp,
// pipeline_parallel.cpp), as whole host tensors on rank 0, for checkpoints of any mesh. Holds only
// as many at a time as readers and writers need.
#pragma once
#include <functional>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <string_view>
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

  // `PARAMETER.STATE` of a run on one rank, in parameter order. The state of weights is
  // weights_state.
  struct Tensor {
    size_t parameter;  // index in params()
    std::string state;
    DType dtype;
    Shape shape;
    bool of_elements;    // one number for each element of the parameter
    Axes axes;           // along which the ranks have other parts
    Axes sharing;        // of them, those with a share of each group (--shard)
    int stage = 0;       // its pipeline stage
    Placement cut;       // along the tensor axis
    int64_t padded = 0;  // of the cut dimension, in elements over all ranks
    char* own;           // this rank's part of the group; null: on another stage
    int64_t first = 0;   // offset in the group, in elements
    int64_t share = 0;   // elements of the group per rank along the data axis; 0: all
  };
  const std::vector<Tensor>& tensors() const { return tensors_; }
  // The model's parameters on all stages.
  const std::vector<Param>& params() const { return params_; }
  // Whether this rank has a part of the parameter.
  bool here(size_t parameter) const;
  // The whole tensor's memory. It is zero until fetched or written; zeros take no memory.
  TensorRef whole(size_t tensor);

  // All ranks of `world` call it. Rank 0 runs work(), which may read and write whole tensors. The
  // others take part until it ends. work() must not throw. host: a communicator of the same ranks
  // for host memory. passing: device memory for bytes between ranks, zero afterwards.
  void exchange(Communicator& host, Communicator& world, const TensorRef& passing, const std::function<void()>& work);
  // On rank 0 within exchange(), from any thread. read: before work(), collects all ranks' parts of
  // a parameter's state in whole tensors. write: after work(), sends them to all ranks. Then frees
  // the memory. State weights_state includes the master weights. For undivided parameters and
  // states, only calls work().
  void read(size_t parameter, std::string_view state, const std::function<void()>& work);
  void write(size_t parameter, std::string_view state, const std::function<void()>& work);
  // Whether any tensor of the parameter's state is divided.
  bool has(size_t parameter, std::string_view state) const { return !find(parameter, state).empty(); }

  // For ranks with identical whole tensors: `rank` keeps its part of the parameter and frees the
  // memory.
  void take(int rank, size_t parameter);

 private:
  // Bytes contiguous both in a rank's part, from `own` on, and in the whole tensor. Padding
  // separates runs.
  struct Run {
    int64_t own, whole, bytes;
  };
  // A rank's part of a tensor, in memory order.
  std::vector<Run> runs(const Tensor& t, int rank) const;
  // Copies `bytes` of a part, from byte `from`, between `part` and the whole tensor.
  static void place(char* whole, const char* part, int64_t from, int64_t bytes, const std::vector<Run>& runs);
  static void pick(char* part, const char* whole, int64_t from, int64_t bytes, const std::vector<Run>& runs);
  // Calls work(rank, from, bytes, runs) for each piece of a part, once for all ranks with the same
  // part.
  template <class F>
  void in_pieces(size_t tensor, int64_t most, F work) const;
  void add_groups(const Executor& executor, const Program& p, int stage);
  void add_tensors(const Executor& executor, const Program& p, int stage);
  size_t index_of(const std::string& parameter) const;
  std::vector<size_t> find(size_t parameter, std::string_view state) const;
  struct Exchange {
    Communicator *host, *world;
    TensorRef passing;
    int64_t most;  // bytes: the minimum over ranks
  };
  struct Request {
    int64_t tensor, to_ranks;  // tensor -1: the end
  };
  void request(Request r);
  void pass(Request r);
  void gather(size_t tensor);
  void scatter(size_t tensor);
  void forget(size_t tensor);
  Mesh mesh_;
  int stage_;
  std::vector<Param> params_;
  std::vector<Tensor> tensors_;
  Runtime* runtime_;                           // for the shards
  std::unique_ptr<Runtime> host_;              // for the whole tensors
  std::vector<std::shared_ptr<char>> memory_;  // by tensor; null: none; freed by host_
  std::optional<Exchange> exchange_;
  std::recursive_mutex one_;  // one thread at a time transfers tensors; its readers may start more reads
};

}  // namespace crest
