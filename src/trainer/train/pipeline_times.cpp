#include "train/pipeline_times.h"

#include <algorithm>
#include <cmath>
#include <functional>
#include <limits>
#include <map>
#include <nlohmann/json.hpp>
#include <optional>
#include <tuple>

#include "comm/rank_group.h"
#include "program/op.h"
#include "stats/middle_half.h"
#include "stats/samples.h"
#include "train/engine.h"

namespace crest {

namespace {

using Action = PipelineCall::Action;
constexpr double never = std::numeric_limits<double>::infinity();

struct TimedCall {
  CallRole role;
  double start = 0, end = 0;
  double seconds() const { return end - start; }
};

struct Transfer {
  TimedCall *sent = nullptr, *received = nullptr;
};

struct RankSums {
  double compute = 0, transfer = 0, warm_up = 0, between = 0, drain = 0, seconds = 0;
};

// A step of one pipeline, on one clock. Its ranks differ in the stage only.
class PipelineStep {
 public:
  PipelineStep(const PipelineSchedule& s, const std::vector<const std::vector<CallRole>*>& roles,
               const std::vector<const RankCalls*>& runs, bool one_clock)
      : s_(s), calls_(runs.size()), sums_(runs.size()) {
    for (size_t r = 0; r < runs.size(); ++r) {
      for (size_t c = 0; c < roles[r]->size(); ++c)
        calls_[r].push_back({(*roles[r])[c], runs[r]->stamps[c], runs[r]->stamps[c + 1]});
      sums_[r].seconds = runs[r]->seconds;
    }
    find_transfers();
    if (!one_clock) align_clocks();
    find_ends();
    for (size_t r = 0; r < runs.size(); ++r) add(r);
  }

  const RankSums& sums(int rank) const { return sums_[size_t(rank)]; }
  // From the first pass of the first stage to the last one of all.
  double seconds() const { return end_ - begin_; }

  // All passes, divided by the ranks.
  double work() const {
    double sum = 0;
    for (const RankSums& s : sums_) sum += s.compute;
    return sum / double(sums_.size());
  }

  // Of passes by stage, summed over micro steps; and of all transfers.
  void add_to(PartTimes& times, size_t& transfers) const {
    for (size_t r = 0; r < calls_.size(); ++r)
      for (const TimedCall& c : calls_[r])
        if (const PipelineCall* call = of(r, c); call && call->action == Action::run)
          times.list(call->part)[size_t(call->chunk) * calls_.size() + r] += c.seconds();
    for (const Transfer& t : transfers_) times.transfer += t.received->end - arrival(t);
    transfers += transfers_.size();
  }

 private:
  const PipelineCall* of(size_t rank, const TimedCall& c) const {
    return c.role.scheduled < 0 ? nullptr : &s_.calls[rank][size_t(c.role.scheduled)];
  }
  static double arrival(const Transfer& t) { return std::clamp(t.sent->start, t.received->start, t.received->end); }

  // Transfers between two ranks have one order on both.
  void find_transfers() {
    std::map<std::tuple<size_t, size_t>, std::vector<TimedCall*>> sent, received;  // by from and to
    for (size_t r = 0; r < calls_.size(); ++r)
      for (TimedCall& c : calls_[r]) {
        const PipelineCall* call = of(r, c);
        if (!call || call->action == Action::run) continue;
        const auto peer = size_t(call->peer);
        if (call->action == Action::send)
          sent[{r, peer}].push_back(&c);
        else
          received[{peer, r}].push_back(&c);
      }
    for (auto& [ranks, list] : sent)
      for (size_t i = 0; i < list.size(); ++i) transfers_.push_back({list[i], received.at(ranks).at(i)});
  }

  // A tensor arrives when it has been sent, or later. The fastest transfers of both directions take
  // equally long, so half their difference is between the clocks.
  void align_clocks() {
    auto fastest = [&](size_t from, size_t to) {
      double least = never;
      for (const Transfer& t : transfers_)
        if (on(from, t.sent) && on(to, t.received)) least = std::min(least, t.received->end - t.sent->end);
      return least;
    };
    for (size_t r = 1; r < calls_.size(); ++r) {
      const double there = fastest(r - 1, r), back = fastest(r, r - 1);
      if (there == never || back == never) continue;
      const double ahead = (there - back) / 2;
      for (TimedCall& c : calls_[r]) c.start -= ahead, c.end -= ahead;
    }
  }
  bool on(size_t rank, const TimedCall* c) const {
    return !calls_[rank].empty() && c >= &calls_[rank].front() && c <= &calls_[rank].back();
  }

