// --mesh tensor=T: each rank along the axis has a part of each layer. Matrices into a layer
// (queries, keys, values, gate, up) are cut by outputs, matrices out of it by inputs (Shoeybi et
// al. 2019, "Megatron-LM"). Between layers each rank has some of the rows, so norms and residual
// sums are divided, too (Korthikanti et al. 2022, "Reducing Activation Recomputation in Large
// Transformer Models"). Embedding and head are cut by vocabulary, and so are the logits. Programs
// that sample have too few rows to divide: every rank has all of them.
#include "passes/tensor_parallel.h"

#include <fmt/format.h>

#include <algorithm>
#include <map>
#include <numeric>
#include <set>

#include "core/error.h"
#include "core/round_up.h"
#include "ops/index.h"
#include "passes/pass.h"
#include "passes/rewrite.h"

namespace crest {

namespace {

// All ranks have equally many heads. --pad-heads adds heads with zero weights and zero gradients.
struct Heads {
  int64_t all, of_keys;
};
Heads shared_heads(const ModelConfig& m, int64_t ranks) {
  const int64_t of_keys = round_up(m.kv_heads, ranks);
  return {of_keys * (m.heads / m.kv_heads), of_keys};
}

constexpr size_t tensor = size_t(Axis::tensor);

// The placement of a model's parameter.
Placement placement_of(const std::string& parameter, const ModelConfig& model) {
  auto of_layer = [&](const char* name) {
    return parameter.ends_with(std::string(name) + ".weight") || parameter.ends_with(std::string(name) + ".bias");
  };
  if (parameter == "wte.weight" || parameter == "lm_head.weight") return Placement::shard(0);
  if (of_layer(".attn.qkv")) return Placement::heads(0, model.heads / model.kv_heads);
  if (of_layer(".mlp.gate") || of_layer(".mlp.up") || of_layer(".mlp.fc")) return Placement::shard(0);
  if (parameter.ends_with(".attn.proj.weight") || parameter.ends_with(".mlp.proj.weight")) return Placement::shard(1);
  return {};
}

class TensorParallel {
 public:
  TensorParallel(Program& program, const ModelConfig& model, int ranks, bool shares_rows)
      : w_(program),
        p_(program),
        model_(model),
        heads_(shared_heads(model, ranks)),
        ranks_(ranks),
        shares_rows_(shares_rows) {}

  void cut_parameters() {
    for (Value& v : p_.values)
      if (v.role == Role::cache) {  // [B,2,heads,..]
        v.shape[2] = heads_.of_keys;
        cut(v, Placement::shard(2));
      }
    for (const Param& q : p_.params) {
      Value& v = p_.at(q.value);
      const Placement at = placement_of(q.name, model_);
      if (!at.cut()) continue;
      if (at.queries > 0 || q.name.ends_with(".attn.proj.weight")) pad_heads(v.shape[at.dim]);
      cut(v, at);
    }
  }

  void rewrite() {
    for (const Instr& old : w_.old) {
      Instr instr = old;
      if (instr.attrs.has("heads")) instr.attrs.set("heads", heads_.all / ranks_);
      if (instr.attrs.has("kv_heads")) instr.attrs.set("kv_heads", heads_.of_keys / ranks_);
      // All ranks drop the same elements as one rank would.
      const bool attends = is(instr, "attention") || is(instr, "attention_rows");
      if (is(instr, "dropout") || (attends && instr.attrs.number("p", 0) > 0)) {
        const Axes others = instr.attrs.has("axes") ? axes_of(instr) : Axes();
        instr.attrs.set("axes", (others | Axis::tensor).text());
      }
      if (is(instr, "dropout")) instr.attrs.set("seq", p_.at(p_.inputs[0]).shape[1]);
      if (is(instr, "embedding"))
        look_up(instr);
      else if (is(instr, "cross_entropy"))
        combine_loss(instr);
      else if ((is(instr, "linear") || instr.op->pointwise) && p_.at(instr.out[0]).role == Role::output)
        gather_logits(instr);
      else if (is(instr, "linear") && cut_by(instr, 0))
        instr.in[in::linear::x] = gathered(instr);
      else if (is(instr, "linear") && cut_by(instr, 1))
        return_rows(instr);
      else if (is(instr, "add_position") && shares_rows_)
        add_position(instr);
      if (!instr.op) continue;
      w_.keep(std::move(instr));
      reinfer(p_, p_.code.back());
    }
    w_.finish();
  }

