// The data of a report: runs sorted into measurements (same recipe, device, versions and phase),
// and measurements into groups whose times can be compared (same model and phase).
#pragma once
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
  const RunRecord* timed = nullptr;    // the run whose times are used: the newest bench, else the newest of all
  const RunRecord* profiled = nullptr;
  std::shared_ptr<const Profile> profile;
  std::string unread_profile;          // name of the run and why its profile cannot be read; "": readable, or none
  std::vector<NamedValue> settings;    // everything that distinguishes measurements, in a fixed order
  std::vector<std::string> automatic;  // names of settings that follow from its others
  std::string label;                   // what distinguishes it within its group
  std::string short_label;             // the same where there is little room: "A" if the label is long
  bool out_of_memory = false;

  Samples ms;  // per run of the phase
  int64_t throttled = 0;
  double mean, deviation, median;  // NaN: nothing measured; the interval too, with fewer than 6 samples
  Interval interval;               // 95% of the median
  double tokens;                   // per run of the phase
  double tokens_per_second, mfu;
  double planned_bytes, measured_bytes, device_bytes;
  std::vector<std::pair<std::string, double>> categories;  // of planned_bytes
  ReportMeasurement();

  bool measured() const;
  // Measurements are ranked by this: tokens per second, else runs per second.
  double speed() const;
  // Half of the interval over the median; infinite without one.
  double spread() const;
  std::string setting(const std::string& name) const;  // "" when it has none
};

struct ReportGroup {
  std::string model, phase;
  std::vector<ReportMeasurement> measurements;
  std::vector<std::string> varying;               // names of the settings that differ, in their order
  std::vector<std::string> following;             // that differ, but only because of others
  bool lettered = false;                          // labels are long: measurements are A, B, C in figures
  int fastest = -1, slowest = -1, smallest = -1;  // measurements; smallest: planned memory
  bool same_tokens = true;                        // every measurement does the same work, so times can be compared
  double noise = 0;                               // relative: smaller differences are noise
  std::string noise_source;

  std::string title() const;
};

struct ReportData {
  std::vector<ReportGroup> groups;
  std::vector<const RunRecord*> trainings;  // runs with a log
  std::vector<const RunRecord*> others;     // without figures: failed, running
  const std::vector<RunRecord>* runs = nullptr;
};

// `runs` must outlive the result.
ReportData sort_runs(const std::vector<RunRecord>& runs);

// A name that somebody gave, not one made from kind and recipe.
bool has_given_name(const RunRecord& run);
// For each training: what it differs in from the others (data, lr, other settings, its folder); in
// the end its number. Never equal for two.
std::vector<std::string> training_labels(const std::vector<const RunRecord*>& runs);

// Read a value that may be missing. path: "/memory/planned_bytes".
double json_number(const Json& json, const std::string& path);  // NaN when missing
// Of an optimizer step; NaN where batch or sequence length are missing.
double tokens_per_step(const Json& recipe);
std::string json_text(const Json& json, const std::string& path);
std::vector<std::string> json_texts(const Json& json, const std::string& path);  // of an array

// Whether other processes kept enough CPUs busy to affect times; some load is always present.
bool was_busy(const RunRecord& run);

// "flash attention", "batch 8", "fusion on".
std::string setting_label(const NamedValue& setting);
// Whether value `a` of a setting comes before `b`: baseline before optimized, small before large.
bool before(const std::string& setting, const std::string& a, const std::string& b);
bool is_number(const std::string& text);

}  // namespace crest
