// Binds a compiled session to memory once and runs its Programs.
#pragma once
#include <memory>
#include <string>
#include <vector>

#include "core/scalars.h"
#include "plan/compile.h"
#include "run/arena.h"

namespace crest {

class Communicator;

// Measured seconds per instruction of one run; row i is instruction i.
struct StepTrace {
  std::vector<double> seconds;
  double total = 0;
};

// A tensor in an executor's memory.
struct TensorRef {
  void* data = nullptr;
  DType dtype = DType::f32;
  Shape shape;
};

class Executor {
 public:
  // The session must outlive the executor. communicator is needed where Programs communicate.
  explicit Executor(const CompiledSession& session, Communicator* communicator = nullptr);
  ~Executor();

  const CompiledSession& session() const { return session_; }
  Communicator* communicator() const { return communicator_; }
  void run(int program, StepTrace* trace = nullptr);
  // A value of a Program by name; throws an internal error when it is not there.
  TensorRef tensor(int program, const std::string& value_name) const;
  bool has(int program, const std::string& value_name) const;
  Scalars& scalars() { return *scalars_; }
  // Bytes of tensors that this executor really holds.
  int64_t held_bytes() const { return persistent_.bytes() + transient_.bytes(); }

 private:
  struct Bound {
    const Kernel* kernel;
    std::vector<void*> in, out;
    void* workspace;
    std::shared_ptr<void> prepared;
  };
  void bind(const CompiledProgram& program);
  void* address(const CompiledProgram& program, ValueId v) const;

  const CompiledSession& session_;
  Communicator* communicator_;
  Arena persistent_, transient_;
  Scalars* scalars_ = nullptr;
  std::vector<std::vector<Bound>> bound_;  // per Program
};

}  // namespace crest
