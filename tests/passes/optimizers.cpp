// The update Program of every optimizer against its published formula, written down here once more
// in double, on invented weights, gradients and states (passes/evaluate.h).
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <functional>
#include <tuple>

#include "core/dynamic_code.h"
#include "core/error.h"
#include "passes/evaluate.h"
#include "passes/tiny.h"

using namespace crest;
using namespace crest::test;

namespace {

using Numbers = std::vector<double>;
using Values = std::map<std::string, Numbers>;

constexpr double base_lr = 0.01f, beta1 = 0.9, beta2 = 0.95, eps = 1e-8, decay = 0.1;
constexpr int t = 3;  // evaluate() starts after two steps

struct Parameter {
  std::string name;
  int64_t rows, cols;  // cols 1: a vector
  double weight_decay, lr;
  const ModelConfig& model;
  Numbers w, g;  // g is clipped
  const Values& before;
  const Numbers& state(const std::string& suffix) const { return before.at(name + "." + suffix); }
};

Numbers adamw(const Parameter& p, const Numbers& m, const Numbers& v) {
  Numbers w = p.w;
  for (size_t i = 0; i < w.size(); ++i) {
    double mi = beta1 * m[i] + (1 - beta1) * p.g[i], vi = beta2 * v[i] + (1 - beta2) * p.g[i] * p.g[i];
    double mhat = mi / (1 - std::pow(beta1, t)), vhat = vi / (1 - std::pow(beta2, t));
    w[i] = w[i] - p.lr * p.weight_decay * w[i] - p.lr * mhat / (std::sqrt(vhat) + eps);
  }
  return w;
}
Numbers adamw(const Parameter& p) { return adamw(p, p.state("m"), p.state("v")); }

Numbers sgd(const Parameter& p) {
  Numbers w = p.w;
  for (size_t i = 0; i < w.size(); ++i)
    w[i] -= p.lr * (beta1 * p.state("m")[i] + p.g[i]) + p.lr * p.weight_decay * p.w[i];
  return w;
}

Numbers lion(const Parameter& p) {
  Numbers w = p.w;
  for (size_t i = 0; i < w.size(); ++i) {
    double c = beta1 * p.state("m")[i] + (1 - beta1) * p.g[i];
    w[i] -= p.lr * ((c > 0) - (c < 0) + p.weight_decay * p.w[i]);
  }
  return w;
}

// The clipped update of a matrix.
Numbers factored(const Parameter& p) {
  auto rows = size_t(p.rows), cols = size_t(p.cols);
  double beta = 1 - std::pow(double(t), -0.8), mean = 0, rms = 0;
  Numbers r(rows, 0), c(cols, 0), u(p.w.size());
  for (size_t i = 0; i < rows; ++i)
    for (size_t j = 0; j < cols; ++j) {
      double square = p.g[i * cols + j] * p.g[i * cols + j] + 1e-30;
      r[i] += square / double(cols), c[j] += square / double(rows);
    }
  for (size_t i = 0; i < rows; ++i) r[i] = beta * p.state("row")[i] + (1 - beta) * r[i];
  for (size_t j = 0; j < cols; ++j) c[j] = beta * p.state("col")[j] + (1 - beta) * c[j];
  for (double x : r) mean += x / double(rows);
  for (size_t e = 0; e < u.size(); ++e) {
    u[e] = p.g[e] / std::sqrt(r[e / cols] * c[e % cols] / mean);
    rms += u[e] * u[e] / double(u.size());
  }
  for (double& x : u) x /= std::max(1.0, std::sqrt(rms));
  return u;
}

Numbers step_of(const Parameter& p, const Numbers& u) {
  Numbers w = p.w;
  for (size_t e = 0; e < u.size(); ++e) w[e] -= p.lr * u[e] + p.lr * p.weight_decay * p.w[e];
  return w;
}

Numbers adafactor(const Parameter& p) { return p.cols == 1 ? adamw(p) : step_of(p, factored(p)); }

Numbers adafactor_momentum(const Parameter& p) {
  if (p.cols == 1) return adamw(p);
  Numbers m = factored(p);
  for (size_t e = 0; e < m.size(); ++e) m[e] = beta1 * p.state("m")[e] + (1 - beta1) * m[e];
  return step_of(p, m);
}

struct Dense {
  size_t rows, cols;
  Numbers x;
};
Dense product(const Dense& a, const Dense& b) {
  Dense c{a.rows, b.cols, Numbers(a.rows * b.cols, 0)};
  for (size_t i = 0; i < a.rows; ++i)
    for (size_t k = 0; k < a.cols; ++k)
      for (size_t j = 0; j < b.cols; ++j) c.x[i * b.cols + j] += a.x[i * a.cols + k] * b.x[k * b.cols + j];
  return c;
}
Dense transposed(const Dense& a) {
  Dense b{a.cols, a.rows, Numbers(a.x.size())};
  for (size_t i = 0; i < a.rows; ++i)
    for (size_t j = 0; j < a.cols; ++j) b.x[j * a.rows + i] = a.x[i * a.cols + j];
  return b;
}

// As in the authors' text: a tall matrix is transposed first.
Numbers orthogonal(Dense x) {
  double norm = 0;
  for (double e : x.x) norm += e * e;
  for (double& e : x.x) e /= std::sqrt(norm) + 1e-7;
  const bool tall = x.rows > x.cols;
  if (tall) x = transposed(x);
  for (int k = 0; k < 5; ++k) {
    Dense a = product(x, transposed(x)), b = product(a, a);
    for (size_t i = 0; i < b.x.size(); ++i) b.x[i] = -4.7750 * a.x[i] + 2.0315 * b.x[i];
    Dense next = product(b, x);
    for (size_t i = 0; i < x.x.size(); ++i) x.x[i] = 3.4445 * x.x[i] + next.x[i];
  }
  if (tall) x = transposed(x);
  return x.x;
}

Numbers muon(const Parameter& p) {
  if (!p.name.starts_with("h.") || p.cols == 1) return adamw(p);
  Numbers direction, w = p.w;
  for (size_t i = 0; i < p.g.size(); ++i) direction.push_back(p.g[i] + 0.95 * (0.95 * p.state("m")[i] + p.g[i]));
  std::vector<int64_t> rows = {p.rows};
  if (p.name.ends_with("qkv.weight")) {
    const ModelConfig& m = p.model;
    rows = {m.heads * m.head_dim, m.kv_heads * m.head_dim, m.kv_heads * m.head_dim};
  }
  size_t first = 0;
  for (int64_t n : rows) {
    const size_t size = size_t(n * p.cols);
    const Numbers x =
        orthogonal({size_t(n), size_t(p.cols),
                    Numbers(direction.begin() + ptrdiff_t(first), direction.begin() + ptrdiff_t(first + size))});
    for (size_t i = 0; i < size; ++i)
      w[first + i] -=
          p.lr * 0.2 * std::sqrt(double(std::max(n, p.cols))) * x[i] + p.lr * p.weight_decay * p.w[first + i];
    first += size;
  }
  return w;
}

Numbers eight_bit(const Parameter& p) {
  if (p.weight_decay == 0) return adamw(p);
  Numbers m = p.state("m"), v = p.state("v");
  for (size_t i = 0; i < m.size(); ++i) {
    m[i] = dynamic_value(uint8_t(m[i]), true) * p.state("m_max")[i / 64];
    v[i] = dynamic_value(uint8_t(v[i]), false) * p.state("v_max")[i / 64];
  }
  return adamw(p, m, v);
}

// The number of an e4m3 code as a part of the largest, 448.
double e4m3_part(double code) {
  int sign = int(code) / 128, exponent = int(code) / 8 % 16, fraction = int(code) % 8;
  double x = exponent ? std::ldexp(1 + fraction / 8.0, exponent - 7) : std::ldexp(fraction / 8.0, -6);
  return (sign ? -x : x) / 448;
}
Numbers fp8(const Parameter& p) {
  if (p.weight_decay == 0) return adamw(p);
  Numbers m = p.state("m_e4m3"), v = p.state("v_e4m3");
  for (size_t i = 0; i < m.size(); ++i) {
    m[i] = e4m3_part(m[i]) * p.state("m_max")[i / 64];
    v[i] = std::pow(e4m3_part(v[i]), 2) * p.state("v_max")[i / 64];
  }
  return adamw(p, m, v);
}

struct Formula {
  const char* optimizer;
  Numbers (*weights)(const Parameter&);
  double tolerance = 1e-6;  // of a weight with a step of 1e-2 of its size; f32 throughout
  bool bf16 = false;
};

const Formula formulas[] = {
    {"adamw", adamw},
    {"adamw-unfused", adamw},
    {"sgd", sgd},
    {"lion", lion},
    {"adafactor", adafactor},
    {"adafactor-momentum", adafactor_momentum},
    {"muon", muon, 1e-5},  // five quintic steps on sums of squares amplify rounding
    {"adamw-8bit", eight_bit},
    {"adamw-fp8", fp8},
    {"adamw-bf16", adamw, 4e-3, true},  // 2^-9 each for the weight and for its moments
    {"adamw-bf16-kahan", adamw, 4e-3, true},
    {"adamw-bf16-stochastic", adamw, 8e-3, true},
};

// rates: with learning rates by group, a head, and fewer keys than queries.
Recipe update_recipe(const Formula& f, const char* fusion, bool rates) {
  Recipe r = tiny_recipe(rates);
  r.model.layers = 2, r.model.tied = !rates, r.pad_vocab = 1, r.fusion = fusion, r.optimizer = f.optimizer;
  if (rates) r.model.head_dim = 8;  // queries are tall, keys are not
  r.pass_settings["state-block"] = "64";
  if (f.bf16) r.precision = "bf16";
  r.lr = base_lr;
  if (rates)
    r.pass_settings["lr-embedding"] = "0.03", r.pass_settings["lr-head"] = "0.02",
    r.pass_settings["lr-vectors"] = "0.015";
  return r;
}

double clip_factor(const Values& before) {
  double squares = 0;
  for (auto& [name, x] : before)
    if (name.starts_with("grad."))
      for (double e : x) squares += e * e;
  return std::min(1.0, 1.0 / (std::sqrt(squares) + 1e-6));
}

class Optimizers : public testing::TestWithParam<Formula> {};

}  // namespace

