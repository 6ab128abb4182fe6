// Vendors' figures of devices: sizes and peak rates with their source, one file each
// (devices/NAME.toml, or a user's own). Used to plan for absent devices, and for percentages of the
// peak.
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
  std::string name;         // file name: "h100"
  std::string file;         // "mine.toml"; "": it comes with Crest
  std::string title;        // "NVIDIA H100 SXM5 80GB"
  std::string driver_name;  // the last words of the driver's device name
  std::string kind;         // "cuda", "rocm"
  std::string capability;   // CUDA: "9.0"
  int64_t multiprocessors = 0;
  int64_t shared_per_block = 0;  // bytes available to one block
  int64_t memory_bytes = 0;
  double bandwidth = 0;  // bytes/s of device memory
  int64_t l2_bytes = 0;
  std::string link;                // to other devices in the same host
  double link_bandwidth = 0;       // bytes/s, sum of both directions
  std::string host_link;           // to the host; "": the file does not say
  double host_link_bandwidth = 0;  // bytes/s, sum of both directions
  std::string network;             // to other nodes; "": the file does not say
  double network_bandwidth = 0;    // bytes/s of a GPU's share, sum of both directions
  int node_gpus = 8;               // GPUs of a node
  // Dense FLOP/s of matrix multiplication (int8: operations/s), in the order of
  // data_sheet_precisions.
  std::vector<std::pair<std::string, double>> peaks;
  double power = 0;  // power limit of the board in watts; 0: the file does not say
  std::string source;

  // Bytes/s to the host, or from it: of a link of PCIe 4.0 with 16 lanes if the file does not say.
  double host_link_one_way() const;
  // The peak of a precision; nullopt if the device does not support it.
  std::optional<double> peak(const std::string& precision) const;
};

// Bytes/s in one direction of the link to the host where nobody says: PCIe 4.0 with 16 lanes.
inline constexpr double usual_host_link = 32e9;

// Names of peaks: fp64 first, int8 last.
extern const std::vector<std::string> data_sheet_precisions;
// Crest's own data sheets, by name.
const std::vector<DataSheet>& data_sheets();
// NAME or FILE.toml. Otherwise a usage error with the nearest name, or with line and column.
DataSheet find_data_sheet(const std::string& name_or_file);
// Whether find_data_sheet would treat it as one: a known name, or a file name.
bool is_data_sheet(const std::string& name_or_file);
// Crest's own sheet for a device: by the driver's name, or by its description. nullptr: unknown, as
// for variants with more words in their names (GH200, H200 NVL).
const DataSheet* data_sheet_of(const std::string& device_name);
// The sheet of a device: a described one's own (of --device), else the sheet of its model.
std::optional<DataSheet> sheet_of(const Device& device, const std::string& name_or_file);
// A device to plan for. Throws no_device for kinds without kernels in Crest.
Device described_device(const DataSheet& sheet);

// Parses the text of a sheet. `where` names the file in errors.
DataSheet parse_data_sheet(const std::string& text, const std::string& name, const std::string& where);
// As crest devices --sheets --json prints it.
nlohmann::ordered_json to_json(const DataSheet& sheet);
nlohmann::ordered_json to_json(const std::vector<DataSheet>& sheets);

}  // namespace crest
