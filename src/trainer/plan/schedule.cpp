#include "plan/schedule.h"

#include <fmt/format.h>

#include <algorithm>
#include <limits>
#include <list>
#include <set>

#include "core/error.h"
#include "core/round_up.h"

namespace crest {

namespace {

constexpr double never = std::numeric_limits<double>::infinity();

struct Task {
  StagePart part;
  int chunk;
  int64_t micro_step;
};

// Runs as many micro steps as ranks on one chunk, then on the next.
Task in_turns(const Pipeline& p, int64_t k, StagePart part) {
  const int64_t turn = k / p.ranks, chunk = turn % p.chunks, micro = turn / p.chunks * p.ranks + k % p.ranks;
  return {part, int(part == StagePart::forward ? chunk : p.chunks - 1 - chunk), p.chunks == 1 ? k : micro};
}

// After some forward passes: one forward, one backward. Weight gradients are delayed by one
// backward pass for each rank before this one. So later ranks start them when the first ranks have
// no other work.
std::vector<Task> order_of(const Pipeline& p, int rank) {
  const int64_t all = p.micro_steps * p.chunks;
  int64_t warm_up = p.chunks == 1 ? p.ranks - rank - 1 : 2 * (p.ranks - rank - 1) + int64_t(p.chunks - 1) * p.ranks;
  warm_up = std::min(warm_up, all);
  std::vector<Task> order;
  for (int64_t k = 0; k < warm_up; ++k) order.push_back(in_turns(p, k, StagePart::forward));
  for (int64_t k = 0; k < all; ++k) {
    if (k + warm_up < all) order.push_back(in_turns(p, k + warm_up, StagePart::forward));
    order.push_back(in_turns(p, k, StagePart::backward));
    if (p.splits_weights() && k >= rank) order.push_back({StagePart::weights, 0, k - rank});
  }
  for (int64_t k = std::max<int64_t>(0, all - rank); p.splits_weights() && k < all; ++k)
    order.push_back({StagePart::weights, 0, k});
  return order;
}

class Simulation {
 public:
  Simulation(const Pipeline& p, const PartTimes& times) : p_(p), times_(times), ranks_(size_t(p.ranks)) {
    schedule_.pipeline = p;
    schedule_.calls.resize(ranks_.size());
    for (int r = 0; r < p.ranks; ++r) {
      Rank& rank = ranks_[size_t(r)];
      rank.steps.assign(size_t(p.chunks), std::vector<Step>(size_t(p.micro_steps)));
      rank.order = order_of(p, r);
      rank.slots = slots_for(rank.order);
      rank.taken.assign(rank.slots.size(), 0);
      schedule_.slots.emplace_back();
      for (auto& slots : rank.slots) schedule_.slots.back().push_back(int(slots.size()));
    }
  }

  PipelineSchedule run() {
    for (;;) {
      Choice best;
      for (auto it = sent_.begin(); it != sent_.end(); ++it) consider(best, it);
      for (int r = 0; r < p_.ranks; ++r) consider(best, r);
      if (best.start == never) break;
      best.rank < 0 ? pass(best) : compute(best);
    }
    for (const Rank& rank : ranks_)
      if (rank.next < rank.order.size() || !sent_.empty()) fail_internal("a pipeline schedule that does not end");
    for (const Rank& rank : ranks_) schedule_.seconds = std::max(schedule_.seconds, rank.free);
    return std::move(schedule_);
  }

 private:
  // A micro step on a chunk.
  struct Step {
    double forward_at = never, backward_at = never;  // when the inputs have arrived
    int slot = -1;
    int uses = 0;  // parts and sends left before the slot is free
    bool ran[3] = {};
  };
  struct Rank {
    double free = 0;
    std::vector<Task> order;
    size_t next = 0;
    std::vector<std::vector<Step>> steps;  // by chunk and micro step
    std::vector<std::vector<bool>> slots;  // by chunk: in use
    std::vector<int> taken;                // by chunk: number in use
  };
  // Made by a rank, not yet transferred.
  struct Sent {
    int from, to;
    StagePart part;
    int from_chunk, to_chunk;
    int64_t micro_step;
    double ready;
  };
  struct Choice {
    double start = never;
    int rank = -1;  // -1: a transfer
    Task task = {};
    std::list<Sent>::iterator sent = {};
  };

