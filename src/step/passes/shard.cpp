// Setting --shard (ZeRO: Rajbhandari et al. 2020, section 5). Each rank has one shard of the
// optimizer state of each parameter group. It updates its shard of the weights with its shard of
// the gradients. optimizer: it then collects the other shards. gradients: in addition, whole
// gradients exist only from their first write to their sum. weights: it keeps only its shard
// (passes/gather_weights.cpp).
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
#include "passes/optimizers.h"
#include "passes/pass.h"
#include "passes/rewrite.h"

namespace crest {

namespace {

// The instructions of tensors owned by ranks (passes/optimizers.h), each updated as a whole. The
// group of such tensors has as many for each rank, and rank r's shard holds its own. Every rank
// runs the update of the tensors in the first shard, with its own in their places.
class OwnedTensors {
 public:
  // A tensor of a group: of weights, gradients or a state.
  struct Place {
    ValueId group;
    int64_t offset;  // elements
    Shape shape;
  };

  OwnedTensors(const Program& p, const PassContext& context) : p_(p) {
    const std::vector<ValueId> gradients = parameter_gradients(p);
    std::map<std::string, size_t, std::less<>> owned;
    for (size_t q = 0; q < p.params.size(); ++q)
      if (is_owned(context, p.params[q])) {
        owned.emplace(p.params[q].name, q);
        add(p.params[q].value, q);
        if (gradients[q] != no_value) add(gradients[q], q);
      }
    if (owned.empty()) return;
    const std::vector<int> producers = p.producers();
    for (size_t v = 0; v < p.values.size(); ++v) {
      const std::string_view name = p.values[v].name;
      if (p.values[v].role != Role::state || producers[v] >= 0 || name.rfind('.') == std::string_view::npos) continue;
      if (auto it = owned.find(name.substr(0, name.rfind('.'))); it != owned.end()) add(ValueId(v), it->second);
    }
    // Readers of an owned tensor, and readers of their results. The norm reads all gradients.
    std::map<ValueId, size_t> parameter_of = parameters_;
    for (size_t i = 0; i < p.code.size(); ++i) {
      if (is(p.code[i], "grad_norm") || is(p.code[i], "square_sum")) continue;
      for (ValueId v : p.code[i].in) {
        auto it = parameter_of.find(v);
        if (it == parameter_of.end()) continue;
        const size_t q = it->second;
        of_[i] = q;
        for (ValueId made : p.code[i].out) parameter_of[made] = q;
        last_[storage(p.params[q].value)] = i;
        break;
      }
    }
  }

  bool updates(size_t instr) const { return of_.count(instr) > 0; }
  // Of an instruction in a group of weights: the parameter's place there, and whether no later one
  // belongs to the group.
  Place weight(size_t instr) const { return places_.at(p_.params[of_.at(instr)].value); }
  bool ends(size_t instr) const { return last_.at(weight(instr).group) == instr; }
  // Null: not a tensor of a group.
  const Place* place(ValueId v) const {
    auto it = places_.find(v);
    return it == places_.end() ? nullptr : &it->second;
  }
  // Whether a result is neither a new version of such a tensor nor a value of the update alone.
  bool leaks(const Instr& instr) const {
    return std::any_of(instr.out.begin(), instr.out.end(), [&](ValueId v) {
      return p_.at(storage(v)).lifetime != Lifetime::micro_step && !groups_.count(storage(v));
    });
  }

 private:
  ValueId storage(ValueId v) const { return p_.at(v).layout.storage; }
  void add(ValueId v, size_t parameter) {
    places_.emplace(v, Place{storage(v), p_.at(v).layout.offset, p_.at(v).shape});
    parameters_.emplace(v, parameter), groups_.insert(storage(v));
  }

