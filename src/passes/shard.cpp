// Lever --shard optimizer (ZeRO 1: Rajbhandari et al. 2020, section 5.1): every rank has one share
// of the optimizer's state of each group of parameters, updates that share of the weights with its
// share of the gradients, and gets the other shares from the other ranks.
#include "program/shares.h"

#include <fmt/format.h>

#include <algorithm>
#include <map>
#include <set>

#include "core/error.h"
#include "ops/index.h"
#include "ops/update.h"
#include "passes/pass.h"
#include "passes/rewrite.h"

namespace crest {

namespace {

class ShardedUpdate {
 public:
  // gathering: where weights are gathered. On the communication stream, while the next group is
  // updated.
  ShardedUpdate(Program& program, int ranks, Stream gathering)
      : w_(program), p_(program), ranks_(ranks), gathering_(gathering) {}

  void run() {
    for (const Instr& instr : w_.old) {
      if (is(instr, "grad_norm"))
        norm(instr);
      else if (instr.op->flat)
        update(instr);
      else
        w_.keep(instr);
    }
    // The members of a group of states are parts of a tensor that no rank has.
    for (Value& v : p_.values)
      if (shared_.count(v.layout.storage) && &v != &p_.at(v.layout.storage)) v.lifetime = Lifetime::micro_step;
    w_.finish();
    p_.properties.set(shares_property, ranks_);
  }

 private:
  Attrs ranks() const { return Attrs().set("ranks", ranks_); }

  // A rank's share of a group of gradients, which the last micro step left.
  ValueId gradient_share(Builder& b, ValueId group) {
    auto [it, added] = gradients_.emplace(group, no_value);
    if (added) {
      Value v = p_.at(group);
      it->second = b.declare(share_name(v.name), v.dtype, {v.numel() / ranks_}, v.role, v.lifetime);
    }
    return it->second;
  }

  void norm(const Instr& instr) {
    Builder& b = w_.build(instr);
    std::vector<ValueId> shares;
    for (size_t i = in::grad_norm::gradients; i < instr.in.size(); ++i)
      shares.push_back(gradient_share(b, instr.in[i]));
    ValueId sum = b.emit1("square_sum", shares);
    sum = b.emit1("all_reduce", {sum}, Attrs().set("mean", 0));
    Instr whole = instr;
    whole.attrs.set("squares", 1);
    whole.in = {instr.in[in::grad_norm::scalars], sum};
    w_.keep(whole);
  }

  void update(const Instr& instr) {
    Builder& b = w_.build(instr);
    Instr own = instr;
    own.out.clear();
    if (own.attrs.has("rng_id")) own.attrs.set("share", 1);
    std::vector<ValueId> weights;  // of which a share was taken
    for (ValueId& v : own.in) {
      if (v == no_value || p_.at(v).role == Role::state) {
        if (v != no_value && !is_scalars(v)) share_state(v);
        v = w_.now(v);
      } else if (p_.at(v).role == Role::gradient) {
        v = gradient_share(b, v);
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

  void share_state(ValueId group) {
    if (!shared_.insert(group).second) return;
    Value& v = p_.at(group);
    v.shape = {v.numel() / ranks_};
    v.layout.strides = v.shape.contiguous_strides();
  }

  Rewriter w_;
  Program& p_;
  int ranks_;
  Stream gathering_;
  std::map<ValueId, ValueId> gradients_;
  std::set<ValueId> shared_;
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
    if (!instr.op->flat && !is(instr, "grad_norm")) return false;
    for (size_t k = 1; k < instr.in.size(); ++k)  // the first are the scalars
      if (ValueId v = instr.in[k]; v != no_value && p.at(v).layout.storage != v) return false;
  }
  return true;
}

}  // namespace

void shard_update(Program& program, const PassContext& context) {
  int ranks = context.recipe.world_size();
  if (context.kind != ProgramKind::update || ranks == 1) return;
  bool flat = over_groups(program), shards = context.lever("shard") != "none";
  if (shards && !flat)
    fail_usage(fmt::format("shares need an update of whole groups of parameters, but --optimizer {}{} updates tensors "
                           "one by one",
                           context.recipe.optimizer, context.recipe.fusion == "on" ? "" : " with --fusion off"),
               "--shard", "Use adamw, adamw-8bit, sgd, lion or one of the adamw-bf16 optimizers, with --fusion on.");
  if (shards)
    return ShardedUpdate(program, ranks, context.lever("reduce") == "bucket" ? Stream::comm : Stream::compute).run();
  if (!flat) return;
  for (Instr& instr : program.code)  // the norm sums as it would with shares
    if (is(instr, "grad_norm")) instr.attrs.set("parts", ranks);
}

const std::vector<Setting>& shard_settings() {
  static const std::vector<Setting> rows = {
      lever({.name = "shard",
             .group = "Model and batch",
             .help = "what exists only as a share on each rank: nothing (none), or the optimizer's state (optimizer; "
                     "ZeRO 1), the default of ranks with a GPU each if the optimizer allows it and none of --shard, "
                     "--reduce, --bucket and --comm-dtype is given",
             .otherwise = "none",
             .choices = {"none", "optimizer"},
             .resume = OnResume::accepts,
             .effects = {{Effect::communication},
                         {Effect::work, Effect::amount, {}, "update"},
                         {Effect::all, Effect::anywhere, {}, "update", true}},
             .smaller = {"optimizer"}})};
  return rows;
}

}  // namespace crest
