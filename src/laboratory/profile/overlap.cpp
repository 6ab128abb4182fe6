#include "profile/overlap.h"

#include <algorithm>
#include <functional>
#include <map>

namespace crest {

std::vector<TimeSpan> merged(std::vector<TimeSpan> spans) {
  std::sort(spans.begin(), spans.end(), [](auto& a, auto& b) { return a.start < b.start; });
  std::vector<TimeSpan> out;
  for (auto& s : spans) {
    if (s.end <= s.start) continue;
    if (out.empty() || s.start > out.back().end)
      out.push_back(s);
    else
      out.back().end = std::max(out.back().end, s.end);
  }
  return out;
}

double length_of(const std::vector<TimeSpan>& spans) {
  double sum = 0;
  for (auto& s : spans) sum += s.end - s.start;
  return sum;
}

double overlap_of(const std::vector<TimeSpan>& a, const std::vector<TimeSpan>& b) {
  double sum = 0;
  for (size_t i = 0, j = 0; i < a.size() && j < b.size();) {
    sum += std::max(0.0, std::min(a[i].end, b[j].end) - std::max(a[i].start, b[j].start));
    a[i].end < b[j].end ? ++i : ++j;
  }
  return sum;
}

bool communicates(const ProfileInstr& r) { return r.stream == "comm" || r.op_class == "communication"; }

// Times of the rows of one kind, while rows of the other kind ran or not.
static std::vector<CommunicationTime> times_next_to(const Profile& p,
                                                    const std::function<bool(const ProfileInstr&)>& listed,
                                                    const std::function<bool(const ProfileInstr&)>& hides) {
  std::map<int, std::vector<TimeSpan>> own;
  std::vector<TimeSpan> others;
  for (auto& i : p.intervals) {
    if (i.instr < 0) continue;
    TimeSpan span = {i.start_ms, i.start_ms + i.ms};
    const ProfileInstr& row = p.instrs[size_t(i.instr)];
    if (listed(row))
      own[i.instr].push_back(span);
    else if (hides(row))
      others.push_back(span);
  }
  others = merged(std::move(others));
  std::vector<CommunicationTime> list;
  for (size_t i = 0; i < p.instrs.size(); ++i) {
    if (!listed(p.instrs[i])) continue;
    std::vector<TimeSpan> spans = merged(own[int(i)]);
    double all = length_of(spans), share = all > 0 ? overlap_of(spans, others) / all : 0;
    list.push_back({int(i), p.instrs[i].ms * share, p.instrs[i].ms * (1 - share)});
  }
  return list;
}

std::vector<CommunicationTime> communication_times(const Profile& p) {
  return times_next_to(p, communicates, [](auto&) { return true; });
}

std::vector<CommunicationTime> gradient_times(const Profile& p) {
  return times_next_to(
      p, [](auto& r) { return r.stream == "gradients"; }, [](auto& r) { return r.stream == "compute"; });
}

}  // namespace crest