TEST_P(Optimizers, UpdateAsPublished) {
  const Formula& f = GetParam();
  for (auto [fusion, kernels, rates] : {std::tuple{"on", Kernels::reference, false},
                                        {"on", Kernels::fast, false},
                                        {"off", Kernels::reference, false},
                                        {"off", Kernels::fast, false},
                                        {"on", Kernels::fast, true},
                                        {"off", Kernels::reference, true}}) {
    SCOPED_TRACE(std::string(fusion) + (kernels == Kernels::fast ? " fast" : " reference") +
                 (rates ? " with rates" : ""));
    const Recipe recipe = update_recipe(f, fusion, rates);
    Program program = test::update_program(recipe);
    Values before = evaluate(program, Kernels::none), after = evaluate(program, kernels);
    double factor = clip_factor(before);
    for (const Param& q : program.params) {
      SCOPED_TRACE(q.name);
      Parameter p{q.name,
                  q.shape[0],
                  q.shape.rank() > 1 ? q.shape[1] : 1,
                  q.decay ? decay : 0.0,
                  !rates                                             ? base_lr
                  : q.name == "wte.weight" || q.name == "wpe.weight" ? 0.03
                  : q.name == "lm_head.weight"                       ? 0.02
                  : q.shape.rank() == 1                              ? 0.015
                                                                     : base_lr,
                  recipe.model,
                  before.at(q.name),
                  before.at("grad." + q.name),
                  before};
      for (double& g : p.g) g *= factor;
      if (std::string(f.optimizer) == "adamw-bf16-kahan")
        for (size_t i = 0; i < p.w.size(); ++i) p.w[i] += p.state("c")[i];
      Numbers expected = f.weights(p), got = after.at(q.name);
      if (std::string(f.optimizer) == "adamw-bf16-kahan")  // the weight is the sum of two bf16
        for (size_t i = 0; i < got.size(); ++i) got[i] += after.at(q.name + ".c")[i];
      double difference = 0, norm = 0, moved = 0;
      for (size_t i = 0; i < expected.size(); ++i) {
        difference += std::pow(got[i] - expected[i], 2), norm += expected[i] * expected[i];
        moved += std::pow(p.w[i] - expected[i], 2);
      }
      EXPECT_LE(std::sqrt(difference / norm), f.tolerance);
      if (!f.bf16) {
        EXPECT_GT(std::sqrt(moved / norm), 20 * f.tolerance) << "the step is too small to be seen";
      }
    }
  }
}

