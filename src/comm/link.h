// What the link between GPUs of a host should carry, by their data sheets.
#pragma once
#include <string>

namespace crest {

struct LinkRate {
  double bytes_per_second = 0;  // in one direction; 0: not known
  std::string source;
};
// By the name that the driver gives the device.
LinkRate data_sheet_link(const std::string& device_name);

}  // namespace crest
