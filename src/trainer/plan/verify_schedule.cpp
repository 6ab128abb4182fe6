#include <fmt/format.h>

#include <map>
#include <tuple>
#include <utility>

#include "core/error.h"
#include "plan/schedule.h"

namespace crest {

namespace {

using Action = PipelineCall::Action;

class Replay {
 public:
  explicit Replay(const PipelineSchedule& s) : s_(s), p_(s.pipeline), next_(s.calls.size(), 0) {}

  void run() {
    while (advance()) {
    }
    std::string waits;
    for (size_t r = 0; r < s_.calls.size(); ++r)
      if (next_[r] < s_.calls[r].size())
        waits += fmt::format("{}rank {} waits to {}", waits.empty() ? "" : ", ", r, text(call(r)));
    if (!waits.empty()) fail_internal("the schedule of a pipeline does not end: " + waits);
    for (int r = 0; r < p_.ranks; ++r)
      for (int c = 0; c < p_.chunks; ++c)
        for (int64_t m = 0; m < p_.micro_steps; ++m) check_ended(r, c, m);
  }

 private:
  struct State {
    bool ran[3] = {}, received[2] = {}, sent[2] = {};
    int slot = -1;
  };
  using Key = std::tuple<int, int, int64_t>;  // rank, chunk, micro step

  static std::string text(const PipelineCall& c) {
    const char* action = c.action == Action::run ? "run" : c.action == Action::send ? "send" : "receive";
    return fmt::format("{} {} of micro step {}, chunk {}, in slot {}", action, name(c.part), c.micro_step, c.chunk,
                       c.slot);
  }
  [[noreturn]] void broken(size_t rank, const std::string& what) const {
    fail_internal(fmt::format("pipeline rank {}, call {} ({}): {}", rank, next_[rank], text(call(rank)), what));
  }
  const PipelineCall& call(size_t rank) const { return s_.calls[rank][next_[rank]]; }
  int stage(size_t rank, int chunk) const { return chunk * p_.ranks + int(rank); }
  State& state(size_t rank, const PipelineCall& c) { return states_[{int(rank), c.chunk, c.micro_step}]; }

  bool advance() {
    bool any = false;
    for (size_t r = 0; r < s_.calls.size(); ++r)
      while (next_[r] < s_.calls[r].size()) {
        const PipelineCall& c = call(r);
        if (c.chunk < 0 || c.chunk >= p_.chunks || c.micro_step < 0 || c.micro_step >= p_.micro_steps)
          broken(r, "no such work");
        if (c.action == Action::run)
          compute(r, c);
        else if (!meet(r, c))
          break;
        any = true;
      }
    return any;
  }

  void compute(size_t r, const PipelineCall& c) {
    const int at = stage(r, c.chunk);
    if (c.part == StagePart::forward && at == 0) take(r, c);
    State& s = state(r, c);
    if (s.slot != c.slot || s.slot < 0) broken(r, fmt::format("the micro step is in slot {}", s.slot));
    const bool ready = c.part == StagePart::forward    ? at == 0 || s.received[0]
                       : c.part == StagePart::backward ? s.ran[0] && (at + 1 == p_.stages() || s.received[1])
                                                       : s.ran[1];
    if (!ready) broken(r, "runs before what it reads is there");
    if (c.part == StagePart::weights && !p_.splits_weights()) broken(r, "is no part of this schedule");
    if (std::exchange(s.ran[size_t(c.part)], true)) broken(r, "runs twice");
    ++next_[r];
    release(r, c);
  }

  // Whether both ranks of a transfer are ready.
  bool meet(size_t r, const PipelineCall& c) {
    const auto other = size_t(c.peer);
    if (other >= s_.calls.size() || other == r) broken(r, "there is no such rank");
    if (next_[other] == s_.calls[other].size()) return false;
    const PipelineCall& o = call(other);
    if (o.action == Action::run || size_t(o.peer) != r || o.action == c.action) return false;
    const bool sends = c.action == Action::send;
    const size_t from = sends ? r : other, to = sends ? other : r;
    const PipelineCall &out = sends ? c : o, &in = sends ? o : c;
    const int step = out.part == StagePart::forward ? 1 : -1;
    if (out.part != in.part || out.micro_step != in.micro_step || out.part == StagePart::weights ||
        stage(to, in.chunk) != stage(from, out.chunk) + step)
      broken(from, fmt::format("meets rank {}, which wants to {}", to, text(in)));
    if (in.part == StagePart::forward) take(to, in);
    State &a = state(from, out), &b = state(to, in);
    const auto which = size_t(out.part);
    if (a.slot != out.slot || b.slot != in.slot) broken(from, "a transfer between other slots");
    if (!a.ran[which]) broken(from, "sends before it has run");
    if (std::exchange(a.sent[which], true)) broken(from, "sends twice");
    if (std::exchange(b.received[which], true)) broken(to, "receives twice");
    ++next_[from], ++next_[to];
    release(from, out), release(to, in);
    return true;
  }

  void take(size_t r, const PipelineCall& c) {
    if (c.slot < 0 || c.slot >= s_.slots[r][size_t(c.chunk)]) broken(r, "there is no such slot");
    auto [it, added] = taken_.emplace(std::tuple{int(r), c.chunk, c.slot}, c.micro_step);
    if (!added) broken(r, fmt::format("the slot still holds micro step {}", it->second));
    State& s = state(r, c);
    if (s.slot >= 0) broken(r, "the micro step has a slot already");
    s.slot = c.slot;
  }
  bool ended(size_t r, int chunk, const State& s) const {
    const int at = stage(r, chunk);
    return s.ran[0] && s.ran[1] && (s.ran[2] || !p_.splits_weights()) && (s.sent[0] || at + 1 == p_.stages()) &&
           (s.sent[1] || at == 0);
  }
  void release(size_t r, const PipelineCall& c) {
    if (ended(r, c.chunk, state(r, c))) taken_.erase({int(r), c.chunk, c.slot});
  }
  void check_ended(int r, int chunk, int64_t m) {
    auto it = states_.find({r, chunk, m});
    if (it == states_.end() || !ended(size_t(r), chunk, it->second))
      fail_internal(fmt::format("the schedule leaves out a part of micro step {}, chunk {}, on rank {}", m, chunk, r));
  }

  const PipelineSchedule& s_;
  const Pipeline& p_;
  std::vector<size_t> next_;  // by rank
  std::map<Key, State> states_;
  std::map<std::tuple<int, int, int>, int64_t> taken_;  // micro step by rank, chunk and slot
};

}  // namespace

void verify_schedule(const PipelineSchedule& schedule) { Replay(schedule).run(); }

}  // namespace crest
