// Settings ranks, data_parallel, mesh, reduce, bucket, comm_dtype: each rank runs its part of the
// global batch. After the last micro step the ranks sum gradients and loss, each over the axes with
// addends. The loss is scaled by 1 / (parts of the batch), so the sum is the mean over the global
// batch.
#include <fmt/format.h>

#include <algorithm>
#include <map>
#include <set>

#include "core/error.h"
#include "core/text.h"
#include "passes/pass.h"
#include "passes/rewrite.h"
#include "passes/shard.h"
#include "program/placements.h"

namespace crest {

namespace {

// The reductions of a Program. On the compute stream they stay behind the backward pass. On the
// communication stream, pass lanes moves each to where its tensors are final.
class Reductions {
 public:
  Reductions(Program& program, Phase phase, bool overlapped, bool bf16)
      : program_(program), builder_(program), bf16_(bf16) {
    builder_.origin = Origin("data_parallel");
    builder_.phase = phase;
    builder_.stream = overlapped ? Stream::comm : Stream::compute;
  }

  void one_by_one() {
    for (ValueId v : std::vector<ValueId>(program_.outputs)) reduce({v}, false);
  }

  // Each rank gets its shard of the sum of a group. With `adds`, the shard is added to the shard of
  // earlier micro steps. Every rank gets the loss, in the last micro step.
  void scattered(const Copies& copies, bool adds, bool last) {
    std::vector<ValueId> all = program_.outputs;
    program_.outputs.clear();
    std::map<ValueId, Axes> groups;  // the other axes with addends
    std::vector<ValueId> order;
    const std::set<ValueId> whole = gradients_of_two_stages(program_);
    for (ValueId v : all) {
      if (const ValueId group = program_.at(v).layout.storage; whole.count(group) && !last) {
        program_.outputs.push_back(v);
      } else if (program_.at(v).role != Role::gradient) {
        program_.outputs.push_back(v);
        if (last) reduce({v}, false);
      } else if (groups.emplace(group, addends(v).without(copies.axes)).second) {
        order.push_back(group);
      }
    }
    for (ValueId group : order) {
      Value like = program_.at(group);
      std::string name = shard_name(like.name);
      std::vector<ValueId> in = {group};
      const bool adds_shards = adds && !whole.count(group);
      if (adds_shards) {
        in.push_back(declare_shard(builder_, group, copies));
        program_.at(in.back()).lifetime = Lifetime::step;
      }
      ValueId shard = builder_.emit1("reduce_scatter", in, copies.attrs());
      Value& v = program_.at(shard);
      v.name = adds_shards ? name + ".sum" : name, v.role = Role::gradient, v.lifetime = Lifetime::step;
      if (const Axes others = groups.at(group); last && !others.empty()) {
        shard = builder_.emit1("all_reduce", {shard}, Attrs().set("mean", 0).set("axes", others.text()));
        program_.at(shard).name = name + ".all";
      }
      program_.outputs.push_back(shard);
    }
  }

  // Sums gradients in ranges of at least `bytes`, from the end of their storage, because the
  // backward pass goes from the last parameter to the first. Sums everything else one by one.
  void in_buckets(int64_t bytes) {
    std::map<ValueId, std::vector<ValueId>> storages;
    std::vector<ValueId> others;
    for (ValueId v : program_.outputs)
      if (program_.at(v).role == Role::gradient)
        storages[program_.at(v).layout.storage].push_back(v);
      else
        others.push_back(v);
    for (ValueId v : others) reduce({v}, false);
    for (auto& [storage, list] : storages) {
      std::sort(list.begin(), list.end(), [&](ValueId a, ValueId b) { return offset(a) > offset(b); });
      std::vector<ValueId> bucket;
      int64_t size = 0;
      for (ValueId v : list) {
        bucket.insert(bucket.begin(), v);
        size += program_.at(v).bytes();
        if (size < bytes && v != list.back()) continue;
        reduce(bucket, true);
        bucket.clear(), size = 0;
      }
    }
  }

 private:
  int64_t offset(ValueId v) const { return program_.at(v).layout.offset; }

  Axes addends(ValueId v) const {
    Axes axes;
    for (Axis axis : axes_outermost_first)
      if (program_.at(v).placement[size_t(axis)] == Placement::partial()) axes = axes | axis;
    return axes;
  }

