// Table of a training step by kernel and shape: seconds, share, GFLOP/s, GB/s; the work list for faster kernels.
// `crest profile` will replace it. Build `make build` first, then in the repository's root:
//   g++ -std=c++20 -O2 -fopenmp -DFMT_SHARED -Isrc studies/step_table/step_table.cpp -o build/step_table \
//     build/release/libcrest_lib.a -lfmt -lgomp -lpthread -ltomlplusplus -ldnnl -lutf8proc -ldl
//   GOMP_SPINCOUNT=4000 build/step_table MODEL BATCH SEQ PRECISION [THREADS]
#include <fmt/format.h>

#include <algorithm>
#include <map>

#include "core/random.h"
#include "ops/op.h"
#include "plan/device.h"
#include "train/engine.h"

using namespace crest;

namespace {

struct Row {
  std::vector<double> seconds;  // one entry a repetition
  double flops = 0, bytes = 0;
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
  if (argc < 5) return fmt::print("step_table MODEL BATCH SEQ PRECISION [THREADS]\n"), 2;
  Recipe r;
  r.model = load_model_config(argv[1]);
  r.batch = std::atoi(argv[2]), r.seq = std::atoi(argv[3]), r.precision = argv[4];
  SessionUse use;
  use.train = use.update = true;
  Engine engine(compile(r, find_device("cpu", argc > 5 ? std::atoi(argv[5]) : 0), session_programs(r, use)));
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
  for (int k = 0; k < repetitions; ++k)
    for (size_t p = 0; p < engine.session().programs.size(); ++p) {
      const CompiledProgram& c = engine.session().programs[p];
      StepTrace trace;
      engine.rank(0).run(int(p), &trace);
      std::map<std::string, double> sums;
      for (size_t i = 0; i < c.program.code.size(); ++i) {
        std::string key = key_of(c, i);
        sums[key] += trace.seconds[i];
        if (k > 0) continue;
        Cost cost = c.program.code[i].op->cost(c.program, c.program.code[i]);
        rows[key].flops += cost.flops, rows[key].bytes += cost.bytes(), ++rows[key].count;
      }
      for (auto& [key, s] : sums) rows[key].seconds.push_back(s);
    }

  std::vector<std::pair<double, std::string>> order;
  double total = 0;
  for (auto& [key, row] : rows) {
    std::sort(row.seconds.begin(), row.seconds.end());
    order.emplace_back(row.seconds[row.seconds.size() / 2], key);
    total += order.back().first;
  }
  std::sort(order.rbegin(), order.rend());
  fmt::print("| ms (median of {}) | share | calls | GFLOP/s | GB/s | kernel |\n|---|---|---|---|---|---|\n",
             repetitions);
  for (auto& [s, key] : order)
    if (s > total / 1000)
      fmt::print("| {:.2f} | {:.1f}% | {} | {:.0f} | {:.1f} | {} |\n", s * 1e3, 100 * s / total, rows[key].count,
                 rows[key].flops / s / 1e9, rows[key].bytes / s / 1e9, key);
  fmt::print("\nsum {:.1f} ms, {:.1f} GFLOP/s (6N + 12 L d T per token)\n", total * 1e3,
             r.model.flops_per_token(r.seq) * double(r.batch * r.seq) / total / 1e9);
}
