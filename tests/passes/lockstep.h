// The lockstep oracle: all ranks of a sharded Program run instruction by instruction on the
// references, in double precision and without threads. After each instruction its results are
// compared with the unsharded Program as their placements say: a replicated value is the same on
// every rank; shards joined and addends summed are the value itself.
#pragma once
#include <gtest/gtest.h>

#include <cmath>
#include <cstring>
#include <deque>
#include <limits>
#include <map>

#include "core/scalars.h"
#include "ops/collectives.h"
#include "part_of.h"
#include "passes/evaluate.h"
#include "passes/tiny.h"
#include "program/op.h"

namespace crest::test {

using Numbers = std::vector<double>;

// What pipeline stages pass to each other.
struct Links {
  int stages = 1;
  std::map<std::pair<int, int>, std::deque<std::vector<Numbers>>> sent;  // from, to: by rank of the stage
  std::vector<std::vector<Numbers>> sums;  // by number of the sum over stages: one for each stage so far
};

// Of the whole, rank r adds this much.
inline double addend(int r, int ranks) { return 2.0 * (r + 1) / (ranks * (ranks + 1)); }

inline Program in_double(Program p) {
  for (Value& v : p.values)
    if (is_float(v.dtype)) v.dtype = DType::f64;
  for (Instr& instr : p.code) {
    if (instr.attrs.has("dtype")) instr.attrs.set("dtype", "f64");
    if (instr.body) instr.body = std::make_shared<Program>(in_double(*instr.body));
  }
  return p;
}

inline double distance(const Numbers& a, const Numbers& b) {
  if (a.size() != b.size()) return INFINITY;
  double difference = 0, norm = 0;
  for (size_t i = 0; i < a.size(); ++i) {
    if (std::isinf(b[i]) && a[i] == b[i]) continue;  // masked scores
    difference += (a[i] - b[i]) * (a[i] - b[i]), norm += b[i] * b[i];
  }
  return difference == 0 ? 0 : std::sqrt(difference / norm);
}

// The ranks of one pipeline stage. mesh: theirs.
class Lockstep {
  using Kind = Placement::Kind;

 public:
  Lockstep(const Program& whole, const Program& part, const Mesh& mesh, int stage = 0)
      : whole_(whole), p_(part), mesh_(mesh), stage_(stage), one_(whole_, Kernels::reference) {
    producers_ = p_.producers();
    for (int r = 0; r < mesh_.ranks(); ++r)
      all_.emplace_back(p_, Kernels::reference, std::make_shared<OneRank>(mesh_, r));
    // An update of groups has no values for the gradients of single tensors.
    for (size_t v = 0; v < whole_.values.size(); ++v)
      if (const Value& value = whole_.values[v]; is_gradient_group(value)) {
        Numbers x(size_t(value.numel()), 0);
        for (const Member& m : members(whole_, value)) put(x, m.offset, one_.start(m.whole));
        one_.write(ValueId(v), x);
      }
    for (size_t v = 0; v < p_.values.size(); ++v)
      if (const Value& value = p_.values[v];
          is_gradient_group(value) && !starts_at_zero(value) && sharing(value).empty())
        for (int r = 0; r < mesh_.ranks(); ++r) all_[size_t(r)].write(ValueId(v), group(value, r));
    for (size_t v = 0; v < p_.values.size(); ++v)
      if (producers_[v] < 0) start(ValueId(v));
  }

  void run() {
    Links none;
    prepare();
    while (!ended() && !testing::Test::HasFailure()) ASSERT_TRUE(advance(none));
  }

  bool ended() const { return next_ == p_.code.size() && compared_parameters_; }

  void prepare() {
    for (size_t v = 0; v < whole_.values.size(); ++v)
      if (whole_.producers()[v] < 0 && !one_.is_group(ValueId(v)))
        expected_[whole_.values[v].name] = one_.read(ValueId(v));
    for (const Instr& instr : whole_.code) {
      one_.launch(instr);
      for (ValueId v : instr.out) expected_[whole_.at(v).name] = one_.read(v);
    }
  }

