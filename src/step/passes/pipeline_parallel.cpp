// --mesh pipeline=P: each rank along the axis has some of the layers, a stage. A stage receives the
// previous stage's result and sends its own to the next (Huang et al. 2019, "GPipe"). Gradients
// travel back: the gradient of a send is a receive. A tied embedding belongs to the first stage.
// The last stage borrows it: it receives the weights at the start of a step and returns the
// gradient at the end.
#include <fmt/format.h>

#include <algorithm>
#include <map>
#include <set>

#include "core/error.h"
#include "core/text.h"
#include "ops/collectives.h"
#include "ops/index.h"
#include "passes/pass.h"
#include "passes/rewrite.h"
#include "passes/shard.h"
#include "passes/stages.h"
#include "passes/vocabulary_padding.h"
#include "program/placements.h"

namespace crest {

namespace {

const Origin& origin_of_transfers() {
  static const Origin origin("pipeline");
  return origin;
}

Instr transfer(const char* op_name, std::vector<ValueId> in, std::vector<ValueId> out, Attrs attrs, Phase phase) {
  Instr instr;
  instr.op = &op(op_name);
  instr.in = std::move(in), instr.out = std::move(out);
  instr.attrs = std::move(attrs);
  instr.phase = phase, instr.origin = origin_of_transfers();
  return instr;
}

// Cuts a forward Program into each stage's code and the values between them.
class Stages {
 public:
  Stages(const Program& p, const std::vector<int64_t>& layers) : p_(p), producers_(p.producers()) {
    const int last = int(layers.size()) - 1;
    std::vector<bool> behind(p.values.size(), false), trained(p.values.size(), false);  // by value
    for (const Param& q : p.params) trained[size_t(q.value)] = true;
    for (const Instr& instr : p.code) {
      bool of_layers = instr.origin.layer() >= 0, of_weights = false;
      for (ValueId v : instr.in)
        if (v != no_value) of_layers |= behind[size_t(v)], of_weights |= trained[size_t(v)];
      const int layer = instr.origin.layer();
      stage_.push_back(layer >= 0 ? stage_of_layer(layer, layers) : of_layers ? last : 0);
      for (ValueId v : instr.out) behind[size_t(v)] = of_layers, trained[size_t(v)] = of_weights;
    }
    for (int s = 0; s < last; ++s) sent_.push_back(crossing(s, trained));
  }

  // The value sent by stage s to the next.
  ValueId sent(int s) const { return sent_[size_t(s)]; }

  // A stage's instructions, from the received value to its results.
  std::vector<Instr> code(int s) const {
    std::vector<bool> needed(p_.values.size(), false);
    for (ValueId v : p_.outputs)
      if (s == int(sent_.size())) needed[size_t(v)] = true;
    if (s < int(sent_.size())) needed[size_t(sent(s))] = true;
    if (s > 0) needed[size_t(sent(s - 1))] = false;
    std::vector<Instr> list;
    for (size_t i = p_.code.size(); i-- > 0;) {
      const Instr& instr = p_.code[i];
      if (std::none_of(instr.out.begin(), instr.out.end(), [&](ValueId v) { return needed[size_t(v)]; })) continue;
      list.push_back(instr);
      for (ValueId v : instr.in)
        if (v != no_value && !(s > 0 && v == sent(s - 1))) needed[size_t(v)] = true;
    }
    std::reverse(list.begin(), list.end());
    return list;
  }

 private:
  // Each stage makes its own rows of ids and positions.
  ValueId crossing(int s, const std::vector<bool>& trained) const {
    ValueId found = no_value;
    for (size_t i = 0; i < p_.code.size(); ++i)
      for (ValueId v : p_.code[i].in) {
        const int made = v == no_value ? -1 : producers_[size_t(v)];
        if (made < 0 || stage_[i] <= s || stage_[size_t(made)] > s || !trained[size_t(v)] || v == found) continue;
        if (found != no_value)
          fail_internal(
              fmt::format("both %{} and %{} pass from stage {} to the next", p_.at(found).name, p_.at(v).name, s));
        found = v;
      }
    if (found == no_value) fail_internal(fmt::format("nothing passes from stage {} to the next", s));
    return found;
  }