 private:
  // Pads a dimension of queries, or of queries, keys and values.
  void pad_heads(int64_t& size) const { size = size / model_.kv_heads * heads_.of_keys; }
  void cut(Value& v, Placement at) const {
    if (v.shape[at.dim] % ranks_)  // the vocabulary, unpadded
      fail_usage(fmt::format("tensor={} does not divide the {} rows of {}", ranks_, v.shape[at.dim], v.name), "--mesh",
                 "Leave the pass vocabulary_padding on.");
    v.placement[tensor] = at;
    v.shape[at.dim] /= ranks_;
    v.layout.strides = v.shape.contiguous_strides();
  }
  bool cut_by(const Instr& linear, int dim) const {
    const Placement at = p_.at(linear.in[in::linear::w]).placement[tensor];
    return at.cut() && at.dim == dim;
  }
  Attrs along() const { return Attrs().set("ranks", ranks_).set("axes", name(Axis::tensor)); }

  // `op` applied to an input of the host, once.
  ValueId of_rows(const char* op, const Instr& reader, ValueId ids) {
    auto [it, added] = rows_.emplace(std::pair{std::string(op), ids}, no_value);
    if (added) it->second = w_.build(reader).emit1(op, {ids}, along());
    return it->second;
  }

  // All rows of a layer's input, gathered once for several matrices.
  ValueId gathered(const Instr& linear) {
    const ValueId x = linear.in[in::linear::x];
    if (!shares_rows_) return x;
    auto [it, added] = gathered_.emplace(x, no_value);
    if (!added) return it->second;
    const std::string name = p_.at(w_.now(x)).name;
    const int64_t seq = p_.at(p_.inputs[0]).shape[1];
    it->second = w_.build(linear).emit1("gather_rows", {w_.now(x)}, along().set("seq", seq));
    p_.at(it->second).name = name + ".all";
    return it->second;
  }

  // The sum over the ranks: this rank's rows, or all rows.
  ValueId summed(Builder& b, const std::vector<ValueId>& addends) {
    return b.emit1(shares_rows_ ? "scatter_rows" : "sum_rows", addends, along());
  }

  // y = x w^T + b  ->  the ranks sum their addends of x w^T; each gets its rows, + b
  void return_rows(Instr& instr) {
    Builder& b = w_.build(instr);
    const ValueId bias = instr.in[in::linear::b];
    std::vector<ValueId> in = w_.now(instr.in);
    in[in::linear::b] = no_value;
    if (bias != no_value) b.origin = Origin(instr.origin.text() + ".product");
    std::vector<ValueId> addends = {b.emit1("linear", in, instr.attrs)};
    if (bias != no_value) addends.push_back(bias);
    b.origin = instr.origin;
    instead(instr, summed(b, addends));
    p_.at(addends[0]).name = p_.at(w_.now(instr.out[out::linear::y])).name + (bias == no_value ? ".local" : ".product");
    instr.op = nullptr;
  }

  // The last token's logits, for the host.
  void gather_logits(Instr& instr) {
    Builder& b = w_.build(instr);
    const ValueId own = b.emit1(instr.op->name, w_.now(instr.in), instr.attrs);
    p_.at(own).name = p_.at(instr.out[0]).name + ".local";
    instead(instr, b.emit1("gather_columns", {own}, along()));
    instr.op = nullptr;
  }

  // Gives the new value the old one's name and role.
  void instead(const Instr& old, ValueId by) {
    std::string name = p_.at(old.out[0]).name;
    p_.at(old.out[0]).name += ".old";
    p_.at(by).name = name, p_.at(by).role = p_.at(old.out[0]).role;
    w_.replace(old.out[0], by);
  }

  // A rank looks up the tokens of its part of the vocabulary and uses zeros for the rest, so the
  // sums are exact.
  void look_up(Instr& instr) {
    Builder& b = w_.build(instr);
    const ValueId found = b.emit1("embedding", w_.now(instr.in), Attrs(instr.attrs).set("axes", name(Axis::tensor)));
    instead(instr, summed(b, {found}));
    p_.at(found).name = p_.at(w_.now(instr.out[out::embedding::y])).name + ".local";
    instr.op = nullptr;
  }

  // Combines maximum, sum and target over the parts of each row.
  void combine_loss(Instr& instr) {
    namespace at = in::cross_entropy;
    Builder& b = w_.build(instr);
    instr.attrs.set("axes", name(Axis::tensor));
    Attrs attrs;
    attrs.set("vocab", instr.attrs.integer("vocab")).set("axes", name(Axis::tensor));
    if (instr.attrs.has("cap")) attrs.set("cap", instr.attrs.number("cap"));
    const ValueId own = b.emit1("loss_stats", {w_.now(instr.in[at::logits]), instr.in[at::targets]}, attrs);
    instr.in.resize(at::stats + 1, no_value);
    instr.in[at::stats] = b.emit1("gather_parts", {own}, along());
  }

