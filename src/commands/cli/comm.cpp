// crest comm: measures collectives between processes of this host, or between processes started by
// torchrun, mpirun or srun.
#include <CLI/CLI.hpp>

#include "bench/comm_options.h"
#include "bench/comm_rank.h"
#include "cli/command.h"
#include "cli/options.h"
#include "cli/store_options.h"
#include "comm/launch.h"
#include "host/stop_signal.h"

namespace crest {

// All errors in the options are reported here, once, before any rank starts.
static int launch(const CommOptions& o) {
  CommPlan plan = plan_comm(o, std::nullopt);
  check_fits_here(o, plan, plan.world);
  o.store.open();
  StopSignal signal;
  // A collective may notice a dead rank only at its time-out.
  double patience = o.timeout + 3;
  return launch_ranks({.ranks = plan.world,
                       .port = o.port,
                       .stop = StopSignal::requested,
                       .patience = patience,
                       .stop_patience = patience,
                       .less_memory = "use smaller --sizes"});
}

static int run_comm(const CommOptions& o) {
  auto environment = rank_environment();
  if (!environment) return launch(o);
  return run_rank([&] { return run_comm_rank(o, *environment); });
}

static void add_comm_options(CLI::App& app, CommOptions& o) {
  auto option = [&](const char* flag, auto& value, const char* help) {
    return app.add_option(flag, value, help)->capture_default_str()->group("Measurement");
  };
  app.add_option("COLLECTIVE", o.collectives,
                 "all-reduce, all-gather, reduce-scatter, broadcast, all-to-all, send-receive, or all")
      ->multi_option_policy(CLI::MultiOptionPolicy::TakeAll);
  option("--backend", o.backend, "gloo (CPU processes), nccl (GPUs), or auto (by device)");
  app.add_option("--world-sizes", o.ranks,
                 "numbers of ranks to measure, e.g. 2,4 (default: all that were started, else 2)")
      ->type_name("LIST")
      ->group("Measurement");
  app.add_option("--ranks", o.ranks, "the earlier name of --world-sizes")->type_name("LIST")->group("");
  option("--sizes", o.sizes, "sizes of the whole buffer: a list, A..B (doubling), or A..B:x4")->type_name("LIST");
  option("--dtype", o.dtype, "element type: fp32, bf16, fp16, fp64");
  app.add_option("--samples", o.samples, "samples per size; default: until the median is known to 2%")
      ->group("Measurement");
  option("--warmup", o.warmup, "warm-up calls, not measured");
  option("--max-seconds", o.max_seconds,
         "time limit per size without --samples, warm-up included (at least 1 sample is taken)");
  app.add_option(
         "--link-rate", o.link_rate,
         "expected bandwidth of the link in bytes/s, e.g. 450GB (default: from the GPU's data sheet, else measured)")
      ->group("Measurement");
  app.add_option("--nproc", o.nproc, "processes to start on this host (default: the largest of --world-sizes)")
      ->group("Ranks");
  app.add_option("--port", o.port, "TCP port of rank 0 with --nproc (default: any free port)")->group("Ranks");
  app.add_option("--timeout", o.timeout, "seconds to wait for a rank that does not start or answer")
      ->capture_default_str()
      ->group("Ranks");
  add_json_option(app, o.json);
  add_record_options(app, o.store);
  add_device_options(app, o.device);
  add_config_option(app);
}

std::function<int()> setup_comm(CLI::App& app) {
  auto o = std::make_shared<CommOptions>();
  add_comm_options(app, *o);
  return [o] { return run_comm(*o); };
}

}  // namespace crest
