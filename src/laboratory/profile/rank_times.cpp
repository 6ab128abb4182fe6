#include "profile/rank_times.h"

#include <algorithm>

#include "stats/samples.h"

namespace crest {

namespace {

bool ran(const TimeSpan& s) { return s.end > s.start; }

// The parts of a span outside all merged ones.
std::vector<TimeSpan> uncovered(TimeSpan span, const std::vector<TimeSpan>& merged) {
  std::vector<TimeSpan> rest;
  for (auto& m : merged) {
    if (m.end <= span.start) continue;
    if (m.start >= span.end) break;
    if (m.start > span.start) rest.push_back({span.start, m.start});
    span.start = m.end;
  }
  if (ran(span)) rest.push_back(span);
  return rest;
}

// The last arrival at a collective, on rank 0's clock.
struct Last {
  double time;
  int rank;
};

Last last_arrival(const RankCollectives& all, const std::vector<double>& offsets, size_t k) {
  Last last = {0, -1};
  for (size_t r = 0; r < all.size(); ++r) {
    if (!ran(all[r][k])) continue;
    double time = all[r][k].start + offsets[r];
    if (last.rank < 0 || time > last.time) last = {time, int(r)};
  }
  return last;
}

}  // namespace

std::vector<double> clock_offsets(const std::vector<RankCollectives>& steps) {
  std::vector<double> offsets(steps.empty() ? 0 : steps[0].size());
  for (size_t r = 1; r < offsets.size(); ++r) {
    Samples differences;
    for (auto& step : steps)
      for (size_t k = 0; k < step[r].size(); ++k)
        if (ran(step[0][k]) && ran(step[r][k])) differences.add(step[0][k].end - step[r][k].end);
    if (!differences.empty()) offsets[r] = differences.median();
  }
  return offsets;
}

ProfileRank rank_times(const RankStep& own, const RankCollectives& all, const std::vector<double>& offsets, int rank) {
  ProfileRank times;
  times.rank = rank;
  times.waiting_ms.assign(all.size(), 0);
  double span = own.work.empty() ? 0 : own.work.back().end - own.work.front().start, busy = length_of(own.work);
  std::vector<TimeSpan> counted = own.other;  // each moment counts once
  double visible = 0;
  for (size_t k = 0; k < own.collectives.size(); ++k) {
    TimeSpan s = own.collectives[k];
    if (!ran(s)) continue;
    Last last = last_arrival(all, offsets, k);
    double arrived = std::clamp(last.time - offsets[size_t(rank)], s.start, s.end);
    times.hidden_ms += 1e3 * overlap_of({s}, own.hiding);
    for (TimeSpan part : {TimeSpan{s.start, arrived}, TimeSpan{arrived, s.end}}) {
      double exposed = length_of(uncovered(part, counted));
      bool waits = part.end == arrived && part.start == s.start && last.rank != rank;
      (waits ? times.waiting_ms[size_t(last.rank)] : times.exposed_ms) += 1e3 * exposed;
      visible += exposed;
    }
    counted.push_back(s);
    counted = merged(std::move(counted));
  }
  times.compute_ms = 1e3 * (busy - visible), times.idle_ms = 1e3 * (span - busy);
  times.host_ms = 1e3 * std::max(0.0, own.seconds - span);
  return times;
}

}  // namespace crest