  // A group's members are addends along the same axes.
  void reduce(const std::vector<ValueId>& in, bool flat) {
    const Axes axes = addends(in[0]);
    if (axes.empty()) return;
    Attrs attrs = Attrs().set("mean", 0);
    if (axes != Axes(Axis::data)) attrs.set("axes", axes.text());
    if (flat) attrs.set("flat", 1);
    const Value& first = program_.at(in[0]);
    if (bf16_ && first.role == Role::gradient && first.dtype == DType::f32) attrs.set("wire", "bf16");
    std::vector<ValueId> sums = builder_.emit("all_reduce", in, attrs);
    for (size_t i = 0; i < in.size(); ++i) {
      std::string name = program_.at(in[i]).name;
      program_.at(in[i]).name = name + ".local";
      program_.at(sums[i]).name = name;
      std::replace(program_.outputs.begin(), program_.outputs.end(), in[i], sums[i]);
    }
  }

  Program& program_;
  Builder builder_;
  bool bf16_;
};

// Each rank reads its rows of the host's inputs. Before the last micro step, each value left by
// earlier Programs is a rank's addend; for gradients of cut weights, a part of the addend. Tensor
// ranks have the same loss.
void declare_placements(Program& program, const PassContext& context) {
  const Mesh mesh = context.recipe.layout();
  std::map<std::string, ValueId> weights;
  for (const Param& q : program.params) weights.emplace("grad." + q.name, q.value);
  std::vector<int> producers = program.producers();
  for (size_t v = 0; v < program.values.size(); ++v) {
    Value& value = program.values[v];
    const bool received = producers[v] >= 0 && is(program.code[size_t(producers[v])], "receive") &&
                          value.layout.storage == ValueId(v) && value.role == Role::activation;
    if ((producers[v] >= 0 && !received) || value.name == "scalars") continue;
    if ((value.role == Role::input || received) && mesh.size(Axis::data) > 1)
      value.placement[size_t(Axis::data)] = Placement::shard(0);
    if (value.role != Role::gradient && value.role != Role::output) continue;
    if (auto it = weights.find(value.name); it != weights.end()) value.placement = program.at(it->second).placement;
    if (context.kind == ProgramKind::update) continue;
    for (Axis axis : {Axis::data, Axis::context, Axis::tensor})  // stages have gradients of their own
      if (Placement& at = value.placement[size_t(axis)];
          mesh.size(axis) > 1 && !at.cut() && (axis != Axis::tensor || value.role == Role::gradient))
        at = Placement::partial();
  }
}

int64_t bucket_bytes(const PassContext& context) {
  int64_t bytes = parse_bytes(context.setting("bucket"), "--bucket");
  if (bytes < 1) fail_usage("a bucket needs at least one byte", "--bucket", "For example --bucket 25MB.");
  return bytes;
}

}  // namespace

void data_parallel(Program& program, const PassContext& context) {
  const Copies copies(context.recipe);
  int64_t bucket = bucket_bytes(context);
  if (context.recipe.layout().ranks() == 1) return;
  const bool shared = context.kind == ProgramKind::train || context.kind == ProgramKind::validation;
  if (shared || context.kind == ProgramKind::update) declare_placements(program, context);
  if (!shared || program.outputs.empty()) return;
  // The loss of ranks along the axis context is divided by the tokens of the whole sequences.
  if (const int ranks = context.recipe.data_ranks(); ranks > 1) scale_loss(program, 1.0 / ranks);
  bool every = sharding_of(context) >= Sharding::gradients;
  if (!context.last && !(every && context.kind == ProgramKind::train)) return;
  infer_placements(program, "data_parallel");
  std::string how = context.setting("reduce");
  bool buckets = how == "bucket";
  if (context.kind == ProgramKind::train && sharding_of(context) != Sharding::none) {
    if ((how != "flat" && !buckets) || context.setting("comm-dtype") != "fp32")
      fail_usage("shares are made of a whole group's gradients, in their own dtype", "--shard",
                 fmt::format("Use --reduce {}, and --comm-dtype fp32.", every ? "bucket" : "flat or bucket"));
    if (every && !buckets)
      fail_usage("shares of gradients and weights travel in buckets", "--reduce", "Use --reduce bucket, or omit it.");
    return Reductions(program, Phase::backward, buckets, false)
        .scattered(copies, every && !context.first, context.last);
  }
  Phase phase = context.kind == ProgramKind::train ? Phase::backward : Phase::forward;
  Reductions reductions(program, phase, how == "overlap" || buckets, context.setting("comm-dtype") == "bf16");
  if (how == "each" || how == "overlap")
    reductions.one_by_one();
  else
    reductions.in_buckets(how == "flat" ? INT64_MAX : bucket);
}

namespace {

// --mesh data=N means --ranks N and is stored as `ranks`. Other axes are stored as the mesh.
SettingValue mesh_text(const Setting&, const void* object) {
  const Mesh& mesh = static_cast<const Recipe*>(object)->mesh;
  return mesh == Mesh() ? std::string() : mesh.text();
}

void set_mesh(const Setting& row, void* object, const SettingValue& value) {
  auto& r = *static_cast<Recipe*>(object);
  const Mesh mesh = parse_mesh(std::get<std::string>(value));
  if (std::get<std::string>(value).empty()) return;
  if (r.all_ranks() == 1) r.ranks = mesh.ranks();
  if (r.all_ranks() != mesh.ranks())
    fail_usage(fmt::format("{} has {}, but {} {} was given", mesh.text(), format_number_of(mesh.ranks(), "rank"),
                           r.ranks > 1 ? "--ranks" : "--data-parallel", r.all_ranks()),
               row.flag(), "Leave one of the two out.");
  r.mesh = mesh.size(Axis::data) == mesh.ranks() ? Mesh() : mesh;
}

Setting mesh_setting(Setting row) {
  row.type = SettingType::text, row.get = mesh_text, row.set = set_mesh;
  return row;
}

}  // namespace

const std::vector<Setting>& data_parallel_settings() {
  const char* group = "Model and batch";
  static const std::vector<Effect> effects = {{Effect::communication},
                                              {Effect::all, Effect::amount, {}, nullptr, true}};
  static const std::vector<Effect> of_collectives = {{Effect::communication},
                                                     {Effect::all, Effect::anywhere, {}, "backward", true}};
  static const std::vector<Setting> rows = {
      setting<&Recipe::ranks>({.name = "ranks",
                               .group = group,
                               .help = "processes that train together, one rank each (train, bench, profile)",
                               .min = 1,
                               .max = 16384,
                               .common = true,
                               .resume = OnResume::accepts,
                               .effects = effects}),
      setting<&Recipe::data_parallel>({.name = "data-parallel",
                                       .group = group,
                                       .help = "virtual ranks: threads of one process, to test data parallelism",
                                       .min = 1,
                                       .max = 64,
                                       .resume = OnResume::accepts,
                                       .effects = effects}),
      mesh_setting({.name = "mesh",
                    .group = group,
                    .help = "number of ranks along each axis: data=4 is --ranks 4; ranks along tensor share the "
                            "matrices of a model, ranks along pipeline its layers, ranks along context the tokens "
                            "of each sequence",
                    .example = "pipeline=2,data=2",
                    .commas = true,
                    .newer = true,
                    .resume = OnResume::accepts,
                    .effects = effects}),
      pass_setting({.name = "reduce",
                    .group = group,
                    .help = "how ranks sum gradients: after the backward pass, by parameter (each) or by group of "
                            "parameters (flat), or during the backward pass, by parameter (overlap) or by bucket "
                            "(bucket)",
                    .default_value = "flat",
                    .choices = {"each", "flat", "overlap", "bucket"},
                    .resume = OnResume::accepts,
                    .effects = of_collectives}),
      pass_setting({.name = "bucket",
                    .group = group,
                    .help = "with --reduce bucket: size of a full bucket; a number with B, kB, MB, GB, KiB, MiB "
                            "or GiB",
                    .default_value = "25MB",
                    .example = "25MB",
                    .resume = OnResume::accepts,
                    .effects = of_collectives}),
      pass_setting({.name = "comm-dtype",
                    .group = group,
                    .help = "dtype of fp32 gradients on their way between ranks; bf16 halves the bytes, and rounds "
                            "each rank's gradient and the sum",
                    .default_value = "fp32",
                    .choices = {"fp32", "bf16"},
                    .effects = of_collectives})};
  return rows;
}

}  // namespace crest
