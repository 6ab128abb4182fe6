// The calibration of a device: times of steps that crest calibrate measured on it, in one file.
#pragma once
#include <nlohmann/json_fwd.hpp>
#include <optional>
#include <string>
#include <vector>

#include "backend/backend.h"
#include "predict/collective_times.h"
#include "predict/time_model.h"

namespace crest {

// Steps that were measured together.
struct CalibrationSource {
  std::string date, crest_version;          // UTC
  std::string device;                       // Device::name
  bool built_in = false;                    // they come with Crest: of another device of this model
  size_t steps = 0;                         // how many
  nlohmann::ordered_json environment = {};  // the machine as it was
};

struct Calibration {
  std::string file;                        // where it came from; "": not from a file
  std::string kind;                        // "cpu", "cuda"
  int threads = 1;                         // CPU
  std::vector<CalibrationSource> sources;  // of `times`, in the order of its steps
  TimeModel times;
  CollectiveTimes collectives;  // between ranks of this device; those of a CPU share it

  // A step of the newest source.
  void add(const Profile& step);
  // Whether steps that come with Crest are among them.
  bool built_in() const;
  // Of the newest source; "" without one.
  std::string date() const { return sources.empty() ? "" : sources.back().date; }
  std::string device() const { return sources.empty() ? "" : sources.back().device; }
};

// "21 steps measured on another NVIDIA H200, 2026-11-24", "30 on NVIDIA H200, 2026-11-25": how many
// steps of which device and day.
std::vector<std::string> sources_text(const Calibration& calibration);
// The days, each once: "2026-11-24 and 2026-11-25".
std::string dates_text(const Calibration& calibration);
// What the machines of all sources have in common.
nlohmann::ordered_json common_environment(const Calibration& calibration);
// [{date, device, built_in, steps}]
nlohmann::ordered_json sources_json(const Calibration& calibration);

// The file in the cache folder where crest calibrate writes by default; "" without such a folder.
std::string calibration_file(const Device& device);
void save(const Calibration& calibration, const std::string& file);
// Throws with the file and what is wrong.
Calibration load_calibration(const std::string& file);
// The calibration of this device: `file`, or, if it is empty, the one in the cache folder (a
// warning if it cannot be read), or the one that comes with Crest for this model of GPU, here or
// described. Throws if the file that was given cannot be read, or is of another device or number of
// threads.
std::optional<Calibration> find_calibration(const std::string& file, const Device& device);

}  // namespace crest