  // Rows do not know their place in a sequence, so their positions are looked up.
  void add_position(Instr& instr) {
    namespace at = in::add_position;
    const bool given = instr.in.size() > at::position && instr.in[at::position] != no_value;
    const ValueId ids =
        given ? of_rows("own_rows", instr, instr.in[at::position]) : of_rows("own_positions", instr, p_.inputs[0]);
    Builder& b = w_.build(instr);
    const ValueId rows = b.emit1("embedding", {ids, instr.in[at::table]});
    instead(instr, b.emit1("add", {w_.now(instr.in[at::x]), rows}));
    instr.op = nullptr;
  }

  Rewriter w_;
  Program& p_;
  const ModelConfig& model_;
  const Heads heads_;
  int ranks_;
  bool shares_rows_;
  std::map<std::pair<std::string, ValueId>, ValueId> rows_;
  std::map<ValueId, ValueId> gathered_;
};

[[noreturn]] void refuse(const std::string& what, const std::string& advice) { fail_usage(what, "--mesh", advice); }

// Checks the sizes divided among the ranks.
void check_sizes(const Recipe& r, bool pads_heads, int ranks) {
  const ModelConfig& m = r.model;
  std::vector<std::pair<int64_t, const char*>> sizes = {{m.ff, "columns of the MLP"}};
  if (!pads_heads) sizes.insert(sizes.begin(), {{m.heads, "heads"}, {m.kv_heads, "key/value heads"}});
  int64_t common = 0;
  std::string wrong;
  for (auto [size, what] : sizes) {
    common = std::gcd(common, size);
    if (size % ranks) wrong += fmt::format("{}{} {}", wrong.empty() ? "" : ", ", size, what);
  }
  if (wrong.empty()) {
    if (const int64_t unit = batch_multiple(r); r.batch % unit)
      refuse(fmt::format("tensor={} does not divide the {} tokens of a micro batch", ranks,
                         r.batch * r.padded_seq() / r.layout().size(Axis::context)),
             fmt::format("Use a multiple of {} for --batch, or another --seq.", unit));
    return;
  }
  std::string fits;
  for (int64_t t = 2; t <= common; ++t)
    if (common % t == 0) fits += fmt::format("{}tensor={}", fits.empty() ? "" : ", ", t);
  refuse(fmt::format("tensor={} does not divide what its ranks share: {}", ranks, wrong),
         (fits.empty() ? "These sizes have no common divisor: leave the axis out" : "Use " + fits) +
             (m.ff % ranks ? "."
                           : fmt::format(", or --pad-heads: {} of {} heads are then zero.",
                                         shared_heads(m, ranks).all - m.heads, shared_heads(m, ranks).all)));
}

void check(const PassContext& context, int ranks) {
  const Recipe& r = context.recipe;
  check_sizes(r, context.setting("pad-heads") == "true", ranks);
  auto no = [&](bool wrong, const std::string& what, const char* instead) {
    if (wrong) refuse(fmt::format("tensor={} does not work with {} yet", ranks, what), instead);
  };
  no(r.precision == "fp8", "--precision fp8", "Use bf16.");
  for (int64_t i = 0; i < r.model.layers; ++i)
    no(r.model.layer(i).qk_norm == QkNorm::row, "norms of all queries of a token (qk_norm = \"row\")",
       "Leave the axis out.");
  static const std::set<std::string> of_whole_matrices = {"muon",       "adafactor", "adafactor-momentum",
                                                          "adamw-8bit", "adamw-fp8", "adamw-unfused"};
  no(of_whole_matrices.count(r.optimizer) > 0, "--optimizer " + r.optimizer,
     "Use one whose state belongs to single elements, such as adamw.");
}

}  // namespace

int64_t batch_multiple(const Recipe& recipe) {
  const int64_t ranks = recipe.layout().size(Axis::tensor);
  return ranks / std::gcd(ranks, recipe.padded_seq() / recipe.layout().size(Axis::context));
}

void tensor_parallel(Program& program, const PassContext& context) {
  const int ranks = context.recipe.layout().size(Axis::tensor);
  if (ranks == 1) return;
  if (context.recipe.model.lora.rank)
    fail_usage("ranks along tensor do not share the matrices of adapters yet", "--mesh",
               "Use ranks along data: --ranks, with --shard.");
  check(context, ranks);
  const bool samples = context.kind == ProgramKind::prefill || context.kind == ProgramKind::decode;
  TensorParallel pass(program, context.recipe.model, ranks, !samples);
  pass.cut_parameters();
  pass.rewrite();
}

const std::vector<Setting>& tensor_parallel_settings() {
  static const std::vector<Setting> rows = {
      pass_setting({.name = "pad-heads",
                    .group = "Model and batch",
                    .help = "with --mesh tensor=T: adds zero heads if T does not divide the number of heads. They "
                            "stay zero and are never saved",
                    .default_value = "false",
                    .newer = true,
                    .resume = OnResume::accepts,
                    .effects = {{Effect::work, Effect::anywhere, {"attn"}}},
                    .type = SettingType::truth})};
  return rows;
}

}  // namespace crest
