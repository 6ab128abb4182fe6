#include "predict/rank_time.h"

#include <fmt/format.h>

#include <algorithm>
#include <string_view>

#include "plan/communicators.h"
#include "program/barriers.h"
#include "program/op.h"
#include "program/sent_bytes.h"

namespace crest {

namespace {

// Fitted by crest comm between two H200: 450 GB/s in one direction, 1 MB to 1 GB.
constexpr double start_ms = 0.0103;
constexpr double all_reduce_share = 300.3 / 450, one_way_share = 244.8 / 450;  // of the bandwidth
// Two H200 that pull from each other at the same time: 77 MB at 307 GB/s. One direction alone
// reaches 370. A wait for the other rank takes at least 0.013 ms.
constexpr double copy_share = 307.0 / 450, copy_start_ms = 0.0065, barrier_ms = 0.013;
// A plain kernel that copies 67 MB in an H200 reached 3.73 of 4.8 TB/s.
constexpr double kernel_share = 3.73 / 4.8;
// A rank's own part goes over no link, but NCCL copies or adds it, too: 1 / n of the buffer next to
// the (n - 1) / n that are sent. Its rate, as a share of the memory's: from 1 GB between two H100
// (calibrations/h100.json: 267, 270 and 327 GB/s of bus bandwidth for a gather, a scatter and a
// sum) and large messages between eight (350 and 360: NVIDIA/nccl, issue 1281; 360 for a sum:
// NVIDIA/nccl-tests, issue 326).
constexpr double own_gathered = 0.29, own_scattered = 0.28, own_summed = 0.90;
// A separate kernel adds the bias to summed rows: 0.016 ms for 2048 x 1600 in a profile of two
// H200. It divides two numbers for each element, so memory does not limit it.
constexpr double biased_elements_per_ms = 2048 * 1600 / 0.016;
// Predicted collectives may be off by this factor: other links, other versions of NCCL.
constexpr double other_link = 1.5;
// The same, if measured between these ranks. In a step, caches, clocks and waiting differ.
constexpr double same_link = 1.25;

Collective collective_of(const std::string& op) {
  if (op == "send" || op == "receive" || op == "gather_piece" || op == "scatter_piece") return Collective::send_receive;
  if (op == "all_gather" || op.starts_with("gather_")) return Collective::all_gather;
  if (op == "reduce_scatter" || op.starts_with("scatter_")) return Collective::reduce_scatter;
  return Collective::all_reduce;
}

double own_part_rate(Collective c) {
  return c == Collective::all_gather       ? own_gathered
         : c == Collective::reduce_scatter ? own_scattered
         : c == Collective::all_reduce     ? own_summed
                                           : 0;
}

// The dtype on the wire, as in flags.
std::string sent_dtype(const Program& program, const Instr& instr) {
  if (instr.attrs.has("wire")) return "bf16";
  DType dtype = program.at(instr.in.empty() ? instr.out[0] : instr.in[0]).dtype;
  return dtype == DType::bf16 ? "bf16" : dtype == DType::f16 ? "fp16" : dtype == DType::f64 ? "fp64" : "fp32";
}

bool any_copied(const CompiledSession& session) {
  return std::any_of(session.programs.begin(), session.programs.end(), [](const CompiledProgram& p) {
    return std::any_of(p.kernels.begin(), p.kernels.end(),
                       [](const Kernel* k) { return k && by_copy_engines(k->name); });
  });
}

double bias_ms(const Program& program, const Instr& instr) {
  const std::string_view op = instr.op->name;
  const bool biased = (op == "scatter_rows" || op == "sum_rows") && instr.in.size() > 1 && instr.in[1] != no_value;
  return biased ? double(program.at(instr.out[0]).numel()) / biased_elements_per_ms : 0;
}

}  // namespace

RankTimes::RankTimes(const CompiledSession& session, const CollectiveTimes* measured, const DataSheet* sheet)
    : session_(session), link_(sheet ? sheet->link_bandwidth / 2 : 0) {
  const Recipe& r = session.recipe;
  if (r.ranks == 1 || r.ranks > most_predicted_ranks || r.data_parallel > 1) return;
  const bool gpus = session.device.kind == "cuda";
  if (gpus && sheet) memory_ = sheet->bandwidth;
  const int node_gpus = gpus && sheet ? sheet->node_gpus : most_measured_ranks,
            nodes = (r.ranks + node_gpus - 1) / node_gpus;
  if (nodes > 1) {
    if (!gpus || !sheet || !(sheet->network_bandwidth > 0)) return;
    network_ = sheet->network_bandwidth / 2;
  }
  // Ranks on a CPU share it, so two ranks say nothing about four.
  if (measured && measured->covers(r.ranks, gpus)) {
    measured_ = measured;
    const CollectiveTable& t = *measured->find(Collective::all_reduce, r.ranks, "fp32");
    source_ = {true, t.ranks, t.library, t.date, t.ranks == r.ranks ? same_link : other_link};
  } else if (gpus && sheet && sheet->link_bandwidth > 0) {
    sheet_ = sheet;
    source_ = {false, 2, "", "", other_link};
  }
  source_.copied = gpus && nodes == 1 && link_ > 0 && possible() && any_copied(session);
  if (nodes > 1 && possible()) {
    source_.nodes = nodes, source_.node_gpus = node_gpus;
    source_.network = sheet->network, source_.network_bytes_per_second = network_;
    source_.factor = network_factor(nodes);
  }
}

double RankTimes::own_part_ms(Collective collective, double sent, int ranks, int measured) const {
  const double rate = own_part_rate(collective) * memory_;
  if (rate <= 0 || ranks < 2) return 0;
  return 1e3 * sent * (1.0 / (ranks - 1) - 1.0 / (measured - 1)) / rate;
}

double RankTimes::in_node_ms(Collective collective, double sent, int ranks, const std::string& dtype) const {
  if (measured_) {
    const CollectiveTable* found = measured_->find(collective, ranks, dtype);
    // A transfer sends in one direction, as a ring does.
    const Collective of_table = found ? collective : Collective::all_gather;
    if (!found) found = measured_->find(of_table, ranks, dtype);
    const CollectiveTable& t = *found;
    // With another number of ranks in the table: the size at which its ranks send as much each.
    return 1e3 * t.seconds(sent / bus_factor(of_table, t.ranks)) + own_part_ms(collective, sent, ranks, t.ranks);
  }
  double share = collective == Collective::all_reduce ? all_reduce_share : one_way_share;
  return start_ms + 1e3 * sent / (share * sheet_->link_bandwidth / 2) + own_part_ms(collective, sent, ranks, 2);
}

// A kernel copies a rank's own shard, or adds the shards of all ranks.
double RankTimes::copied_ms(Collective collective, double sent, int ranks, int barriers) const {
  const double shards = collective == Collective::all_gather       ? 2
                        : collective == Collective::reduce_scatter ? ranks + 1
                                                                   : 0;
  const double own = memory_ > 0 ? shards * sent / (ranks - 1) / (kernel_share * memory_) : 0;
  return copy_start_ms + barriers * barrier_ms + 1e3 * (sent / (copy_share * link_) + own);
}

const GroupSpan& RankTimes::span(Axes axes) const {
  auto it = spans_.find(axes);
  if (it == spans_.end())
    it = spans_
             .emplace(axes, span_of(session_.recipe.layout(), axes,
                                    source_.nodes > 1 ? source_.node_gpus : most_predicted_ranks))
             .first;
  return it->second;
}

double RankTimes::ms(const ProfileInstr& row) const {
  const Program& program = session_.programs[size_t(session_.find(row.program))].program;
  const Instr& instr = program.code[size_t(row.index)];
  const GroupSpan& group = span(axes_of(instr));
  const double sent = sent_bytes(program, instr, group.ranks), calls = std::max(1, row.calls);
  const Collective collective = collective_of(row.op);
  const int barriers = (barrier_before(instr) != no_barrier) + (barrier_after(instr) != no_barrier);
  const double in_node = by_copy_engines(row.kernel) && group.nodes == 1 && link_ > 0
                             ? copied_ms(collective, sent, group.ranks, barriers)
                             : in_node_ms(collective, sent, group.ranks, sent_dtype(program, instr));
  const double bias = bias_ms(program, instr);
  if (group.nodes == 1) return calls * (in_node + bias);
  const bool transfer = row.op == "send" || row.op == "receive";
  return calls * (network_ms({collective, transfer, sent, group}, in_node, network_) + bias);
}

// NCCL has a ring for each card of a node, so one of its ranks' sends leaves the node.
void RankTimes::add(PredictedStep& step, ProfileInstr& row) const {
  step.collectives_ms += row.ms = ms(row);
  const Program& program = session_.programs[size_t(session_.find(row.program))].program;
  const Instr& instr = program.code[size_t(row.index)];
  const GroupSpan& group = span(axes_of(instr));
  const double bytes = sent_bytes(program, instr, group.ranks) * std::max(1, row.calls);
  const bool to_one = collective_of(row.op) == Collective::send_receive;
  const double leaves = group.nodes == 1 ? 0 : to_one ? 1 : 1.0 / group.ranks_of_node();
  LinkTraffic& traffic = step.traffic[axes_of(instr).text()];
  traffic.in_node += bytes * (1 - leaves), traffic.between_nodes += bytes * leaves;
}

std::string why_ranks_are_not_predicted(const CompiledSession& session, const DataSheet* sheet) {
  const Recipe& r = session.recipe;
  if (r.data_parallel > 1) return "virtual ranks share a device; --ranks is predicted";
  if (r.ranks > most_predicted_ranks) return fmt::format("at most {} ranks are predicted", most_predicted_ranks);
  const int node = sheet ? sheet->node_gpus : most_measured_ranks;
  if (r.ranks > node && session.device.kind == "cuda")
    return fmt::format(
        "{} ranks on nodes of {} GPUs need a network: in the device file, or for crest plan --link nvlink,400Gb",
        r.ranks, node);
  return fmt::format(
      "several ranks are predicted for up to {} ranks of one host between which crest calibrate --ranks measured "
      "collectives, or GPUs whose data sheet has a link",
      most_measured_ranks);
}

}  // namespace crest
