// Optimizer states and weights kept in parts by the ranks (passes/shard.cpp, tensor_parallel.cpp,
// pipeline_parallel.cpp),
// as whole tensors on the host of rank 0, for checkpoints of any mesh: as few at a time as their
// readers and writers need.
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

  // `PARAMETER.STATE` of a run of one rank, in the order of the parameters; of weights the state is
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
    int64_t padded = 0;  // elements, on all ranks, of the dimension that is cut
    char* own;           // this rank's part of the group; null: another stage's
    int64_t first = 0;   // elements of the group before the tensor
    int64_t share = 0;   // elements of the group for each rank along the data axis; 0: all
  };
  const std::vector<Tensor>& tensors() const { return tensors_; }
  // The parameters of the model, of all stages.
  const std::vector<Param>& params() const { return params_; }
  // Whether this rank has any part of a parameter.
  bool here(size_t parameter) const;
  // Memory of the whole tensor. Zeros until it is fetched or written; zeros take no memory.
  TensorRef whole(size_t tensor);

  // All ranks of `world` call it. Rank 0 runs work(), which may read and write whole tensors; the
  // others take part until it ends. It must not throw. host: a communicator of the same ranks for
  // host memory. passing: device memory for the bytes between ranks; its content is lost.
  void exchange(Communicator& host, Communicator& world, const TensorRef& passing, const std::function<void()>& work);
  // On rank 0, within exchange(), from any thread. read: work() finds the parts of all ranks in the
  // whole tensors of a parameter's state. write: they are sent to all ranks after work(). Then the
  // memory is free again. State weights_state includes the master weights. Other parameters and
  // states are not kept in parts: work() is all that happens.
  void read(size_t parameter, std::string_view state, const std::function<void()>& work);
  void write(size_t parameter, std::string_view state, const std::function<void()>& work);
  // Whether any tensor of the parameter's state is in parts.
  bool has(size_t parameter, std::string_view state) const { return !find(parameter, state).empty(); }

  // For ranks with the same whole tensors: `rank` keeps its part of the parameter and frees the
  // memory.
  void take(int rank, size_t parameter);

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
  // Calls work(rank, from, bytes, runs) for each piece of a part, once for all its ranks.
  template <class F>
  void in_pieces(size_t tensor, int64_t most, F work) const;
  void add_groups(const Executor& executor, const Program& p, int stage);
  void add_tensors(const Executor& executor, const Program& p, int stage);
  size_t index_of(const std::string& parameter) const;
  std::vector<size_t> find(size_t parameter, std::string_view state) const;
  struct Exchange {
    Communicator *host, *world;
    TensorRef passing;
    int64_t most;  // bytes: the least of all ranks
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
  Runtime* runtime_;                           // of the shards
  std::unique_ptr<Runtime> host_;              // of the whole tensors
  std::vector<std::shared_ptr<char>> memory_;  // by tensor, null where there is none, released by host_
  std::optional<Exchange> exchange_;
  std::recursive_mutex one_;  // thread at a time passes tensors; its readers may read more
};

}  // namespace crest
