// --tensor-overlap rows: with --mesh tensor=T, a rank multiplies some rows while other rows travel
// (Wang et al. 2023, "Overlap Communication with Dependent Computation via Decomposition"). After a
// gather, the product of a rank's own rows needs no other rank's rows. Before a scatter, the other
// ranks' rows are computed first and travel while the own rows are computed. Pieces lie where they
// are in the whole, so nothing is copied. Exchanges without a product to cut move in pieces too.
#include <fmt/format.h>

#include <map>
#include <set>

#include "core/error.h"
#include "ops/index.h"
#include "passes/pass.h"
#include "passes/rewrite.h"

namespace crest {

namespace {

// Products that compute each row alone, and their inputs with rows.
struct RowProduct {
  const char* op;
  std::vector<size_t> in;
};
const RowProduct* row_product(const Instr& instr) {
  static const std::vector<RowProduct> table = {
      {"linear", {in::linear::x}},
      {"linear_gelu", {in::linear_gelu::x}},
      {"linear_swiglu", {in::linear_swiglu::x}},
      {"linear_dx", {in::linear_dx::dy}},
      {"linear_dx_sum", {in::linear_dx_sum::dy, in::linear_dx_sum::dy_2}},
      {"linear_dx_swiglu_grad",
       {in::linear_dx_swiglu_grad::dy, in::linear_dx_swiglu_grad::g, in::linear_dx_swiglu_grad::u}},
  };
  for (auto& product : table)
    if (is(instr, product.op)) return &product;
  return nullptr;
}

class OverlapRows {
 public:
  OverlapRows(Program& program, int ranks)
      : producer_(program.producers()),
        readers_(program.consumers()),
        w_(program),
        p_(program),
        ranks_(ranks),
        shared_(p_.values.size(), false) {
    for (size_t v = 0; v < p_.values.size(); ++v)
      if (ValueId root = p_.values[v].layout.storage; root != ValueId(v)) shared_[size_t(root)] = true;
    for (auto* list : {&p_.inputs, &p_.outputs})
      for (ValueId v : *list) shared_[size_t(v)] = true;
    find();
  }

  void rewrite() {
    for (size_t i = 0; i < w_.old.size(); ++i) {
      const Instr& instr = w_.old[i];
      if (auto it = joined_before_.find(i); it != joined_before_.end())
        for (ValueId all : it->second) join(instr, all);
      if (gathers_.count(i))
        gather(instr);
      else if (after_gather_.count(i))
        multiply_gathered(instr, after_gather_.at(i));
      else if (before_scatter_.count(i))
        multiply_addends(instr, w_.old[before_scatter_.at(i)]);
      else if (scatters_.count(i))
        sum(instr);
      else
        w_.keep(instr);
    }
    w_.finish();
  }

 private:
  void find() {
    for (size_t i = 0; i < w_.old.size(); ++i) {
      const Instr& instr = w_.old[i];
      if (is(instr, "gather_rows")) {
        const auto& readers = readers_[size_t(instr.out[0])];
        if (readers.empty() || !may_cut(instr.out[0]) || !owns(instr.out[0])) continue;
        gathers_.insert(i);
        const auto first = size_t(readers[0]);
        if (may_cut_product(first) && !after_gather_.count(first))
          after_gather_[first] = instr.out[0];
        else
          joined_before_[first].push_back(instr.out[0]);
      } else if (is(instr, "scatter_rows")) {
        const ValueId x = instr.in[in::scatter_rows::x];
        const int product = producer_[size_t(x)];
        if (product < 0 || !may_cut(x)) continue;
        scatters_.insert(i);
        if (readers_[size_t(x)].size() == 1 && may_cut_product(size_t(product)) &&
            w_.old[size_t(product)].out.size() == 1 && !after_gather_.count(size_t(product)))
          before_scatter_[size_t(product)] = i;
      }
    }
  }

