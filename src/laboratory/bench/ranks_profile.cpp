#include "bench/ranks_profile.h"

#include <algorithm>
#include <map>

#include "comm/exchange.h"
#include "profile/rank_times.h"
#include "stats/samples.h"

namespace crest {

namespace {

// The time span of an instruction: its own time, or from its first device work to its last.
TimeSpan span_of(const StepTrace& t, size_t i, const std::map<int, TimeSpan>& work) {
  if (t.work.empty()) return {t.starts[i], t.starts[i] + t.seconds[i]};
  auto it = work.find(int(i));
  return it == work.end() ? TimeSpan{} : it->second;
}

RankStep step_of(const Profile& rows, const ProfiledRun& run) {
  std::map<std::string, size_t> first;  // row of each Program
  for (size_t i = rows.instrs.size(); i-- > 0;) first[rows.instrs[i].program] = i;
  RankStep step;
  step.seconds = run.seconds;
  for (size_t c = 0; c < rows.calls.size(); ++c) {
    const StepTrace& t = run.traces[c];
    std::map<int, TimeSpan> work;
    for (auto& w : t.work) {
      TimeSpan s = {w.start, w.start + w.seconds};
      step.work.push_back(s);
      if (w.instruction < 0) {
        step.other.push_back(s);
        continue;
      }
      TimeSpan& all = work.emplace(w.instruction, s).first->second;
      all = {std::min(all.start, s.start), std::max(all.end, s.end)};
    }
    for (size_t i = 0; i < t.seconds.size(); ++i) {
      const ProfileInstr& row = rows.instrs[first.at(rows.calls[c]) + i];
      TimeSpan s = span_of(t, i, work);
      if (communicates(row)) {
        step.collectives.push_back(s);
        step.work.push_back(s);
      } else if (s.end > s.start) {
        step.other.push_back(s), step.hiding.push_back(s), step.work.push_back(s);
      }
    }
  }
  for (auto* list : {&step.other, &step.hiding, &step.work}) *list = merged(std::move(*list));
  return step;
}

std::vector<double> numbers_of(const ProfileRank& r) {
  std::vector<double> list = {r.compute_ms, r.hidden_ms, r.exposed_ms, r.host_ms, r.idle_ms};
  list.insert(list.end(), r.waiting_ms.begin(), r.waiting_ms.end());
  return list;
}

ProfileRank rank_of(const std::vector<double>& list, int rank) {
  ProfileRank r;
  r.rank = rank, r.compute_ms = list[0], r.hidden_ms = list[1], r.exposed_ms = list[2];
  r.host_ms = list[3], r.idle_ms = list[4];
  r.waiting_ms.assign(list.begin() + 5, list.end());
  return r;
}

}  // namespace

std::vector<ProfileRank> times_of_ranks(Communicator& host, const Profile& rows, const std::vector<ProfiledRun>& runs,
                                        const std::vector<double>& plain, bool records) {
  std::vector<RankStep> own;
  std::vector<double> entered;  // by run: seconds, then start and end of each collective
  for (auto& run : runs) {
    own.push_back(step_of(rows, run));
    entered.push_back(run.seconds);
    for (auto& s : own.back().collectives) entered.push_back(s.start), entered.push_back(s.end);
  }
  auto all = gather(host, entered);
  size_t count = own.empty() ? 0 : own[0].collectives.size(), stride = 1 + 2 * count;
  std::vector<RankCollectives> steps(own.size(), RankCollectives(all.size()));
  std::vector<double> seconds;  // on rank 0
  for (size_t s = 0; s < steps.size(); ++s) {
    seconds.push_back(all[0][s * stride]);
    for (size_t r = 0; r < all.size(); ++r)
      for (size_t k = 0; k < count; ++k)
        steps[s][r].push_back({all[r][s * stride + 1 + 2 * k], all[r][s * stride + 2 + 2 * k]});
  }
  std::vector<double> offsets = clock_offsets(steps), mean;
  std::vector<size_t> middle = middle_half(seconds);
  for (size_t s : middle) {
    std::vector<double> numbers = numbers_of(rank_times(own[s], steps[s], offsets, host.rank()));
    mean.resize(numbers.size());
    for (size_t i = 0; i < numbers.size(); ++i) mean[i] += numbers[i] / double(middle.size());
  }
  mean.push_back(1e3 * Samples(plain).median());
  std::vector<ProfileRank> ranks;
  for (std::vector<double> numbers : gather(host, mean)) {
    double step = numbers.back();
    numbers.pop_back();
    ProfileRank& r = ranks.emplace_back(rank_of(numbers, int(ranks.size())));
    r.step_ms = step, r.offset_ms = 1e3 * offsets[size_t(r.rank)];
    double idle = std::max(0.0, r.idle_ms);  // a difference of sums
    if (records) r.recording_ms = std::clamp(r.explained_ms() - step, 0.0, idle), r.idle_ms -= r.recording_ms;
  }
  return ranks;
}

}  // namespace crest
