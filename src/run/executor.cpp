#include "run/executor.h"

#include <fmt/format.h>

#include <chrono>

#include "core/error.h"
#include "ops/op.h"

namespace crest {

Executor::Executor(const CompiledSession& session, Communicator* communicator)
    : session_(session),
      communicator_(communicator),
      persistent_(session.persistent_bytes),
      transient_(session.transient_bytes) {
  for (auto& b : session.persistent)
    if (b.name == "scalars") scalars_ = static_cast<Scalars*>(persistent_.at(b.offset));
  if (!scalars_) fail_internal("the session has no scalars");
  scalars_->loss_scale = 1;
  scalars_->grad_factor = 1;
  for (auto& c : session.programs)
    if (c.program.properties.has("loss_scale")) scalars_->loss_scale = float(c.program.properties.number("loss_scale"));
  bound_.reserve(session.programs.size());
  for (auto& c : session.programs) bind(c);
}

Executor::~Executor() = default;

void* Executor::address(const CompiledProgram& c, ValueId v) const {
  if (v == no_value) return nullptr;
  const Value& value = c.program.at(v);
  const Value& root = c.program.at(value.layout.storage);
  int64_t offset = value.layout.offset * int64_t(size_of(value.dtype));
  int block = c.memory.block_of_value[size_t(value.layout.storage)];
  if (block >= 0) return transient_.at(c.memory.blocks[size_t(block)].offset + offset);
  if (root.lifetime == Lifetime::micro) return nullptr;  // never used
  for (auto& b : session_.persistent)
    if (b.name == root.name) return persistent_.at(b.offset + offset);
  fail_internal(fmt::format("%{} has no address", value.name), c.spec.name);
}

void Executor::bind(const CompiledProgram& c) {
  std::vector<Bound> list;
  list.reserve(c.program.code.size());
  std::vector<void*> addresses(c.program.values.size());
  for (size_t v = 0; v < addresses.size(); ++v) addresses[v] = address(c, ValueId(v));
  auto at = [&](ValueId v) { return v == no_value ? nullptr : addresses[size_t(v)]; };
  for (size_t i = 0; i < c.program.code.size(); ++i) {
    const Instr& instr = c.program.code[i];
    Bound b;
    b.kernel = c.kernels[i];
    for (ValueId v : instr.in) b.in.push_back(at(v));
    for (ValueId v : instr.out) b.out.push_back(at(v));
    int w = c.memory.block_of_instr[i];
    b.workspace = w < 0 ? nullptr : transient_.at(c.memory.blocks[size_t(w)].offset);
    if (b.kernel->prepare) b.prepared = b.kernel->prepare({c.program, instr, session_.device});
    list.push_back(std::move(b));
  }
  bound_.push_back(std::move(list));
}

void Executor::run(int program, StepTrace* trace) {
  using Clock = std::chrono::steady_clock;
  const CompiledProgram& c = session_.programs[size_t(program)];
  auto& list = bound_[size_t(program)];
  auto start = Clock::now(), before = start;
  if (trace) trace->seconds.assign(list.size(), 0);
  for (size_t i = 0; i < list.size(); ++i) {
    Bound& b = list[i];
    b.kernel->launch({c.program, c.program.code[i], b.in.data(), b.out.data(), b.workspace, b.prepared.get(),
                      session_.device.threads, communicator_});
    if (trace) {
      auto now = Clock::now();
      trace->seconds[i] = std::chrono::duration<double>(now - before).count();
      before = now;
    }
  }
  if (trace) trace->total = std::chrono::duration<double>(Clock::now() - start).count();
}

bool Executor::has(int program, const std::string& value_name) const {
  return session_.programs[size_t(program)].program.find(value_name) != no_value;
}

TensorRef Executor::tensor(int program, const std::string& value_name) const {
  const CompiledProgram& c = session_.programs[size_t(program)];
  ValueId v = c.program.find(value_name);
  if (v == no_value) fail_internal(fmt::format("no value %{}", value_name), c.spec.name);
  return {address(c, v), c.program.at(v).dtype, c.program.at(v).shape};
}

}  // namespace crest