  int64_t piece_elements(ValueId v) const { return p_.at(v).numel() / ranks_; }
  // A row of the whole begins at the same alignment on every rank.
  bool may_cut(ValueId v) const {
    const Value& x = p_.at(v);
    return x.contiguous() && x.layout.pieces == 0 && x.shape.rank() == 3 && x.shape.rows() % ranks_ == 0 &&
           piece_elements(v) * int64_t(size_of(x.dtype)) % 16 == 0;
  }
  // In memory of its own, which no other value shares.
  bool owns(ValueId v) const {
    const Value& x = p_.at(v);
    return x.layout.storage == v && !shared_[size_t(v)] && x.lifetime == Lifetime::micro_step &&
           x.role == Role::activation && x.contiguous();
  }
  bool may_cut_product(size_t i) const {
    const Instr& instr = w_.old[i];
    const RowProduct* product = row_product(instr);
    if (!product) return false;
    for (size_t k : product->in)
      if (!may_cut(instr.in[k])) return false;
    // Later passes may give other rows a pitch.
    for (ValueId v : instr.out)
      if (!may_cut(v) || !owns(v) || p_.at(v).shape.back() * int64_t(size_of(p_.at(v).dtype)) % 16) return false;
    return true;
  }

  Attrs along() const { return Attrs().set("ranks", ranks_).set("axes", name(Axis::tensor)); }

  void put(ValueId v, ValueId all, int k) {
    Value& piece = p_.at(v);
    piece.layout = {all, k * piece.numel(), piece.shape.contiguous_strides(), ranks_, k};
  }
  void name_piece(ValueId v, ValueId all, int k) { p_.at(v).name = fmt::format("{}.piece{}", p_.at(all).name, k); }

  // This rank's rows are a piece already; the others arrive.
  void gather(const Instr& instr) {
    const ValueId x = w_.now(instr.in[0]), all = instr.out[0];
    if (owns(x) && producer_[size_t(x)] >= 0) put(x, all, 0), shared_[size_t(all)] = true;
    Builder& b = w_.build(instr);
    auto& pieces = pieces_[all] = {b.emit1("own_piece", {x}, along())};
    b.stream = Stream::comm;
    for (int k = 1; k < ranks_; ++k) {
      pieces.push_back(b.emit1("gather_piece", {x}, along().set("piece", k)));
      put(pieces.back(), all, k);
    }
    for (int k = 0; k < ranks_; ++k) name_piece(pieces[size_t(k)], all, k);
  }

  const std::vector<ValueId>& pieces_of(const Instr& reader, ValueId v) {
    auto [it, added] = pieces_.emplace(v, std::vector<ValueId>());
    if (!added) return it->second;
    it->second = w_.build(reader).emit("split_pieces", {w_.now(v)}, along());
    for (int k = 0; k < ranks_; ++k) name_piece(it->second[size_t(k)], v, k);
    return it->second;
  }

  std::vector<ValueId> multiply(const Instr& whole, int k) {
    Instr instr = whole;
    instr.in = w_.now(whole.in);
    for (size_t in : row_product(whole)->in) instr.in[in] = pieces_of(whole, whole.in[in])[size_t(k)];
    std::vector<ValueId> out = w_.build(whole).append(std::move(instr));
    for (size_t o = 0; o < out.size(); ++o) name_piece(out[o], whole.out[o], k);
    return out;
  }

  // The new operation in place of one with the same result.
  void write(const Instr& like, const char* name, std::vector<ValueId> in, ValueId out, Attrs attrs) {
    Instr instr;
    instr.op = &op(name), instr.in = std::move(in), instr.out = {out}, instr.attrs = std::move(attrs);
    instr.phase = like.phase, instr.origin = like.origin;
    p_.code.push_back(std::move(instr));
  }

  void join(const Instr& like, ValueId all) {
    write(like, "join_pieces", pieces_.at(all), all, along().set("seq", p_.at(all).shape[1]));
  }