  // Runs the next instruction. False: it waits for another stage.
  bool advance(Links& links) {
    links_stages_ = links.stages;
    if (next_ == p_.code.size()) {
      compare_parameters();
      return compared_parameters_ = true;
    }
    const Instr& instr = p_.code[next_];
    SCOPED_TRACE("stage " + std::to_string(stage_) + ", instruction " + std::to_string(next_) + ", " + instr.op->name +
                 " at " + instr.origin.text());
    if (!between_stages(instr, links)) return false;
    for (ValueId v : instr.out) compare(instr, v);
    ++next_;
    return true;
  }

  int made = 0, compared = 0, parameters = 0;

 private:
  static bool cut(const Value& v, Axis axis) { return v.placement[size_t(axis)].cut(); }
  // The axes along which ranks with the same weights have shares of a group.
  static Axes sharing(const Value& v) {
    Axes axes;
    for (Axis axis : {Axis::data, Axis::context})
      if (cut(v, axis)) axes = axes | axis;
    return axes;
  }
  static bool has(const Value& v, Kind kind) {
    return std::any_of(v.placement.begin(), v.placement.end(), [&](Placement p) { return p.kind == kind; });
  }
  // The axes with addends on their ranks.
  static Axes addends(const Value& v) {
    Axes axes;
    for (Axis axis : axes_outermost_first)
      if (v.placement[size_t(axis)].kind == Kind::partial) axes = axes | axis;
    return axes;
  }
  const std::string& name(ValueId v) const { return p_.at(v).name; }
  // Addends, and the rows of all ranks, are whole in the unsharded Program.
  std::string name_in_whole(ValueId v) const {
    std::string n = name(v);
    if (size_t piece = n.rfind(".piece"); piece != std::string::npos) n.resize(piece);
    for (const char* suffix : {".local", ".all"})
      if (n.ends_with(suffix)) n.resize(n.size() - strlen(suffix));
    // The first stage receives the sum over all micro steps.
    const bool sums = p_.properties.integer("first", 1) == 0;
    if (n == "loss" && producers_[size_t(v)] >= 0 && sums) n = "loss.sum";
    if (alone() && n.starts_with("grad.") && n.ends_with(".sum")) n.resize(n.size() - 4);
    return n;
  }

  Shape whole_shape(const Value& v) const {
    Shape s = v.shape;
    for (size_t a = 0; a < axis_count; ++a)
      if (v.placement[a].cut()) s[v.placement[a].dim] *= mesh_.size(Axis(a));
    return s;
  }
  // Rank r's part of the whole: the outermost axis cuts first.
  Numbers cut_of(Numbers x, const Value& like, int r) const {
    Shape s = whole_shape(like);
    for (Axis axis : axes_outermost_first) {
      const Placement p = like.placement[size_t(axis)];
      if (!p.cut()) continue;
      x = part_of(x, s, p, mesh_.coordinate(r, axis), mesh_.size(axis));
      s[p.dim] /= mesh_.size(axis);
    }
    return x;
  }

  // Each rank starts from its part of the whole.
  void start(ValueId v) {
    const Value& value = p_.at(v);
    for (int r = 0; r < mesh_.ranks(); ++r) {
      Memory& m = all_[size_t(r)];
      if (value.name == "scalars") {
        Scalars s;
        std::memcpy(&s, m.at(v), sizeof s);
        s.sample_base += mesh_.coordinate(r, Axis::data) * samples();
        std::memcpy(m.at(v), &s, sizeof s);
        continue;
      }
      // Tensors owned by ranks are set with their group.
      if (has(value, Kind::each) || (m.is_group(v) && !holds_owned(v))) continue;
      Numbers x = m.read(v);
      if (starts_at_zero(value)) {
        m.write(v, Numbers(x.size(), 0));
        continue;
      }
      if (has(value, Kind::absent) || has(value, Kind::own)) {
        x.assign(x.size(), std::numeric_limits<double>::quiet_NaN());
      } else if (has(value, Kind::shard)) {
        ValueId same = whole_.find(value.name);
        bool found = same != no_value && whole_.at(same).numel() == whole_shape(value).numel();
        x = found ? cut_of(one_.read(same), value, r)
                  : part_of(group(value, r), {value.numel() * mesh_.size(sharing(value))}, Placement::shard(0),
                            mesh_.index(r, sharing(value)), mesh_.size(sharing(value)));
      }
      for (Axis axis : axes_outermost_first)
        if (value.placement[size_t(axis)].kind == Kind::partial)
          for (double& y : x) y *= addend(mesh_.coordinate(r, axis), mesh_.size(axis));
      m.write(v, x);
    }
  }

