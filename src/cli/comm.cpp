// crest comm: how fast collectives are between processes of this host, or between those that torchrun, mpirun or srun
// has started.
#include <CLI/CLI.hpp>

#include "cli/comm_options.h"
#include "cli/comm_rank.h"
#include "cli/command.h"
#include "comm/launch.h"
#include "plan/device.h"
#include "train/stop_signal.h"

namespace crest {

// Everything that can be wrong is said here, once, before any rank is started.
static int launch(const CommOptions& o) {
  CommPlan plan = plan_comm(o, std::nullopt);
  check_fits_here(o, plan, plan.world);
  o.store.open();
  StopSignal signal;
  launch_ranks({.ranks = plan.world, .port = o.port, .stop = StopSignal::requested});
  return 0;
}

static int run(const CommOptions& o) {
  auto environment = rank_environment();
  if (!environment) return launch(o);
  return run_rank([&] { return run_comm_rank(o, *environment); });
}

std::function<int()> setup_comm(CLI::App& app) {
  auto o = std::make_shared<CommOptions>();
  add_comm_options(app, *o);
  return [o] { return run(*o); };
}

}  // namespace crest
