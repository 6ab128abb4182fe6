// Setting --shard (ZeRO: Rajbhandari et al. 2020, section 5). Every rank has one shard of the
// optimizer's state of each group of parameters. With its shard of the gradients it updates its
// shard of the weights. optimizer: it then gets the other shards from the other ranks. gradients:
// in addition, whole gradients exist only from their first write to their sum. weights: it keeps
// its shard only (passes/gather_weights.cpp).
#include "passes/shard.h"

#include <fmt/format.h>

#include <algorithm>
#include <map>
#include <set>

#include "core/error.h"
#include "ops/collectives.h"
#include "ops/index.h"
#include "ops/update.h"
#include "passes/gather_weights.h"
#include "passes/pass.h"
#include "passes/rewrite.h"

namespace crest {

namespace {

class ShardedUpdate {
 public:
  // gathering: where weights are gathered. On the communication stream, while the next group is
  // updated.
  // keeps_shards: of the weights; they are gathered before they are used.
  ShardedUpdate(Program& program, int ranks, Stream gathering, bool keeps_shards, bool keeps_whole)
      : w_(program),
        p_(program),
        ranks_(ranks),
        gathering_(gathering),
        keeps_shards_(keeps_shards),
        keeps_whole_(keeps_whole) {}

  void run() {
    for (const Instr& instr : w_.old) {
      if (is(instr, "square_sum"))
        square(instr);
      else if (is(instr, "all_reduce") && squares_.count(instr.in[0]))
        add_data_axis(instr);
      else if (is(instr, "grad_norm"))
        norm(instr);
      else if (instr.op->flat)
        update(instr);
      else
        keep(instr);
    }
    // The members of a group of states would be parts of a whole tensor, and no rank has the whole.
    for (size_t v = 0; v < p_.values.size(); ++v) {
      ValueId group = p_.values[v].layout.storage;
      bool whole = gradients_.count(group) > 0;  // of gradients: nobody reads them
      if (whole || (shared_.count(group) && group != ValueId(v))) p_.values[v].lifetime = Lifetime::micro_step;
    }
    w_.finish();
  }

 private:
  Attrs ranks() const { return Attrs().set("ranks", ranks_); }

  void keep(const Instr& instr) {
    auto of_weights = [&](ValueId v) { return v != no_value && p_.at(p_.at(v).layout.storage).role == Role::weight; };
    if (keeps_shards_ && std::any_of(instr.in.begin(), instr.in.end(), of_weights))
      fail_usage("the update leaves a share of the weights on each rank, which cannot be quantized as a whole",
                 "--fp8-weights update",
                 "Use --fp8-weights keep, or --shard optimizer or gradients with --gather update.");
    w_.keep(instr);
  }

  // A rank's shard of a group of gradients from the last micro step.
  ValueId gradient_shard(Builder& b, ValueId group) {
    auto [it, added] = gradients_.emplace(group, no_value);
    if (added) it->second = declare_shard(b, group, ranks_);
    return it->second;
  }

  std::vector<ValueId> gradient_shards(Builder& b, const Instr& instr, size_t first) {
    std::vector<ValueId> shards;
    for (size_t i = first; i < instr.in.size(); ++i) shards.push_back(gradient_shard(b, instr.in[i]));
    return shards;
  }

  // The squares of a group, cut between tensor ranks or not. Each is summed once, over all axes.
  void square(const Instr& instr) {
    Instr own = instr;
    own.in = gradient_shards(w_.build(instr), instr, in::square_sum::shards);
    squares_.insert(instr.out[out::square_sum::sum]);
    w_.keep(own);
  }
  void add_data_axis(const Instr& instr) {
    Instr sum = instr;
    sum.attrs.set("axes", (axes_of(instr) | Axis::data).text());
    w_.keep(sum);
  }

  void norm(const Instr& instr) {
    Builder& b = w_.build(instr);
    Instr whole = instr;
    if (!instr.attrs.has("squares")) {
      const ValueId own = b.emit1("square_sum", gradient_shards(b, instr, in::grad_norm::gradients));
      squares_.insert(own);
      whole.attrs.set("squares", 1);
      whole.in = {instr.in[in::grad_norm::scalars], own};
    }
    for (ValueId& v : whole.in)
      if (squares_.count(v)) v = b.emit1("all_reduce", {v}, Attrs().set("mean", 0));
    w_.keep(whole);
  }