  void multiply_gathered(const Instr& whole, ValueId gathered) {
    for (int k = 0; k < ranks_; ++k) {
      const std::vector<ValueId> out = multiply(whole, k);
      for (size_t o = 0; o < out.size(); ++o) {
        put(out[o], whole.out[o], k);
        pieces_[whole.out[o]].push_back(out[o]);
      }
    }
    join(whole, gathered);
    for (ValueId v : whole.out) join(whole, v);
  }

  void multiply_addends(const Instr& whole, const Instr& scatter) {
    auto& addends = addends_[whole.out[0]];
    addends.resize(size_t(ranks_));
    for (int k = 1; k < ranks_; ++k) addends[size_t(k)] = sent(scatter, multiply(whole, k)[0], k);
    addends[0] = multiply(whole, 0)[0];
  }

  // The addend that comes for the one that goes.
  ValueId sent(const Instr& scatter, ValueId piece, int k) {
    Builder& b = w_.build(scatter);
    b.stream = Stream::comm;
    return b.emit1("scatter_piece", {piece}, along().set("piece", k));
  }

  void sum(const Instr& whole) {
    auto [it, added] = addends_.emplace(whole.in[in::scatter_rows::x], std::vector<ValueId>());
    std::vector<ValueId>& addends = it->second;
    if (added) {
      addends = pieces_of(whole, whole.in[in::scatter_rows::x]);
      for (int k = 1; k < ranks_; ++k) addends[size_t(k)] = sent(whole, addends[size_t(k)], k);
    }
    const bool bias = whole.in.size() > in::scatter_rows::b;
    std::vector<ValueId> in = {bias ? w_.now(whole.in[in::scatter_rows::b]) : no_value};
    in.insert(in.end(), addends.begin(), addends.end());
    write(whole, "sum_pieces", std::move(in), whole.out[0], along());
  }

  const std::vector<int> producer_;  // by value of the old code
  const std::vector<std::vector<int>> readers_;
  Rewriter w_;
  Program& p_;
  const int ranks_;
  std::vector<bool> shared_;  // its memory has other values, or others know of it
  std::set<size_t> gathers_, scatters_;
  std::map<size_t, ValueId> after_gather_;                // by product: what is gathered
  std::map<size_t, std::vector<ValueId>> joined_before_;  // by reader that needs all rows
  std::map<size_t, size_t> before_scatter_;               // by product: the scatter
  std::map<ValueId, std::vector<ValueId>> pieces_;        // by whole value
  std::map<ValueId, std::vector<ValueId>> addends_;       // by sum
};

}  // namespace

void overlap_tensor(Program& program, const PassContext& context) {
  const Mesh mesh = context.recipe.layout();
  const int ranks = mesh.size(Axis::tensor);
  if (ranks == 1 || context.setting("tensor-overlap") == "off") return;
  if (mesh.size(Axis::pipeline) > 1)
    fail_usage("rows does not work with pipeline stages yet", "--tensor-overlap",
               "Use off, or leave the axis pipeline out of --mesh.");
  OverlapRows(program, ranks).rewrite();
}

const std::vector<Setting>& tensor_overlap_settings() {
  static const std::vector<Setting> rows = {pass_setting(
      {.name = "tensor-overlap",
       .group = "Model and batch",
       .help = "--mesh tensor=T: rows: a rank multiplies its own rows while the other ranks' rows travel, before "
               "each layer, and the other ranks' rows first, behind it; off: ranks exchange rows between the "
               "products. Two tensor ranks with a GPU each use rows by default, without stages",
       .default_value = "off",
       .choices = {"off", "rows"},
       .newer = true,
       .resume = OnResume::accepts,
       .effects = {{Effect::communication}, {Effect::all, Effect::anywhere, {}, nullptr, true}}})};
  return rows;
}

}  // namespace crest
