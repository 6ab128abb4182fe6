// Mode grad: gradient rules against central finite differences, both in double on the reference kernels.
#include <gtest/gtest.h>

#include <algorithm>
#include <functional>
#include <map>

#include "core/error.h"
#include "core/random.h"
#include "ops/harness.h"
#include "program/builder.h"

namespace crest::test {

static void PrintTo(const GradCase& c, std::ostream* os) { *os << c.name; }

namespace {

constexpr DType d = DType::f64;

// Differentiates a tiny Program, last instruction first.
class TinyAutograd : public Grad {
 public:
  TinyAutograd(Builder& b, std::map<ValueId, ValueId> grads, std::vector<ValueId> weights)
      : b_(b), grads_(std::move(grads)), weights_(std::move(weights)) {}

  void run() {
    b_.phase = Phase::backward;
    for (size_t i = b_.program().code.size(); i-- > 0;) {
      instr_ = b_.program().code[i];
      bool reached = false;
      for (ValueId o : instr_.out) reached |= grads_.count(o) > 0;
      if (reached && !instr_.op->grad) fail_internal(std::string(instr_.op->name) + " has no gradient rule");
      if (reached) instr_.op->grad(*this);
    }
  }
  ValueId gradient(ValueId v) const { return grads_.count(v) ? grads_.at(v) : no_value; }

  Builder& builder() override { return b_; }
  const Instr& instr() const override { return instr_; }
  ValueId dout(size_t i) const override { return gradient(out(i)); }
  bool needs(size_t i) const override { return in(i) != no_value && is_float(b_.at(in(i)).dtype); }
  void add(size_t i, ValueId g) override {
    EXPECT_FALSE(is_weight(in(i))) << "the gradient of a weight must be set";
    EXPECT_TRUE(b_.at(g).shape == b_.at(in(i)).shape);
    ValueId sum = gradient(in(i));
    grads_[in(i)] = sum == no_value ? g : b_.emit1("add", {sum, g});
  }
  ValueId acc(size_t i) const override { return gradient(in(i)); }
  void set(size_t i, ValueId g) override {
    EXPECT_TRUE(is_weight(in(i))) << "the gradient of an activation must be added";
    EXPECT_TRUE(b_.at(g).shape == b_.at(in(i)).shape);
    grads_[in(i)] = g;
  }
  DType weight_grad_dtype() const override { return d; }

 private:
  bool is_weight(ValueId v) const { return std::find(weights_.begin(), weights_.end(), v) != weights_.end(); }
  Builder& b_;
  Instr instr_;
  std::map<ValueId, ValueId> grads_;
  std::vector<ValueId> weights_;
};

constexpr double loss_scale = 1024;  // of some_scalars()

class Gradient : public testing::TestWithParam<GradCase> {
 protected:
  const GradCase& c = GetParam();
  Program program;
  std::vector<ValueId> in, out, out_weights, before;  // before: gradients so far of the weights
  std::vector<ValueId> gradients;
  Values values, out_values, before_values;

  // with_accumulators: the weights have a gradient already.
  void build(bool with_accumulators) {
    Builder b(program);
    b.origin = Origin("test");
    auto declare = [&](const std::string& name, DType t, const Shape& s) {
      return b.declare(name, t, s, Role::input, Lifetime::micro);
    };
    for (size_t i = 0; i < c.in.size(); ++i)
      in.push_back(declare("in" + std::to_string(i), c.in[i].dtype, c.in[i].shape));
    out = c.forward(b, in);
    Case inputs{c.name, "", c.in, {}, nullptr, some_scalars(), nullptr};
    values = make_values(inputs);
    std::map<ValueId, ValueId> grads;
    for (size_t o = 0; o < out.size(); ++o) {
      const Shape shape = b.at(out[o]).shape;
      out_weights.push_back(declare("dout" + std::to_string(o), d, shape));
      out_values.push_back(random(shape, 100 + o));
      if (c.root) out_values.back().assign(out_values.back().size(), 0.5 * loss_scale);
      grads[out[o]] = out_weights[o];
    }
    std::vector<ValueId> weights;
    for (size_t w : c.weights) {
      weights.push_back(in[w]);
      if (!with_accumulators) continue;
      before.push_back(declare("acc" + std::to_string(w), d, c.in[w].shape));
      before_values.push_back(random(c.in[w].shape, 200 + w));
      grads[in[w]] = before.back();
    }
    TinyAutograd autograd(b, grads, weights);
    autograd.run();
    for (ValueId v : in) gradients.push_back(autograd.gradient(v));
  }

  static std::vector<double> random(const Shape& s, uint64_t stream) {
    std::vector<double> x(size_t(s.numel()));
    for (size_t e = 0; e < x.size(); ++e) x[e] = normal(17, stream, e);
    return x;
  }