  const Program& p_;
  std::vector<int> producers_, stage_;  // by value; by instruction
  std::vector<ValueId> sent_;           // by stage
};

// Whether the last stage multiplies by the first stage's embedding.
bool borrows(const Recipe& r) { return r.model.tied; }

void keep_stage(Program& p, const PassContext& context, const std::vector<int64_t>& layers) {
  const int ranks = context.recipe.layout().size(Axis::pipeline), last = int(layers.size()) - 1;
  const int stage = context.stage + context.chunk * ranks;
  infer_placements(p, "pipeline_parallel");
  const Stages stages(p, layers);
  std::vector<Instr> code = stages.code(stage);
  auto put = [&](Instr instr, bool front) { code.insert(front ? code.begin() : code.end(), std::move(instr)); };
  if (stage > 0) {
    const ValueId v = stages.sent(stage - 1);
    put(transfer("receive", {}, {v}, receive_attrs(p.at(v), (stage - 1) % ranks), Phase::forward), true);
  }
  auto send = [&](ValueId v, int to, bool front) {
    const auto sent = ValueId(p.values.size());
    Value view = p.at(v);
    view.name += ".sent", view.role = Role::activation, view.layout.storage = p.at(v).layout.storage;
    p.values.push_back(std::move(view));
    put(transfer("send", {v}, {sent}, send_attrs(to % ranks), Phase::forward), front);
  };
  if (stage < last) send(stages.sent(stage), stage + 1, false), p.outputs.clear();
  // A borrowed weight, once for all micro steps, or for all tokens of a sample.
  const bool shares = borrows(context.recipe) && (context.first || context.kind != ProgramKind::train) &&
                      context.kind != ProgramKind::decode;
  for (const Param& q : p.params) {
    if (!shares || q.name != "wte.weight") continue;
    if (stage == 0) send(q.value, last, true);
    if (stage == last) put(transfer("receive", {}, {q.value}, receive_attrs(p.at(q.value), 0), Phase::forward), true);
  }
  p.code = std::move(code);
  std::erase_if(p.inputs, [&](ValueId v) {
    return std::none_of(p.code.begin(), p.code.end(), [&](const Instr& instr) {
      return std::find(instr.in.begin(), instr.in.end(), v) != instr.in.end();
    });
  });
}

// Keeps the parameters of this stage, or of all chunks of this rank.
void keep_parameters(Program& p, const PassContext& context, const std::vector<int64_t>& layers) {
  const int ranks = context.recipe.layout().size(Axis::pipeline), last = int(layers.size()) - 1;
  const bool code = !p.code.empty();
  std::vector<Param> kept;
  for (Param& q : p.params) {
    int stage = stage_of_parameter(q.name, layers);
    const bool shared = borrows(context.recipe) && q.name == "wte.weight";
    if (shared && code && context.stage + context.chunk * ranks == last)
      stage = last, q.borrowed = true;
    else
      q.lent = shared;
    q.chunk = stage / ranks;
    if (stage % ranks == context.stage && (!code || q.chunk == context.chunk))
      kept.push_back(q);
    else
      p.at(q.value).lifetime = Lifetime::micro_step;  // no longer in this Program
    if (q.borrowed) p.at(q.value).lifetime = Lifetime::step;
  }
  p.params = std::move(kept);
  drop_unused_values(p);
}

[[noreturn]] void refuse_pipeline(const std::string& what, const std::string& advice) {
  fail_usage(what, "--mesh", advice);
}

void check_pipeline(const PassContext& context, int ranks) {
  const Recipe& r = context.recipe;
  auto no = [&](bool wrong, const std::string& what, const char* instead) {
    if (wrong) refuse_pipeline(fmt::format("pipeline={} does not work with {} yet", ranks, what), instead);
  };
  no(r.model.lora.rank > 0, "--lora", "Use ranks along data: --ranks, with --shard.");
  no(r.precision == "fp8", "--precision fp8", "Use bf16.");
  no(context.forward_only, "--phase forward-saved", "Use --phase step.");
  no(context.setting("gather") == "forward" && sharding_of(context) != Sharding::none, "--gather forward",
     "Use --gather update.");
}

}  // namespace

void pipeline_parallel(Program& program, const PassContext& context) {
  const int ranks = context.recipe.layout().size(Axis::pipeline);
  if (ranks == 1) return;
  check_pipeline(context, ranks);
  const std::vector<int64_t> layers = stage_layers(context.recipe);
  if (!program.code.empty()) keep_stage(program, context, layers);
  keep_parameters(program, context, layers);
}

// After the last micro step, a borrowed weight's gradient goes to the owner, before the sum over
// the data axis.
void return_borrowed(Program& p, const PassContext& context) {
  const int ranks = context.recipe.layout().size(Axis::pipeline);
  if (ranks == 1 || context.kind != ProgramKind::train || !borrows(context.recipe)) return;
  const int last = stage_count(context.recipe) - 1, stage = context.stage + context.chunk * ranks;
  if (stage != 0 && stage != last) return;
  auto gradient = std::find_if(p.outputs.begin(), p.outputs.end(), [&](ValueId v) {
    return p.at(v).name == "grad.wte.weight" || p.at(v).name == "grad.wte.weight.sum";
  });
  if (gradient == p.outputs.end()) return;
  const std::string name = p.at(*gradient).name;
  p.at(*gradient).name += ".stage";
  Builder b(p);
  b.origin = origin_of_transfers(), b.phase = Phase::backward;
  if (stage == last) {
    if (context.last) b.emit1("send", {*gradient}, send_attrs(0));
    p.outputs.erase(gradient);
  } else if (context.last) {
    *gradient =
        b.emit1("receive", {*gradient}, Attrs().set("from", last % ranks).set("axes", crest::name(Axis::pipeline)));
    p.at(*gradient).name = name;
  }
}

// The host reads losses and logits on rank 0, behind the last of its chunks, in fp32.
void send_results(Program& p, const PassContext& context) {
  const int ranks = context.recipe.layout().size(Axis::pipeline);
  const bool samples = context.kind == ProgramKind::prefill || context.kind == ProgramKind::decode;
  const bool sums = context.kind == ProgramKind::validation || (context.kind == ProgramKind::train && context.last);
  if (ranks == 1 || !(sums || samples)) return;
  const int last = stage_count(context.recipe) - 1, stage = context.stage + context.chunk * ranks;
  Builder b(p);
  b.origin = Origin(samples ? "logits" : "loss");
  b.phase = context.kind == ProgramKind::train ? Phase::backward : Phase::forward;
  if (stage == last) {
    for (ValueId v : std::vector<ValueId>(p.outputs)) {
      if (p.at(v).role != Role::output) continue;
      if (p.at(v).dtype != DType::f32) {
        v = b.emit1("cast", {v}, Attrs().set("dtype", name(DType::f32)));
        p.at(v).role = Role::output;
      }
      b.emit1("send", {v}, send_attrs(0));
    }
  } else if (context.stage == 0 && context.chunk == chunks_of_rank(context.recipe) - 1) {
    Value result;
    result.shape = samples ? Shape{1, 1, padded_vocabulary(context.recipe)} : Shape{1};
    const ValueId v = b.emit1("receive", {}, receive_attrs(result, last % ranks));
    p.at(v).name = samples ? "logits" : "loss", p.at(v).role = Role::output;
    p.outputs.push_back(v);
  }
}

static constexpr const char* known_schedules = "Use 1f1b, zero-bubble or interleaved:V, such as interleaved:2.";

static Setting with_schedule_check(Setting row) {
  row.set = [](const Setting& s, void* object, const SettingValue& value) {
    const std::string& text = std::get<std::string>(value);
    if (std::string wrong = wrong_schedule(text); !wrong.empty()) fail_usage(wrong, s.flag(), known_schedules);
    static_cast<Recipe*>(object)->pass_settings[s.name] = text;
  };
  return row;
}

const std::vector<Setting>& pipeline_parallel_settings() {
  static const std::vector<Effect> effects = {{Effect::communication},
                                              {Effect::all, Effect::anywhere, {}, nullptr, true}};
  static const std::vector<Setting> rows = {
      pass_setting({.name = "stages",
                    .group = "Model and batch",
                    .help = "--mesh pipeline=P: number of layers in each stage, first to last. Without it, stages "
                            "take about the same time, with the embedding in the first and the head in the last",
                    .default_value = "",
                    .example = "3,3,2",
                    .commas = true,
                    .newer = true,
                    .resume = OnResume::accepts,
                    .effects = effects,
                    .type = SettingType::text}),
      with_schedule_check(
          pass_setting({.name = "schedule-pipeline",
                        .group = "Model and batch",
                        .help = "--mesh pipeline=P: order of micro steps on each stage. 1f1b: alternates one forward "
                                "and one backward pass; interleaved:V: the same, with V parts of the model on each "
                                "rank; zero-bubble: delays weight gradients to the end of a step",
                        .default_value = "1f1b",
                        .example = "interleaved:2",
                        .newer = true,
                        .resume = OnResume::accepts,
                        .effects = effects,
                        .type = SettingType::text}))};
  return rows;
}

}  // namespace crest
