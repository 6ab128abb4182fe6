#include "program/barriers.h"

#include <fmt/format.h>

#include <algorithm>

#include "core/error.h"
#include "program/op.h"

namespace crest {

namespace {

constexpr const char *before_copies = "barrier_before", *after_copies = "barrier_after";

class PulledOperands {
 public:
  PulledOperands(const Program& program, const Accesses& accesses, const Waits& waits, const std::vector<int>& copying)
      : p_(program), accesses_(accesses), ordered_(program, waits), copying_(copying) {}

  // A write without a barrier between it and the copies of i's operand, before or after them; -1:
  // there is none.
  int unmet_write_before(int i) const {
    if (clears_operand(i) && !meets_before(i)) return i;
    for (int j = 0; j < i; ++j) {
      auto between = [&](int h) {
        return ((h <= i && meets_before(h)) || (h < i && meets_after(h))) && ordered_(j, h);
      };
      if (writes_operand(j, i) && std::none_of(copying_.begin(), copying_.end(), between)) return j;
    }
    return -1;
  }
  int unmet_write_after(int i) const {
    for (int j = i + 1; j < int(p_.code.size()); ++j) {
      auto between = [&](int h) {
        return ((h > i && meets_before(h)) || (h >= i && meets_after(h))) && ordered_(h, j);
      };
      if (writes_operand(j, i) && std::none_of(copying_.begin(), copying_.end(), between)) return j;
    }
    return -1;
  }

 private:
  const Instr& at(int i) const { return p_.code[size_t(i)]; }
  bool meets_before(int i) const { return barrier_before(at(i)) != no_barrier; }
  bool meets_after(int i) const { return barrier_after(at(i)) != no_barrier; }
  // A sum of gradients first clears the padding (ops/collectives.h).
  bool clears_operand(int i) const { return at(i).attrs.has("gaps"); }
  // Whether j writes bytes of i's operand.
  bool writes_operand(int j, int i) const {
    const auto& of_j = accesses_[size_t(j)];
    return std::any_of(of_j.begin(), of_j.end(), [&](const Access& a) {
      return (a.writes || (&a == &of_j[0] && clears_operand(j))) && overlap(a, accesses_[size_t(i)][0]);
    });
  }

  const Program& p_;
  const Accesses& accesses_;
  const HappensBefore ordered_;
  const std::vector<int>& copying_;
};

}  // namespace

int barrier_before(const Instr& instr) { return int(instr.attrs.integer(before_copies, no_barrier)); }
int barrier_after(const Instr& instr) { return int(instr.attrs.integer(after_copies, no_barrier)); }

void place_barriers(Program& p, const Accesses& accesses, const Waits& waits, const std::vector<int>& copying) {
  for (int i : copying) p.code[size_t(i)].attrs.erase(before_copies), p.code[size_t(i)].attrs.erase(after_copies);
  if (copying.empty()) return;
  const PulledOperands operands(p, accesses, waits, copying);
  auto set = [&](int i, const char* place) { p.code[size_t(i)].attrs.set(place, closing_flag); };
  set(copying.front(), before_copies), set(copying.back(), after_copies);
  for (int i : copying)
    if (operands.unmet_write_before(i) >= 0) set(i, before_copies);
  // From the end: a barrier that one instruction needs may serve earlier ones.
  for (auto i = copying.rbegin(); i != copying.rend(); ++i)
    if (operands.unmet_write_after(*i) >= 0) set(*i, after_copies);
  std::vector<std::pair<Attrs*, const char*>> placed;
  for (int i : copying)
    for (const char* place : {before_copies, after_copies})
      if (Attrs& attrs = p.code[size_t(i)].attrs; attrs.has(place)) placed.emplace_back(&attrs, place);
  for (size_t n = 0; n < placed.size(); ++n)
    placed[n].first->set(placed[n].second, n + 1 == placed.size() ? closing_flag : int(n % 2));
}

void verify_barriers(const Program& p, const Accesses& accesses, const Waits& waits, const std::vector<int>& copying) {
  if (copying.empty()) return;
  auto described = [&](int i) {
    const Instr& instr = p.code[size_t(i)];
    return fmt::format("instruction {} ({} at {})", i, instr.op->name, instr.origin.text());
  };
  auto refuse = [&](int writer, int i) {
    fail_internal(fmt::format("no barrier of the ranks between {}, which writes, and the copies of {}",
                              described(writer), described(i)),
                  p.name);
  };
  const PulledOperands operands(p, accesses, waits, copying);
  for (int i : copying) {
    if (const int j = operands.unmet_write_before(i); j >= 0) refuse(j, i);
    if (const int w = operands.unmet_write_after(i); w >= 0) refuse(w, i);
  }
  std::vector<int> flags;
  for (int i : copying)
    for (int flag : {barrier_before(p.code[size_t(i)]), barrier_after(p.code[size_t(i)])})
      if (flag != no_barrier) flags.push_back(flag);
  const bool closed = barrier_before(p.code[size_t(copying.front())]) != no_barrier &&
                      barrier_after(p.code[size_t(copying.back())]) == closing_flag &&
                      std::count(flags.begin(), flags.end(), closing_flag) == 1;
  if (!closed || std::adjacent_find(flags.begin(), flags.end()) != flags.end())
    fail_internal("flags of the barriers of the ranks", p.name);
}

}  // namespace crest
