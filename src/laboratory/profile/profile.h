// A measured step: a row for each instruction, its kernels, the intervals of one run, and memory
// over the instructions. Plain data: the profiler fills it, the run store keeps it as JSON, and
// tables, comparisons, reports and trace files read only this.
#pragma once
#include <compare>
#include <cstdint>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "plan/memory_plan.h"

namespace crest {

// The sizes of a causal attention. A rank with chunks of shared sequences has fewer queries than
// keys.
struct AttentionShape {
  int64_t batch = 0, queries = 0, keys = 0, heads = 0, kv_heads = 0, head_dim = 0;
  int64_t window = 0;  // keys seen by a query; 0: all before it
  bool gradient = false;
  bool known() const { return batch > 0; }
  auto operator<=>(const AttentionShape&) const = default;
};

// An instruction of a Program of the step. Costs and times cover all its calls (micro steps).
struct ProfileInstr {
  std::string program;              // "train", "train.next", "update"
  int index = 0;                    // in the Program
  std::string op;                   // "linear"; "fused"
  std::vector<std::string> parts;   // operations of a fused instruction's body
  std::string kernel;               // Crest's kernel: "cuda.linear.cublaslt"
  std::string phase;                // forward, recompute, backward, update
  std::string stream;               // compute, comm, copy, copy_back, gradients; in JSON `lane`
  std::string op_class;             // program/op.h: contraction, attention, normalization, ...
  std::vector<std::string> scopes;  // origin: "h.3.attn.qkv"
  int layer = -1;                   // -1: outside the layers
  std::string type;                 // type of its first result: "bf16[16,1024,768]"
  AttentionShape attention = {};    // of a causal attention; not in JSON
  std::string arithmetic;           // selects its peak rate: "bf16", "tf32", "fp32", "fp16"; "host_link"
  int calls = 1;
  double flops = 0, bytes = 0;
  double ms = 0;        // mean over the middle half of the profiled steps
  double floor_ms = 0;  // max(flops / rate of `arithmetic`, bytes / bandwidth); host link: bytes / its rate
  double above_roofline_ms() const { return ms - floor_ms; }
};

// Sizes in a type such as "bf16[16,1024,768]"; none if it has no list of positive sizes.
std::vector<int64_t> dimensions(const std::string& type);

// Name of the rate that limits copies between host and device: bytes/s in one direction.
inline constexpr std::string_view host_link_rate = "host_link";
// In each direction while an update moves its state in both.
inline constexpr std::string_view host_link_update_rate = "host_link_update";
inline bool crosses_host_link(const ProfileInstr& row) { return row.arithmetic == host_link_rate; }

// A kernel on the device, under its device name. None on a CPU, where an instruction is one call.
struct ProfileKernel {
  std::string name;               // demangled
  int instr = -1;                 // row of Profile::instrs; -1: not part of an instruction
  int64_t count = 0;              // launches per step
  double ms = 0;                  // per step, mean over the middle half of the profiled steps
  double min_ms = 0, max_ms = 0;  // per launch
};

// A run of a kernel (on a CPU, of an instruction) in the kept step, the one nearest to the median.
// In order of start.
struct ProfileInterval {
  int instr = -1;   // row of Profile::instrs
  int kernel = -1;  // row of Profile::kernels; -1 on the CPU
  int call = 0;     // index of the call (Program run) within the step
  int stream = 0;   // index of the Stream on a CPU, else of the CUDA stream
  double start_ms = 0, ms = 0;
};

// A block of the transient arena. first and last are instructions of its Program
// (ProfileInstr::index).
struct ProfileBlock {
  std::string name, program;
  std::string category, phase, scope;  // phase and scope of the writing instruction
  int layer = -1;
  int64_t offset = 0, bytes = 0;
  int first = 0, last = 0;  // first and last instruction of its lifetime
};

struct ProfilePersistent {
  std::string name, category;
  int64_t offset = 0, bytes = 0;  // including padding
};

// Resident CPU memory of the process before, at most during (-1: unknown), and after a part of the
// command, in order.
struct ProfileMemoryPart {
  std::string part;  // start, compile, limits, weights, first step, steps
  int64_t start_bytes = 0, peak_bytes = 0, end_bytes = 0;
};

// Memory of one rank; device_peak_bytes is of the whole process or device.
struct ProfileMemory {
  int64_t planned_bytes = 0, persistent_bytes = 0, transient_bytes = 0;
  int64_t host_bytes = 0;  // of tensors in host memory (--offload)
  int64_t measured_peak_bytes = 0, device_peak_bytes = 0;
  std::vector<ProfilePersistent> persistent;
  std::vector<ProfileBlock> blocks;
  std::vector<ProfileMemoryPart> process;  // empty: not recorded
};

// A device limit in FLOP/s or bytes/s, and the source of the figure.
struct ProfileRate {
  std::string name;  // "bf16", "tf32", "fp32", "fp16", "bandwidth", "host_link"
  double per_second = 0;
  std::string source;
};

// One of several processes of the step. Means over the middle half of the profiled steps, except
// step_ms. All parts except hidden and recording add up to the unprofiled step, as far as the
// records explain it.
struct ProfileRank {
  int rank = 0;
  double step_ms = 0;                    // median without the profiler
  double compute_ms = 0;                 // something other than communication ran
  double hidden_ms = 0;                  // part of compute_ms: alongside communication
  double exposed_ms = 0;                 // only transfers ran
  std::vector<double> waiting_ms;        // by rank: waiting for its arrival at a collective, with nothing else running
  double host_ms = 0;                    // before and after the work: samples, agreement with other ranks
  double idle_ms = 0, recording_ms = 0;  // as in Profile
  double offset_ms = 0;                  // of its clock, to align it with rank 0

