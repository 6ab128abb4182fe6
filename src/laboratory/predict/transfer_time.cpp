#include "predict/transfer_time.h"

#include <algorithm>
#include <map>
#include <set>
#include <string_view>

#include "passes/offload.h"
#include "plan/transfers.h"

namespace crest {

HostLinkRate host_link_of(const CompiledSession& session, const std::vector<ProfileRate>& measured,
                          const DataSheet* sheet) {
  const bool cpu = session.device.kind == "cpu";
  auto known = [&](std::string_view name) {
    for (auto& rate : measured)
      if (rate.name == name) return rate.per_second;
    return 0.0;
  };
  const double one = known(host_link_rate), each = known(host_link_update_rate);
  if (one > 0) return {one, "measured", !cpu, each > 0 ? std::min(1.0, each / one) : both_ways_share};
  if (cpu && known("bandwidth") > 0)
    return {known("bandwidth") / 2, "half of the measured copy bandwidth", false, both_ways_share};
  if (sheet && !sheet->host_link.empty())
    return {reached_share * sheet->host_link_one_way(), sheet->host_link, true, both_ways_share};
  return {reached_share * usual_host_link, "assumed, as PCIe 4.0 x16", !cpu, both_ways_share};
}

namespace {

using Rows = std::vector<ProfileInstr*>;  // of one Program

// The busiest of the two directions and the updates sets the pace, unless a buffer's way in, update
// and way out take longer than the other buffers' pieces. The last piece returns alone. The rows of
// updates already have their time.
double exposed_state(const Rows& rows, bool both_ways) {
  double in = 0, out = 0, last = 0, updates = 0;
  for (const ProfileInstr* row : rows) {
    if (row->op_class == "optimizer") updates += row->ms;
    if (!crosses_host_link(*row)) continue;
    (row->op == "copy_in" ? in : out) += row->ms;
    last = row->op == "copy_out" ? row->ms / std::max(1, row->calls) : last;
  }
  return both_ways ? std::max({in, out, updates, (in + out + updates) / state_buffers}) + last - updates : in + out;
}

// Activations travel while the micro step computes.
double exposed_activations(const Rows& rows, const CompiledProgram& program, const HostLinkRate& link) {
  std::vector<double> ms(program.program.code.size(), 0);
  double all = 0;
  int calls = 1;
  for (const ProfileInstr* row : rows) {
    calls = std::max(1, row->calls);
    ms[size_t(row->index)] = row->ms / calls;
    if (crosses_host_link(*row)) all += row->ms;
  }
  if (!link.both_ways) return all;
  return 1e3 * calls *
         exposed_transfers(
             program, [&](size_t i) { return ms[i] / 1e3; }, link.per_second);
}

}  // namespace

void set_transfers(PredictedStep& step, const CompiledSession& session, const HostLinkRate& link) {
  std::map<std::string, Rows> programs;
  std::set<std::string> transferring;
  for (auto& row : step.profile.instrs) {
    programs[row.program].push_back(&row);
    if (!crosses_host_link(row)) continue;
    const double rate = link.per_second * (link.both_ways && row.phase == "update" ? link.share : 1);
    row.ms = rate > 0 ? 1e3 * row.bytes / rate : 0;
    transferring.insert(row.program);
  }
  if (transferring.empty()) return;
  step.transfers_ms = 0;
  step.host_link = {std::string(host_link_rate), link.per_second, link.source};
  for (const std::string& name : transferring) {
    const Rows& rows = programs[name];
    const CompiledProgram& program = session.programs[size_t(session.find(name))];
    const double exposed =
        std::max(0.0, program.spec.kind == ProgramKind::update ? exposed_state(rows, link.both_ways)
                                                               : exposed_activations(rows, program, link));
    step.transfers_ms += exposed;
    double all = 0;
    for (const ProfileInstr* row : rows) all += crosses_host_link(*row) ? row->ms : 0;
    for (ProfileInstr* row : rows)
      if (crosses_host_link(*row) && all > 0) row->ms *= exposed / all;
  }
}

}  // namespace crest
