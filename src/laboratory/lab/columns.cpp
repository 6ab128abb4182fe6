#include "lab/columns.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>

#include "core/text.h"

namespace crest::lab {

const std::vector<ColumnInfo>& column_infos() {
  using enum Kind;
  using enum Unit;
  const std::vector<Kind> recipe = {plan, bench, profile, train}, timed = {bench, profile, train},
                          times = {bench, profile, gemm, train, comm};
  static const std::vector<ColumnInfo> table = {
      {"parameters", "parameters of the model", recipe, number},
      {"tokens", "per run", recipe, number},
      {"model_flops", "per run, by the PaLM convention", recipe, flops},
      {"executed_flops", "per run, sum over the instructions", recipe, flops},
      {"instructions", "executed per run", recipe, number},
      {"planned_bytes", "arenas by plan", recipe, bytes},
      {"persistent_bytes", "weights and optimizer state; gradients too with accumulation", recipe, bytes},
      {"transient_bytes", "the arena of a run", recipe, bytes},
      {"host_bytes", "optimizer state in host memory (--offload), no part of planned_bytes", recipe, bytes},
      {"live_bytes", "peak of live blocks in the transient arena", recipe, bytes},
      {"kept_bytes", "most activations alive at once: what the forward half keeps for the backward half", recipe,
       bytes},
      {"weights_bytes", "by category", recipe, bytes},
      {"gradients_bytes", "by category", recipe, bytes},
      {"optimizer_state_bytes", "by category", recipe, bytes},
      {"activations_bytes", "by category", recipe, bytes},
      {"temporary_bytes", "by category", recipe, bytes},
      {"workspace_bytes", "by category", recipe, bytes},
      {"largest_batch", "largest micro batch that fits in memory_limit, or in the available memory", recipe, number},
      {"caching_bytes", "what a caching allocator reserves for the transient blocks (lab/caching_allocator.h)", recipe,
       bytes},
      {"caching_least_bytes", "the least memory in which this allocator can run the step", recipe, bytes},
      {"ms", "median per run", times, ms},
      {"ms_mean", "mean", times, ms},
      {"ms_std", "standard deviation", times, ms},
      {"ms_min", "shortest", times, ms},
      {"ms_max", "longest", times, ms},
      {"samples", "runs measured", times, number},
      {"rounds", "2 if measured again in reverse order, else 1", times, number},
      {"tokens_per_second", "from the median", timed, per_second},
      {"tflops", "model FLOPs (of a GEMM 2 m n k) over the median", {bench, profile, gemm, train}, number},
      {"held_bytes", "arenas actually allocated", timed, bytes},
      {"device_peak_bytes", "resident set of the process, or memory in use on the GPU", timed, bytes},
      {"loss", "mean of the last tenth of the steps", {train}, number},
      {"first_loss", "of the first step", {train}, number},
      {"val_loss", "after the last step", {train}, number},
      {"trained_tokens", "of all steps", {train}, number},
      {"trained_ms", "ms times the steps", {train}, ms},
      {"until_tokens", "until the validation loss is at most until_loss", {train}, number},
      {"until_ms", "ms times the steps until then", {train}, ms},
      {"wait_ms", "part of ms spent waiting for data (median)", {train}, ms},
      {"profiled_ms", "median with the profiler on", {profile}, ms},
      {"span_ms", "first start to last end of the kept run", {profile}, ms},
      {"busy_ms", "union of its intervals", {profile}, ms},
      {"idle_ms", "time in which nothing ran", {profile}, ms},
      {"launch_ms", "host time of the launches, without waiting for the GPU", {profile}, ms},
      {"bubble",
       "time of the stages of a pipeline beyond their work divided by the ranks, over this work",
       {bench},
       number},
      {"bubble_simulated", "the same, from the measured times of passes and transfers", {bench}, number},
      {"bubble_planned", "the same, by FLOPs and without a measurement", {bench}, number},
      {"imbalance_ms", "part of the bubble: stages that are not equal", {bench}, ms},
      {"stage_transfers_ms", "part of the bubble: transfers between stages", {bench}, ms},
      {"transfer_ms", "of one tensor between two stages", {bench}, ms},
      {"tuning_peak_bytes", "most memory in use while the arenas are made and kernels are chosen", {bench}, bytes},
      {"tuning_transient_bytes", "part of it that is given back at once", {bench}, bytes},
      {"capture_peak_bytes",
       "most memory in use during the first three runs (code is loaded, graphs are captured)",
       {bench},
       bytes},
      {"capture_transient_bytes", "part of it that is given back at once", {bench}, bytes},
      {"context_start_bytes", "CUDA context right after its creation", {bench}, bytes},
      {"context_bytes", "CUDA context after the runs, including code, library handles and graphs", {bench}, bytes},
      {"kernel", "Crest's kernel, or the library that ran", {gemm}, number},
      {"algorithm", "of the library, as it names it", {gemm}, number},
      {"tile", "m x n of the result that a thread block computes", {gemm}, number},
      {"waves", "tiles over multiprocessors", {gemm}, number},
      {"workspace_requested_bytes", "workspace that the algorithm uses", {gemm}, bytes},
      {"workspace_reserved_bytes", "workspace that the plan keeps for it", {gemm}, bytes},
      {"cublaslt", "version string", {profile}, number},
      {"cudnn", "version string", {profile}, number},
      {"onednn", "version string", {profile}, number},
      {"gigabytes", "size of the whole buffer, 10^9 bytes", {comm}, number},
      {"algorithm_gb_per_second", "buffer over the median", {comm}, number},
      {"bus_gb_per_second", "bandwidth on the slowest link (crest comm)", {comm}, number},
      {"startup_ms", "start of the processes until all ranks are connected", {comm}, ms},
      {"first_call_ms", "the very first call, at the smallest size", {comm}, ms},
      {"latency_ms", "time for one element per rank", {comm}, ms},
      {"link_gb_per_second", "expected link rate (data sheet), else measured", {comm}, number},
      {"launches", "kernels (GPU) or instructions of a run", {profile}, number},
  };
  return table;
}

const ColumnInfo* find_column(const std::string& name) {
  for (auto& c : column_infos())
    if (name == c.name) return &c;
  return nullptr;
}

Unit unit_of_column(const std::string& name) {
  if (const ColumnInfo* info = find_column(name)) return info->unit;
  if (name == "flops") return Unit::flops;
  if (name == "bytes" || name.ends_with("_bytes") || name.ends_with("_per_parameter")) return Unit::bytes;
  if (name.ends_with("_flops")) return Unit::flops;
  return name.ends_with("_ms") ? Unit::ms : Unit::number;
}

std::string format_value(const std::string& column, const Value& v) {
  if (!v.known()) return "-";
  if (v.type != Value::Type::number) return describe(v);
  if (column.ends_with("_per_parameter")) return fmt::format("{:.4g} B", v.x);
  switch (unit_of_column(column)) {
    case Unit::ms: return fmt::format("{:.4g}", v.x);
    case Unit::bytes: return format_bytes(v.x);
    case Unit::flops: return format_si(v.x, "FLOP");
    default: return describe_number(v.exact() || std::abs(v.x) < 1e3 ? v.x : std::round(v.x));
  }
}

std::set<std::string> columns_of(Kind kind) {
  std::set<std::string> names;
  for (auto& c : column_infos())
    if (std::find(c.kinds.begin(), c.kinds.end(), kind) != c.kinds.end()) names.insert(c.name);
  return names;
}

Vocabulary detail_vocabulary(Kind kind) {
  Vocabulary v;
  v.columns = {"flops", "bytes", "calls", "value_bytes", "elements", "block_bytes"};
  if (info(kind).instruction_times) v.columns.insert({"ms", "floor_ms", "kernel_ms", "kernel_launches"});
  v.keys = {"row",   "program",    "op",    "kernel", "phase", "lane",     "class",    "scope",
            "layer", "arithmetic", "dtype", "name",   "role",  "lifetime", "category", "until"};
  v.names = columns_of(kind);
  return v;
}

const std::vector<std::string>& device_property_names() {
  static const std::vector<std::string> names = {
      "cpu", "cuda", "sm", "threads", "native_bf16", "memory", "cudnn", "multiprocessors", "shared_memory"};
  return names;
}

}  // namespace crest::lab
