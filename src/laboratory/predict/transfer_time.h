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
  bool both_ways = true;  // a link transfers in both directions at once; a CPU's copies share its memory
  double share = 1;       // of the rate, in each direction while both are busy
};
// Copies reach this share of a link's nominal rate: 55.2 of 64 GB/s in one direction on an H200. In
// each of two directions at once they reach this share of the rate in one: 46.4 GB/s for the pieces
// of an update on an H200, 46 on an H100.
inline constexpr double reached_share = 0.862, both_ways_share = 0.84;
// In this order: measured rates, the sheet's rate (null: none), PCIe 4.0.
HostLinkRate host_link_of(const CompiledSession& session, const std::vector<ProfileRate>& measured,
                          const DataSheet* sheet);

// Predicted transfers may be off by this factor: hosts and their memory differ.
inline constexpr double transfer_factor = 1.5;

// Sets ms of the rows that cross the link, and step.transfers_ms to the transfer time not hidden by
// the instructions in between. The other rows already have times.
void set_transfers(PredictedStep& step, const CompiledSession& session, const HostLinkRate& link);

}  // namespace crest
