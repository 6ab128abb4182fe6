#include "cli/train_flags.h"

#include <fmt/format.h>

#include <CLI/CLI.hpp>
#include <cmath>

#include "core/error.h"

namespace crest {

void add_training_flags(CLI::App& app, TrainOptions& t) {
  auto option = [&](const char* flag, auto& value, const char* help) {
    return app.add_option(flag, value, help)->group("Training");
  };
  option("--steps", t.steps, "optimizer steps (default 1000, or what fits into --max-seconds)");
  option("--lr", t.lr, "peak learning rate (default 6e-4 sqrt(768 / width), within 1e-4 and 3e-3)");
  option("--min-lr", t.min_lr, "final learning rate (default a tenth of the peak)");
  option("--warmup", t.warmup, "warm-up steps (default a fiftieth of the steps, at most 2000)");
  option("--schedule", t.schedule, "cosine, wsd, linear or constant")->capture_default_str();
  option("--val-every", t.val_every, "steps between validations (default a tenth of the steps; 0: never)");
  option("--val-batches", t.val_batches, "batches of a validation")->capture_default_str();
  option("--seed", t.seed, "seed of weights, data order and dropout")->capture_default_str();
  option("--prefetch", t.prefetch, "batches that threads read ahead (0: read where a step needs them)")
      ->capture_default_str();
  option("--loader-threads", t.loader_threads, "threads that read ahead, with --prefetch")->capture_default_str();
}

void check_range(const CLI::App& app, const char* flag, double value, double low, double high) {
  if (app.get_option(flag)->count() == 0 || (value >= low && value <= high)) return;
  fail_usage(fmt::format("{} is not between {} and {}", value, low, high), flag);
}

void check_training_flags(const CLI::App& app, const TrainOptions& t) {
  constexpr double most = 1e12;
  check_range(app, "--steps", double(t.steps), 1, most);
  check_range(app, "--lr", t.lr, 0, HUGE_VAL);
  check_range(app, "--min-lr", t.min_lr, 0, HUGE_VAL);
  check_range(app, "--warmup", double(t.warmup), 0, most);
  check_range(app, "--val-every", double(t.val_every), 0, most);
  check_range(app, "--val-batches", double(t.val_batches), 1, most);
  check_range(app, "--seed", double(t.seed), 0, double(INT64_MAX));
  check_range(app, "--prefetch", t.prefetch, 0, 1000);
  check_range(app, "--loader-threads", t.loader_threads, 1, 1000);
}

}  // namespace crest