  // Whether each micro step is compared alone, without the sum of earlier ones.
  bool alone() const { return whole_.properties.integer("first", 0) != 0; }
  // Of a tied embedding the owner has all that was summed so far.
  bool starts_at_zero(const Value& v) const {
    return v.role == Role::gradient && std::any_of(p_.params.begin(), p_.params.end(), [&](auto& q) {
             const std::string& group = p_.at(v.layout.storage).name;
             return (q.borrowed && (v.name == "grad." + q.name || group.find("_borrowed") != std::string::npos)) ||
                    (alone() && q.lent && v.name == "grad." + q.name);
           });
  }
  bool holds_owned(ValueId group) const {
    return std::any_of(p_.values.begin(), p_.values.end(),
                       [&](const Value& v) { return v.layout.storage == group && has(v, Kind::each); });
  }
  int64_t samples() const {
    for (const Value& v : whole_.values)
      if (v.name == "tokens") return v.shape[0] / mesh_.size(Axis::data);
    return 0;
  }

  static bool is_gradient_group(const Value& v) { return v.name.starts_with("gradients."); }
  static void put(Numbers& x, int64_t at, const Numbers& part) { std::copy(part.begin(), part.end(), x.begin() + at); }
  // A group of weights, gradients or states as rank r has it, before it is shared.
  Numbers group(const Value& v, int r) const {
    Numbers x(size_t(v.numel() * mesh_.size(sharing(v))), 0);
    for (const Member& m : members(p_, v)) put(x, m.offset, cut_of(one_.start(m.whole), m.own, r));
    return x;
  }

  // The tensors of a group of weights, gradients (weights.G, shard_weights.G) or states (m.G).
  struct Member {
    Value whole, own;  // of its type, and placed as its weight
    int64_t offset;
  };
  std::vector<Member> members(const Program& p, const Value& v) const {
    size_t dot = v.name.find('.');
    std::string state = v.name.substr(0, dot), group = v.name.substr(dot + 1);
    std::vector<Member> list;
    for (const Param& q : p.params) {
      const Value& weight = p.at(q.value);
      if (p.at(weight.layout.storage).name != "weights." + group) continue;
      Value whole = v, own = weight;
      whole.name = v.role == Role::weight ? q.name : v.role == Role::gradient ? "grad." + q.name : q.name + "." + state;
      for (size_t a = 0; a < axis_count; ++a)
        if (!own.placement[a].cut() || Axis(a) != Axis::tensor) own.placement[a] = {};
      whole.shape = whole_shape(own);
      list.push_back({whole, own, weight.layout.offset});
    }
    EXPECT_FALSE(list.empty()) << v.name;
    return list;
  }

  using Reads = std::vector<Numbers>;
  static Numbers sum(const Reads& x) {
    Numbers s = x[0];
    for (size_t r = 1; r < x.size(); ++r)
      for (size_t i = 0; i < s.size(); ++i) s[i] += x[r][i];
    return s;
  }
  static Numbers slice(const Numbers& x, size_t r, size_t ranks) {
    size_t n = x.size() / ranks;
    return Numbers(x.begin() + std::ptrdiff_t(n * r), x.begin() + std::ptrdiff_t(n * (r + 1)));
  }
  static Numbers joined(const Reads& x) {
    Numbers all;
    for (const Numbers& part : x) all.insert(all.end(), part.begin(), part.end());
    return all;
  }

  void step(const Instr& instr) {
    std::string_view op = instr.op->name;
    if (op == "square_sum") {
      for (Memory& m : all_) {
        double squares = 0;
        for (ValueId v : instr.in)
          for (double x : m.read(v)) squares += x * x;
        m.write(instr.out[0], {squares});
      }
    } else if (instr.op->op_class != OpClass::communication && op != "own_share" && !instr.op->exchange &&
               !op.ends_with("_pieces")) {
      for (Memory& m : all_) m.launch(instr);
    } else {
      exchange_all(instr);
    }
  }

