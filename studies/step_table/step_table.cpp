// Table of a training step by instruction kind: time, floor, gap, sorted by gap: the work list for faster kernels. The
// floor is the larger of FLOPs over the measured matrix rate and bytes over the measured copy bandwidth of this device.
// `crest profile` will replace it.
//   ninja -C build/release step_table
//   GOMP_SPINCOUNT=4000 build/release/step_table MODEL BATCH SEQ PRECISION [DEVICE] [RECOMPUTE]
#include <fmt/format.h>

#include <algorithm>
#include <map>

#include "core/random.h"
#include "measure/bench_gemm.h"
#include "measure/ceilings.h"
#include "ops/op.h"
#include "plan/device.h"
#include "train/engine.h"

using namespace crest;

namespace {

struct Row {
  std::vector<double> seconds;  // one entry a repetition
  double flops = 0, bytes = 0, floor = 0;
  int count = 0;
};

std::string key_of(const CompiledProgram& c, size_t i) {
  const Instr& instr = c.program.code[i];
  std::string key = fmt::format("{} {}", c.kernels[i]->name, name(instr.phase));
  if (instr.op->op_class == OpClass::contraction)
    key += fmt::format(" [{}] x [{}]", c.program.at(instr.in[0]).shape.text(), c.program.at(instr.in[1]).shape.text());
  return key;
}

}  // namespace

int main(int argc, char** argv) {
  if (argc < 5) return fmt::print("step_table MODEL BATCH SEQ PRECISION [DEVICE] [RECOMPUTE]\n"), 2;
  Recipe r;
  r.model = load_model_config(argv[1]);
  r.batch = std::atoi(argv[2]), r.seq = std::atoi(argv[3]), r.precision = argv[4];
  r.recompute = argc > 6 ? argv[6] : "auto";
  Device device = find_device(argc > 5 ? argv[5] : "cpu", 0);
  DType type = r.precision == "bf16" ? DType::bf16 : r.precision == "fp16" ? DType::f16 : DType::f32;
  double rate = quick_gemm_rate(device, type, r.precision == "tf32").flops_per_second;
  double bandwidth =
      device.kind == "cuda" ? measure_device_copy(device).bytes_per_second : measure_copy_bandwidth().bytes_per_second;
  SessionUse use;
  use.train = use.update = true;
  Engine engine(compile(r, device, session_programs(r, use)));
  engine.initialize_weights(1);
  SampleSource random = [&](uint64_t g, int32_t* x, int32_t* y) {
    for (int64_t t = 0; t < r.seq; ++t) {
      x[t] = int32_t(random_bits(1, g, uint64_t(t)) % uint64_t(r.model.vocab));
      y[t] = int32_t(random_bits(2, g, uint64_t(t)) % uint64_t(r.model.vocab));
    }
  };
  for (int i = 0; i < 3; ++i) engine.step(i, 1e-4, 1, random);

  constexpr int repetitions = 7;
  std::map<std::string, Row> rows;
  std::vector<SegmentCall> calls = training_step(engine.session());
  for (int k = 0; k < repetitions; ++k) {
    std::vector<StepTrace> traces;
    engine.step(10 + k, 1e-4, 1, random, &traces);
    std::map<std::string, double> sums;
    for (size_t t = 0; t < calls.size(); ++t) {
      const CompiledProgram& c = engine.session().programs[size_t(calls[t].segment)];
      for (size_t i = 0; i < c.program.code.size(); ++i) {
        std::string key = key_of(c, i);
        sums[key] += traces[t].seconds[i];
        if (k > 0) continue;
        Cost cost = c.program.code[i].op->cost(c.program, c.program.code[i]);
        Row& row = rows[key];
        row.flops += cost.flops, row.bytes += cost.bytes(), ++row.count;
        row.floor += std::max(cost.flops / rate, cost.bytes() / bandwidth);
      }
    }
    for (auto& [key, s] : sums) rows[key].seconds.push_back(s);
  }

  struct Line {
    double gap, seconds, floor;
    std::string key;
  };
  std::vector<Line> lines;
  double total = 0, floors = 0;
  for (auto& [key, row] : rows) {
    std::sort(row.seconds.begin(), row.seconds.end());
    double seconds = row.seconds[row.seconds.size() / 2];
    lines.push_back({seconds - row.floor, seconds, row.floor, key});
    total += seconds, floors += row.floor;
  }
  std::sort(lines.begin(), lines.end(), [](auto& x, auto& y) { return x.gap > y.gap; });
  std::vector<double> steps;
  for (int k = 0; k < 20; ++k) steps.push_back(engine.step(100 + k, 1e-4, 1, random).seconds);
  std::sort(steps.begin(), steps.end());
  fmt::print("{} batch {} seq {} {} recompute {} on {}: step {:.3f} ms (median of 20)\n", argv[1], r.batch, r.seq,
             r.precision, engine.session().recipe.recompute, device.name, steps[10] * 1e3);
  fmt::print("floors: {:.0f} TFLOP/s, {:.2f} TB/s, both measured\n\n", rate / 1e12, bandwidth / 1e12);
  fmt::print(
      "| ms | floor | gap | share | calls | TFLOP/s | TB/s | kernel, phase |\n|---|---|---|---|---|---|---|---|\n");
  for (auto& l : lines)
    if (l.seconds > total / 1000)
      fmt::print("| {:.3f} | {:.3f} | {:.3f} | {:.1f}% | {} | {:.1f} | {:.2f} | {} |\n", l.seconds * 1e3, l.floor * 1e3,
                 l.gap * 1e3, 100 * l.seconds / total, rows[l.key].count, rows[l.key].flops / l.seconds / 1e12,
                 rows[l.key].bytes / l.seconds / 1e12, l.key);
  fmt::print("\nsum {:.3f} ms, floors {:.3f} ms (medians of {}, launched one by one)\n", total * 1e3, floors * 1e3,
             repetitions);
}