  void find_ends() {
    begin_ = never, end_ = -never;
    for (size_t r = 0; r < calls_.size(); ++r)
      for (const TimedCall& c : calls_[r])
        if (const PipelineCall* call = of(r, c)) {
          if (call->action == Action::run) begin_ = std::min(begin_, c.start);
          end_ = std::max(end_, c.end);
        }
  }

  void add(size_t r) {
    RankSums& sum = sums_[r];
    std::optional<double> first, last;
    for (const TimedCall& c : calls_[r])
      if (const PipelineCall* call = of(r, c); call && call->action == Action::run) {
        sum.compute += c.seconds();
        if (!first) first = c.start;
        last = c.end;
      }
    auto wait = [&](double from, double to) {
      if (to <= from) return;
      (!first || to <= *first ? sum.warm_up : from >= *last ? sum.drain : sum.between) += to - from;
    };
    for (const Transfer& t : transfers_) {
      if (on(r, t.received)) {
        const double met = arrival(t);
        wait(t.received->start, met), sum.transfer += t.received->end - met;
      } else if (on(r, t.sent)) {
        // A library may take a small tensor before the other rank is there.
        const bool taken = t.sent->end <= t.received->start;
        const double met = taken ? t.sent->start : std::clamp(t.received->start, t.sent->start, t.sent->end);
        wait(t.sent->start, met), sum.transfer += t.sent->end - met;
      }
    }
    for (const TimedCall& c : calls_[r])
      if (c.role.joins) wait(c.start, std::min(c.end, end_));
  }

