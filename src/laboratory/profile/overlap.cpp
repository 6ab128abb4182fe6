#include "profile/overlap.h"

#include <algorithm>
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

std::vector<CommunicationTime> communication_times(const Profile& p) {
  std::map<int, std::vector<TimeSpan>> communication;
  std::vector<TimeSpan> computation;
  for (auto& i : p.intervals) {
    if (i.instr < 0) continue;
    TimeSpan span = {i.start_ms, i.start_ms + i.ms};
    if (communicates(p.instrs[size_t(i.instr)]))
      communication[i.instr].push_back(span);
    else
      computation.push_back(span);
  }
  computation = merged(std::move(computation));
  std::vector<CommunicationTime> list;
  for (size_t i = 0; i < p.instrs.size(); ++i) {
    if (!communicates(p.instrs[i])) continue;
    std::vector<TimeSpan> spans = merged(communication[int(i)]);
    double all = length_of(spans), share = all > 0 ? overlap_of(spans, computation) / all : 0;
    list.push_back({int(i), p.instrs[i].ms * share, p.instrs[i].ms * (1 - share)});
  }
  return list;
}

}  // namespace crest
