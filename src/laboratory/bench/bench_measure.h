// Shared by the grid and the comparisons of crest bench: measurements, rows, records.
#pragma once
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "bench/bench_options.h"
#include "bench/bench_report.h"
#include "device/throttle.h"

namespace crest {

// A recipe to measure on a device.
struct BenchTask {
  Recipe recipe;  // resolved
  Device device;
  int64_t limit = 0;  // bytes it may use
  BenchPhase phase = BenchPhase::step;
  std::string key;    // RunRecord::key
  std::string label;  // what distinguishes it in its grid
  std::string name;   // of the record; "": made from the recipe
  size_t index = 0;   // among the tasks of the command
};

// The fewest samples for a 95% interval of the median.
inline constexpr size_t fewest_for_interval = 6;
// The note if a time limit left too few samples; "": there are enough.
std::string few_samples_note(size_t samples, double max_seconds);
// `samples` runs. 0: until the median is known to 1%, from 6 to `most` runs, within the time limit.
StoppingRule stopping_rule(int warmup, int samples, int most, double max_seconds);

class BenchMeasure {
 public:
  // The options must outlive it. group: the processes of recipe.ranks > 1; this is rank 0.
  explicit BenchMeasure(const BenchOptions& options, RankGroup* group = nullptr);
  // Ends the loop of follow_runs.
  ~BenchMeasure();
  // Call before measuring; without it nothing is recorded.
  void open_store() { recorder_ = o_.store.open(); }

  const BenchOptions& options() const { return o_; }
  Recorder& recorder() { return recorder_; }
  BenchTask task(const MeasurementOptions& measurement, BenchPhase phase);

  // Allocates the memory; throws does_not_fit, with advice.
  std::unique_ptr<PhaseRunner> make_runner(CompiledSession session, const BenchTask& task, int64_t limit) const;
  // A row without times, and a row with the runner's samples (without throttling and noise floors).
  BenchRow planned_row(const CompiledSession& session, const BenchTask& task) const;
  BenchRow finished_row(PhaseRunner& runner, const BenchTask& task, const Samples& seconds);
  BenchPeak peak(const std::string& precision, const Device& device);

  // grid: "" for a single measurement.
  RunRecord begin(const std::string& kind, const BenchTask& task, const std::string& grid);
  // For anything but a recipe. name: its label in the grid.
  RunRecord begin(const std::string& kind, const Device& device, const std::string& name, const std::string& grid);
  // Reopens a finished record for more samples and another finish(). It keeps its result until
  // then.
  RunRecord continue_record(int64_t id, const BenchTask& task);
  // For an external command, compared with `beside`.
  RunRecord begin_peer(const std::string& command, const RunRecord& beside);
  // Adds the documents "plan" and "program".
  void add_documents(const RunRecord& record, const CompiledSession& session, BenchPhase phase);
  // Closes the record; a second call does nothing.
  void finish(RunRecord& record, const std::string& status, const nlohmann::ordered_json& result,
              const std::string& error = "");

  static void say(const std::string& line);
  // Throws `interrupted` after the first Ctrl-C.
  static void check_interrupt();
  void print_head(const Recipe& recipe, const Device& device) const;

 private:
  const Device& device(const DeviceOptions& options);

  const BenchOptions& o_;
  RankGroup* group_;
  FlopsConvention convention_;
  Recorder recorder_;
  std::map<int, Device> devices_;  // by --threads
  std::map<std::string, BenchPeak> peaks_;
  struct Open {
    Device device;
    Conditions before;
  };
  std::map<int64_t, Open> open_;  // by record
};

// On all ranks but 0: makes and runs the measurements of rank 0.
void follow_runs(BenchMeasure& bench, RankGroup& group, const std::vector<BenchTask>& tasks);

// bench/bench_grid.cpp, bench/bench_compare.cpp; the exit code.
int run_grid(BenchMeasure& bench, const std::vector<BenchTask>& tasks);
// second: the B side of --ab; null for a peer and for the noise floor.
int run_comparison(BenchMeasure& bench, const AbRule& rule, const BenchTask& task,
                   const MeasurementOptions* second = nullptr);

// The rounds of a comparison. Usage errors if the options allow none.
AbRule comparison_rule(const BenchOptions& options);

}  // namespace crest