  bool between_stages(const Instr& instr, Links& links) {
    const std::string_view op = instr.op->name;
    auto read = [&](ValueId v) {
      std::vector<Numbers> all;
      for (Memory& m : all_) all.push_back(m.read(v));
      return all;
    };
    if (op == "send") {
      links.sent[{stage_, int(instr.attrs.integer("to"))}].push_back(read(instr.in[0]));
    } else if (op == "receive") {
      auto& queue = links.sent[{int(instr.attrs.integer("from")), stage_}];
      if (queue.empty()) return false;
      if (int64_t(queue.front()[0].size()) != p_.at(instr.out[0]).numel()) {
        ADD_FAILURE() << "receives what is meant for another instruction";
        return true;
      }
      for (size_t r = 0; r < all_.size(); ++r)
        all_[r].write(instr.out[0],
                      instr.in.empty() ? queue.front()[r] : sum({queue.front()[r], all_[r].read(instr.in[0])}));
      queue.pop_front();
    } else if (op == "all_reduce" && axes_of(instr).has(Axis::pipeline)) {
      if (links.sums.size() <= sums_) links.sums.resize(sums_ + 1);
      auto& list = links.sums[sums_];
      if (!posted_) {
        exchange_all(instr);
        list.push_back(all_[0].read(instr.out[0]));
        posted_ = true;
      }
      if (int(list.size()) < links.stages) return false;
      for (Memory& m : all_) m.write(instr.out[0], sum(list));
      posted_ = false, ++sums_;
    } else {
      step(instr);
    }
    return true;
  }

  void exchange_all(const Instr& instr) {
    const Axes axes = axes_of(instr);
    for (int r = 0; r < mesh_.ranks(); ++r)
      if (mesh_.index(r, axes) == 0) exchange(instr, mesh_.group(r, axes));
  }

  static void add_bias(Numbers& rows, const Numbers& bias) {
    for (size_t i = 0; i < rows.size(); ++i) rows[i] += bias[i % bias.size()];
  }

  // The tokens of one of `ranks` ranks with x [samples,tokens,columns].
  static Numbers tokens_of(const Numbers& x, const Shape& like, size_t rank, size_t ranks) {
    const int64_t samples = like[0], tokens = like[1] * int64_t(ranks);
    return part_of(x, {samples, tokens, int64_t(x.size()) / samples / tokens}, Placement::chunks(1, like[1] / 2),
                   int(rank), int(ranks));
  }
  // The tokens of all ranks, in order. like: a rank's.
  static Numbers all_tokens(const Reads& parts, const Shape& like) {
    const size_t n = parts.size();
    Numbers places(parts[0].size() * n), all(places.size());
    for (size_t i = 0; i < places.size(); ++i) places[i] = double(i);
    for (size_t k = 0; k < n; ++k) {
      const Numbers to = tokens_of(places, like, k, n);
      for (size_t i = 0; i < to.size(); ++i) all[size_t(to[i])] = parts[k][i];
    }
    return all;
  }