  const Program& p_;
  std::map<ValueId, Place> places_;
  std::map<ValueId, size_t> parameters_;
  std::set<ValueId> groups_;
  std::map<size_t, size_t> of_;     // instruction -> parameter
  std::map<ValueId, size_t> last_;  // group of weights -> instruction
};

class ShardedUpdate {
 public:
  // gathering: where weights are gathered. On the communication stream, while the next group is
  // updated.
  // keeps_shards: of the weights; they are gathered before they are used.
  ShardedUpdate(Program& program, OwnedTensors owned, const Copies& copies, Stream gathering, bool keeps_shards,
                bool keeps_whole)
      : owned_(std::move(owned)),
        w_(program),
        p_(program),
        copies_(copies),
        gathering_(gathering),
        keeps_shards_(keeps_shards),
        keeps_whole_(keeps_whole) {}

  void run() {
    for (size_t i = 0; i < w_.old.size(); ++i) {
      const Instr& instr = w_.old[i];
      if (owned_.updates(i))
        update_own(instr, i);
      else if (is(instr, "square_sum"))
        square(instr);
      else if (is(instr, "all_reduce") && squares_.count(instr.in[0]))
        add_copies(instr);
      else if (is(instr, "grad_norm"))
        norm(instr);
      else if (instr.op->flat)
        update(instr);
      else
        keep(instr);
    }
    // Members of a state group would be parts of a whole tensor, and no rank has it.
    for (size_t v = 0; v < p_.values.size(); ++v) {
      ValueId group = p_.values[v].layout.storage;
      bool whole = gradients_.count(group) > 0;  // of gradients: nobody reads them
      if (whole || (shared_.count(group) && group != ValueId(v) && !own_.count(ValueId(v))))
        p_.values[v].lifetime = Lifetime::micro_step;
    }
    w_.finish();
  }

 private:
  void keep(const Instr& instr) {
    auto of_weights = [&](ValueId v) { return v != no_value && p_.at(p_.at(v).layout.storage).role == Role::weight; };
    if (keeps_shards_ && std::any_of(instr.in.begin(), instr.in.end(), of_weights))
      fail_usage("the update leaves a share of the weights on each rank, which cannot be quantized as a whole",
                 "--fp8-weights update",
                 "Use --fp8-weights keep, or --shard optimizer or gradients with --gather update.");
    w_.keep(instr);
  }
  [[noreturn]] static void refuse_quantized() {
    fail_usage("a rank updates its own matrices, so it cannot quantize those of others", "--fp8-weights update",
               "Use --fp8-weights keep, or --shard none.");
  }

  // A rank's shard of a group's gradients after the last micro step.
  ValueId gradient_shard(Builder& b, ValueId group) {
    auto [it, added] = gradients_.emplace(group, no_value);
    if (added) it->second = declare_shard(b, group, copies_);
    return it->second;
  }

  std::vector<ValueId> gradient_shards(Builder& b, const Instr& instr, size_t first) {
    std::vector<ValueId> shards;
    for (size_t i = first; i < instr.in.size(); ++i) shards.push_back(gradient_shard(b, instr.in[i]));
    return shards;
  }

  // Sums a group's squares once, over all axes, cut between tensor ranks or not.
  void square(const Instr& instr) {
    Instr own = instr;
    own.in = gradient_shards(w_.build(instr), instr, in::square_sum::shards);
    squares_.insert(instr.out[out::square_sum::sum]);
    w_.keep(own);
  }
  void add_copies(const Instr& instr) {
    Instr sum = instr;
    sum.attrs.set("axes", (axes_of(instr) | copies_.axes).text());
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
      if (squares_.count(v)) v = b.emit1("all_reduce", {v}, copies_.with_axes(Attrs().set("mean", 0)));
    w_.keep(whole);
  }

