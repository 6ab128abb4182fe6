// A measurement of an experiment's grid: read from the file, then measured into a row. Each kind of
// experiment has a measurement class; lab/measurements.cpp lists them.
#pragma once
#include <memory>
#include <string>
#include <vector>

#include "bench/bench_measure.h"
#include "lab/experiment.h"
#include "lab/table.h"
#include "profile/profile_rates.h"

namespace crest {

// State that measurements share while they are measured.
struct LabContext {
  BenchMeasure& bench;
  std::vector<ProfileRate> rates;  // rates of the device, measured once
  int rounds = 1;                  // over which the samples and seconds of a measurement are spread
};

class LabMeasurement {
 public:
  // The experiment must outlive the measurement. limit: bytes the measurement may plan.
  LabMeasurement(const lab::Experiment& e, lab::MeasurementSpec spec, const Device& device, int64_t limit)
      : e_(e), spec_(std::move(spec)), device_(device), limit_(limit) {}
  virtual ~LabMeasurement() = default;
  // Reads the settings of the file. Wrong keys and values are usage errors with their place; a
  // setting that the device does not support makes the measurement absent.
  void read();

  // After read(): measurements of one experiment that are measured together share a launch.
  // measurements: those so far, this one last; all are of one kind.
  virtual void group_with(const std::vector<std::unique_ptr<LabMeasurement>>&) {}

  const lab::MeasurementSpec& spec() const { return spec_; }
  const std::string& absent() const { return absent_; }  // why this device cannot run it; "": it can
  const Device& device() const { return device_; }
  // RunRecord::key; "" when no recipe runs.
  virtual std::string key() const { return ""; }
  // Whether a kind with two rounds takes this measurement in both.
  virtual bool in_both_rounds() const { return true; }
  // What affects the result besides the grid keys: a row is reused only if this is equal.
  virtual std::string identity() const;
  // Measures the row of the measurement; its record is part of the grid. Throws `interrupted`.
  lab::Row measure(LabContext& context, const std::string& grid) const;

 protected:
  // Sets a setting; false: this kind has no such key.
  virtual bool set(const std::string& key, const std::string& value);
  // The keys of the kind, for messages.
  virtual std::string keys() const { return "samples, warmup, max_seconds, threads"; }
  // After the last setting.
  virtual void finish() {}
  virtual void measure(LabContext& context, const std::string& grid, lab::Row& row) const = 0;

  // A value within [low, high]; a usage error otherwise.
  static double number(const std::string& key, const std::string& value, double low, double high);
  std::string where() const;  // the file and the measurement
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

// Factories of the measurement classes that are private to NAME_measurement.cpp.
using MeasurementMaker = std::unique_ptr<LabMeasurement>(const lab::Experiment&, lab::MeasurementSpec, const Device&,
                                                         int64_t limit);
MeasurementMaker make_comm_measurement, make_gemm_measurement, make_peer_measurement, make_process_measurement,
    make_train_measurement;
// Whether a setting requires separate processes; then all measurements of the experiment use them,
// to be comparable.
bool wants_processes(const lab::MeasurementSpec& spec);

// All measurements of a scale. data: for training measurements that name no text; "": generated.
LabMeasurements lab_measurements(const lab::Experiment& experiment, const std::string& scale, const Device& device,
                                 int64_t limit, const std::string& data = "");

// ms, ms_mean, ..., samples.
void time_columns(lab::Row& row, const Samples& seconds);
// figure / ms, in 1/s.
lab::Value rate(double figure, const lab::Value& ms);
// With fewer than six samples the median has no interval; the extremes are used instead.
lab::Value median_of(const Samples& samples);
// A mean of times is above 0: where noise takes the interval there, it ends at the fastest sample.
lab::Value mean_of(const Samples& samples);

}  // namespace crest