  // The common work of a group's members.
  void exchange(const Instr& instr, const std::vector<int>& group) {
    std::string_view op = instr.op->name;
    auto read = [&](ValueId v) {
      Reads x;
      for (int r : group) x.push_back(all_[size_t(r)].read(v));
      return x;
    };
    auto write = [&](ValueId v, size_t place, const Numbers& x) { all_[size_t(group[place])].write(v, x); };
    const Reads in = read(op == "sum_pieces" ? instr.in[1] : instr.in[0]);
    const size_t n = group.size(), piece = size_t(instr.attrs.integer("piece", 0));
    for (size_t k = 0; k < n; ++k) {
      if (op == "all_reduce" || op == "split_pieces") {
        continue;
      } else if (op == "own_piece" || op == "gather_piece") {
        write(instr.out[0], k, in[(k + piece) % n]);
      } else if (op == "scatter_piece") {
        write(instr.out[0], k, in[(k + n - piece) % n]);
      } else if (op == "join_pieces") {
        Reads all(n);
        for (size_t i = 0; i < n; ++i) all[(k + i) % n] = read(instr.in[i])[k];
        write(instr.out[0], k, joined(all));
      } else if (op == "sum_pieces") {
        Numbers s = in[k];
        for (size_t i = 2; i < instr.in.size(); ++i) s = sum({s, read(instr.in[i])[k]});
        if (instr.in[0] != no_value) add_bias(s, read(instr.in[0])[k]);
        write(instr.out[0], k, s);
      } else if (op == "reduce_scatter" || op == "scatter_rows") {
        Numbers s = sum(in);
        for (const Padding& gap : padding_of(instr)) std::fill(s.begin() + gap.begin, s.begin() + gap.end, 0.0);
        Numbers own = slice(s, k, n);
        if (instr.in.size() > 1 && op == "reduce_scatter") own = sum({own, read(instr.in[1])[k]});
        if (instr.in.size() > 1 && op == "scatter_rows") add_bias(own, read(instr.in[1])[k]);
        write(instr.out[0], k, own);
        write(instr.in[0], k, Numbers(s.size(), std::numeric_limits<double>::quiet_NaN()));
      } else if (op == "gather_tokens") {
        write(instr.out[0], k, all_tokens(in, p_.at(instr.in[0]).shape));
      } else if (op == "scatter_tokens") {
        write(instr.out[0], k, tokens_of(sum(in), p_.at(instr.out[0]).shape, k, n));
        write(instr.in[0], k, Numbers(in[k].size(), std::numeric_limits<double>::quiet_NaN()));
      } else if (op == "token_positions") {
        const Shape& s = p_.at(instr.out[0]).shape;
        Numbers places(size_t(s.numel()) * n);
        const int64_t last = instr.attrs.integer("tokens") - 1;
        for (size_t i = 0; i < places.size(); ++i) places[i] = double(std::min(int64_t(i) % (s[1] * int64_t(n)), last));
        write(instr.out[0], k, tokens_of(places, s, k, n));
      } else if (op == "sum_rows") {
        Numbers s = sum(in);
        if (instr.in.size() > 1) add_bias(s, read(instr.in[1])[k]);
        write(instr.out[0], k, s);
      } else if (op == "all_gather" || op == "gather_columns" || op == "gather_rows" || op == "gather_parts") {
        write(instr.out[0], k, joined(in));
      } else if (op == "own_share" || op == "own_rows") {
        write(instr.out[0], k, slice(in[k], k, n));
      } else if (op == "own_positions") {
        Numbers places(in[k].size());
        for (size_t i = 0; i < places.size(); ++i) places[i] = double(int64_t(i) % p_.at(instr.in[0]).shape[1]);
        write(instr.out[0], k, slice(places, k, n));
      } else {
        FAIL() << "the oracle does not know " << op;
      }
    }
    if (op != "all_reduce") return;
    for (ValueId v : instr.in) {
      const Numbers s = sum(read(v));
      for (size_t k = 0; k < n; ++k) write(v, k, s);
    }
  }

