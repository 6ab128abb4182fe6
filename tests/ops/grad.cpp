// Mode grad: gradient rules against central finite differences, both in double on the reference
// kernels; and forward and backward in float on the kernels of every device against the same in
// double.
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

// A case with its backward half, in double.
struct Differentiated {
  const GradCase& c;
  Program program;
  std::vector<ValueId> in, out, out_weights, before;  // before: gradients so far of the weights
  std::vector<ValueId> gradients;
  Values values, out_values, before_values;

  // with_accumulators: the weights have a gradient already.
  Differentiated(const GradCase& grad_case, bool with_accumulators) : c(grad_case) {
    Builder b(program);
    b.origin = Origin("test");
    auto declare = [&](const std::string& name, DType t, const Shape& s) {
      return b.declare(name, t, s, Role::input, Lifetime::micro_step);
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

  void fill(Memory& memory) const {
    for (size_t i = 0; i < in.size(); ++i) memory.write(in[i], values[i]);
    for (size_t o = 0; o < out.size(); ++o) memory.write(out_weights[o], out_values[o]);
    for (size_t w = 0; w < before.size(); ++w) memory.write(before[w], before_values[w]);
  }

  // Runs the forward half, or all; returns the weighted sum of the outputs.
  double run(Memory& memory, bool backward) const {
    fill(memory);
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
      // Central differences err by h^2 f''' / 6 (about 1e-10) and by roundoff 1e-16 |sum| / h
      // (1e-11 times a loss scale of up to 1024): 1e-6 is above both and below any wrong factor.
      EXPECT_LE(relative_error(found, expected), 1e-6);
    }
  }
};

class Gradient : public testing::TestWithParam<GradCase> {};

TEST_P(Gradient, AgreesWithFiniteDifferences) { Differentiated(GetParam(), false).expect_gradients(); }

class WeightGradient : public Gradient {};

TEST_P(WeightGradient, AddsToWhatTheWeightHas) { Differentiated(GetParam(), true).expect_gradients(); }

const Kernel& first_kernel(const Device& device, const Program& program, const Instr& instr) {
  std::string refusals;
  for (const Kernel* k : kernels_for(instr.op->name, device)) {
    std::string reason = k->reject({program, instr, device});
    if (reason.empty()) return *k;
    refusals += std::string("\n  ") + k->name + ": " + reason;
  }
  fail(std::string("no kernel of ") + device.kind + " takes " + instr.op->name + refusals);
}

struct DeviceCase {
  GradCase c;
  const Device* device;
};
void PrintTo(const DeviceCase& c, std::ostream* os) { *os << c.c.name << " on " << c.device->kind; }

class DeviceGradient : public testing::TestWithParam<DeviceCase> {};

// The backward kernels read the saved values of the forward kernels correctly.
TEST_P(DeviceGradient, AgreesWithTheReferenceInDouble) {
  const Device& device = *GetParam().device;
  Differentiated exact(GetParam().c, true);
  Memory expected(exact.program);
  exact.run(expected, true);
  Program program = with_dtype(exact.program, DType::f32);
  Memory memory(program);
  exact.fill(memory);
  for (const Instr& i : program.code) launch(first_kernel(device, program, i), device, program, i, memory);
  EXPECT_TRUE(memory.guards_intact());
  for (size_t i = 0; i < exact.in.size(); ++i) {
    if (!is_float(program.at(exact.in[i]).dtype)) continue;
    // A chain of a few kernels, each within 1e-5 (check.cpp).
    EXPECT_LE(relative_error(memory.read(exact.gradients[i]), expected.read(exact.gradients[i])), 5e-5)
        << "input " << i;
  }
}

std::vector<GradCase> weight_grad_cases() {
  auto list = grad_cases();
  std::erase_if(list, [](const GradCase& c) { return c.weights.empty(); });
  return list;
}

std::string grad_case_name(const testing::TestParamInfo<GradCase>& info) { return identifier(info.param.name); }

INSTANTIATE_TEST_SUITE_P(Ops, Gradient, testing::ValuesIn(grad_cases()), grad_case_name);
std::vector<DeviceCase> device_cases() {
  std::vector<DeviceCase> list;
  for (const Device& device : devices())
    for (const GradCase& c : grad_cases()) list.push_back({c, &device});
  return list;
}
INSTANTIATE_TEST_SUITE_P(Ops, DeviceGradient, testing::ValuesIn(device_cases()), [](auto& info) {
  return identifier(device_name(*info.param.device) + "_" + info.param.c.name);
});
INSTANTIATE_TEST_SUITE_P(Ops, WeightGradient, testing::ValuesIn(weight_grad_cases()), grad_case_name);

// Every operation with a gradient rule is in the list above. Operations between ranks are in
// tests/passes/lockstep.cpp.
TEST(GradientRules, CoversEveryRule) {
  std::map<std::string, bool> covered;
  for (const GradCase& c : grad_cases()) {
    Program p;
    Builder b(p);
    b.origin = Origin("test");
    std::vector<ValueId> in;
    for (size_t i = 0; i < c.in.size(); ++i)
      in.push_back(
          b.declare("in" + std::to_string(i), c.in[i].dtype, c.in[i].shape, Role::input, Lifetime::micro_step));
    c.forward(b, in);
    for (const Instr& i : p.code) covered[i.op->name] = true;
  }
  for (const OpDef* o : all_ops())
    if (o->grad && o->op_class != OpClass::communication) {
      EXPECT_TRUE(covered[o->name]) << o->name;
    }
}

}  // namespace
}  // namespace crest::test
