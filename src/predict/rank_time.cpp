#include "predict/rank_time.h"

#include <algorithm>

#include "program/sent_bytes.h"

namespace crest {

namespace {

// The lines that crest comm fitted there: 450 GB/s in one direction, 1 MB to 1 GB.
constexpr double start_ms = 0.0103;
constexpr double all_reduce_share = 300.3 / 450, one_way_share = 244.8 / 450;  // of the bandwidth

}  // namespace

bool predicts_ranks(const CompiledSession& session, const DataSheet* sheet) {
  const Recipe& r = session.recipe;
  return session.device.kind == "cuda" && r.ranks > 1 && r.ranks <= most_predicted_ranks && r.data_parallel == 1 &&
         sheet && sheet->link_bandwidth > 0;
}

double collective_ms(const CompiledSession& session, const ProfileInstr& row, const DataSheet& sheet) {
  const Program& program = session.programs[size_t(session.find(row.program))].program;
  const Instr& instr = program.code[size_t(row.index)];
  double sent = sent_bytes(program, instr, session.recipe.world_size());
  double share = row.op == "all_reduce" ? all_reduce_share : one_way_share;
  return std::max(1, row.calls) * (start_ms + 1e3 * sent / (share * sheet.link_bandwidth / 2));
}

}  // namespace crest
