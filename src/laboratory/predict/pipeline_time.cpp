#include "predict/pipeline_time.h"

#include <algorithm>
#include <list>
#include <map>
#include <vector>

#include "passes/stages.h"
#include "plan/stage_plans.h"
#include "predict/waiting_time.h"

namespace crest {

namespace {

PredictedStep& step_of(StepTime& t) { return t.time ? static_cast<PredictedStep&>(*t.time) : *t.floors; }

bool passes(SegmentKind k) {
  return k == SegmentKind::forward || k == SegmentKind::backward || k == SegmentKind::weights;
}
bool sends(SegmentKind k) { return k == SegmentKind::send_forward || k == SegmentKind::send_backward; }
bool receives(SegmentKind k) { return k == SegmentKind::receive_forward || k == SegmentKind::receive_backward; }

StagePart part_of(SegmentKind kind) {
  return kind == SegmentKind::forward    ? StagePart::forward
         : kind == SegmentKind::backward ? StagePart::backward
                                         : StagePart::weights;
}

// The passes of all stages, a micro step each, and all else that their ranks do.
class StageSums {
 public:
  explicit StageSums(const Pipeline& p) : p_(p) {
    times_.forward.assign(size_t(p.stages()), 0), times_.backward = times_.forward;
    if (p.splits_weights()) times_.weights = times_.forward;
    stages_.resize(size_t(p.ranks));
  }

  // Of the session's stage, or of one with the same work.
  void add(const CompiledSession& s, const PredictedStep& predicted, int at) {
    PredictedStage& stage = stages_[size_t(at)];
    stage.rest_ms = predicted.transfers_ms;  // to and from the host
    stage.low = predicted.low_ms / predicted.ms, stage.high = predicted.high_ms / predicted.ms;
    for (const ProfileInstr& row : predicted.profile.instrs) {
      if (crosses_host_link(row)) continue;
      const ProgramSpec& spec = s.programs[size_t(s.find(row.program))].spec;
      const bool trains = spec.kind == ProgramKind::train;
      if (trains && passes(spec.part)) {
        times_.list(part_of(spec.part))[size_t(spec.chunk * p_.ranks + at)] += row.ms / double(p_.micro_steps);
        stage.passes_ms += row.ms;
      } else if (trains && sends(spec.part)) {
        sent_ms_ += row.ms, sent_ += row.calls;
      } else if (!trains || !receives(spec.part)) {
        stage.rest_ms += row.ms;
      }
    }
  }

  PartTimes times() const {
    PartTimes t = times_;
    t.transfer = sent_ > 0 ? sent_ms_ / sent_ : 0;
    return t;
  }
  const std::vector<PredictedStage>& stages() const { return stages_; }

 private:
  const Pipeline p_;
  PartTimes times_;
  std::vector<PredictedStage> stages_;
  double sent_ms_ = 0, sent_ = 0;
};

}  // namespace

StepTime pipeline_step_time(const CompiledSession& s, const StagePredictor& of_stage,
                            const std::vector<const CompiledSession*>& compiled) {
  StepTime own = of_stage(s);
  if (!own.step()) return own;
  if (s.schedule.calls.empty()) {
    add_waiting(step_of(own));
    return own;
  }
  const Pipeline& p = s.schedule.pipeline;
  StageSums sums(p);
  double recomputed = 0;
  // Of stages with equal work, one is compiled.
  std::list<CompiledSession> others;
  struct Timed {
    const CompiledSession* session;
    StepTime time;
  };
  std::map<std::vector<std::string>, Timed> known;
  known.emplace(stage_work(s.recipe, s.stage), Timed{&s, own});
  for (const CompiledSession* c : compiled)
    if (auto [it, is_new] = known.try_emplace(stage_work(c->recipe, c->stage)); is_new) it->second = {c, of_stage(*c)};
  for (int stage = 0; stage < p.ranks; ++stage) {
    auto [it, is_new] = known.try_emplace(stage_work(s.recipe, stage));
    if (is_new) {
      others.push_back(for_stage(s, stage, {.verify = false}));
      it->second = {&others.back(), of_stage(others.back())};
    }
    const Timed& timed = it->second;
    if (!timed.time.step()) return timed.time;
    sums.add(*timed.session, *timed.time.step(), stage), recomputed += timed.time.step()->recomputed_flops;
  }
  PredictedPipeline result;
  const PartTimes times = sums.times();
  result.bubble = bubble_of(s.schedule, times);
  result.transfer_ms = times.transfer;
  result.stages = sums.stages();
  const auto slowest = std::max_element(result.stages.begin(), result.stages.end(),
                                        [](auto& a, auto& b) { return a.rest_ms < b.rest_ms; });
  result.rest_ms = slowest->rest_ms;
  double low = 1, high = 1;  // of the stage that is known least
  for (const PredictedStage& stage : result.stages) low = std::min(low, stage.low), high = std::max(high, stage.high);
  PredictedStep& step = step_of(own);
  step.ms = result.bubble.ideal + result.bubble.seconds() + result.rest_ms;
  step.low_ms = step.ms * low, step.high_ms = step.ms * high;
  step.recomputed_flops = recomputed / p.ranks;  // each was as if all ranks were like it
  step.pipeline = std::move(result);
  add_waiting(step);
  return own;
}

std::optional<StageCosts> predicted_stage_costs(const Recipe& recipe, const Device& device,
                                                const StagePredictor& of_stage) {
  SessionUse use;
  use.train = true;
  StageCosts costs;
  costs.layers.assign(size_t(recipe.model.layers), 0);
  const int ranks = recipe.layout().size(Axis::pipeline);
  std::vector<int64_t> first_layer = {0};  // of each stage
  for (int64_t n : stage_layers(recipe)) first_layer.push_back(first_layer.back() + n);
  struct Timed {
    CompiledSession session;
    StepTime time;
  };
  std::map<std::vector<std::string>, Timed> known;
  const CompiledSession first = compile(recipe, device, session_programs(recipe, use), {.verify = false});
  for (int stage = 0; stage < ranks; ++stage) {
    auto [it, is_new] = known.try_emplace(stage_work(first.recipe, stage));
    Timed& t = it->second;
    if (is_new) t.session = for_stage(first, stage, {.verify = false}), t.time = of_stage(t.session);
    if (!t.time.step()) return {};
    for (const ProfileInstr& row : t.time.step()->profile.instrs) {
      const ProgramSpec& spec = t.session.programs[size_t(t.session.find(row.program))].spec;
      if (spec.kind != ProgramKind::train || !passes(spec.part)) continue;
      const int of_chunk = spec.chunk * ranks, at = of_chunk + stage;
      if (row.layer >= 0)
        costs.layers[size_t(row.layer + first_layer[size_t(at)] - first_layer[size_t(of_chunk + t.session.stage)])] +=
            row.ms;
      else if (at == 0 || at == stage_count(recipe) - 1)
        (at == 0 ? costs.before : costs.behind) += row.ms;
    }
  }
  return costs;
}

}  // namespace crest