  void update(const Instr& instr) {
    Builder& b = w_.build(instr);
    Instr own = instr;
    own.out.clear();
    if (own.attrs.has("rng_id")) own.attrs.set("share", p_.at(instr.in[parameter_input]).numel() / ranks_);
    std::vector<ValueId> weights;  // with a shard taken
    for (ValueId& v : own.in) {
      if (v == no_value || p_.at(v).role == Role::state) {
        if (v != no_value && !is_scalars(v)) shard_state(v);
        v = w_.now(v);
      } else if (p_.at(v).role == Role::gradient) {
        v = gradient_shard(b, v);
      } else if (keeps_shards_) {
        auto [it, added] = weights_.emplace(p_.at(v).layout.storage, no_value);
        if (added) it->second = add_shard(p_, it->first, ranks_, keeps_whole_);
        v = it->second;
      } else {
        weights.push_back(v);
        v = b.emit1("own_share", {w_.now(v)}, ranks());
      }
    }
    std::vector<ValueId> updated = b.append(own);
    for (size_t o = 0; o < updated.size(); ++o) {
      ValueId was = instr.out[o];
      auto from = std::find_if(weights.begin(), weights.end(),
                               [&](ValueId g) { return p_.at(g).layout.storage == p_.at(was).layout.storage; });
      if (from == weights.end()) {
        w_.replace(was, updated[o]);
        continue;
      }
      b.stream = gathering_;
      w_.replace(was, b.emit1("all_gather", {updated[o], w_.now(*from)}, ranks()));
      b.stream = instr.stream;
    }
  }

  bool is_scalars(ValueId v) const { return p_.at(p_.at(v).layout.storage).name == "scalars"; }

  void shard_state(ValueId group) {
    if (!shared_.insert(group).second) return;
    Value& v = p_.at(group);
    v.shape = {v.numel() / ranks_};
    v.layout.strides = v.shape.contiguous_strides();
    v.placement[size_t(Axis::data)] = Placement::shard(0);
  }

