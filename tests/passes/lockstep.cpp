// The lockstep oracle: all ranks of a sharded Program run instruction by instruction on the
// references, in double precision and without threads. After each instruction its results are
// compared with those of the unsharded Program as their placements say: a replicated value is the
// same on every rank, shards joined and addends summed are the value itself.
#include <gtest/gtest.h>

#include <cmath>
#include <cstring>
#include <limits>
#include <map>

#include "core/scalars.h"
#include "ops/collectives.h"
#include "part_of.h"
#include "passes/evaluate.h"
#include "passes/tiny.h"
#include "program/op.h"

using namespace crest;
using namespace crest::test;

namespace {

using Kind = Placement::Kind;
using Numbers = std::vector<double>;

// Of the whole, rank r adds this much.
double addend(int r) { return r == 0 ? 0.25 : 0.75; }

Program in_double(Program p) {
  for (Value& v : p.values)
    if (is_float(v.dtype)) v.dtype = DType::f64;
  for (Instr& instr : p.code) {
    if (instr.attrs.has("dtype")) instr.attrs.set("dtype", "f64");
    if (instr.body) instr.body = std::make_shared<Program>(in_double(*instr.body));
  }
  return p;
}

double distance(const Numbers& a, const Numbers& b) {
  if (a.size() != b.size()) return INFINITY;
  double difference = 0, norm = 0;
  for (size_t i = 0; i < a.size(); ++i) difference += (a[i] - b[i]) * (a[i] - b[i]), norm += b[i] * b[i];
  return difference == 0 ? 0 : std::sqrt(difference / norm);
}

class Lockstep {
 public:
  static constexpr int ranks = 2;

  Lockstep(const Program& whole, const Program& part) : whole_(whole), p_(part), one_(whole_, Kernels::reference) {
    producers_ = p_.producers();
    for (int r = 0; r < ranks; ++r) all_.emplace_back(p_, Kernels::reference);
    // An update of groups has no values for the gradients of single tensors.
    for (size_t v = 0; v < whole_.values.size(); ++v)
      if (const Value& value = whole_.values[v]; is_gradient_group(value))
        one_.write(ValueId(v), group(whole_, value, value.numel()));
    for (size_t v = 0; v < p_.values.size(); ++v)
      if (const Value& value = p_.values[v]; is_gradient_group(value) && placement(ValueId(v)).replicated())
        for (Memory& m : all_) m.write(ValueId(v), group(p_, value, value.numel()));
    for (size_t v = 0; v < p_.values.size(); ++v)
      if (producers_[v] < 0) start(ValueId(v));
  }

  void run() {
    for (size_t v = 0; v < whole_.values.size(); ++v)
      if (whole_.producers()[v] < 0 && !one_.is_group(ValueId(v)))
        expected_[whole_.values[v].name] = one_.read(ValueId(v));
    for (const Instr& instr : whole_.code) {
      one_.launch(instr);
      for (ValueId v : instr.out) expected_[whole_.at(v).name] = one_.read(v);
    }
    for (size_t i = 0; i < p_.code.size(); ++i) {
      const Instr& instr = p_.code[i];
      SCOPED_TRACE("instruction " + std::to_string(i) + ", " + instr.op->name + " at " + instr.origin.text());
      step(instr);
      for (ValueId v : instr.out) compare(instr, v, expected_.find(name_in_whole(v)));
      if (testing::Test::HasFailure()) return;
    }
    compare_parameters();
  }

  int made = 0, compared = 0;

 private:
  Placement placement(ValueId v) const { return p_.at(v).placement[size_t(Axis::data)]; }
  const std::string& name(ValueId v) const { return p_.at(v).name; }
  // A gradient before its sum is what the unsharded Program has at once.
  std::string name_in_whole(ValueId v) const {
    std::string n = name(v);
    if (n.ends_with(".local")) n.resize(n.size() - 6);
    return n;
  }

  // Each rank starts from its part of the whole.
  void start(ValueId v) {
    const Value& value = p_.at(v);
    for (int r = 0; r < ranks; ++r) {
      Memory& m = all_[size_t(r)];
      if (value.name == "scalars") {
        Scalars s;
        std::memcpy(&s, m.at(v), sizeof s);
        s.sample_base += r * samples();
        std::memcpy(m.at(v), &s, sizeof s);
        continue;
      }
      if (m.is_group(v)) continue;
      Numbers x = m.read(v);
      switch (placement(v).kind) {
        case Kind::replicated: continue;
        case Kind::absent:
        case Kind::own: x.assign(x.size(), std::numeric_limits<double>::quiet_NaN()); break;
        case Kind::partial:
          for (double& y : x) y *= addend(r);
          break;
        case Kind::shard: x = part_of(whole_of(v), shape_of_whole(v), placement(v).dim, r, ranks); break;
      }
      m.write(v, x);
    }
  }

