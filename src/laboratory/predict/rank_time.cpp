#include "predict/rank_time.h"

#include <fmt/format.h>

#include <algorithm>

#include "program/sent_bytes.h"

namespace crest {

namespace {

// Fitted by crest comm between two H200: 450 GB/s in one direction, 1 MB to 1 GB.
constexpr double start_ms = 0.0103;
constexpr double all_reduce_share = 300.3 / 450, one_way_share = 244.8 / 450;  // of the bandwidth
// Predicted collectives may be off by this factor: other links, other versions of NCCL.
constexpr double other_link = 1.5;
// The same, if measured between these ranks. In a step, caches, clocks and waiting differ.
constexpr double same_link = 1.25;

Collective collective_of(const std::string& op) {
  // A transfer sends in one direction, as a ring does.
  if (op == "all_gather" || op == "send" || op == "receive" || op.starts_with("gather_")) return Collective::all_gather;
  if (op == "reduce_scatter" || op == "scatter_rows") return Collective::reduce_scatter;
  return Collective::all_reduce;
}

// The dtype on the wire, as in flags.
std::string sent_dtype(const Program& program, const Instr& instr) {
  if (instr.attrs.has("wire")) return "bf16";
  DType dtype = program.at(instr.in.empty() ? instr.out[0] : instr.in[0]).dtype;
  return dtype == DType::bf16 ? "bf16" : dtype == DType::f16 ? "fp16" : dtype == DType::f64 ? "fp64" : "fp32";
}

}  // namespace

RankTimes::RankTimes(const CompiledSession& session, const CollectiveTimes* measured, const DataSheet* sheet)
    : session_(session) {
  const Recipe& r = session.recipe;
  if (r.ranks == 1 || r.ranks > most_predicted_ranks || r.data_parallel > 1) return;
  const bool gpus = session.device.kind == "cuda";
  // Ranks on a CPU share it, so two ranks say nothing about four.
  if (measured && measured->covers(r.ranks, gpus)) {
    measured_ = measured;
    const CollectiveTable& t = *measured->find(Collective::all_reduce, r.ranks, "fp32");
    source_ = {true, t.ranks, t.library, t.date, t.ranks == r.ranks ? same_link : other_link};
  } else if (gpus && sheet && sheet->link_bandwidth > 0) {
    sheet_ = sheet;
    source_ = {false, 2, "", "", other_link};
  }
}

double RankTimes::ms(const ProfileInstr& row) const {
  const Program& program = session_.programs[size_t(session_.find(row.program))].program;
  const Instr& instr = program.code[size_t(row.index)];
  double sent = sent_bytes(program, instr, session_.recipe.layout().size(axes_of(instr))),
         calls = std::max(1, row.calls);
  Collective collective = collective_of(row.op);
  if (measured_) {
    const CollectiveTable& t = *measured_->find(collective, session_.recipe.ranks, sent_dtype(program, instr));
    // With another number of ranks in the table: the size at which its ranks send as much each.
    return calls * 1e3 * t.seconds(sent / bus_factor(collective, t.ranks));
  }
  double share = collective == Collective::all_reduce ? all_reduce_share : one_way_share;
  return calls * (start_ms + 1e3 * sent / (share * sheet_->link_bandwidth / 2));
}

std::string ranks_that_are_predicted() {
  return fmt::format(
      "up to {} ranks of one host between which crest calibrate --ranks measured collectives, or GPUs whose data sheet "
      "has a link",
      most_predicted_ranks);
}

}  // namespace crest
