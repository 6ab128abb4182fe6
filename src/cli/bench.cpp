// crest bench: measures a forward pass, forward and backward, or a training step; grids, A against B, peers.
#include <fmt/format.h>
#include <unistd.h>

#include <CLI/CLI.hpp>
#include <map>
#include <nlohmann/json.hpp>
#include <optional>

#include "cli/bench_options.h"
#include "cli/bench_report.h"
#include "cli/command.h"
#include "cli/recipe_json.h"
#include "core/error.h"
#include "core/text.h"
#include "measure/bench_gemm.h"
#include "measure/external.h"
#include "measure/memory.h"
#include "report/table.h"
#include "train/stop_signal.h"

namespace crest {

namespace {

using Json = nlohmann::ordered_json;

void check_interrupt() {
  if (StopSignal::requested()) throw Error(Exit::interrupted, "interrupted", "crest bench");
}

class Bench {
 public:
  explicit Bench(const BenchOptions& o) : o_(o), convention_(parse_flops_convention(o.convention)) {
    device_ = o.device.find();
    limit_ = o.device.limit(device_);
  }

  int run() {
    std::vector<BenchPhase> phases = phases_of(o_.phase);
    std::vector<RecipeOptions> cells = cells_of(o_);
    std::vector<Recipe> recipes;  // all are checked before the first is measured
    for (auto& c : cells) recipes.push_back(resolve(c.finish(default_model(device_)), device_));
    if (o_.compares()) {
      if (recipes.size() * phases.size() != 1)
        fail_usage("a comparison needs one cell and one phase", o_.ab.empty() ? "--peer, --noise" : "--ab",
                   "Leave the grid out, and choose one --phase.");
      return compare(cells[0], recipes[0], phases[0]);
    }
    size_t total = recipes.size() * phases.size(), number = 0;
    std::optional<Error> only_error;
    for (auto& recipe : recipes)
      for (BenchPhase phase : phases) {
        say(fmt::format("[{}/{}] {} {}, {}, batch {}, seq {} ...", ++number, total, recipe.model.name, name(phase),
                        recipe.precision, recipe.batch, recipe.seq_length()));
        try {
          rows_.push_back(measure_cell(recipe, phase));
        } catch (const Error& e) {
          // A cell that does not fit is a result of a grid, and an error alone.
          if (e.code() != Exit::does_not_fit) throw;
          rows_.push_back(row_without_times(compile_phase(recipe, device_, phase), phase));
          rows_.back().out_of_memory = true;
          if (total == 1) only_error = e;
        }
      }
    if (o_.json) {
      Json list = Json::array();
      for (auto& r : rows_) list.push_back(to_json(r));
      print_json(list);
    } else if (!only_error) {
      print_head();
      fmt::print("{}", text_of(rows_, {}, use_color(STDOUT_FILENO)));
    }
    if (only_error) throw *only_error;
    return 0;
  }

 private:
  static void say(const std::string& line) { fmt::print(stderr, "{}\n", printable(line, 400)); }

  void print_head() const {
    const ModelConfig& m = rows_[0].recipe.model;
    fmt::print("{} ({} parameters) on {}, random tokens, seed {}\n\n", printable(m.name),
               format_count(double(m.parameters())), device_.name, o_.seed);
  }

  BenchPeak peak(const std::string& precision) {
    if (o_.no_mfu) return {};
    if (o_.peak > 0) return {o_.peak, "given by --peak"};
    auto it = peaks_.find(precision);
    if (it != peaks_.end()) return it->second;
    DType type = precision == "bf16" ? DType::bf16 : precision == "fp16" ? DType::f16 : DType::f32;
    say(fmt::format("measuring the {} matrix-product rate ...", precision));
    GemmRate rate = quick_gemm_rate(device_, type, precision == "tf32");
    return peaks_[precision] = {rate.flops_per_second,
                                fmt::format("measured {} matrix-product rate of the linear kernel", precision)};
  }

  BenchRow row_without_times(const CompiledSession& s, BenchPhase phase) const {
    BenchRow row;
    row.recipe = s.recipe;
    row.device = s.device.name;
    row.phase = phase;
    int64_t ranks = s.recipe.data_parallel;
    row.planned = s.planned_bytes() * ranks;
    row.by_category = s.by_category();
    for (auto& bytes : row.by_category) bytes *= ranks;
    return row;
  }

  // The peak of the resident set is since the cell's beginning where the kernel can reset it.
  BenchRow finished_row(BenchCell& cell, const Samples& seconds) {
    const CompiledSession& s = cell.session();
    BenchRow row = row_without_times(s, cell.phase());
    row.device = device_.name;
    row.seconds = seconds;
    row.tokens = phase_tokens(s.recipe, cell.phase());
    row.flops = phase_flops(s, cell.phase(), convention_);
    row.convention = describe(convention_, cell.phase());
    row.held = cell.held_bytes();
    row.device_peak = device_.kind == "cuda" ? cell.device_bytes() : peak_resident_bytes();
    row.peak = peak(s.recipe.precision);
    return row;
  }

  StoppingRule rule() const {
    if (o_.samples > 0)
      return {.warmup = o_.warmup,
              .min_samples = o_.samples,
              .max_samples = o_.samples,
              .max_seconds = 1e9,
              .target_relative_ci = 0};
    return {.warmup = o_.warmup,
            .min_samples = 6,
            .max_samples = 200,
            .max_seconds = o_.max_seconds,
            .target_relative_ci = 0.01};
  }

