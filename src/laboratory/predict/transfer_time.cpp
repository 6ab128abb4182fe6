#include "predict/transfer_time.h"

#include <algorithm>
#include <set>

namespace crest {

HostLinkRate host_link_of(const CompiledSession& session, const std::vector<ProfileRate>& measured,
                          const DataSheet* sheet) {
  const bool cpu = session.device.kind == "cpu";
  for (auto& rate : measured)
    if (rate.name == host_link_rate && rate.per_second > 0) return {rate.per_second, "measured", !cpu};
  if (cpu)
    for (auto& rate : measured)
      if (rate.name == "bandwidth" && rate.per_second > 0)
        return {rate.per_second / 2, "half of the measured copy bandwidth", false};
  if (sheet && !sheet->host_link.empty()) return {sheet->host_link_one_way(), sheet->host_link, true};
  return {usual_host_link, "assumed, as PCIe 4.0 x16", !cpu};
}

// With two buffers and both directions at once, two pieces take the time of two transfers each way
// and one update, and the last piece returns alone. The rows of updates already have their time, so
// half of all updates hide transfers.
void set_transfers(PredictedStep& step, const HostLinkRate& link) {
  double in = 0, out = 0, last = 0, updates = 0;
  std::set<std::string> programs;  // with transfers
  auto& rows = step.profile.instrs;
  for (auto& row : rows) {
    if (!crosses_host_link(row)) continue;
    row.ms = link.per_second > 0 ? 1e3 * row.bytes / link.per_second : 0;
    (row.op == "copy_in" ? in : out) += row.ms;
    last = row.op == "copy_out" ? row.ms / std::max(1, row.calls) : last;
    programs.insert(row.program);
  }
  if (programs.empty()) return;
  for (auto& row : rows)
    if (row.op_class == "optimizer" && programs.count(row.program)) updates += row.ms;
  double exposed = link.both_ways ? std::max(in, out) + last - updates / 2 : in + out;
  step.transfers_ms = std::max(0.0, exposed);
  step.host_link = {std::string(host_link_rate), link.per_second, link.source};
  for (auto& row : rows)
    if (crosses_host_link(row)) row.ms *= step.transfers_ms / (in + out);
}

}  // namespace crest
