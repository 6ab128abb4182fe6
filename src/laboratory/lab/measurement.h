// A measurement in an experiment's grid: read from the file, then measured into a row. Each kind of
// experiment has a measurement class, listed in lab/measurements.cpp.
#pragma once
#include <memory>
#include <string>
#include <vector>

#include "bench/bench_measure.h"
#include "lab/experiment.h"
#include "lab/table.h"
#include "profile/profile_rates.h"

namespace crest {

// State shared by measurements.
struct LabContext {
  BenchMeasure& bench;
  std::vector<ProfileRate> rates;  // rates of the device, measured once
  int rounds = 1;                  // a measurement's samples and time are spread over these
};

class LabMeasurement {
 public:
  // The experiment must outlive the measurement. limit: bytes it may plan.
  LabMeasurement(const lab::Experiment& e, lab::MeasurementSpec spec, const Device& device, int64_t limit)
      : e_(e), spec_(std::move(spec)), device_(device), limit_(limit) {}
  virtual ~LabMeasurement() = default;
  // Reads the settings of the file. Wrong keys and values are usage errors with their place. If the
  // device does not support a setting, the measurement is absent.
  void read();

  // After read(): measurements that run together share a launch. measurements: all so far, this one
  // last, of the same kind and experiment.
  virtual void group_with(const std::vector<std::unique_ptr<LabMeasurement>>&) {}

  const lab::MeasurementSpec& spec() const { return spec_; }
  const std::string& absent() const { return absent_; }  // why this device cannot run it; "": it can
  const Device& device() const { return device_; }
  // RunRecord::key; "" when no recipe runs.
  virtual std::string key() const { return ""; }
  // Whether a kind with two rounds takes this measurement in both.
  virtual bool in_both_rounds() const { return true; }
  // All other influences besides the grid keys. A row is reused only if this is equal.
  virtual std::string identity() const;
  // Measures the row, with a record in the grid. Throws `interrupted`.
  lab::Row measure(LabContext& context, const std::string& grid) const;

 protected:
  // Changes a setting; false: this kind has no such key.
  virtual bool set(const std::string& key, const std::string& value);
  // The keys of the kind, for messages.
  virtual std::string keys() const { return "samples, warmup, max_seconds, threads"; }
  // Called after the last setting.
  virtual void finish() {}
  virtual void measure(LabContext& context, const std::string& grid, lab::Row& row) const = 0;

  // The value within [low, high], or a usage error.
  static double number(const std::string& key, const std::string& value, double low, double high);
  std::string where() const;  // file and measurement
  // The stopping rule of one round.
  StoppingRule rule(int rounds = 1) const;

  const lab::Experiment& e_;
  lab::MeasurementSpec spec_;
  Device device_;
  int64_t limit_;
  std::string absent_;
  int samples_ = 0, warmup_ = 3;
  double max_seconds_ = 2;
};

using LabMeasurements = std::vector<std::unique_ptr<LabMeasurement>>;

// Makers of the measurement classes. Each class is private to its NAME_measurement.cpp.
using MeasurementMaker = std::unique_ptr<LabMeasurement>(const lab::Experiment&, lab::MeasurementSpec, const Device&,
                                                         int64_t limit);
MeasurementMaker make_comm_measurement, make_gemm_measurement, make_peer_measurement, make_process_measurement,
    make_train_measurement;
// Whether a setting requires separate processes. If one measurement does, all of the experiment use
// them, to be comparable.
bool wants_processes(const lab::MeasurementSpec& spec);

// All measurements of a scale. data: text for training measurements without one; "": generated.
LabMeasurements lab_measurements(const lab::Experiment& experiment, const std::string& scale, const Device& device,
                                 int64_t limit, const std::string& data = "");

// ms, ms_mean, ..., samples.
void time_columns(lab::Row& row, const Samples& seconds);
// figure / ms, in 1/s.
lab::Value rate(double figure, const lab::Value& ms);
// With fewer than six samples the median has no interval, so the extremes are used.
lab::Value median_of(const Samples& samples);
// A mean of times is positive. If noise extends the interval to 0, it ends at the fastest sample.
lab::Value mean_of(const Samples& samples);

}  // namespace crest
