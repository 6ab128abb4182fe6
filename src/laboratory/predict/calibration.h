// The calibration of a device: step times measured by crest calibrate, in one file.
#pragma once
#include <nlohmann/json_fwd.hpp>
#include <optional>
#include <string>
#include <vector>

#include "backend/backend.h"
#include "predict/collective_times.h"
#include "predict/time_model.h"

namespace crest {

// Steps measured together.
struct CalibrationSource {
  std::string date, crest_version;          // UTC
  std::string device;                       // Device::name
  bool built_in = false;                    // built into Crest, measured on another device of this model
  size_t steps = 0;                         // number of steps
  nlohmann::ordered_json environment = {};  // the machine at that time
};

struct Calibration {
  std::string file;                        // where it was read; "": not from a file
  std::string kind;                        // "cpu", "cuda"
  int threads = 1;                         // CPU
  std::vector<CalibrationSource> sources;  // of `times`, in the order of its steps
  TimeModel times;
  CollectiveTimes collectives;  // between ranks of this device; ranks on a CPU share it

  // Adds a step to the newest source.
  void add(const Profile& step);
  // Whether some steps are built into Crest.
  bool built_in() const;
  // The date of the newest source; "" without sources.
  std::string date() const { return sources.empty() ? "" : sources.back().date; }
  std::string device() const { return sources.empty() ? "" : sources.back().device; }
};

// "21 steps measured on another NVIDIA H200, 2026-11-24", "30 on NVIDIA H200, 2026-11-25": the
// number of steps by device and day.
std::vector<std::string> sources_text(const Calibration& calibration);
// The days without repetition: "2026-11-24 and 2026-11-25".
std::string dates_text(const Calibration& calibration);
// What the machines of all sources have in common.
nlohmann::ordered_json common_environment(const Calibration& calibration);
// [{date, device, built_in, steps}]
nlohmann::ordered_json sources_json(const Calibration& calibration);

// The default file of crest calibrate, in the cache folder; "" if there is no such folder.
std::string calibration_file(const Device& device);
void save(const Calibration& calibration, const std::string& file);
// Throws with the file and the problem.
Calibration load_calibration(const std::string& file);
// The calibration of this device: `file` if given; else the file in the cache folder (a warning if
// it is unreadable); else Crest's own for this GPU model, present or described. Throws if the given
// file is unreadable, or is for another device or number of threads.
std::optional<Calibration> find_calibration(const std::string& file, const Device& device);

}  // namespace crest