  int stage(int rank, int chunk) const { return chunk * p_.ranks + rank; }
  Step& step(int rank, int chunk, int64_t m) { return ranks_[size_t(rank)].steps[size_t(chunk)][size_t(m)]; }

  // As many slots as there were micro steps in flight at once.
  std::vector<std::vector<bool>> slots_for(const std::vector<Task>& order) const {
    std::vector<int> now(size_t(p_.chunks), 0), most(size_t(p_.chunks), 0);
    for (const Task& t : order) {
      int& n = now[size_t(t.chunk)];
      const StagePart last = p_.splits_weights() ? StagePart::weights : StagePart::backward;
      n += t.part == StagePart::forward ? 1 : t.part == last ? -1 : 0;
      most[size_t(t.chunk)] = std::max(most[size_t(t.chunk)], n);
    }
    std::vector<std::vector<bool>> slots;
    for (int n : most) slots.emplace_back(size_t(n), false);
    return slots;
  }

  bool has_slot(int rank, int chunk) const {
    const Rank& r = ranks_[size_t(rank)];
    return size_t(r.taken[size_t(chunk)]) < r.slots[size_t(chunk)].size();
  }
  void take_slot(int rank, int chunk, int64_t m) {
    auto& slots = ranks_[size_t(rank)].slots[size_t(chunk)];
    Step& s = step(rank, chunk, m);
    s.slot = int(std::find(slots.begin(), slots.end(), false) - slots.begin());
    slots[size_t(s.slot)] = true;
    ++ranks_[size_t(rank)].taken[size_t(chunk)];
    const int at = stage(rank, chunk);
    s.uses = (p_.splits_weights() ? 3 : 2) + (at > 0) + (at + 1 < p_.stages());
  }
  void use(int rank, int chunk, int64_t m) {
    Step& s = step(rank, chunk, m);
    if (--s.uses > 0) return;
    ranks_[size_t(rank)].slots[size_t(chunk)][size_t(s.slot)] = false;
    --ranks_[size_t(rank)].taken[size_t(chunk)];
  }

  void consider(Choice& best, std::list<Sent>::iterator it) {
    if (it->part == StagePart::forward && !has_slot(it->to, it->to_chunk)) return;
    const double start = std::max({it->ready, ranks_[size_t(it->from)].free, ranks_[size_t(it->to)].free});
    if (start < best.start) best = {start, -1, {}, it};
  }

  double start_of(int r, const Task& t) {
    Step& s = step(r, t.chunk, t.micro_step);
    const double free = ranks_[size_t(r)].free;
    switch (t.part) {
      case StagePart::forward:
        if (stage(r, t.chunk) == 0) return has_slot(r, t.chunk) ? free : never;
        return std::max(free, s.forward_at);
      case StagePart::backward: return s.ran[0] ? std::max(free, s.backward_at) : never;
      case StagePart::weights: return s.ran[1] ? free : never;
    }
    return never;
  }

  void consider(Choice& best, int r) {
    const Rank& rank = ranks_[size_t(r)];
    if (rank.next == rank.order.size()) return;
    const Task& t = rank.order[rank.next];
    if (const double start = start_of(r, t); start < best.start) best = {start, r, t, {}};
  }

