// The devices of this machine: crest devices.
#pragma once
#include <nlohmann/json_fwd.hpp>
#include <string>
#include <vector>

#include "backend/backend.h"
#include "backend/cuda/discover.h"
#include "host/environment.h"

namespace crest {

struct DeviceList {
  std::vector<Device> devices;  // GPUs first, the CPU last
  struct Unavailable {
    std::string kind, reason;
  };
  std::vector<Unavailable> unavailable;
};
// The link of two GPUs (cuda::Nvml::link).
struct DeviceLink {
  int from, to;
  std::string kind;
};
std::vector<DeviceLink> links_between(const std::vector<Device>& devices);
DeviceList list_devices(const Device& cpu, const cuda::Found& found);
// {devices, unavailable, links, environment}: docs/reference/contract.md, devices.
nlohmann::ordered_json to_json(const DeviceList& list, const Environment& environment);

}  // namespace crest
