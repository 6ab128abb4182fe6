// The data of a report: runs sorted into measurements (equal recipe, device, versions and phase),
// and measurements into groups with comparable times (equal model and phase).
#pragma once
#include <cmath>
#include <cstdint>
#include <map>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "profile/profile.h"
#include "stats/samples.h"
#include "store/record.h"

namespace crest {

// A setting and its value, as text: recipe, device, versions.
using NamedValue = std::pair<std::string, std::string>;

struct ReportMeasurement {
  std::vector<const RunRecord*> runs;  // newest first
  const RunRecord* timed = nullptr;    // gives the times: the newest bench, else the newest run
  const RunRecord* profiled = nullptr;
  std::shared_ptr<const Profile> profile;
  std::string unread_profile;          // run and reason if its profile is unreadable; "": readable, or none
  std::vector<NamedValue> settings;    // all differences between measurements, in a fixed order
  std::vector<std::string> automatic;  // names of settings derived from others
  std::string label;                   // its difference from the rest of the group
  std::string short_label;             // the same for little space: "A" if the label is long
  bool out_of_memory = false;

  Samples ms;  // per run of the phase
  int64_t throttled = 0;
  double mean, deviation, median;  // NaN: nothing measured; also the interval, with fewer than 6 samples
  Interval interval;               // 95% of the median
  double tokens;                   // per run of the phase
  double tokens_per_second, mfu;
  double planned_bytes, measured_bytes, device_bytes;
  std::vector<std::pair<std::string, double>> categories;  // of planned_bytes
  ReportMeasurement();

  bool measured() const;
  // The rank of a measurement: tokens per second, else runs per second.
  double speed() const;
  // Half the interval / median; infinite without an interval.
  double spread() const;
  std::string setting(const std::string& name) const;  // "" if it has none
};

struct ReportGroup {
  std::string model, phase;
  std::vector<ReportMeasurement> measurements;
  std::vector<std::string> varying;               // names of differing settings, in order
  std::vector<std::string> following;             // settings with differences only because of others
  bool lettered = false;                          // long labels: measurements are A, B, C in figures
  int fastest = -1, slowest = -1, smallest = -1;  // measurements; smallest: planned memory
  bool same_tokens = true;                        // equal work in every measurement, so times are comparable
  double noise = 0;                               // relative: smaller differences are noise
  std::string noise_source;

  std::string title() const;
};

// What a training run or an imported log has reached. loss: of the last step, val_loss: of the last
// validation, both NaN if the last step had no finite loss. seconds: of the steps of a training
// run; 0 for an imported log, which may lack steps.
struct Reached {
  int64_t steps = 0, skipped = 0;
  double loss = NAN, val_loss = NAN, lowest_val_loss = NAN, step_ms = NAN, tokens_per_second = NAN, seconds = 0;
};
Reached reached(const RunRecord& run);

struct ReportData {
  std::vector<ReportGroup> groups;
  std::vector<const RunRecord*> trainings;  // runs with a log
  std::vector<const RunRecord*> others;     // without figures: failed, running
  const std::vector<RunRecord>* runs = nullptr;
};

// `runs` must outlive the result.
ReportData sort_runs(const std::vector<RunRecord>& runs);

// Whether the run's name was given, not made from kind and recipe.
bool has_given_name(const RunRecord& run);
// Whether it is a row of an imported table of results (store/result_rows.h).
bool is_result(const RunRecord& run);
// The given name, else the last part of a training's folder: names made from settings are alike.
std::string shown_name(const RunRecord& run);
// A short name of the training data: the last part of its folder, or the text it was made from.
std::string data_name(const RunRecord& run);
// For each training, its differences from the others (data, lr, other settings, folder), or finally
// its number. All labels differ.
std::vector<std::string> training_labels(const std::vector<const RunRecord*>& runs);

// Reads a value, if it exists. path: "/memory/planned_bytes".
double json_number(const Json& json, const std::string& path);  // NaN if missing
// Per optimizer step; NaN if batch or sequence length is missing.
double tokens_per_step(const Json& recipe);
std::string json_text(const Json& json, const std::string& path);
std::vector<std::string> json_texts(const Json& json, const std::string& path);  // of an array

// Whether other processes used enough CPUs to affect times. Some load is always present.
bool was_busy(const RunRecord& run);

// "flash attention", "batch 8", "fusion on".
std::string setting_label(const NamedValue& setting);
// A fraction with four digits; other values as they are.
std::string short_value(const std::string& value);
// Whether value `a` of a setting is listed before `b`: baseline before optimized, small before
// large.
bool before(const std::string& setting, const std::string& a, const std::string& b);
bool is_number(const std::string& text);

}  // namespace crest