  void compute(const Choice& c) {
    Rank& rank = ranks_[size_t(c.rank)];
    const Task& t = c.task;
    const int at = stage(c.rank, t.chunk);
    if (t.part == StagePart::forward && at == 0) take_slot(c.rank, t.chunk, t.micro_step);
    Step& s = step(c.rank, t.chunk, t.micro_step);
    const double seconds = times_.of(t.part, at), end = c.start + seconds;
    schedule_.calls[size_t(c.rank)].push_back(
        {PipelineCall::Action::run, t.part, t.chunk, t.micro_step, s.slot, -1, c.start, seconds});
    rank.free = end, s.ran[size_t(t.part)] = true, ++rank.next;
    const bool forward = t.part == StagePart::forward;
    const int next = forward ? at + 1 : at - 1;
    if (forward && next == p_.stages()) s.backward_at = end;
    if (t.part != StagePart::weights && next >= 0 && next < p_.stages())
      sent_.push_back({c.rank, next % p_.ranks, t.part, t.chunk, next / p_.ranks, t.micro_step, end});
    use(c.rank, t.chunk, t.micro_step);
  }

  void pass(const Choice& c) {
    const Sent sent = *c.sent;
    sent_.erase(c.sent);
    if (sent.part == StagePart::forward) take_slot(sent.to, sent.to_chunk, sent.micro_step);
    Step &from = step(sent.from, sent.from_chunk, sent.micro_step), &to = step(sent.to, sent.to_chunk, sent.micro_step);
    const double end = c.start + times_.transfer;
    using Action = PipelineCall::Action;
    schedule_.calls[size_t(sent.from)].push_back(
        {Action::send, sent.part, sent.from_chunk, sent.micro_step, from.slot, sent.to, c.start, times_.transfer});
    schedule_.calls[size_t(sent.to)].push_back(
        {Action::receive, sent.part, sent.to_chunk, sent.micro_step, to.slot, sent.from, c.start, times_.transfer});
    ranks_[size_t(sent.from)].free = ranks_[size_t(sent.to)].free = end;
    (sent.part == StagePart::forward ? to.forward_at : to.backward_at) = end;
    use(sent.from, sent.from_chunk, sent.micro_step);
  }