  int64_t samples() const {
    for (const Value& v : p_.values)
      if (v.name == "tokens") return v.shape[0];
    return 0;
  }
  Shape shape_of_whole(ValueId v) const {
    Shape s = p_.at(v).shape;
    s[placement(v).dim] *= ranks;
    return s;
  }

  // What the shards of a value are parts of: an input of the unsharded Program, or a group.
  Numbers whole_of(ValueId v) const {
    if (ValueId same = whole_.find(name(v)); same != no_value && whole_.at(same).role == Role::input)
      return one_.read(same);
    return group(p_, p_.at(v), p_.at(v).numel() * ranks);
  }
  static bool is_gradient_group(const Value& v) { return v.name.starts_with("gradients."); }
  Numbers group(const Program& p, const Value& v, int64_t elements) const {
    Numbers x(size_t(elements), 0);
    for (const Member& m : members(p, v)) {
      Value part = v;
      part.name = m.name, part.shape = m.shape;
      Numbers start = one_.start(part);
      std::copy(start.begin(), start.end(), x.begin() + m.offset);
    }
    return x;
  }

  // The tensors of a group of weights, gradients (weights.G, shard_weights.G) or states (m.G).
  struct Member {
    std::string name;
    Shape shape;
    int64_t offset;
  };
  static std::vector<Member> members(const Program& p, const Value& v) {
    size_t dot = v.name.find('.');
    std::string state = v.name.substr(0, dot), group = v.name.substr(dot + 1);
    std::vector<Member> list;
    for (const Param& q : p.params) {
      const Value& weight = p.at(q.value);
      if (p.at(weight.layout.storage).name != "weights." + group) continue;
      std::string member = v.role == Role::weight     ? q.name
                           : v.role == Role::gradient ? "grad." + q.name
                                                      : q.name + "." + state;
      list.push_back({member, weight.shape, weight.layout.offset});
    }
    EXPECT_FALSE(list.empty()) << v.name;
    return list;
  }

  void step(const Instr& instr) {
    std::string_view op = instr.op->name;
    auto read = [&](ValueId v) {
      std::vector<Numbers> x;
      for (Memory& m : all_) x.push_back(m.read(v));
      return x;
    };
    auto sum = [](const std::vector<Numbers>& x) {
      Numbers s = x[0];
      for (size_t r = 1; r < x.size(); ++r)
        for (size_t i = 0; i < s.size(); ++i) s[i] += x[r][i];
      return s;
    };
    auto slice = [](const Numbers& x, int r) {
      size_t n = x.size() / ranks;
      return Numbers(x.begin() + std::ptrdiff_t(n * size_t(r)), x.begin() + std::ptrdiff_t(n * size_t(r + 1)));
    };
    if (op == "all_reduce") {
      for (ValueId v : instr.in) {
        Numbers s = sum(read(v));
        for (Memory& m : all_) m.write(v, s);
      }
    } else if (op == "reduce_scatter") {
      Numbers s = sum(read(instr.in[0]));
      for (const Padding& gap : padding_of(instr)) std::fill(s.begin() + gap.begin, s.begin() + gap.end, 0.0);
      for (int r = 0; r < ranks; ++r) {
        Numbers own = slice(s, r);
        if (instr.in.size() > 1) own = sum({own, all_[size_t(r)].read(instr.in[1])});
        all_[size_t(r)].write(instr.out[0], own);
        all_[size_t(r)].write(instr.in[0], Numbers(s.size(), std::numeric_limits<double>::quiet_NaN()));
      }
    } else if (op == "all_gather") {
      Numbers whole;
      for (Memory& m : all_) {
        Numbers x = m.read(instr.in[0]);
        whole.insert(whole.end(), x.begin(), x.end());
      }
      for (Memory& m : all_) m.write(instr.out[0], whole);
    } else if (op == "own_share") {
      for (int r = 0; r < ranks; ++r) all_[size_t(r)].write(instr.out[0], slice(all_[size_t(r)].read(instr.in[0]), r));
    } else if (op == "square_sum") {
      for (Memory& m : all_) {
        double squares = 0;
        for (ValueId v : instr.in)
          for (double x : m.read(v)) squares += x * x;
        m.write(instr.out[0], {squares});
      }
    } else {
      for (Memory& m : all_) m.launch(instr);
    }
  }

