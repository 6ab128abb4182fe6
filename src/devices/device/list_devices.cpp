#include "device/list_devices.h"

#include <fmt/format.h>

#include <nlohmann/json.hpp>

#include "backend/cuda/nvml.h"
#include "backend/device_json.h"
#include "device/find.h"

namespace crest {

std::vector<DeviceLink> links_between(const std::vector<Device>& devices) {
  std::vector<DeviceLink> links;
  for (auto& a : devices)
    for (auto& b : devices)
      if (a.kind == "cuda" && b.kind == "cuda" && a.index < b.index)
        if (std::string kind = cuda::link_between(a.index, b.index); !kind.empty())
          links.push_back({a.index, b.index, kind});
  return links;
}

DeviceList list_devices(const Device& cpu, const cuda::Found& found) {
  DeviceList list;
  for (auto& d : found.devices) {
    if (std::string why = cuda::reject_device(d); !why.empty())
      list.unavailable.push_back({"cuda", d.name + ": " + why});
    else
      list.devices.push_back(find_device(fmt::format("cuda:{}", d.index), 0));
  }
  list.devices.push_back(cpu);
  if (found.devices.empty()) list.unavailable.push_back({"cuda", found.problem});
  return list;
}

nlohmann::ordered_json to_json(const DeviceList& list, const Environment& environment) {
  using Json = nlohmann::ordered_json;
  Json devices = Json::array(), unavailable = Json::array();
  for (auto& d : list.devices) devices.push_back(device_to_json(d));
  for (auto& u : list.unavailable) unavailable.push_back({{"kind", u.kind}, {"reason", u.reason}});
  Json links = Json::array();
  for (auto& l : links_between(list.devices)) links.push_back({{"from", l.from}, {"to", l.to}, {"kind", l.kind}});
  return {{"devices", devices},
          {"unavailable", unavailable},
          {"links", links},
          {"environment", Json::parse(to_json(environment))}};
}

}  // namespace crest