  Rewriter w_;
  Program& p_;
  int ranks_;
  Stream gathering_;
  bool keeps_shards_, keeps_whole_;
  std::map<ValueId, ValueId> gradients_, weights_;  // shards of groups
  std::set<ValueId> shared_;
  std::set<ValueId> squares_;  // sums of the squares of a rank's shards
};

// Others end the step of the loss scale or of fp8's scales: every rank does.
bool updates_parameters(const Program& p, const Instr& instr) {
  return instr.op->op_class == OpClass::optimizer && std::any_of(instr.in.begin(), instr.in.end(), [&](ValueId v) {
           return v != no_value && (p.at(v).role == Role::gradient || p.at(v).role == Role::weight);
         });
}

// Whether the update goes over whole groups.
bool over_groups(const Program& p) {
  for (const Instr& instr : p.code) {
    if (!updates_parameters(p, instr)) continue;
    if (!instr.op->flat && !is(instr, "grad_norm") && !is(instr, "square_sum")) return false;
    for (size_t k = 1; k < instr.in.size(); ++k)  // the first are the scalars
      if (ValueId v = instr.in[k]; v != no_value && p.at(v).layout.storage != v) return false;
  }
  return true;
}

}  // namespace

// Whole gradients exist from their first write to their reduce_scatter. Their memory held other
// values before, so the gaps between the tensors of a group are not zero.
static void release_gradients(Program& p) {
  const std::set<ValueId> kept = gradients_of_two_stages(p);
  for (Instr& instr : p.code) {
    if (!is(instr, "reduce_scatter") || kept.count(instr.in[in::reduce_scatter::x])) continue;
    ValueId group = instr.in[in::reduce_scatter::x];
    std::map<int64_t, int64_t> tensors;  // begin to end, in elements
    for (size_t v = 0; v < p.values.size(); ++v) {
      Value& value = p.values[v];
      if (value.layout.storage != group) continue;
      value.lifetime = Lifetime::micro_step;
      if (group == ValueId(v)) continue;
      int64_t& end = tensors[value.layout.offset];
      end = std::max(end, value.layout.offset + value.numel());
    }
    std::vector<Padding> padding;
    int64_t at = 0;
    for (auto& [begin, end] : tensors) {
      if (begin > at) padding.push_back({at, begin});
      at = std::max(at, end);
    }
    if (at < p.at(group).numel()) padding.push_back({at, p.at(group).numel()});
    if (!padding.empty()) instr.attrs.set("gaps", padding_text(padding));
  }
}

std::set<ValueId> gradients_of_two_stages(const Program& p) {
  std::set<ValueId> storages;
  for (const Param& q : p.params)
    for (const Value& v : p.values)
      if ((q.borrowed || q.lent) && v.role == Role::gradient && v.name.starts_with("grad." + q.name))
        storages.insert(v.layout.storage);
  return storages;
}

int64_t norm_parts(const PassContext& context) {
  const Recipe& r = context.recipe;
  if (r.data_ranks() > 1 || !r.deterministic) return r.data_ranks();
  return r.grad_accumulation <= most_norm_parts ? r.grad_accumulation : 1;
}

ValueId declare_shard(Builder& b, ValueId group, int ranks) {
  const Value whole = b.at(group);
  ValueId shard = b.declare(shard_name(whole.name), whole.dtype, {whole.numel() / ranks}, whole.role, whole.lifetime);
  b.program().at(shard).placement = whole.placement;
  b.program().at(shard).placement[size_t(Axis::data)] = Placement::shard(0);
  return shard;
}

Sharding sharding_of(const PassContext& context) {
  if (context.recipe.data_ranks() == 1) return Sharding::none;
  std::string text = context.setting("shard");  // auto is resolved before (plan/compile.cpp)
  return text == "optimizer"   ? Sharding::optimizer
         : text == "gradients" ? Sharding::gradients
         : text == "weights"   ? Sharding::weights
                               : Sharding::none;
}

bool shards_in_buckets(const PassContext& context) {
  Sharding sharding = sharding_of(context);
  return sharding >= Sharding::gradients || (sharding == Sharding::optimizer && context.setting("reduce") == "bucket");
}

// With --shard weights every Program gathers weights before reading them.
static bool gathers_in_forward(const PassContext& context) {
  if (sharding_of(context) == Sharding::none || context.setting("gather") != "forward") return false;
  if (!shards_in_buckets(context))
    fail_usage("weights of one bucket are gathered while another is used, but there are no buckets", "--gather",
               "Use --reduce bucket with --gather forward.");
  return sharding_of(context) != Sharding::weights;
}

static void check_whole_weights(const Program& p) {
  if (std::any_of(p.params.begin(), p.params.end(), [&](auto& q) { return !is_float(p.at(q.value).dtype); }))
    fail_usage("weights of 8 bits are whole on every rank", "--shard, --gather",
               "Use --shard none or --shard optimizer, without --gather forward.");
}

void shard(Program& program, const PassContext& context) {
  int ranks = context.recipe.data_ranks();
  if (ranks == 1 && norm_parts(context) == 1) return;
  Sharding sharding = sharding_of(context);
  if (context.kind != ProgramKind::update) {
    if (context.kind == ProgramKind::train && sharding >= Sharding::gradients) release_gradients(program);
    const bool keeps_whole = gathers_in_forward(context);
    if (sharding != Sharding::weights && !keeps_whole) return;
    check_whole_weights(program);
    if (!keeps_whole || context.kind != ProgramKind::train || context.first)
      gather_weights(program, ranks, keeps_whole);
    return;
  }
  bool flat = over_groups(program);
  if (sharding != Sharding::none && !flat)
    fail_usage(fmt::format("shares need an update of whole groups of parameters, but --optimizer {}{} updates tensors "
                           "one by one",
                           context.recipe.optimizer, context.recipe.fusion == "on" ? "" : " with --fusion off"),
               "--shard",
               "Use adamw, adamw-8bit, adamw-fp8, sgd, lion or one of the adamw-bf16 optimizers, with --fusion on.");
  if (sharding != Sharding::none) {
    Stream gathering = shards_in_buckets(context) ? Stream::comm : Stream::compute;
    bool ahead = gathers_in_forward(context);
    return ShardedUpdate(program, ranks, gathering, ahead || sharding == Sharding::weights, ahead).run();
  }
  if (!flat) return;
  for (Instr& instr : program.code)
    if (is(instr, "grad_norm") && !instr.attrs.has("squares")) instr.attrs.set("parts", norm_parts(context));
}

const std::vector<Setting>& shard_settings() {
  static const std::vector<Setting> rows = {
      pass_setting({.name = "shard",
                    .group = "Model and batch",
                    .help = "what ranks share instead of repeating it: nothing (none), the optimizer's state "
                            "(optimizer; ZeRO 1), also gradients (gradients; ZeRO 2), also weights (weights; ZeRO "
                            "3), or the first of these that fits (auto; on CPUs none). Ranks with a GPU each use "
                            "optimizer if the optimizer allows it and none of --shard, --reduce, --bucket and "
                            "--comm-dtype is given",
                    .default_value = "none",
                    .choices = {"auto", "none", "optimizer", "gradients", "weights"},
                    .resume = OnResume::accepts,
                    .effects = {{Effect::communication},
                                {Effect::work, Effect::amount, {}, "update"},
                                {Effect::all, Effect::anywhere, {}, "update", true}},
                    .smaller = {"optimizer", "gradients", "weights"}}),
      pass_setting({.name = "gather",
                    .group = "Model and batch",
                    .help = "with --shard optimizer or gradients: when a rank gets the weights updated by other "
                            "ranks: during the update (update), or in the next forward pass, each bucket ahead of "
                            "its use (forward; needs --reduce bucket)",
                    .default_value = "update",
                    .choices = {"update", "forward"},
                    .resume = OnResume::accepts,
                    .effects = {{Effect::communication},
                                {Effect::all, Effect::anywhere, {}, "update", true},
                                {Effect::all, Effect::anywhere, {}, "forward", true}}})};
  return rows;
}

}  // namespace crest
