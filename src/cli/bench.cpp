// crest bench: measures a forward pass, forward and backward, or a training step; grids (cli/bench_grid.cpp), A against
// B, peers and the noise floor (cli/bench_compare.cpp). Everything measured is recorded in the run store.
#include <CLI/CLI.hpp>

#include "cli/bench_grid.h"
#include "cli/command.h"
#include "core/error.h"
#include "train/stop_signal.h"

namespace crest {

static int run(const BenchOptions& o) {
  validate(o);
  std::vector<BenchPhase> phases = phases_of(o.phase);
  std::vector<CellOptions> cells = cells_of(o);
  BenchMeasure bench(o);
  std::vector<BenchTask> tasks;  // all recipes are checked before the first is measured
  for (auto& cell : cells)
    for (BenchPhase phase : phases) tasks.push_back(bench.task(cell, phase));
  if (!o.compares()) {
    bench.open_store();
    confirm(bench, tasks);
    return run_grid(bench, tasks);
  }
  if (tasks.size() != 1)
    fail_usage("a comparison needs one cell and one phase", o.ab.empty() ? "--peer, --noise" : "--ab",
               "Leave the grid out, and choose one --phase.");
  bench.open_store();
  return run_comparison(bench, cells[0], tasks[0]);
}

std::function<int()> setup_bench(CLI::App& app) {
  auto o = std::make_shared<BenchOptions>();
  add_bench_options(app, *o);
  return [o] {
    StopSignal signal;
    return run(*o);
  };
}

}  // namespace crest
