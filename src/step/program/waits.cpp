#include "program/waits.h"

#include <fmt/format.h>

#include <algorithm>

#include "core/error.h"
#include "program/op.h"

namespace crest {

namespace {

using Clock = std::array<int, stream_count>;
constexpr Clock nothing_ended = [] {
  Clock clock{};
  for (int& last : clock) last = -1;
  return clock;
}();

size_t stream_of(const Program& p, int i) { return size_t(p.code[size_t(i)].stream); }

bool in_conflict(const Access& a, const Access& b) { return (a.writes || b.writes) && overlap(a, b); }
bool in_conflict(const std::vector<Access>& a, const std::vector<Access>& b) {
  return std::any_of(a.begin(), a.end(), [&](auto& x) {
    return std::any_of(b.begin(), b.end(), [&](auto& y) { return in_conflict(x, y); });
  });
}

// The end of instruction i implies the end of everything that had ended when it started.
void include(Clock& clock, const Clock& at_start, const Program& p, int i) {
  for (size_t s = 0; s < clock.size(); ++s) clock[s] = std::max(clock[s], at_start[s]);
  clock[stream_of(p, i)] = std::max(clock[stream_of(p, i)], i);
}

std::string described(const Program& p, int i) {
  const Instr& instr = p.code[size_t(i)];
  return fmt::format("instruction {} ({} at {}, {})", i, instr.op->name, instr.origin.text(), name(instr.stream));
}

}  // namespace

bool overlap(const Access& a, const Access& b) {
  if (a.memory != b.memory) return false;
  // Pieces of one storage keep their distance. Everything else sees a piece anywhere.
  auto extent = [&](const Access& x) {
    return x.pieces_of == no_value || a.pieces_of == b.pieces_of ? Extent{x.begin, x.end}
                                                                 : Extent{x.pieces_begin, x.pieces_end};
  };
  const Extent x = extent(a), y = extent(b);
  return x.begin < y.end && y.begin < x.end;
}

bool has_several_streams(const Program& p) {
  return std::any_of(p.code.begin(), p.code.end(), [&](auto& i) { return i.stream != p.code[0].stream; });
}

Extent extent_of(const Value& v) {
  auto size = int64_t(size_of(v.dtype));
  if (v.numel() == 0) return {v.layout.offset * size, v.layout.offset * size};
  int64_t last = v.layout.offset;
  for (int d = 0; d < v.shape.rank(); ++d) last += (v.shape[d] - 1) * v.layout.strides[d];
  return {v.layout.offset * size, (last + 1) * size};
}

Access access_of(const Value& v, int memory, int64_t begin, bool writes) {
  const Extent e = extent_of(v);
  const int64_t bytes = e.end - e.begin, first = begin - v.layout.piece * bytes;
  Access a = {memory, begin, begin + bytes, writes};
  if (v.layout.pieces)
    a.pieces_of = v.layout.storage, a.pieces_begin = first, a.pieces_end = first + v.layout.pieces * bytes;
  return a;
}

Accesses accesses_by_storage(const Program& p) {
  Accesses all(p.code.size());
  for (size_t i = 0; i < p.code.size(); ++i) {
    auto add = [&](ValueId v, bool writes) {
      if (v == no_value) return;
      all[i].push_back(access_of(p.at(v), int(p.at(v).layout.storage), extent_of(p.at(v)).begin, writes));
    };
    for (ValueId v : p.code[i].in) add(v, false);
    for (ValueId v : p.code[i].out) add(v, true);
  }
  return all;
}

Waits plan_waits(const Program& p, const Accesses& accesses) {
  if (!has_several_streams(p)) return {};
  Waits waits(p.code.size());
  std::vector<Clock> ended(p.code.size(), nothing_ended);
  std::array<std::vector<int>, stream_count> of_stream;
  for (int i = 0; i < int(p.code.size()); ++i) {
    size_t own = stream_of(p, i);
    Clock& clock = ended[size_t(i)];
    if (!of_stream[own].empty()) include(clock, ended[size_t(of_stream[own].back())], p, of_stream[own].back());
    // From each other stream, wait for the last conflicting instruction only: it ends after the
    // earlier ones.
    std::vector<int> needed;
    for (size_t s = 0; s < stream_count; ++s) {
      if (s == own) continue;
      for (auto j = of_stream[s].rbegin(); j != of_stream[s].rend() && *j > clock[s]; ++j)
        if (in_conflict(accesses[size_t(i)], accesses[size_t(*j)])) {
          needed.push_back(*j);
          break;
        }
    }
    for (int j : needed) {
      bool implied = std::any_of(needed.begin(), needed.end(),
                                 [&](int other) { return ended[size_t(other)][stream_of(p, j)] >= j; });
      if (!implied) waits[size_t(i)].push_back(j);
    }
    for (int j : needed) include(clock, ended[size_t(j)], p, j);
    of_stream[own].push_back(i);
  }
  return waits;
}

HappensBefore::HappensBefore(const Program& p, const Waits& waits) : program_(p), ended_(p.code.size(), nothing_ended) {
  if (waits.size() != (has_several_streams(p) ? p.code.size() : 0))
    fail_internal(fmt::format("{} instructions have waits", waits.size()), p.name);
  Clock last = nothing_ended;  // of each stream
  for (int i = 0; i < int(p.code.size()); ++i) {
    Clock& clock = ended_[size_t(i)];
    int& before = last[stream_of(p, i)];
    if (before >= 0) include(clock, ended_[size_t(before)], p, before);
    if (!waits.empty())
      for (int j : waits[size_t(i)]) {
        if (j < 0 || j >= i || stream_of(p, j) == stream_of(p, i))
          fail_internal(fmt::format("waits for instruction {}", j), fmt::format("{}, {}", p.name, described(p, i)));
        include(clock, ended_[size_t(j)], p, j);
      }
    before = i;
  }
}

bool HappensBefore::operator()(int earlier, int later) const {
  return ended_[size_t(later)][stream_of(program_, earlier)] >= earlier;
}

int HappensBefore::first_after(int i, Stream stream) const {
  for (int j = i + 1; j < int(program_.code.size()); ++j)
    if (program_.code[size_t(j)].stream == stream && (*this)(i, j)) return j;
  return -1;
}

void verify_waits(const Program& p, const Accesses& accesses, const Waits& waits) {
  HappensBefore ordered(p, waits);
  std::array<std::vector<int>, stream_count> of_stream;
  for (int i = 0; i < int(p.code.size()); ++i) {
    for (size_t s = 0; s < stream_count; ++s) {
      if (s == stream_of(p, i)) continue;
      for (int j : of_stream[s])
        if (in_conflict(accesses[size_t(i)], accesses[size_t(j)]) && !ordered(j, i))
          fail_internal(fmt::format("{} may start before {} has ended, which uses the same memory", described(p, i),
                                    described(p, j)),
                        p.name);
    }
    of_stream[stream_of(p, i)].push_back(i);
  }
}

}  // namespace crest