  std::unique_ptr<BenchCell> make_cell(CompiledSession session, BenchPhase phase, int64_t limit) {
    check_fits(session, limit / session.recipe.data_parallel);
    try {
      return std::make_unique<BenchCell>(std::move(session), phase, o_.seed);
    } catch (const std::bad_alloc&) {
      throw Error(Exit::does_not_fit, "the system refused the memory", "memory", "Use a smaller --batch.");
    }
  }

  BenchRow measure_cell(const Recipe& recipe, BenchPhase phase) {
    reset_peak_resident();
    auto cell = make_cell(compile_phase(recipe, device_, phase), phase, limit_);
    Samples seconds = measure(
        [&] {
          check_interrupt();
          return cell->run();
        },
        rule());
    return finished_row(*cell, seconds);
  }

  AbRule rounds() const {
    AbRule r;
    r.warmup_rounds = o_.warmup;
    r.max_seconds = o_.max_seconds * 3;  // as much for each contender and the repetition as a cell has alone
    if (o_.samples > 0) {
      if (o_.samples < 2) fail_usage("one round cannot be compared", "--samples", "Give 2 or more, 10 are usual.");
      r.min_rounds = r.max_rounds = o_.samples;
      r.max_seconds = 1e9;
      r.target_relative_ci = 0;
    }
    return r;
  }

  int compare(const RecipeOptions& first, const Recipe& recipe, BenchPhase phase) {
    if (int(o_.noise) + int(!o_.ab.empty()) + int(!o_.peer.empty()) > 1)
      fail_usage("--ab, --peer and --noise exclude each other", "crest bench", "Every comparison has a noise floor.");
    AbRule rule = rounds();
    Recipe second = recipe;
    Device second_device = device_;
    if (!o_.ab.empty()) {
      RecipeOptions b = first;
      DeviceOptions d = o_.device;
      overlay_flags(o_.ab, b, d);
      second_device = d.find();
      second = resolve(b.finish(default_model(second_device)), second_device);
    }
    reset_peak_resident();
    auto a = make_cell(compile_phase(recipe, device_, phase), phase, limit_);
    auto run_a = [&] {
      check_interrupt();
      return a->run();
    };
    if (!o_.peer.empty()) return compare_peer(*a, run_a, rule);
    std::unique_ptr<BenchCell> b;
    if (!o_.ab.empty()) {
      int64_t left = limit_ - a->session().planned_bytes() * a->ranks();
      b = make_cell(compile_phase(second, second_device, phase), phase, left);
    }
    BenchCell& other = b ? *b : *a;
    auto run_b = [&] {
      check_interrupt();
      return other.run();
    };
    say(fmt::format("interleaved rounds of {}: A, B and A again ...", name(phase)));
    AbResult result =
        compare_interleaved({{"A", run_a}, {b ? "B (" + o_.ab + ")" : std::string("A once more"), run_b}}, rule);
    rows_.push_back(finished_row(*a, result.samples[0]));
    if (b) rows_.push_back(finished_row(*b, result.samples[1]));
    print_comparison(result, {});
    return 0;
  }

  // The peer measures itself (warm-up and compiling are its own to exclude), so one of its runs stands beside the
  // median of several of ours.
  int compare_peer(BenchCell& a, const std::function<double()>& run_a, AbRule rule) {
    for (int i = 0; i < o_.warmup; ++i) run_a();
    rule.warmup_rounds = 0;
    if (o_.samples == 0) rule.min_rounds = rule.max_rounds = 6;
    rule.max_seconds = 1e9;
    auto run_crest = [&] {
      Samples inner;
      for (int i = 0; i < 5; ++i) inner.add(run_a());
      return inner.median();
    };
    ExternalOptions external{.timeout_seconds = o_.timeout, .cancelled = [] { return StopSignal::requested(); }};
    auto run_peer = [&] { return run_external(o_.peer, external).step_ms / 1e3; };
    say(fmt::format("interleaved rounds with the peer: {} ...", o_.peer));
    AbResult result = compare_interleaved({{"crest", run_crest}, {"peer", run_peer}}, rule);
    rows_.push_back(finished_row(a, result.samples[0]));
    print_comparison(result, {{o_.peer, result.samples[1]}});
    return 0;
  }

  void print_comparison(const AbResult& result, const std::vector<std::pair<std::string, Samples>>& peers) const {
    if (o_.json) {
      Json list = Json::array();
      for (auto& r : rows_) list.push_back(to_json(r));
      for (auto& [command, seconds] : peers) list.push_back(peer_to_json(command, seconds));
      print_json({{"rows", list}, {"comparison", to_json(result)}});
      return;
    }
    print_head();
    fmt::print("{}\n{}\n", text_of(rows_, peers, use_color(STDOUT_FILENO)),
               printable(describe(result.comparisons[0], result.noise_floor), 1000));
    fmt::print("{} rounds; the first contender against itself gives a noise floor of {:.1f}%\n", result.rounds,
               100 * result.noise_floor);
  }

  const BenchOptions& o_;
  FlopsConvention convention_;
  Device device_;
  int64_t limit_ = 0;
  std::map<std::string, BenchPeak> peaks_;
  std::vector<BenchRow> rows_;
};

}  // namespace

std::function<int()> setup_bench(CLI::App& app) {
  auto o = std::make_shared<BenchOptions>();
  add_bench_options(app, *o);
  return [o] {
    validate(*o);
    StopSignal signal;
    return Bench(*o).run();
  };
}

}  // namespace crest