  double waiting_sum_ms() const;
  double explained_ms() const { return compute_ms + exposed_ms + waiting_sum_ms() + host_ms + idle_ms; }
  double explained_fraction() const { return explained_ms() / step_ms; }
};

// Instructions, intervals and memory are rank 0's. tokens and model_flops are of all ranks.
struct Profile {
  nlohmann::ordered_json recipe, device, environment;  // docs/reference/contract.md
  std::string phase = "step";                          // forward, backward, step
  std::string method;                                  // "cupti", "timers"
  int64_t tokens = 0;                                  // per step
  double model_flops = 0;                              // per step, by the PaLM convention
  std::vector<double> step_ms;                         // every sample without the profiler
  std::vector<int> throttled;                          // 1: throttled during this sample of step_ms; empty: not watched
  std::vector<std::string> throttle_reasons;           // of all runs (device/throttle.h)
  std::vector<double> profiled_ms;                     // every sample with the profiler on
  // Of the kept step: wall time, first to last interval, union of all intervals, and the gaps
  // between them. The gaps are idle time plus recording time: a GPU must record the end of each
  // kernel, so the profiled step is longer than an unprofiled one by recording_ms.
  double kept_ms = 0, span_ms = 0, busy_ms = 0, idle_ms = 0, recording_ms = 0;
  int64_t launches = 0;           // kernels (GPU) or instructions (CPU) per step
  double clock_mhz = 0;           // of the device during the measurement; 0: unknown
  std::optional<double> power_w;  // mean power of unprofiled steps in sequence (device/energy.h)
  std::vector<ProfileRate> rates;
  std::vector<std::string> calls;  // Program of each call of the step, in order
  std::vector<ProfileInstr> instrs;
  std::vector<ProfileKernel> kernels;
  std::vector<ProfileInterval> intervals;
  ProfileMemory memory;
  std::vector<ProfileRank> ranks;   // with several processes; empty: one process, threads, or stages
  nlohmann::ordered_json pipeline;  // of stages (train/pipeline_times.h); null: there are none

  double step_median_ms() const;  // NaN without samples
  double profiled_median_ms() const;
  double overhead() const {
    return profiled_median_ms() / step_median_ms() - 1;
  }  // overhead of the profiler: 0.03 is 3%
  // The part of an unprofiled step explained by the intervals; 1: all of it.
  double explained_fraction() const { return (busy_ms + idle_ms) / step_median_ms(); }
  double rate(const std::string& name) const;  // 0: unknown
  std::optional<double> joules_per_token() const;
};

nlohmann::ordered_json to_json(const Profile& profile);
// The text may come from another machine. Throws with `where` and the missing or mistyped key.
Profile profile_from_json(const nlohmann::ordered_json& json, const std::string& where);

// Sums over rows with the same key, largest first.
struct ProfileShare {
  std::string key;
  int64_t instructions = 0, launches = 0;  // rows, and their runs per step
  double ms = 0, floor_ms = 0, flops = 0, bytes = 0;
};
// phase: forward, recompute, backward, update; communication (by stream), copies (outside
// instructions), idle.
std::vector<ProfileShare> by_phase(const Profile&);
std::vector<ProfileShare> by_layer(const Profile&);        // "layer 0", ..., "outside"
std::vector<ProfileShare> by_class(const Profile&);        // operation classes
std::vector<ProfileShare> by_instruction(const Profile&);  // "train[12] cpu.linear.onednn forward h.3.attn.qkv bf16[8]"
std::vector<ProfileShare> by_place(const Profile&);        // layers merged: "cpu.linear.onednn forward h.*.attn.qkv"
// Device kernels by name, with an instruction's costs split by kernel time. On a CPU, Crest's
// kernels.
std::vector<ProfileShare> by_kernel(const Profile&);

// Bytes in use at each instruction of a step, by category, in order of execution.
struct MemoryPoint {
  int call = 0, index = 0;  // call of the step, instruction of its Program
  int instr = -1;           // row of Profile::instrs
  CategoryBytes bytes{};
};
std::vector<MemoryPoint> memory_timeline(const Profile&);

}  // namespace crest