  const PipelineSchedule& s_;
  std::vector<std::vector<TimedCall>> calls_;  // by rank
  std::vector<Transfer> transfers_;
  std::vector<RankSums> sums_;
  double begin_ = 0, end_ = 0;
};

bool joins_stages(const Program& p) {
  return std::any_of(p.code.begin(), p.code.end(), [](const Instr& instr) {
    return instr.op->op_class == OpClass::communication && axes_of(instr).has(Axis::pipeline);
  });
}

}  // namespace

std::vector<CallRole> roles_of(const CompiledSession& s) {
  std::vector<CallRole> roles;
  bool begun = false;  // a borrowed weight comes before
  for (const SegmentCall& call : training_step(s)) {
    begun |= call.scheduled >= 0;
    const bool joins = begun && call.scheduled < 0 && joins_stages(s.programs[size_t(call.segment)].program);
    roles.push_back({call.scheduled, joins});
  }
  return roles;
}

PipelineTimes pipeline_times(const PipelineSchedule& schedule, const Mesh& mesh,
                             const std::vector<std::vector<CallRole>>& roles,
                             const std::vector<std::vector<RankCalls>>& runs, bool one_clock) {
  const Pipeline& p = schedule.pipeline;
  PipelineTimes t;
  t.runs = int(runs.at(0).size());
  t.stages.resize(size_t(p.ranks));
  std::vector<double> seconds;
  for (const RankCalls& run : runs[0]) seconds.push_back(run.seconds);
  const std::vector<size_t> middle = middle_half(seconds);
  const double steps = double(middle.size()) * mesh.ranks() / p.ranks;
  PartTimes sums;
  sums.forward.resize(size_t(p.stages())), sums.backward = sums.weights = sums.forward;
  size_t transfers = 0;
  double passes_ms = 0;
  Samples bubbles;
  auto steps_of = [&](size_t run, const std::function<void(const PipelineStep&)>& use) {
    for (int r = 0; r < mesh.ranks(); ++r) {
      if (mesh.coordinate(r, Axis::pipeline) != 0) continue;
      std::vector<const std::vector<CallRole>*> own_roles;
      std::vector<const RankCalls*> own_runs;
      for (int q : mesh.group(r, Axis::pipeline))
        own_roles.push_back(&roles[size_t(q)]), own_runs.push_back(&runs[size_t(q)][run]);
      use(PipelineStep(schedule, own_roles, own_runs, one_clock));
    }
  };
  for (size_t run = 0; run < runs[0].size(); ++run) {
    double took = 0, work = 0;
    steps_of(run, [&](const PipelineStep& step) { took += step.seconds(), work += step.work(); });
    if (work > 0) bubbles.add(took / work - 1);
  }
  for (size_t run : middle) {
    t.step_ms += 1e3 * runs[0][run].seconds / double(middle.size());
    steps_of(run, [&](const PipelineStep& step) {
      step.add_to(sums, transfers);
      passes_ms += 1e3 * step.seconds() / steps;
      for (int s = 0; s < p.ranks; ++s) {
        const RankSums& of = step.sums(s);
        StageTimes& stage = t.stages[size_t(s)];
        auto add = [&](double& ms, double of_run) { ms += 1e3 * of_run / steps; };
        add(stage.step_ms, of.seconds), add(stage.compute_ms, of.compute), add(stage.transfer_ms, of.transfer);
        add(stage.warm_up_ms, of.warm_up), add(stage.between_ms, of.between), add(stage.drain_ms, of.drain);
        stage.rest_ms = stage.step_ms - stage.compute_ms - stage.transfer_ms - stage.waiting_ms();
      }
    });
  }
  for (auto* list : {&sums.forward, &sums.backward, &sums.weights})
    for (double& x : *list) x *= 1e3 / (steps * double(p.micro_steps));
  sums.transfer = transfers ? t.transfer_ms = 1e3 * sums.transfer / double(transfers) : 0;
  for (int s = 0; s < p.stages(); ++s)
    for (StagePart part : {StagePart::forward, StagePart::backward, StagePart::weights})
      if (const double ms = sums.of(part, s); ms > 0)
        t.stages[size_t(s % p.ranks)].parts.push_back({s / p.ranks, part, ms});
  t.bubble = bubble_of(schedule, sums);
  t.other_ms = passes_ms - t.predicted_ms();
  t.rest_ms = t.step_ms - passes_ms;
  const Interval known = bubbles.median_interval();
  const bool few = !std::isfinite(known.low) || !std::isfinite(known.high);
  t.bubble_low = std::min(t.measured_bubble(), few ? bubbles.min() : known.low);
  t.bubble_high = std::max(t.measured_bubble(), few ? bubbles.max() : known.high);
  return t;
}

PipelineTimes measured_pipeline(Engine& engine, const std::vector<std::vector<RankCalls>>& own,
                                const RankGroup* group) {
  const size_t runs = own.at(0).size();
  // By rank: what each call is, then a row for each run. Stages have different numbers of calls.
  auto gathered = engine.from_ranks([&](int rank) {
    std::vector<double> list;
    for (const CallRole& role : roles_of(engine.rank(rank).session()))
      list.push_back(role.scheduled), list.push_back(role.joins);
    for (const RankCalls& run : own[size_t(rank)]) {
      list.push_back(run.seconds);
      list.insert(list.end(), run.stamps.begin(), run.stamps.end());
    }
    return list;
  });
  std::vector<std::vector<CallRole>> roles;
  std::vector<std::vector<RankCalls>> all;
  for (const std::vector<double>& list : gathered) {
    // 2 calls + runs (1 + calls + 1) numbers
    const size_t calls = (list.size() - 2 * runs) / (2 + runs);
    auto& of_rank = roles.emplace_back();
    for (size_t c = 0; c < calls; ++c) of_rank.push_back({int(list[2 * c]), list[2 * c + 1] != 0});
    auto& steps = all.emplace_back();
    auto next = list.begin() + std::ptrdiff_t(2 * calls);
    for (size_t i = 0; i < runs; ++i, next += std::ptrdiff_t(calls + 2))
      steps.push_back({*next, {next + 1, next + std::ptrdiff_t(calls + 2)}});
  }
  const CompiledSession& s = engine.session();
  const bool one_clock = s.device.kind == "cpu" && (!group || group->local_size() == group->size());  // of one machine
  PipelineTimes times = pipeline_times(s.schedule, s.recipe.layout(), roles, all, one_clock);
  times.planned_bubble = bubble_of(s.schedule, times_by_flops(s.recipe)).fraction();
  return times;
}

nlohmann::ordered_json to_json(const PipelineTimes& t) {
  using Json = nlohmann::ordered_json;
  Json stages = Json::array();
  for (const StageTimes& s : t.stages) {
    Json parts = Json::array();
    for (const PartTime& part : s.parts)
      parts.push_back({{"chunk", part.chunk}, {"part", name(part.part)}, {"ms", part.ms}});
    stages.push_back({{"step_ms", s.step_ms},
                      {"compute_ms", s.compute_ms},
                      {"transfer_ms", s.transfer_ms},
                      {"waiting_ms", {{"warm_up", s.warm_up_ms}, {"between", s.between_ms}, {"drain", s.drain_ms}}},
                      {"rest_ms", s.rest_ms},
                      {"parts", parts}});
  }
  const Bubble& b = t.bubble;
  return {{"runs", t.runs},
          {"step_ms", t.step_ms},
          {"ideal_ms", b.ideal},
          {"warm_up_ms", b.warm_up},
          {"drain_ms", b.drain},
          {"imbalance_ms", b.imbalance},
          {"transfers_ms", b.transfers},
          {"other_ms", t.other_ms},
          {"rest_ms", t.rest_ms},
          {"bubble",
           {{"measured", t.measured_bubble()},
            {"measured_low", t.bubble_low},
            {"measured_high", t.bubble_high},
            {"simulated", b.fraction()},
            {"planned", t.planned_bubble}}},
          {"transfer_ms", t.transfer_ms},
          {"stages", stages}};
}

}  // namespace crest
