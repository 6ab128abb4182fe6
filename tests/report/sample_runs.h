// Run records made by hand: a grid of recipes, profiles of two of them, a training, a sweep.
#pragma once
#include <cmath>
#include <string>
#include <vector>

#include "core/random.h"
#include "profile/profile.h"
#include "store/record.h"

namespace crest::test {

inline Json sample_recipe(const std::string& precision, const std::string& attention, const std::string& fusion,
                          int batch = 8) {
  return {{"model", "nano"},          {"vocab", 2048},         {"batch", batch},         {"seq", 256},
          {"grad_accumulation", 1},   {"data_parallel", 1},    {"precision", precision}, {"policy", "pure"},
          {"attention", attention},   {"fusion", fusion},      {"pad_vocab", 128},       {"recompute", "none"},
          {"kernel", Json::object()}, {"deterministic", false}};
}

inline Json sample_environment(double other_load = 0) {
  return {{"cpu_model", "Made-up CPU 9000"},
          {"cores_online", 8},
          {"cores_usable", 2.0},
          {"isa_flags", {"avx2", "avx512f"}},
          {"memory_total_bytes", int64_t(16) << 30},
          {"kernel", "Linux 6.1.0 x86_64"},
          {"compiler", "gcc 12.2.0"},
          {"crest_version", "0.1.0"},
          {"libraries", {{"oneDNN", "2.6.3"}}},
          {"load_average", 0.5},
          {"host_id", "00000000000000aa"},
          {"conditions", {{"cpu_mhz", 2600.0}, {"load_average", 0.5}, {"other_load", other_load}}}};
}

// `count` samples around `ms`, with a spread of `spread`.
inline RunRecord sample_run(int64_t id, double ms, const Json& recipe, double planned, size_t count = 20,
                            double spread = 0.01) {
  RunRecord r;
  r.id = id;
  r.uid = "00000000000" + std::to_string(10000 + id);
  r.name = "bench-nano-" + std::to_string(id);
  r.kind = "bench", r.status = "done", r.phase = "step";
  r.started = "2026-01-31T12:0" + std::to_string(id % 10) + ":00.000Z";
  r.command = "crest bench --model nano --precision " + recipe.value("precision", "fp32");
  r.recipe = recipe;
  r.device = {{"kind", "cpu"},   {"index", 0},          {"name", "Made-up CPU 9000"},       {"threads", 2},
              {"isa", "avx512"}, {"native_bf16", true}, {"memory_bytes", int64_t(16) << 30}};
  r.environment = sample_environment();
  r.environment_after = {{"conditions", {{"cpu_mhz", 2550.0}, {"load_average", 1.5}, {"other_load", 0.0}}}};
  for (size_t i = 0; i < count; ++i)
    r.samples.push_back({ms * (1 + spread * normal(7, uint64_t(id), i)), int(i), "", false});
  double tokens = recipe.value("batch", 1) * recipe.value("seq", 1);
  r.result = {{"step_ms_median", ms},
              {"tokens_per_second", 1e3 * tokens / ms},
              {"mfu", 0.4},
              {"samples", count},
              {"flops_convention", "6N + 12 L d T per token"}};
  r.result["memory"] = {{"planned_bytes", planned},
                        {"measured_peak_bytes", planned},
                        {"device_peak_bytes", planned * 1.3},
                        {"by_category",
                         {{"weights", 0.1 * planned},
                          {"gradients", 0.1 * planned},
                          {"optimizer_state", 0.2 * planned},
                          {"activations", 0.5 * planned},
                          {"temporary", 0.08 * planned},
                          {"workspace", 0.02 * planned}}}};
  return r;
}

inline RunRecord out_of_memory(RunRecord r) {
  r.status = "out_of_memory";
  r.samples.clear();
  r.result = {
      {"error", "out_of_memory"},
      {"memory",
       {{"planned_bytes", r.result["memory"]["planned_bytes"]}, {"by_category", r.result["memory"]["by_category"]}}}};
  return r;
}

// precision x attention x fusion, and one measurement too large to fit.
inline std::vector<RunRecord> sample_grid() {
  std::vector<RunRecord> runs;
  int64_t id = 1;
  for (std::string precision : {"fp32", "bf16"})
    for (std::string attention : {"naive", "flash"})
      for (std::string fusion : {"off", "on"}) {
        double ms =
            200.0 / (precision == "bf16" ? 2.2 : 1) / (attention == "flash" ? 1.3 : 1) / (fusion == "on" ? 1.2 : 1);
        double planned = 300e6 * (precision == "bf16" ? 0.6 : 1) * (attention == "flash" ? 0.7 : 1);
        runs.push_back(sample_run(id, ms, sample_recipe(precision, attention, fusion), planned));
        if (id == 1) runs.back() = out_of_memory(runs.back());
        ++id;
      }
  return runs;
}

inline std::vector<RunRecord> sample_sweep() {
  std::vector<RunRecord> runs;
  int64_t id = 20;
  for (int batch : {1, 2, 4, 8, 16, 32})
    runs.push_back(sample_run(id++, 5 + 3.0 * batch, sample_recipe("bf16", "flash", "on", batch), 20e6 + 8e6 * batch));
  return runs;
}

// A ladder of rungs, each with one more setting than the one before it.
inline std::vector<RunRecord> sample_ladder() {
  std::vector<RunRecord> runs;
  Json recipe = sample_recipe("fp32", "naive", "off");
  recipe["policy"] = "autocast", recipe["optimizer"] = "adamw-unfused", recipe["pad_vocab"] = 1;
  double ms = 200;
  for (auto& [key, value] : std::vector<std::pair<std::string, Json>>{{"precision", "fp32"},
                                                                      {"precision", "bf16"},
                                                                      {"attention", "flash"},
                                                                      {"pad_vocab", 128},
                                                                      {"policy", "pure"},
                                                                      {"optimizer", "adamw"}}) {
    recipe[key] = value;
    runs.push_back(sample_run(int64_t(runs.size()) + 1, ms *= 0.8, recipe, 3e8));
  }
  return runs;
}

inline RunRecord sample_training() {
  RunRecord r = sample_run(40, 60, sample_recipe("bf16", "flash", "on"), 200e6);
  r.kind = "train", r.name = "demo", r.phase = "", r.samples.clear();
  for (int step = 1; step <= 1500; ++step) {
    LogRow row;
    row.step = step, row.loss = 2.5 + 5 * std::exp(-step / 300.0) + 0.05 * normal(3, 1, uint64_t(step));
    row.step_ms = 60, row.tokens_per_second = 34000;
    r.log.push_back(row);
    if (step % 250) continue;
    LogRow val;
    val.step = step, val.val_loss = 2.6 + 5 * std::exp(-step / 300.0);
    r.log.push_back(val);
  }
  return r;
}

// A step of `layers` layers, made up: instructions, intervals and blocks fit together.
inline Profile sample_profile(const RunRecord& run, double scale, bool flash, int layers = 4) {
  Profile p;
  p.recipe = run.recipe, p.device = run.device, p.environment = run.environment;
  p.method = "timers";
  p.tokens = 2048;
  p.calls = {"train", "update"};
  p.rates = {{"fp32", 0.15e12, "measured"}, {"bf16", 0.4e12, "measured"}, {"bandwidth", 20e9, "measured"}};
  std::string arithmetic = run.recipe.value("precision", "fp32");
  double at = 0;
  auto add = [&](const std::string& program, const std::string& op, const std::string& phase,
                 const std::string& op_class, const std::string& scope, int layer, double ms, double flops,
                 double bytes) {
    ProfileInstr i;
    i.program = program, i.op = op, i.phase = phase, i.op_class = op_class, i.stream = "compute", i.layer = layer;
    i.kernel = "cpu." + op + ".simd", i.scopes = {scope}, i.arithmetic = arithmetic,
    i.type = arithmetic + "[8,256,128]";
    i.index = 0;
    for (auto& other : p.instrs) i.index += other.program == program;
    i.ms = ms * scale, i.flops = flops, i.bytes = bytes;
    i.floor_ms = std::max(flops / p.rate(arithmetic), bytes / p.rate("bandwidth")) * 1e3;
    p.intervals.push_back({int(p.instrs.size()), -1, program == "update" ? 1 : 0, 0, at, i.ms});
    at += i.ms + 0.01;
    p.instrs.push_back(i);
  };
  auto h = [](int l, const char* what) { return "h." + std::to_string(l) + "." + what; };
  add("train", "embedding", "forward", "embedding", "wte", -1, 0.2, 0, 2e6);
  for (int l = 0; l < layers; ++l) {
    add("train", "norm", "forward", "normalization", h(l, "ln_1"), l, 0.1, 2e6, 2e6);
    add("train", "linear", "forward", "contraction", h(l, "attn.qkv"), l, 0.8, 201e6, 3e6);
    if (flash) {
      add("train", "attention", "forward", "attention", h(l, "attn.attention"), l, 0.7, 67e6, 3e6);
    } else {
      add("train", "matmul", "forward", "contraction", h(l, "attn.attention"), l, 0.6, 67e6, 9e6);
      add("train", "softmax", "forward", "normalization", h(l, "attn.attention"), l, 0.9, 10e6, 17e6);
      add("train", "matmul", "forward", "contraction", h(l, "attn.attention"), l, 0.6, 67e6, 9e6);
    }
    add("train", "linear", "forward", "contraction", h(l, "attn.proj"), l, 0.4, 67e6, 2e6);
    add("train", "linear_gelu", "forward", "contraction", h(l, "mlp.fc"), l, 1.2, 270e6, 5e6);
    add("train", "linear", "forward", "contraction", h(l, "mlp.proj"), l, 0.9, 268e6, 3e6);
  }
  add("train", "cross_entropy_fused", "forward", "loss", "lm_head", -1, 1.5, 20e6, 30e6);
  for (int l = layers - 1; l >= 0; --l) {
    add("train", "linear_dx", "backward", "contraction", h(l, "mlp.proj"), l, 1.1, 268e6, 5e6);
    add("train", "linear_dw", "backward", "contraction", h(l, "mlp.proj"), l, 1.3, 268e6, 5e6);
    add("train", "gelu_grad", "backward", "elementwise", h(l, "mlp.act"), l, 0.6, 20e6, 9e6);
    add("train", "linear_dw", "backward", "contraction", h(l, "mlp.fc"), l, 1.3, 268e6, 5e6);
    add("train", flash ? "attention_grad" : "softmax_grad", "backward", flash ? "attention" : "normalization",
        h(l, "attn.attention"), l, flash ? 1.8 : 3.1, 170e6, flash ? 6e6 : 30e6);
    add("train", "linear_dw", "backward", "contraction", h(l, "attn.qkv"), l, 0.9, 201e6, 4e6);
    add("train", "norm_grad", "backward", "normalization", h(l, "ln_1"), l, 0.3, 6e6, 5e6);
  }
  add("update", "grad_norm", "update", "reduction", "", -1, 0.3, 2e6, 5e6);
  add("update", "adamw", "update", "optimizer", "", -1, 1.4, 12e6, 28e6);
  p.span_ms = at, p.busy_ms = at - 0.01 * double(p.instrs.size()), p.idle_ms = p.span_ms - p.busy_ms;
  for (int i = 0; i < 9; ++i)
    p.step_ms.push_back(at * (1 + 0.005 * i)), p.profiled_ms.push_back(at * (1.01 + 0.005 * i));
  p.launches = int64_t(p.instrs.size());
  int count = 0;
  for (auto& i : p.instrs) count += i.program == "train";
  p.memory.persistent = {{"weights.decay", "weights", 0, 4 << 20},
                         {"m.decay", "optimizer_state", 4 << 20, 8 << 20},
                         {"gradients.decay", "gradients", 12 << 20, 4 << 20}};
  p.memory.persistent_bytes = 16 << 20;
  for (int l = 0; l < layers; ++l)
    p.memory.blocks.push_back({"%h." + std::to_string(l) + ".acts", "train", "activations", "forward", h(l, "mlp.fc"),
                               l, l * (6 << 20), (flash ? 5 : 9) << 20, 1 + 6 * l, count - 2 - 7 * l});
  p.memory.blocks.push_back(
      {"%logits", "train", "temporary", "forward", "lm_head", -1, 30 << 20, 16 << 20, 6 * layers + 1, 6 * layers + 4});
  p.memory.blocks.push_back({"workspace of linear_dw", "train", "workspace", "backward", "", -1, 50 << 20, 2 << 20,
                             6 * layers + 5, count - 1});
  p.memory.transient_bytes = 52 << 20;
  p.memory.planned_bytes = p.memory.persistent_bytes + p.memory.transient_bytes;
  return p;
}

inline RunRecord sample_profile_run(int64_t id, const std::string& precision, const std::string& attention,
                                    const std::string& fusion) {
  bool flash = attention == "flash";
  double ms =
      200.0 / (precision == "bf16" ? 2.2 : 1) / (flash ? 1.3 : 1) / (fusion == "on" ? 1.2 : 1);  // as in the grid
  RunRecord r = sample_run(id, 40, sample_recipe(precision, attention, fusion), 120e6);
  Profile p = sample_profile(r, 0.99 * ms / sample_profile(r, 1, flash).busy_ms, flash);
  r.kind = "profile", r.name = "profile-nano-" + std::to_string(id);
  r.command = "crest profile --model nano --precision " + precision;
  r.samples.clear();
  for (size_t i = 0; i < p.step_ms.size(); ++i) r.samples.push_back({p.step_ms[i], int(i), "", false});
  r.result = Json::object();
  r.documents["profile"] = to_json(p);
  return r;
}

inline std::vector<RunRecord> sample_runs() {
  std::vector<RunRecord> runs = sample_grid();
  runs.push_back(sample_profile_run(10, "fp32", "naive", "on"));
  runs.push_back(sample_profile_run(11, "bf16", "flash", "on"));
  runs.push_back(sample_training());
  return runs;
}

}  // namespace crest::test
