#include "predict/rank_time.h"

#include <algorithm>

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

// Rows count what a rank reads and writes: twice the tensor to sum it, the tensor and a share to
// scatter or gather it.
double collective_ms(const ProfileInstr& row, int ranks, const DataSheet& sheet) {
  double n = ranks, sent = 0, share = one_way_share, calls = std::max(1, row.calls);
  if (row.op == "all_reduce")
    sent = row.bytes / 2 * 2 * (n - 1) / n, share = all_reduce_share;
  else
    sent = row.bytes / (1 + 1 / n) * (n - 1) / n;
  return start_ms * calls + 1e3 * sent / (share * sheet.link_bandwidth / 2);
}

}  // namespace crest
