// Binds a compiled session to memory once and runs its Programs.
#pragma once
#include <memory>
#include <string>
#include <vector>

#include "backend/runtime.h"
#include "core/scalars.h"
#include "plan/compile.h"
#include "run/arena.h"

namespace crest {

class Choices;
class MeshGroups;
class ShardedStates;

class Executor {
 public:
  // Session and groups must outlive the executor. `groups` is required if Programs communicate.
  // Kernels choose by timing here, unless the recipe is deterministic. `choices` has an earlier
  // session's choices and receives the ones in use.
  explicit Executor(const CompiledSession& session, const MeshGroups* groups = nullptr, Choices* choices = nullptr);
  ~Executor();

  const CompiledSession& session() const { return session_; }
  // slot: the micro step's, for segments of a pipeline stage (plan/compile.h).
  void run(int program, StepTrace* trace = nullptr, int slot = 0);
  // Seconds spent in run(). On a GPU, the time to launch the work, not to finish it.
  double launch_seconds() const { return launch_seconds_; }
  // A Program's value by name. Throws an internal error if there is none.
  TensorRef tensor(int program, const std::string& value_name, int slot = 0) const;
  int slots(int program) const { return int(bound_[size_t(program)].size()); }
  bool has(int program, const std::string& value_name) const;

  // The scalars as kernels left them.
  Scalars scalars() const;
  void read_scalars_later(Scalars& to) const { runtime_->read_later(&to, scalars_, sizeof to); }
  void set_scalars(const Scalars& scalars);
  // Sets only the values written by the host before a run (seed .. length). Values written by
  // kernels stay.
  void set_inputs(const Scalars& scalars);

  Runtime& runtime() const { return *runtime_; }
  // States kept only as shards.
  ShardedStates& sharded() const { return *sharded_; }
  // Bytes of device memory in tensors and the ranks' library.
  int64_t held_bytes() const;
  // Bytes of host memory in tensors (--offload).
  int64_t held_host_bytes() const { return host_.bytes(); }
  // Device memory free between two steps.
  TensorRef between_steps() const;

 private:
  void bind(const CompiledProgram& program, int slot);
  void tune(Choices* choices);
  void* address(const CompiledProgram& program, ValueId v, int slot) const;

  const CompiledSession& session_;
  const MeshGroups* groups_;
  std::unique_ptr<Runtime> runtime_;
  Arena persistent_, transient_, host_;
  void* scalars_ = nullptr;
  double launch_seconds_ = 0;
  std::vector<std::vector<BoundProgram>> bound_;  // by Program and slot
  std::unique_ptr<ShardedStates> sharded_;
};

}  // namespace crest
