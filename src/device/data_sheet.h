// What vendors say about devices: sizes and peak rates with their source, one file each (devices/NAME.toml, or a user's
// own). Plans for machines that are not there and shares of a peak are taken from them.
#pragma once
#include <cstdint>
#include <nlohmann/json_fwd.hpp>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "backend/backend.h"

namespace crest {

struct DataSheet {
  std::string name;         // of the file: "h100"
  std::string title;        // "NVIDIA H100 SXM5 80GB"
  std::string driver_name;  // what the driver's name of the device contains
  std::string kind;         // "cuda", "rocm"
  std::string capability;   // CUDA: "9.0"
  int64_t multiprocessors = 0;
  int64_t shared_per_block = 0;  // bytes that one block can have
  int64_t memory_bytes = 0;
  double bandwidth = 0;  // bytes/s of the memory
  int64_t l2_bytes = 0;
  std::string link;           // to other devices of a host
  double link_bandwidth = 0;  // bytes/s, both directions together
  // FLOP/s (int8: operations/s) of matrix products without sparsity, in the order of data_sheet_precisions.
  std::vector<std::pair<std::string, double>> peaks;
  std::string source;

  // Of a precision; nullopt where the device has none.
  std::optional<double> peak(const std::string& precision) const;
};

// Names of peaks: fp64 first, int8 last.
extern const std::vector<std::string> data_sheet_precisions;
// Those that Crest brings, by name.
const std::vector<DataSheet>& data_sheets();
// NAME or FILE.toml; a usage error with the nearest name, or with line and column, for what is none.
DataSheet find_data_sheet(const std::string& name_or_file);
// Whether find_data_sheet takes it for one: a known name, or a file's.
bool is_data_sheet(const std::string& name_or_file);
// The sheet of a device by its driver's name: of several, the one whose name says most. nullptr: unknown.
const DataSheet* data_sheet_of(const std::string& device_name);
// A device to plan for. Throws no_device for a kind that Crest has no kernels for.
Device described_device(const DataSheet& sheet);

// Text of a sheet; `where` names the file in errors.
DataSheet parse_data_sheet(const std::string& text, const std::string& name, const std::string& where);
// As crest devices --sheets --json lists it.
nlohmann::ordered_json to_json(const DataSheet& sheet);

}  // namespace crest