  void compare(const Instr& instr, ValueId v) {
    const Value& value = p_.at(v);
    if (value.dtype == DType::u8) return;  // scalars: their norm is compared by its effect on the update
    // Each rank has addends of other rows: they are compared when they are summed.
    const Placement piece = value.placement[size_t(Axis::tensor)];
    if (piece.piece >= 0 && (piece.kind == Kind::partial || piece.kind == Kind::own)) return;
    for (Placement p : value.placement)
      if (p.chunk && value.shape[p.dim] % (2 * p.chunk)) return;  // a part of a sequence (--loss-chunk)
    // Operations of ranks only.
    const std::string_view op = instr.op->name;
    const bool apart =
        op == "split_keys" || op == "join_keys" || op == "attention_rows_grad" || op == "token_positions";
    made += instr.op->op_class != OpClass::communication && !apart;
    // Of a tied embedding each end of a pipeline computes a part of the gradient.
    if (instr.op->op_class != OpClass::communication && value.name == "grad.wte.weight.own" && links_stages_ > 1)
      return;
    auto namesake = expected_.find(name_in_whole(v));
    if (namesake == expected_.end() || has(value, Kind::own)) return;
    const Numbers& whole = namesake->second;
    if (piece.piece >= 0) return compare_piece(v, whole);
    if (int64_t(whole.size()) != whole_shape(value).numel()) return;  // groups are padded for their ranks
    // Several members of a group are cut one by one. compare_parameters() has them.
    const ValueId root = value.layout.storage;
    if (cut(value, Axis::tensor) && all_[0].is_group(root) && p_.at(root).role != Role::activation &&
        value.shape == p_.at(root).shape && members(p_, p_.at(root)).size() > 1)
      return;
    ++compared;
    Reads all;
    for (Memory& m : all_) all.push_back(m.read(v));
    for (int r = 0; r < mesh_.ranks(); ++r) {
      if (has(value, Kind::each) && mesh_.index(r, Recipe::copy_axes) != 0) continue;  // another tensor
      Reads parts;
      for (int member : mesh_.group(r, addends(value))) parts.push_back(all[size_t(member)]);
      EXPECT_LT(distance(sum(parts), cut_of(whole, value, r)), 1e-10) << value.name << " on rank " << r;
    }
  }

  // The rows of the rank some places further.
  void compare_piece(ValueId v, const Numbers& whole) {
    Value all = p_.at(v);  // of all rows
    const Placement at = all.placement[size_t(Axis::tensor)];
    const int ranks = mesh_.size(Axis::tensor);
    all.placement[size_t(Axis::tensor)] = at.rows_of(-1);
    all.shape[0] *= ranks;
    if (int64_t(whole.size()) != whole_shape(all).numel()) return;
    ++compared;
    for (int r = 0; r < mesh_.ranks(); ++r) {
      const int place = (mesh_.coordinate(r, Axis::tensor) + at.piece) % ranks;
      EXPECT_LT(distance(all_[size_t(r)].read(v), slice(cut_of(whole, all, r), size_t(place), size_t(ranks))), 1e-10)
          << p_.at(v).name << " on rank " << r;
    }
  }

  // After an update: every tensor of the groups, wherever it lives.
  void compare_parameters() {
    if (p_.find("scalars") == no_value || p_.params.empty()) return;
    for (size_t v = 0; v < p_.values.size(); ++v) {
      const Value& value = p_.values[v];
      const Axes axes = sharing(value);
      if (producers_[v] >= 0 || value.lifetime != Lifetime::persistent || axes.empty()) continue;
      for (int r = 0; r < mesh_.ranks(); ++r) {
        if (mesh_.index(r, axes) != 0) continue;
        Numbers group;
        for (int member : mesh_.group(r, axes)) put_behind(group, all_[size_t(member)].read(ValueId(v)));
        for (const Member& m : members(p_, p_.values[v])) {
          auto from = group.begin() + m.offset;
          check(m.whole.name, Numbers(from, from + m.own.shape.numel()), m.own, r);
        }
      }
    }
    for (const Param& q : p_.params)
      if (const Value& weight = p_.at(q.value); !has(weight, Kind::absent))
        for (int r = 0; r < mesh_.ranks(); ++r) check(q.name, all_[size_t(r)].read(q.value), weight, r);
  }
  static void put_behind(Numbers& all, const Numbers& x) { all.insert(all.end(), x.begin(), x.end()); }

  void check(const std::string& tensor, const Numbers& x, const Value& like, int r) {
    ValueId same = whole_.find(tensor);
    ASSERT_NE(same, no_value) << tensor;
    EXPECT_LT(distance(x, cut_of(one_.read(same), like, r)), 1e-10) << tensor << " on rank " << r;
    ++parameters;
  }

  const Program &whole_, &p_;
  const Mesh mesh_;
  const int stage_;
  int links_stages_ = 1;
  size_t next_ = 0, sums_ = 0;  // instructions and sums over stages so far
  bool posted_ = false, compared_parameters_ = false;
  Memory one_;
  std::vector<Memory> all_;
  std::vector<int> producers_;
  std::map<std::string, Numbers> expected_;
};

}  // namespace crest::test
