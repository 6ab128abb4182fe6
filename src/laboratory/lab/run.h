// Runs experiments: measures in one or two rounds within a time budget, continues with --resume,
// then judges the claims.
#pragma once
#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "core/timer.h"
#include "lab/judge.h"
#include "lab/measurement.h"

namespace crest {

struct LabOptions {
  std::string scale = "tiny";
  double budget_seconds = 0;  // 0: none
  int rounds = 2;             // for kinds with two rounds
  bool resume = false;
  bool json = false;
  std::string data;  // training text; "": generated
};

class LabRunner {
 public:
  LabRunner(const LabOptions& options, BenchMeasure& bench, const Device& device, int64_t limit)
      : o_(options), bench_(bench), context_{bench, {}}, device_(device), limit_(limit) {}

  // Measures within the budget, judges, records. Ctrl-C stops measuring, and finished measurements
  // are still judged.
  lab::Result run(const lab::Experiment& experiment, const LabMeasurements& measurements);
  bool interrupted() const { return interrupted_; }

 private:
  struct Progress;
  void find_earlier(const lab::Experiment& e, Progress& progress) const;
  void measure_all(const lab::Experiment& e, const LabMeasurements& measurements, Progress& progress);
  void find_floor(const lab::Experiment& e, const LabMeasurements& measurements, Progress& progress);
  bool measure_next(const lab::Experiment& e, const LabMeasurements& measurements, size_t i, int round,
                    Progress& progress);
  std::optional<lab::Row> measure_row(const LabMeasurement& measurement, const std::string& grid);
  void repeat_first(const LabMeasurements& measurements, Progress& progress,
                    const std::function<void(double, const std::string&)>& take);
  void keep(Progress& progress);
  bool time_is_up() const;

  const LabOptions& o_;
  BenchMeasure& bench_;
  LabContext context_;
  Device device_;
  int64_t limit_;
  Timer timer_;
  bool interrupted_ = false;
};

// Seconds of "90", "90s", "10m", "1h"; throws a usage error that names `where`.
double parse_duration(const std::string& text, const std::string& where);

}  // namespace crest