  void update(const Instr& instr) {
    Builder& b = w_.build(instr);
    Instr own = instr;
    own.out.clear();
    if (own.attrs.has("rng_id"))
      own.attrs = copies_.with_axes(own.attrs.set("share", p_.at(instr.in[parameter_input]).numel() / copies_.ranks));
    std::vector<ValueId> weights;  // with a shard taken
    for (ValueId& v : own.in) {
      if (v == no_value || p_.at(v).role == Role::state) {
        if (v != no_value && !is_scalars(v)) shard_state(v);
        v = w_.now(v);
      } else if (p_.at(v).role == Role::gradient) {
        v = gradient_shard(b, v);
      } else if (keeps_shards_) {
        v = weight_shard(p_.at(v).layout.storage);
      } else {
        weights.push_back(v);
        v = b.emit1("own_share", {w_.now(v)}, copies_.attrs());
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
      w_.replace(was, b.emit1("all_gather", {updated[o], w_.now(*from)}, copies_.attrs()));
      b.stream = instr.stream;
    }
  }

  // The same place in every rank's shard. Those of other ranks' tensors have no instructions.
  void update_own(const Instr& instr, size_t i) {
    const OwnedTensors::Place weight = owned_.weight(i);
    Builder& b = w_.build(instr);
    if (weight.offset < p_.at(weight.group).numel() / copies_.ranks) {
      if (owned_.leaks(instr)) refuse_quantized();
      Instr own = instr;
      for (ValueId& v : own.in) {
        const OwnedTensors::Place* place = owned_.place(v);
        v = w_.now(place ? place_in_shard(b, v, *place) : v);
      }
      own.out.clear();
      const std::vector<ValueId> made = b.append(own);
      for (size_t o = 0; o < made.size(); ++o) {
        if (auto share = shares_.find(weight.group); share != shares_.end())
          if (p_.at(made[o]).layout.storage == share->second) members_[weight.group][weight.offset] = made[o];
        w_.replace(instr.out[o], made[o]);
        std::swap(p_.at(instr.out[o]).name, p_.at(made[o]).name);
      }
    }
    if (!owned_.ends(i) || keeps_shards_) return;
    b.stream = gathering_;
    std::vector<ValueId> in = {shares_.at(weight.group), w_.now(weight.group)};
    for (auto& [offset, v] : members_.at(weight.group)) in.push_back(v);
    w_.replace(weight.group, b.emit1("all_gather", in, copies_.attrs()));
  }

  ValueId place_in_shard(Builder& b, ValueId v, const OwnedTensors::Place& place) {
    auto [it, added] = places_.emplace(v, no_value);
    if (!added) return it->second;
    const Value whole = p_.at(v);
    ValueId shard = place.group;
    if (whole.role == Role::state) {
      shard_state(shard);
    } else if (whole.role == Role::gradient) {
      shard = gradient_shard(b, shard);
    } else if (keeps_shards_) {
      shard = weight_shard(shard);
    } else {
      auto [share, missing] = shares_.emplace(shard, no_value);
      if (missing) share->second = b.emit1("own_share", {w_.now(shard)}, copies_.attrs());
      const Attrs at = Attrs().set("offset", place.offset).set("rows", place.shape[0]).set("columns", place.shape[1]);
      return it->second = b.emit1("member", {share->second}, Attrs(at).set("each", 1));
    }
    const Value& root = p_.at(shard);
    it->second =
        b.declare(fmt::format("{}.{}", root.name, place.offset), whole.dtype, place.shape, root.role, root.lifetime);
    Value& own = p_.at(it->second);
    own.layout = {shard, place.offset, place.shape.contiguous_strides()};
    own.placement = whole.placement;
    copies_.place(own, Placement::each());
    own_.insert(it->second);
    return it->second;
  }

  ValueId weight_shard(ValueId group) {
    auto [it, added] = weights_.emplace(group, no_value);
    if (added) it->second = add_shard(p_, group, copies_, keeps_whole_);
    return it->second;
  }

  bool is_scalars(ValueId v) const { return p_.at(p_.at(v).layout.storage).name == "scalars"; }

  void shard_state(ValueId group) {
    if (!shared_.insert(group).second) return;
    Value& v = p_.at(group);
    v.shape = {v.numel() / copies_.ranks};
    v.layout.strides = v.shape.contiguous_strides();
    copies_.place(v, Placement::shard(0));
  }

  const OwnedTensors owned_;  // before the code is taken
  Rewriter w_;
  Program& p_;
  const Copies copies_;
  Stream gathering_;
  bool keeps_shards_, keeps_whole_;
  std::map<ValueId, ValueId> gradients_, weights_;         // shards of groups
  std::map<ValueId, ValueId> shares_;                      // of groups of owned tensors: copies of a rank's shard
  std::map<ValueId, ValueId> places_;                      // of owned tensors, in shards
  std::map<ValueId, std::map<int64_t, ValueId>> members_;  // of shares: updated, by offset
  std::set<ValueId> own_;                                  // these places
  std::set<ValueId> shared_;
  std::set<ValueId> squares_;  // sums of squares of a rank's shards
};

// Whether an instruction updates parameters. Other instructions of this class end the step of the
// loss scale or of fp8's scales, on every rank.
bool updates_parameters(const Program& p, const Instr& instr) {
  return instr.op->op_class == OpClass::optimizer && std::any_of(instr.in.begin(), instr.in.end(), [&](ValueId v) {
           return v != no_value && (p.at(v).role == Role::gradient || p.at(v).role == Role::weight);
         });
}

// Whether the update goes over whole groups, except of owned tensors.
bool over_groups(const Program& p, const OwnedTensors& owned) {
  for (size_t i = 0; i < p.code.size(); ++i) {
    const Instr& instr = p.code[i];
    if (!updates_parameters(p, instr) || owned.updates(i)) continue;
    if (!instr.op->flat && !is(instr, "grad_norm") && !is(instr, "square_sum")) return false;
    for (size_t k = 1; k < instr.in.size(); ++k)  // input 0 has the scalars
      if (ValueId v = instr.in[k]; v != no_value && p.at(v).layout.storage != v) return false;
  }
  return true;
}

}  // namespace

// Whole gradients exist from their first write to their reduce_scatter. Other values used their
// memory before, so the padding between a group's tensors is not zero.
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
  if (r.copies() > 1 || !r.deterministic) return r.copies();
  return r.grad_accumulation <= most_norm_parts ? r.grad_accumulation : 1;
}

Copies::Copies(const Recipe& recipe) : ranks(recipe.copies()) {
  for (Axis axis : axes_outermost_first)
    if (Recipe::copy_axes.has(axis) && recipe.layout().size(axis) > 1) axes = axes | axis;
}

Attrs Copies::with_axes(Attrs attrs) const {
  return axes == Axes(Axis::data) ? attrs : attrs.set("axes", axes.text());  // data is the default
}
Attrs Copies::attrs() const { return with_axes(Attrs().set("ranks", ranks)); }

void Copies::place(Value& v, Placement placement) const {
  for (Axis axis : axes_outermost_first)
    if (axes.has(axis)) v.placement[size_t(axis)] = placement;
}

ValueId declare_shard(Builder& b, ValueId group, const Copies& copies) {
  const Value whole = b.at(group);
  ValueId shard =
      b.declare(shard_name(whole.name), whole.dtype, {whole.numel() / copies.ranks}, whole.role, whole.lifetime);
  b.program().at(shard).placement = whole.placement;
  copies.place(b.program().at(shard), Placement::shard(0));
  return shard;
}

Sharding sharding_of(const PassContext& context) {
  if (context.recipe.copies() == 1) return Sharding::none;
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

// With --shard weights every Program gathers weights before use.
static bool gathers_in_forward(const PassContext& context) {
  if (sharding_of(context) == Sharding::none || context.setting("gather") != "forward") return false;
  if (!shards_in_buckets(context))
    fail_usage("weights of one bucket are gathered while another is used, but there are no buckets", "--gather",
               "Use --reduce bucket with --gather forward.");
  return sharding_of(context) != Sharding::weights;
}

static void check_whole_weights(const Program& p) {
  if (std::any_of(p.params.begin(), p.params.end(),
                  [&](auto& q) { return !q.frozen && !is_float(p.at(q.value).dtype); }))
    fail_usage("weights of 8 bits are whole on every rank", "--shard, --gather",
               "Use --shard none or --shard optimizer, without --gather forward.");
}

void shard(Program& program, const PassContext& context) {
  const Copies copies(context.recipe);
  if (copies.ranks == 1 && norm_parts(context) == 1) return;
  Sharding sharding = sharding_of(context);
  if (context.kind != ProgramKind::update) {
    if (context.kind == ProgramKind::train && sharding >= Sharding::gradients) release_gradients(program);
    const bool keeps_whole = gathers_in_forward(context);
    if (sharding != Sharding::weights && !keeps_whole) return;
    check_whole_weights(program);
    if (!keeps_whole || context.kind != ProgramKind::train || context.first)
      gather_weights(program, copies, keeps_whole);
    return;
  }
  OwnedTensors owned(program, context);
  bool flat = over_groups(program, owned);
  if (sharding != Sharding::none && !flat)
    fail_usage(
        fmt::format("shares need an update of whole groups of parameters, but --optimizer {}{} updates tensors "
                    "one by one",
                    context.recipe.optimizer, context.recipe.fusion == "on" ? "" : " with --fusion off"),
        "--shard",
        "Use adamw, adamw-8bit, adamw-fp8, sgd, lion, muon or one of the adamw-bf16 optimizers, with --fusion on.");
  if (sharding != Sharding::none) {
    Stream gathering = shards_in_buckets(context) ? Stream::comm : Stream::compute;
    bool ahead = gathers_in_forward(context);
    return ShardedUpdate(program, std::move(owned), copies, gathering, ahead || sharding == Sharding::weights, ahead)
        .run();
  }
  if (!flat) return;
  for (Instr& instr : program.code)
    if (is(instr, "grad_norm") && !instr.attrs.has("squares")) instr.attrs.set("parts", norm_parts(context));
}

const std::vector<Setting>& shard_settings() {
  static const std::vector<Setting> rows = {
      pass_setting(
          {.name = "shard",
           .group = "Model and batch",
           .help = "state that ranks divide instead of repeating it: nothing (none), the optimizer's "
                   "(optimizer; ZeRO 1), also gradients (gradients; ZeRO 2), also weights (weights; ZeRO "
                   "3), or the first of these that fits (auto; none on CPUs). Ranks with a GPU each use "
                   "optimizer by default, except with muon, if the optimizer allows it and none of --shard, --reduce, "
                   "--bucket and --comm-dtype is given",
           .default_value = "none",
           .choices = {"auto", "none", "optimizer", "gradients", "weights"},
           .resume = OnResume::accepts,
           .effects = {{Effect::communication},
                       {Effect::work, Effect::amount, {}, "update"},
                       {Effect::all, Effect::anywhere, {}, "update", true}},
           .smaller = {"optimizer", "gradients", "weights"}}),
      pass_setting(
          {.name = "gather",
           .group = "Model and batch",
           .help =
               "with --shard optimizer or gradients: when a rank receives the weights updated by other ranks: during "
               "the update (update), or in the next forward pass, bucket by bucket before use (forward; needs "
               "--reduce bucket)",
           .default_value = "update",
           .choices = {"update", "forward"},
           .resume = OnResume::accepts,
           .effects = {{Effect::communication},
                       {Effect::all, Effect::anywhere, {}, "update", true},
                       {Effect::all, Effect::anywhere, {}, "forward", true}}})};
  return rows;
}

}  // namespace crest