  // Runs the instructions of one phase; returns the weighted sum of the outputs.
  double run(Memory& memory, bool backward) {
    for (size_t i = 0; i < in.size(); ++i) memory.write(in[i], values[i]);
    for (size_t o = 0; o < out.size(); ++o) memory.write(out_weights[o], out_values[o]);
    for (size_t w = 0; w < before.size(); ++w) memory.write(before[w], before_values[w]);
    for (const Instr& i : program.code)
      if (i.phase == Phase::forward || backward) launch(reference_kernel(i.op->name), cpu(), program, i, memory);
    double sum = 0;
    for (size_t o = 0; o < out.size(); ++o) {
      auto y = memory.read(out[o]);
      for (size_t e = 0; e < y.size(); ++e) sum += y[e] * out_values[o][e];
    }
    return sum;
  }

  void expect_gradients() {
    Memory memory(program);
    run(memory, true);
    for (size_t i = 0; i < in.size(); ++i) {
      if (!is_float(program.at(in[i]).dtype)) continue;
      SCOPED_TRACE("input " + std::to_string(i));
      ASSERT_NE(gradients[i], no_value) << "no gradient";
      auto found = memory.read(gradients[i]);
      std::vector<double> expected(values[i].size());
      Memory scratch(program);
      for (size_t e = 0; e < expected.size(); ++e) {
        double x = values[i][e], h = 1e-5;
        values[i][e] = x + h;
        double up = run(scratch, false);
        values[i][e] = x - h;
        expected[e] = (up - run(scratch, false)) / (2 * h);
        values[i][e] = x;
      }
      for (size_t w = 0; w < before.size(); ++w)
        if (c.weights[w] == i)
          for (size_t e = 0; e < expected.size(); ++e) expected[e] += before_values[w][e];
      // Central differences err by h^2 f''' / 6 (about 1e-10) and by roundoff 1e-16 |sum| / h (1e-11 times a loss scale
      // of up to 1024): 1e-6 is above both and below any wrong factor.
      EXPECT_LE(relative_error(found, expected), 1e-6);
    }
  }
};

TEST_P(Gradient, AgreesWithFiniteDifferences) {
  build(false);
  expect_gradients();
}

class WeightGradient : public Gradient {};

TEST_P(WeightGradient, AddsToWhatTheWeightHas) {
  build(true);
  expect_gradients();
}

// One instruction with the inputs in order; `outs` of its outputs are weighed.
GradCase single(const std::string& name, const std::string& op, std::vector<Arg> in, Attrs attrs = {},
                std::vector<size_t> weights = {}, size_t outs = 1) {
  auto forward = [=](Builder& b, const std::vector<ValueId>& v) {
    auto o = b.emit(op, v, attrs);
    o.resize(outs);
    return o;
  };
  return {name, std::move(in), std::move(weights), forward};
}

std::vector<GradCase> grad_cases() {
  std::vector<GradCase> list;
  Arg x = tensor(d, {2, 3, 5}), w = tensor(d, {4, 5});
  list.push_back(single("linear", "linear", {x, w}, {}, {1}));
  list.push_back(single("linear_bias", "linear", {x, w, tensor(d, {4})}, {}, {1, 2}));
  list.push_back({"linear_tied", {x, tensor(d, {5, 5})}, {1}, [](Builder& b, auto& v) {
                    return std::vector{b.emit1("linear", {b.emit1("linear", {v[0], v[1]}), v[1]})};
                  }});
  for (bool ta : {false, true})
    for (bool tb : {false, true}) {
      Attrs attrs = Attrs().set("transpose_a", ta).set("transpose_b", tb);
      Shape a = ta ? Shape{2, 4, 5, 3} : Shape{2, 4, 3, 5};
      for (int64_t g : {4, 2}) {
        if (ta && g == 2) continue;  // appears in gradients only
        Shape b = tb ? Shape{2, g, 6, 5} : Shape{2, g, 5, 6};
        std::string n = std::string("matmul") + (ta ? "_ta" : "") + (tb ? "_tb" : "") + (g == 2 ? "_grouped" : "");
        list.push_back(single(n, "matmul", {tensor(d, a), tensor(d, b)}, attrs));
      }
    }
  for (const char* op : {"add", "mul"}) list.push_back(single(op, op, {x, x}));
  for (const char* op : {"tanh", "gelu", "silu"}) list.push_back(single(op, op, {x}));
  list.push_back(single("scale", "scale", {x}, Attrs().set("value", -1.7)));
  list.push_back(single("add_scalar", "add_scalar", {x}, Attrs().set("value", 0.3)));
  list.push_back(single("cast", "cast", {x}, Attrs().set("dtype", "f64")));
  list.push_back(single("dropout", "dropout", {x, scalars_arg()}, Attrs().set("p", 0.3).set("rng_id", 3)));
  list.push_back({"used_twice", {x}, {}, [](Builder& b, auto& v) {
                    ValueId t = b.emit1("tanh", {v[0]});
                    return std::vector{b.emit1("mul", {b.emit1("silu", {t}), b.emit1("add", {t, v[0]})})};
                  }});

  Arg gamma = positive(d, {5}), beta = tensor(d, {5});
  Attrs layer = Attrs().set("kind", "layer").set("eps", 1e-2), rms = Attrs().set("kind", "rms").set("eps", 1e-2);
  list.push_back(single("norm_layer", "norm", {x, gamma}, layer, {1}));
  list.push_back(single("norm_layer_beta", "norm", {x, gamma, beta}, layer, {1, 2}));
  list.push_back(single("norm_rms", "norm", {x, gamma}, rms, {1}));
  list.push_back(single("softmax", "softmax", {x}));
  list.push_back({"causal_softmax", {tensor(d, {2, 2, 5, 5})}, {}, [](Builder& b, auto& v) {
                    return std::vector{b.emit1("softmax", {b.emit1("causal_mask", {v[0]})})};
                  }});

  for (auto [causal, kv, p] : {std::tuple{1, 4, 0.0}, {0, 4, 0.0}, {1, 2, 0.0}, {1, 1, 0.0}, {1, 2, 0.3}}) {
    Attrs attrs = Attrs().set("heads", 4).set("kv_heads", kv).set("causal", causal).set("scale", 0.6);
    std::vector<Arg> in = {tensor(d, {2, 5, (4 + 2 * kv) * 3})};
    if (p > 0) {
      attrs.set("p", p).set("rng_id", 4);
      in.push_back(scalars_arg());
    }
    std::string n = "attention_kv" + std::to_string(kv) + (causal ? "_causal" : "") + (p > 0 ? "_dropout" : "");
    list.push_back(single(n, "attention", in, attrs));
  }
  Attrs heads = Attrs().set("heads", 4).set("kv_heads", 2);
  Arg qkv = tensor(d, {2, 5, 8 * 4});
  list.push_back(single("split_heads", "split_heads", {qkv}, heads, {}, 3));
  list.push_back(single("split_heads_q", "split_heads", {qkv}, Attrs().set("heads", 4).set("kv_heads", 0)));
  list.push_back(
      single("join_heads", "join_heads", {tensor(d, {2, 4, 5, 3}), tensor(d, {2, 2, 5, 3}), tensor(d, {2, 2, 5, 3})}));
  list.push_back(single("join_heads_q", "join_heads", {tensor(d, {2, 4, 5, 3})}));
  list.push_back({"naive_attention", {qkv}, {}, [heads](Builder& b, auto& v) {
                    auto h = b.emit("split_heads", {v[0]}, heads);
                    ValueId s = b.emit1("matmul", {h[0], h[1]}, Attrs().set("transpose_b", true));
                    ValueId p = b.emit1("softmax",
                                        {b.emit1("causal_mask", {b.emit1("scale", {s}, Attrs().set("value", 0.5))})});
                    return std::vector{b.emit1("join_heads", {b.emit1("matmul", {p, h[2]})})};
                  }});
  Attrs rope = heads;
  rope.set("theta", 100.0);
  list.push_back(single("rope", "rope", {qkv}, rope));
  list.push_back(single("rope_position", "rope", {qkv, scalars_arg()}, rope));
  rope.set("factor", 8.0).set("low_freq_factor", 1.0).set("high_freq_factor", 4.0).set("original_context", 64);
  list.push_back(single("rope_llama3", "rope", {qkv}, Attrs(rope).set("inverse", true)));

  list.push_back(single("embedding", "embedding", {ids({2, 4}, 6), tensor(d, {7, 3})}, {}, {1}));
  list.push_back(single("add_position", "add_position", {x, tensor(d, {6, 5})}, {}, {1}));
  Attrs loss = Attrs().set("vocab", 7).set("scale", 0.5);
  list.push_back(single("cross_entropy", "cross_entropy", {tensor(d, {6, 9}), targets({6}, 7), scalars_arg()}, loss));
  list.back().root = true;
  for (const CaseFile* file : CaseFile::all())
    if (file->grad_cases) file->grad_cases(list);
  return list;
}

std::vector<GradCase> weight_grad_cases() {
  auto list = grad_cases();
  std::erase_if(list, [](const GradCase& c) { return c.weights.empty(); });
  return list;
}

std::string grad_case_name(const testing::TestParamInfo<GradCase>& info) { return identifier(info.param.name); }

INSTANTIATE_TEST_SUITE_P(Ops, Gradient, testing::ValuesIn(grad_cases()), grad_case_name);
INSTANTIATE_TEST_SUITE_P(Ops, WeightGradient, testing::ValuesIn(weight_grad_cases()), grad_case_name);

// Every operation with a gradient rule is in the list above.
TEST(GradientRules, CoversEveryRule) {
  std::map<std::string, bool> covered;
  for (const GradCase& c : grad_cases()) {
    Program p;
    Builder b(p);
    b.origin = Origin("test");
    std::vector<ValueId> in;
    for (size_t i = 0; i < c.in.size(); ++i)
      in.push_back(b.declare("in" + std::to_string(i), c.in[i].dtype, c.in[i].shape, Role::input, Lifetime::micro));
    c.forward(b, in);
    for (const Instr& i : p.code) covered[i.op->name] = true;
  }
  for (const OpDef* o : all_ops())
    if (o->grad) {
      EXPECT_TRUE(covered[o->name]) << o->name;
    }
}

}  // namespace
}  // namespace crest::test
