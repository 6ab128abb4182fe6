#include "traces/trace_slices.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <map>
#include <tuple>

#include "core/text.h"

namespace crest {

namespace {

using Args = nlohmann::ordered_json;

int64_t ns(double ms) { return std::llround(ms * 1e6); }

int thread_of(const std::string& stream) {
  return stream == "comm" ? 2 : stream == "copy" ? 3 : stream == "copy_back" ? 4 : stream == "gradients" ? 5 : 1;
}

// Kineto's category of device work.
std::string category(const std::string& kernel) {
  std::string name;
  for (char c : kernel) name += char(std::tolower(uint8_t(c)));
  if (name.starts_with("memcpy") || name.starts_with("[cuda memcpy")) return "gpu_memcpy";
  if (name.starts_with("memset") || name.starts_with("[cuda memset")) return "gpu_memset";
  return "kernel";
}

// One execution of an instruction: all its intervals in one call.
struct Execution {
  int call = 0, instr = 0;
  int64_t start = 0, end = 0;
};

class Slices {
 public:
  explicit Slices(const Profile& p) : p_(p) { find_executions(); }

  std::vector<TraceSlice> run() {
    step();
    calls();
    phases();
    for (size_t i = 0; i < executions_.size(); ++i) instruction(executions_[i], int64_t(i) + 1);
    kernels();
    nest(out_);
    keep_apart(out_);
    return std::move(out_);
  }

 private:
  const ProfileInstr& instr(const Execution& e) const { return p_.instrs[size_t(e.instr)]; }

  void find_executions() {
    for (auto& i : p_.intervals) {
      if (i.instr < 0) continue;
      int64_t start = ns(i.start_ms), end = ns(i.start_ms + i.ms);
      auto [at, is_new] = ids_.try_emplace({i.call, i.instr}, executions_.size());
      if (is_new) {
        executions_.push_back({i.call, i.instr, start, end});
      } else {
        Execution& e = executions_[at->second];
        e.start = std::min(e.start, start);
        e.end = std::max(e.end, end);
      }
    }
  }

  void annotation(int depth, std::string name, int64_t start, int64_t end) {
    out_.push_back({.track = {host_process, 1},
                    .name = std::move(name),
                    .category = "user_annotation",
                    .start_ns = start,
                    .end_ns = end,
                    .depth = depth});
  }

  void step() {
    int64_t start = 0, end = ns(p_.span_ms);
    for (auto& i : p_.intervals) {
      start = std::min(start, ns(i.start_ms));
      end = std::max(end, ns(i.start_ms + i.ms));
    }
    annotation(0, "ProfilerStep#0", start, end);
  }

  // Ranges over consecutive executions on the compute stream with the same key.
  template <class Key>
  void ranges(int depth, Key key) {
    std::vector<const Execution*> stream;
    for (auto& e : executions_)
      if (thread_of(instr(e).stream) == 1) stream.push_back(&e);
    std::stable_sort(stream.begin(), stream.end(), [](auto* a, auto* b) { return a->start < b->start; });
    for (size_t i = 0; i < stream.size();) {
      size_t first = i;
      int64_t end = stream[i]->end;
      for (; i < stream.size() && key(*stream[i]) == key(*stream[first]); ++i) end = std::max(end, stream[i]->end);
      annotation(depth, key(*stream[first]).second, stream[first]->start, end);
    }
  }

  void calls() {
    ranges(1, [&](const Execution& e) {
      return std::pair(e.call, fmt::format("{} (call {})", instr(e).program, e.call));
    });
  }

  void phases() {
    ranges(2, [&](const Execution& e) { return std::pair(e.call, instr(e).phase); });
  }

  // Costs per call. A row of the profile has their sum.
  void instruction(const Execution& e, int64_t id) {
    const ProfileInstr& row = instr(e);
    double share = 1.0 / std::max(1, row.calls);
    Args args = {{"External id", id},
                 {"Program", row.program},
                 {"index", row.index},
                 {"call", e.call},
                 {"origin", join(row.scopes, "+")},
                 {"phase", row.phase},
                 {"layer", row.layer},
                 {"class", row.op_class},
                 {"result", row.type},
                 {"kernel", row.kernel},
                 {"FLOPs", row.flops * share},
                 {"bytes", row.bytes * share},
                 {"floor ms", row.floor_ms * share}};
    if (!row.parts.empty()) args["parts"] = join(row.parts, "+");
    out_.push_back({.track = {host_process, thread_of(row.stream)},
                    .name = row.op,
                    .category = "cpu_op",
                    .start_ns = e.start,
                    .end_ns = e.end,
                    .depth = 3,
                    .args = std::move(args),
                    .instruction = id});
  }

  void kernels() {
    for (size_t n = 0; n < p_.intervals.size(); ++n) {
      const ProfileInterval& i = p_.intervals[n];
      if (i.kernel < 0) continue;  // a CPU has only instructions
      const std::string& name = p_.kernels[size_t(i.kernel)].name;
      auto correlation = int64_t(n) + 1;
      TraceSlice slice{.track = {0, i.stream},
                       .name = name,
                       .category = category(name),
                       .start_ns = ns(i.start_ms),
                       .end_ns = ns(i.start_ms + i.ms),
                       .args = {{"device", 0}, {"context", 1}, {"stream", i.stream}, {"correlation", correlation}},
                       .correlation = correlation};
      if (i.instr >= 0) {
        const ProfileInstr& row = p_.instrs[size_t(i.instr)];
        slice.instruction = int64_t(ids_.at({i.call, i.instr})) + 1;
        slice.args["External id"] = slice.instruction;
        slice.args["instruction"] = fmt::format("{} {} @{}", row.program, row.op, join(row.scopes, "+"));
        slice.args["phase"] = row.phase;
      }
      out_.push_back(std::move(slice));
    }
  }

  const Profile& p_;
  std::vector<Execution> executions_;
  std::map<std::pair<int, int>, size_t> ids_;
  std::vector<TraceSlice> out_;
};

bool before(const TraceSlice& a, const TraceSlice& b) {
  return std::tuple(a.track, a.start_ns, -a.end_ns, a.depth) < std::tuple(b.track, b.start_ns, -b.end_ns, b.depth);
}

}  // namespace

void nest(std::vector<TraceSlice>& slices) {
  std::map<TraceTrack, std::vector<int64_t>> open;  // ends of the slices around the current position
  std::stable_sort(slices.begin(), slices.end(), before);
  for (auto& s : slices) {
    for (;; s.track.thread += overflow_threads) {
      auto& ends = open[s.track];
      while (!ends.empty() && ends.back() <= s.start_ns) ends.pop_back();
      if (!ends.empty() && ends.back() < s.end_ns) continue;
      ends.push_back(s.end_ns);
      break;
    }
  }
  std::stable_sort(slices.begin(), slices.end(), before);
}

void keep_apart(std::vector<TraceSlice>& slices) {
  std::map<TraceTrack, std::vector<std::pair<int64_t, int64_t>>> open;  // ends, before and after
  for (auto& s : slices) {
    auto& ends = open[s.track];
    while (!ends.empty() && ends.back().first <= s.start_ns) ends.pop_back();
    int64_t end = (ends.empty() ? s.end_ns : std::min(s.end_ns, ends.back().second)) - 1;
    ends.push_back({s.end_ns, std::max(end, s.start_ns)});
    if (s.track.process == host_process) s.end_ns = ends.back().second;
  }
}

std::vector<TraceSlice> trace_slices(const Profile& profile) { return Slices(profile).run(); }

}  // namespace crest
