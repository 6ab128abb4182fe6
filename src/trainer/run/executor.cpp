#include "run/executor.h"

#include <fmt/format.h>

#include <cstddef>

#include "comm/mesh_groups.h"
#include "core/error.h"
#include "core/timer.h"
#include "plan/addresses.h"
#include "program/op.h"
#include "run/sharded_states.h"

namespace crest {

static RuntimeOptions launch_options(const Recipe& r, const MeshGroups* groups) {
  bool capturable = !groups || groups->capturable();
  return {.graphs = r.graphs == "on" && capturable, .overlap = r.programmatic_launch == "on", .ranges = r.nvtx == "on"};
}

Executor::Executor(const CompiledSession& session, const MeshGroups* groups, Choices* choices)
    : session_(session),
      groups_(groups),
      runtime_(make_runtime(session.device, groups, launch_options(session.recipe, groups))),
      persistent_(*runtime_, session.persistent_bytes),
      transient_(*runtime_, session.transient_bytes),
      host_(*runtime_, session.host_bytes, MemorySpace::host) {
  for (auto& b : session.persistent)
    if (b.name == "scalars") scalars_ = persistent_.at(b.offset);
  if (!scalars_) fail_internal("the session has no scalars");
  bound_.reserve(session.programs.size());
  for (auto& c : session.programs) {
    const SlotArea* area = session.area_of(c.spec);
    bound_.emplace_back().reserve(size_t(area ? area->slots : 1));
    for (int slot = 0; slot < (area ? area->slots : 1); ++slot) bind(c, slot);
  }
  if (!session.recipe.deterministic) tune(choices);
  Scalars first = {};
  first.loss_scale = 1;
  first.grad_factor = 1;
  for (auto& c : session.programs)
    if (c.program.properties.has("loss_scale")) first.loss_scale = float(c.program.properties.number("loss_scale"));
  set_scalars(first);
  sharded_ = std::make_unique<ShardedStates>(*this);
}

Executor::~Executor() = default;

int64_t Executor::held_bytes() const {
  return persistent_.bytes() + transient_.bytes() + (groups_ ? groups_->device_bytes() : 0);
}

TensorRef Executor::between_steps() const {
  return {transient_.bytes() ? transient_.at(0) : nullptr, DType::u8, Shape{transient_.bytes()}, runtime_.get()};
}

void* Executor::address(const CompiledProgram& c, ValueId v, int slot) const {
  if (v == no_value) return nullptr;
  Address a = address_of(session_, c, v);
  const Value& value = c.program.at(v);
  if (value.layout.pieces) {
    const int place = groups_ ? groups_->index(Axis::tensor) : 0;
    a.offset += (value.offset_on(place) - value.layout.offset) * int64_t(size_of(value.dtype));
  }
  if (c.program.at(value.layout.storage).lifetime == Lifetime::slot) a.offset += slot * session_.area_of(c.spec)->bytes;
  switch (a.arena) {
    case Address::Arena::none: return nullptr;
    case Address::Arena::transient: return transient_.at(a.offset);
    case Address::Arena::persistent: return persistent_.at(a.offset);
    case Address::Arena::host: return host_.at(a.offset);
  }
  fail_internal("an address in no arena", c.spec.name);
}

void Executor::bind(const CompiledProgram& c, int slot) {
  BoundProgram bound;
  bound.program = &c.program;
  bound.waits = &c.waits;
  bound.code.reserve(c.program.code.size());
  std::vector<void*> addresses(c.program.values.size());
  for (size_t v = 0; v < addresses.size(); ++v) addresses[v] = address(c, ValueId(v), slot);
  auto at = [&](ValueId v) { return v == no_value ? nullptr : addresses[size_t(v)]; };
  for (size_t i = 0; i < c.program.code.size(); ++i) {
    const Instr& instr = c.program.code[i];
    BoundInstr b;
    b.kernel = c.kernels[i];
    for (ValueId v : instr.in) b.in.push_back(at(v));
    for (ValueId v : instr.out) b.out.push_back(at(v));
    int w = c.memory.block_of_instr[i];
    b.workspace = w < 0 ? nullptr : transient_.at(c.memory.blocks[size_t(w)].offset);
    if (b.kernel->prepare) b.prepared = b.kernel->prepare({c.program, instr, session_.device});
    bound.code.push_back(std::move(b));
  }
  bound_.back().push_back(std::move(bound));
}

// Timing overwrites tensors. The arenas start as zeros, so zero them again. Only copies write host
// memory, and they have no choices to time.
void Executor::tune(Choices* choices) {
  bool tuned = false;
  for (auto& slots : bound_)
    for (auto& p : slots)
      for (size_t i = 0; i < p.code.size(); ++i)
        if (p.code[i].kernel->tune) {
          KernelCall call = runtime_->call(p, i);
          call.choices = choices;
          p.code[i].kernel->tune(call);
          tuned = true;
        }
  for (Arena* arena : {&persistent_, &transient_})
    if (tuned && arena->bytes()) runtime_->zero(arena->at(0), arena->bytes());
}

void Executor::run(int program, StepTrace* trace, int slot) {
  Timer timer;
  BoundProgram& bound = bound_[size_t(program)][size_t(slot)];
  RangeScope range(*runtime_, bound.program->name);
  runtime_->run(bound, trace);
  launch_seconds_ += timer.seconds();
}

bool Executor::has(int program, const std::string& value_name) const {
  return session_.programs[size_t(program)].program.find(value_name) != no_value;
}

TensorRef Executor::tensor(int program, const std::string& value_name, int slot) const {
  const CompiledProgram& c = session_.programs[size_t(program)];
  ValueId v = c.program.find(value_name);
  if (v == no_value) fail_internal(fmt::format("no value %{}", value_name), c.spec.name);
  return {address(c, v, slot), c.program.at(v).dtype, c.program.at(v).shape, runtime_.get()};
}

Scalars Executor::scalars() const {
  Scalars s;
  runtime_->read(&s, scalars_, sizeof s);
  return s;
}

void Executor::set_scalars(const Scalars& s) { runtime_->write(scalars_, &s, sizeof s); }

void Executor::set_inputs(const Scalars& s) { runtime_->write(scalars_, &s, offsetof(Scalars, adam_step)); }

}  // namespace crest
