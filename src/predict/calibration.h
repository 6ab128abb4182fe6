// The calibration of a device: times of steps that crest calibrate measured on it, in one file.
#pragma once
#include <nlohmann/json_fwd.hpp>
#include <optional>
#include <string>

#include "backend/backend.h"
#include "predict/collective_times.h"
#include "predict/time_model.h"

namespace crest {

struct Calibration {
  std::string file;                         // where it came from; "": not from a file
  bool built_in = false;                    // it comes with Crest: of another device of this model
  std::string date, crest_version;          // UTC
  std::string device;                       // Device::name
  std::string kind;                         // "cpu", "cuda"
  int threads = 1;                          // CPU
  nlohmann::ordered_json environment = {};  // the machine as it was
  TimeModel times;
  CollectiveTimes collectives;  // between ranks of this device; those of a CPU share it
};

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
