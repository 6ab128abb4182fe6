// Turns a recipe into Programs with kernels and addresses: everything known about a run before it
// starts.
#pragma once
#include <set>
#include <string>
#include <vector>

#include "backend/backend.h"
#include "model/gpt.h"
#include "model/recipe.h"
#include "passes/pass.h"
#include "passes/segments.h"
#include "plan/communicators.h"
#include "plan/memory_plan.h"
#include "plan/schedule.h"
#include "program/waits.h"

namespace crest {

// One Program of a session.
struct ProgramSpec {
  // "train", "train.first", "train.forward", "update", "validation", "prefill", "decode", "score",
  // "start"
  std::string name;
  ProgramKind kind = ProgramKind::train;
  int64_t batch = 1, seq = 1;
  int64_t cache_length = 0;
  bool first = true, last = true;
  bool forward_only = false;  // PassContext::forward_only
  int stage = 0, chunk = 0;   // PassContext::stage, chunk
  // For a segment of a pipeline stage (passes/segments.h): the name of its whole Program.
  std::string of = {};
  SegmentKind part = SegmentKind::backward;
  bool all_logits = false;  // ForwardShape::all_logits
};

struct CompiledProgram {
  ProgramSpec spec;
  Program program;
  std::vector<const Kernel*> kernels;  // per instruction
  std::vector<int64_t> workspace;      // per instruction, bytes
  MemoryPlan memory;
  MemoryPlan host;                  // of activations in host memory (--offload activations)
  Waits waits;                      // between streams
  std::vector<PassTiming> timings;  // passes, then "kernels" and "memory"
};

// A storage with a life beyond one run of a Program. The Programs of a session share it by name.
// Its offset is in the persistent arena, or in the transient arena for CompiledSession::gradients.
struct PersistentBlock {
  std::string name;
  int64_t offset, bytes;
  Category category;
};

// Values with lifetime `slot` in the Programs of one kind and chunk. Each micro step in flight has
// a slot. Block offsets are within a slot.
struct SlotArea {
  ProgramKind kind;
  int chunk;
  int slots = 1;
  std::vector<PersistentBlock> blocks = {};
  int64_t offset = 0, bytes = 0;  // offset of the first slot in the persistent arena; bytes of each slot
};

struct CompiledSession {
  Recipe recipe;
  Device device;  // threads: for one rank
  int stage = 0;  // coordinate along the pipeline axis; each stage has its own Programs
  std::vector<CompiledProgram> programs;
  std::vector<PersistentBlock> persistent;
  std::vector<PersistentBlock> host;  // in the arena in host memory (--offload)
  std::vector<PersistentBlock>
      gradients;                 // in the transient arena (plan/gradient_storage.h); empty: gradients are persistent
  std::vector<SlotArea> areas;   // for segments
  PipelineSchedule schedule;     // for a pipeline's training step
  int64_t persistent_bytes = 0;  // including all slots
  int64_t slot_bytes = 0;        // the slots' part of them
  int64_t host_bytes = 0;        // size of the arena in host memory
  int64_t host_activations = 0;  // its last part: the largest of the Programs' plans, which share it
  int64_t transient_bytes = 0;   // size of the largest arena: the Programs share one
  int64_t library_bytes = 0;     // NCCL communicators, if ranks are processes on GPUs
  std::vector<CommunicatorMemory> communicators;  // the same, by communicator
  double compile_seconds = 0;

  int find(const std::string& program_name) const;  // -1 when absent
  // On the device.
  int64_t planned_bytes() const { return persistent_bytes + transient_bytes + library_bytes; }
  // The bytes counted by a memory limit. On a CPU, host memory is device memory.
  int64_t limited_bytes() const { return planned_bytes() + (device.kind == "cpu" ? host_bytes : 0); }
  // Bytes by category. They add up to planned_bytes; fragmentation counts as temporary.
  CategoryBytes by_category() const;
  // Values kept from forward to backward halves: the largest sum of live activations.
  int64_t kept_bytes() const;
  // The Program with the largest transient arena.
  const CompiledProgram& largest() const;
  const SlotArea* area_of(const ProgramSpec& spec) const;  // null: no slots
};

// The purpose of a session.
struct SessionUse {
  bool train = false, update = false, validation = false;
  bool forward_saved = false;    // the forward half of a micro step, keeping the values for a backward pass
  bool sampling = false;         // prefill and decode
  bool scoring = false;          // prefill, and score: the logits of given tokens
  int64_t validation_batch = 0;  // 0: the micro batch
  int64_t prefill = 64;          // tokens per call of prefill and score
  int64_t cache_length = 0;      // 0: the model's context
};

// The Programs for a use. With gradient accumulation: train.first and train.next (and train.last if
// ranks reduce). `start` runs once before the first step, if updates make values from the weights
// for train Programs.
std::vector<ProgramSpec> session_programs(const Recipe& recipe, const SessionUse& use);
// A call in a step: the Program and its micro step (-1: none).
struct SegmentCall {
  int segment;
  int64_t micro_step;
  int slot = 0;
  bool begins = true;  // it starts the micro step; the host writes its inputs first
  int scheduled = -1;  // for a pipeline: index in this rank's schedule
};
// A training step as a list of calls. A session without training has one forward pass: the forward
// half of a micro step, the evaluation of a batch, or the decoding of a token.
std::vector<SegmentCall> training_step(const CompiledSession& session);
// The calls of a forward pass: "validation" (of a batch), "prefill" or "decode".
std::vector<SegmentCall> forward_calls(const CompiledSession& session, std::string_view program);
bool forward_only(const CompiledSession& session);
// The name for these Programs in crest profile --phase: "step", "backward" (a step without its
// update), "forward", "forward-saved" or "decode".
const char* phase_of(const CompiledSession& session);
// Tokens of a step or a forward pass, on all ranks.
int64_t step_tokens(const CompiledSession& session);

struct CompileOptions {
  bool verify = true;
  int stage = 0;  // CompiledSession::stage
};
// The stage of a rank of the recipe's mesh.
int stage_of_rank(const Recipe& recipe, int rank);

// Resolves recipe.precision "auto" for the device. Throws usage errors for settings without support
// on the device.
Recipe resolve(Recipe recipe, const Device& device);
// Assigns memory to all values and waits to all instructions: the last part of compile().
void place(CompiledSession& session, const CompileOptions& options = {});
CompiledSession compile(const Recipe& recipe, const Device& device, const std::vector<ProgramSpec>& programs,
                        const CompileOptions& options = {});
// The same Programs for another stage on the same device.
CompiledSession for_stage(const CompiledSession& session, int stage, const CompileOptions& options = {});
// Compiles the session's missing Programs, and places all again.
void extend(CompiledSession& session, const std::vector<ProgramSpec>& programs, const CompileOptions& options = {});

}  // namespace crest
