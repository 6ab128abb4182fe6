// The time of copies between host and device (--offload) that nothing hides.
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
  bool both_ways = true;  // at once: a link's directions are independent, a CPU's copies share its memory
};
// Measured rates come first, then the sheet's (null: none), then PCIe 4.0.
HostLinkRate host_link_of(const CompiledSession& session, const std::vector<ProfileRate>& measured,
                          const DataSheet* sheet);

// A predicted transfer may be off by this factor: hosts and their memory differ.
inline constexpr double transfer_factor = 1.5;

// Sets ms of the rows that cross the link, and step.transfers_ms, their sum: the transfers that the
// updates between them do not hide. The other rows have their times.
void set_transfers(PredictedStep& step, const HostLinkRate& link);

}  // namespace crest