TEST(LearningRates, AreRefusedWhereNothingHasThem) {
  auto refusal = [](const char* setting, auto change) {
    Recipe r = tiny_recipe(false);
    change(r.model);
    r.pass_settings[setting] = "0.1";
    Program p = forward_program(r, ProgramKind::update);
    try {
      run_passes(p, {r, ProgramKind::update});
    } catch (const Error& e) {
      EXPECT_EQ(e.code(), Exit::usage);
      return e.where() + ": " + e.what();
    }
    return std::string();
  };
  auto none = [](ModelConfig& m) { m.tied = true; };
  EXPECT_NE(refusal("lr-head", none).find("--lr-head"), std::string::npos);
  EXPECT_NE(refusal("lr-head", none).find("token embedding"), std::string::npos);
  EXPECT_EQ(refusal("lr-vectors", none), "");
  auto plain = [](ModelConfig& m) { m.norm_weight = m.bias = false; };
  EXPECT_NE(refusal("lr-vectors", plain).find("neither norms with weights nor biases"), std::string::npos);
}

INSTANTIATE_TEST_SUITE_P(Formulas, Optimizers, testing::ValuesIn(formulas), [](auto& i) {
  std::string n = i.param.optimizer;
  std::replace(n.begin(), n.end(), '-', '_');
  return n;
});

// The numbers of the 8-bit codes: the dynamic map of the
// paper's library, built as documented (decades, each cut into
// equal parts with their middles as numbers; 0 and 1 besides).
TEST(DynamicCode, NumbersAreThoseOfTheDynamicMap) {
  for (bool is_signed : {true, false}) {
    Numbers expected = {0, 1}, got;
    for (int i = 0; i < 7; ++i) {
      int parts = is_signed ? 1 << i : 2 << i;
      for (int k = 0; k < parts; ++k) {
        double low = 0.1 + 0.9 * k / parts, high = 0.1 + 0.9 * (k + 1) / parts,
               x = std::pow(10, i - 6) * (low + high) / 2;
        expected.push_back(x);
        if (is_signed) expected.push_back(-x);
      }
    }
    for (int code = 0; code < 256; ++code) got.push_back(dynamic_value(uint8_t(code), is_signed));
    std::sort(expected.begin(), expected.end());
    std::sort(got.begin(), got.end());
    ASSERT_EQ(expected.size(), 256u);
    for (size_t i = 0; i < 256; ++i) EXPECT_NEAR(got[i], expected[i], 1e-12) << i;
  }
}