  void compare(const Instr& instr, ValueId v, std::map<std::string, Numbers>::const_iterator namesake) {
    const Value& value = p_.at(v);
    if (value.dtype == DType::u8) return;  // scalars: their norm is compared by what it does to the update
    made += instr.op->op_class != OpClass::communication;
    if (namesake == expected_.end() || placement(v).kind == Kind::own) return;
    const Numbers& whole = namesake->second;
    bool cut = placement(v).kind == Kind::shard;
    if (int64_t(whole.size()) != value.numel() * (cut ? ranks : 1)) return;  // groups are padded for their ranks
    ++compared;
    Numbers sum(whole.size(), 0);
    for (int r = 0; r < ranks; ++r) {
      Numbers x = all_[size_t(r)].read(v);
      if (placement(v).replicated()) {
        EXPECT_LT(distance(x, whole), 1e-10) << value.name << " on rank " << r;
      } else if (cut) {
        Numbers part = part_of(whole, shape_of_whole(v), placement(v).dim, r, ranks);
        EXPECT_LT(distance(x, part), 1e-10) << value.name << " on rank " << r;
      }
      for (size_t i = 0; i < x.size(); ++i) sum[i] += x[i];
    }
    if (placement(v).kind == Kind::partial) {
      EXPECT_LT(distance(sum, whole), 1e-10) << value.name;
    }
  }

  // After an update: every tensor of the groups, wherever it lives.
  void compare_parameters() {
    if (p_.find("scalars") == no_value || p_.params.empty()) return;
    for (size_t v = 0; v < p_.values.size(); ++v) {
      const Value& value = p_.values[v];
      if (producers_[v] >= 0 || value.lifetime != Lifetime::persistent || placement(ValueId(v)).kind != Kind::shard)
        continue;
      Numbers group;
      for (Memory& m : all_) {
        Numbers x = m.read(ValueId(v));
        group.insert(group.end(), x.begin(), x.end());
      }
      for (const Member& m : members(p_, p_.values[v])) {
        auto from = group.begin() + m.offset;
        check(m.name, Numbers(from, from + m.shape.numel()));
      }
    }
    for (const Param& q : p_.params)
      if (placement(q.value).replicated())
        for (Memory& m : all_) check(q.name, m.read(q.value));
  }

  void check(const std::string& tensor, const Numbers& x) {
    ValueId same = whole_.find(tensor);
    ASSERT_NE(same, no_value) << tensor;
    EXPECT_LT(distance(x, one_.read(same)), 1e-10) << tensor;
    ++parameters;
  }

 public:
  int parameters = 0;

 private:
  const Program &whole_, &p_;
  Memory one_;
  std::vector<Memory> all_;
  std::vector<int> producers_;
  std::map<std::string, Numbers> expected_;
};

Program compiled(const Recipe& r, ProgramKind kind, bool first, bool last) {
  Program p = forward_program(r, kind);
  run_passes(p, {r, kind, first, last});
  return in_double(p);
}

}  // namespace

TEST(Lockstep, EveryRankHasWhatThePlacementsSay) {
  for (bool llama : {false, true})
    for (const char* how : {"each", "flat", "overlap", "bucket", "optimizer", "gradients", "weights"})
      for (int64_t micro_steps : {1, 2})
        for (const char* fusion : {"off", "on"}) {
          Recipe one = tiny_recipe(llama);
          one.grad_accumulation = micro_steps, one.fusion = fusion, one.model.dropout = llama ? 0 : 0.25;
          one.deterministic = llama;
          one.pass_settings["bucket"] = "500B";
          Recipe part = one;
          one.batch = part.batch * Lockstep::ranks, part.data_parallel = Lockstep::ranks;
          bool shards =
              std::string(how) == "optimizer" || std::string(how) == "gradients" || std::string(how) == "weights";
          part.pass_settings["reduce"] = shards ? "bucket" : how;
          if (shards) part.pass_settings["shard"] = how;
          struct Step {
            const char* name;
            ProgramKind kind;
            bool first, last;
          };
          for (Step s : {Step{"first", ProgramKind::train, true, micro_steps == 1},
                         Step{"last", ProgramKind::train, micro_steps == 1, true},
                         Step{"validation", ProgramKind::validation, true, true},
                         Step{"update", ProgramKind::update, true, true}}) {
            if (shards && s.kind == ProgramKind::update && one.fusion == "off") continue;  // refused
            SCOPED_TRACE(std::string(llama ? "llama " : "gpt ") + how + " fusion " + fusion + ", " + s.name + " of " +
                         std::to_string(micro_steps));
            // Where gradients are shards between micro steps, each computes its own contribution.
            bool own = std::string(how) == "gradients" || std::string(how) == "weights";
            Program whole = compiled(one, s.kind, s.first || own, s.last),
                    sharded = compiled(part, s.kind, s.first, s.last);
            Lockstep run(whole, sharded);
            run.run();
            if (HasFailure()) return;
            if (s.kind == ProgramKind::update)
              EXPECT_GT(run.parameters, 15);
            else
              EXPECT_GT(run.compared, run.made * 8 / 10) << run.made;
          }
        }
}
