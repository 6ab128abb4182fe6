// A training step (or a part of it) as plain data: a list of tensor instructions in SSA form.
// Everything reads this one structure: passes rewrite it, the planner assigns addresses to its
// values, backends offer kernels for its instructions, and plan / profile / compare / report print
// its rows.
#pragma once
#include <memory>
#include <string>
#include <vector>

#include "core/dtype.h"
#include "core/shape.h"
#include "program/attrs.h"
#include "program/origin.h"
#include "program/placement.h"

namespace crest {

struct OpDef;

using ValueId = int32_t;
inline constexpr ValueId no_value = -1;

// input: written by the host. weight: read by the model's kernels. gradient: of a parameter. state:
// optimizer moments, master weights, scalars. cache: keys and values for decoding. output: read by
// the host after a run.
enum class Role : uint8_t { input, weight, gradient, state, cache, activation, output };
// micro_step: one micro step (`micro` in text and JSON). slot: one micro step cut into Programs
// (passes/segments.h). Micro steps in flight have separate memory. step: from the first micro step
// to the update. persistent: the whole run.
enum class Lifetime : uint8_t { micro_step, slot, step, persistent };
enum class Phase : uint8_t { forward, recompute, backward, update };
// Where instructions run concurrently: a CUDA stream, or a thread of the host (`lane` in JSON).
// copy: from host memory to the device; copy_back: the other way, since a link carries both at
// once. gradients: of parameters, next to the rest of the backward pass
// (passes/gradient_overlap.cpp).
enum class Stream : uint8_t { compute, comm, copy, copy_back, gradients };
inline constexpr int stream_count = 5;
// Host or device memory. On a CPU both are ordinary memory at different addresses.
enum class MemorySpace : uint8_t { device, host };

std::string_view name(Role);
std::string_view name(Lifetime);
std::string_view name(Phase);
std::string_view name(Stream);
std::string_view name(MemorySpace);

// storage: the owner of the memory (the value itself, if it owns memory). Views and later versions
// of a value updated in place share the storage of the first. offset and strides count elements of
// the value's dtype.
struct Layout {
  ValueId storage = no_value;
  int64_t offset = 0;
  Shape strides;
  // Of rows shared by `pieces` ranks along the axis tensor, this value has the rows of the rank
  // `piece` places further: on each rank they begin elsewhere (Value::offset_on). 0: it has them
  // all, or others know nothing of ranks. `offset` is the place on the first rank.
  int pieces = 0, piece = 0;
  bool operator==(const Layout&) const = default;
};

struct Value {
  std::string name;  // unique within the Program
  DType dtype = DType::f32;
  Shape shape;  // logical
  Layout layout;
  Role role = Role::activation;
  Lifetime lifetime = Lifetime::micro_step;
  MemorySpace space = MemorySpace::device;  // the same as its storage's
  // The part on each rank. Declared for inputs, weights and states, inferred for results
  // (program/placements.h).
  Placements placement = {};

  int64_t numel() const { return shape.numel(); }
  int64_t bytes() const { return shape.numel() * int64_t(size_of(dtype)); }  // of the elements
  // layout.offset on the rank with this place along the axis tensor.
  int64_t offset_on(int place) const {
    if (!layout.pieces) return layout.offset;
    return layout.offset + ((layout.piece + place) % layout.pieces - layout.piece) * numel();
  }
  bool contiguous() const { return layout.strides == shape.contiguous_strides(); }
  // Elements from one row (of the last dimension) to the next, where rows are dense and evenly
  // spaced: the width of a contiguous value, or more ("leading dimension"). 0: they are not.
  int64_t pitch() const;
  // For an owner of memory: all elements, the gaps between rows and the gap after the last row.
  int64_t storage_bytes() const;
};

struct Program;

struct Instr {
  const OpDef* op = nullptr;
  std::vector<ValueId> in;  // no_value where an optional input is absent
  std::vector<ValueId> out;
  Attrs attrs;
  Phase phase = Phase::forward;
  Stream stream = Stream::compute;
  Origin origin;
  std::shared_ptr<const Program> body;  // of a fused instruction; its inputs and outputs are the body's, in order
};

// How a parameter is initialized and decayed. Checkpoints hold the canonical (logical) shape.
struct Param {
  std::string name;  // also the name of its weight value
  Shape shape;       // logical; the value may be padded
  ValueId value = no_value;
  double init_mean = 0, init_std = 0;  // normal(mean, std); std 0: constant
  bool uniform = false;                // uniform, with this mean and standard deviation
  bool decay = false;                  // weight decay: matrices only
  bool frozen = false;                 // not trained: no gradient, state or master weight
  int lr_group = 0;                    // with a learning rate of its own (passes/optimizer.cpp); 0: none
  double lr_factor = 1;                // this rate relative to the step's
  bool borrowed = false;               // a copy from another pipeline stage, which updates it
  bool lent = false;                   // another pipeline stage borrows it
  int chunk = 0;                       // of the layers of its rank: each is a stage (--schedule-pipeline interleaved)
  bool operator==(const Param& o) const = default;
};

struct Program {
  std::string name;
  std::vector<Value> values;
  std::vector<Instr> code;
  std::vector<ValueId> inputs, outputs;  // the order matters for bodies; outputs stay alive to the end
  std::vector<Param> params;
  // Information for later readers: grad_dtype, loss_scale (initial, fp16), first / last micro step.
  Attrs properties;

  const Value& at(ValueId id) const { return values[size_t(id)]; }
  Value& at(ValueId id) { return values[size_t(id)]; }
  // The id of a value by name, or no_value. A linear search, for passes with one or two names.
  ValueId find(std::string_view value_name) const;
  // The index of the producing instruction of each value; -1 for values from the host or another
  // Program.
  std::vector<int> producers() const;
  // The indices of all readers of each value.
  std::vector<std::vector<int>> consumers() const;
};

}  // namespace crest
