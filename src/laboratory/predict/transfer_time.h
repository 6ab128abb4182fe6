// The exposed time of copies between host and device (--offload).
#pragma once
#include <string>
#include <vector>

#include "device/data_sheet.h"
#include "predict/predicted_step.h"

namespace crest {

// Bytes/s of the link to the host in one direction, and the source of the figure.
struct HostLinkRate {
  double per_second = 0;
  std::string source;
  bool both_ways = true;  // a link's directions are independent; a CPU's copies share its memory
};
// In this order: measured rates, the sheet's rate (null: none), PCIe 4.0.
HostLinkRate host_link_of(const CompiledSession& session, const std::vector<ProfileRate>& measured,
                          const DataSheet* sheet);

// Predicted transfers may be off by this factor: hosts and their memory differ.
inline constexpr double transfer_factor = 1.5;

// Sets ms of the rows that cross the link, and step.transfers_ms to the transfer time not hidden by
// the instructions in between. The other rows already have times.
void set_transfers(PredictedStep& step, const CompiledSession& session, const HostLinkRate& link);

}  // namespace crest