  const Pipeline p_;
  const PartTimes& times_;
  std::vector<Rank> ranks_;
  std::list<Sent> sent_;
  PipelineSchedule schedule_;
};

}  // namespace

std::string_view name(StagePart part) {
  static constexpr std::string_view names[] = {"forward", "backward", "weights"};
  return names[size_t(part)];
}

double PartTimes::of(StagePart part, int stage) const {
  const std::vector<double>& times = list(part);
  return size_t(stage) < times.size() ? times[size_t(stage)] : 0;
}

Pipeline pipeline_of(const Recipe& r) {
  Pipeline p;
  p.kind = pipeline_kind(r), p.ranks = r.layout().size(Axis::pipeline), p.chunks = chunks_of_rank(r);
  p.micro_steps = r.grad_accumulation;
  if (p.kind == Pipeline::Kind::interleaved && p.micro_steps % p.ranks != 0)
    fail_usage(fmt::format("interleaved stages need a multiple of {} micro steps, not {}", p.ranks, p.micro_steps),
               "--schedule-pipeline",
               fmt::format("Use --grad-accumulation {}, or --schedule-pipeline 1f1b.",
                           round_up(p.micro_steps, int64_t(p.ranks))));
  return p;
}

PartTimes times_by_flops(const Recipe& r) {
  const StageCosts costs = flops_of_layers(r);
  const std::vector<int64_t> layers = stage_layers(r);
  PartTimes times;
  size_t layer = 0;
  double most = 0;
  for (size_t s = 0; s < layers.size(); ++s) {
    double forward = (s == 0 ? costs.before : 0) + (s + 1 == layers.size() ? costs.behind : 0);
    for (int64_t n = 0; n < layers[s]; ++n) forward += costs.layers[layer++];
    const bool splits = pipeline_kind(r) == Pipeline::Kind::zero_bubble;
    times.forward.push_back(forward), times.backward.push_back(splits ? forward : 2 * forward);
    if (splits) times.weights.push_back(forward);
    most = std::max(most, forward);
  }
  times.transfer = most / 100;
  return times;
}

PartTimes equal_times(const Pipeline& p, double transfer) {
  const auto stages = size_t(p.stages());
  PartTimes times;
  times.transfer = transfer;
  times.forward.assign(stages, 1.0 / p.chunks);
  times.backward.assign(stages, (p.splits_weights() ? 1.0 : 2.0) / p.chunks);
  if (p.splits_weights()) times.weights.assign(stages, 1.0 / p.chunks);
  return times;
}

PipelineSchedule make_schedule(const Pipeline& p, const PartTimes& times) { return Simulation(p, times).run(); }

// A transfer starts when both of its ranks are ready.
PipelineSchedule with_times(PipelineSchedule s, const PartTimes& times) {
  const Pipeline& p = s.pipeline;
  std::vector<size_t> next(s.calls.size(), 0);
  std::vector<double> free(s.calls.size(), 0);
  auto at = [&](size_t rank) { return next[rank] < s.calls[rank].size() ? &s.calls[rank][next[rank]] : nullptr; };
  auto time = [&](size_t rank, double start, double seconds) {
    PipelineCall& call = *at(rank);
    call.start = start, call.seconds = seconds, free[rank] = start + seconds;
    ++next[rank];
  };
  for (bool moved = true; moved;) {
    moved = false;
    for (size_t r = 0; r < s.calls.size(); ++r)
      while (PipelineCall* call = at(r)) {
        if (call->action == PipelineCall::Action::run) {
          time(r, free[r], times.of(call->part, call->chunk * p.ranks + int(r)));
        } else {
          const auto peer = size_t(call->peer);
          const PipelineCall* other = at(peer);
          if (!other || other->action == PipelineCall::Action::run || size_t(other->peer) != r) break;
          const double start = std::max(free[r], free[peer]);
          time(r, start, times.transfer), time(peer, start, times.transfer);
        }
        moved = true;
      }
  }
  s.seconds = 0;
  for (size_t r = 0; r < s.calls.size(); ++r) {
    if (at(r)) fail_internal("a pipeline schedule that does not end");
    s.seconds = std::max(s.seconds, free[r]);
  }
  return s;
}

PartTimes balanced(const Pipeline& p, const PartTimes& times) {
  double sum = 0;
  for (auto* list : {&times.forward, &times.backward, &times.weights})
    for (double seconds : *list) sum += seconds;
  PartTimes even = equal_times(p, times.transfer);
  for (auto* list : {&even.forward, &even.backward, &even.weights})
    for (double& seconds : *list) seconds *= sum / (3.0 * p.ranks);  // a stage in equal_times takes 3 / chunks
  return even;
}

Bubble bubble_of(const PipelineSchedule& schedule, const PartTimes& times) {
  const Pipeline& p = schedule.pipeline;
  PartTimes at_once = times;
  at_once.transfer = 0;
  PartTimes even_times = balanced(p, at_once);
  const PipelineSchedule even = make_schedule(p, even_times);
  Bubble bubble;
  for (int s = 0; s < p.stages(); ++s)
    for (StagePart part : {StagePart::forward, StagePart::backward, StagePart::weights})
      bubble.ideal += double(p.micro_steps) * times.of(part, s) / p.ranks;
  auto runs = [](const PipelineCall& c) { return c.action == PipelineCall::Action::run; };
  const auto& last = even.calls.back();
  const auto first = std::find_if(last.begin(), last.end(), runs);
  bubble.warm_up = first == last.end() ? 0 : first->start;
  bubble.drain = even.seconds - bubble.ideal - bubble.warm_up;
  const double without = with_times(schedule, at_once).seconds;
  bubble.imbalance = without - even.seconds;
  bubble.transfers = with_times(schedule, times).seconds - without;
  return bubble;
}

Bubble bubble_of(const Pipeline& p, const PartTimes& times) { return bubble_of(make_schedule(p, times), times); }

}  // namespace crest
