// Dropout inside the operations with its values at hand: cases, and results bit for bit equal to
// the operations one after the other on the same device.
#include <gtest/gtest.h>

#include <cmath>

#include "ops/case.h"
#include "ops/harness.h"
#include "ops/index.h"
#include "ops/norm.h"
#include "program/builder.h"

namespace crest::test {
namespace {

Attrs with(Attrs attrs, double p) { return attrs.set("p", p).set("rng_id", 3); }

// Widths on both sides of changes in row kernels, samples of one row and of several, and rows with
// partial blocks of random words.
std::vector<Shape> shapes() {
  return {{3, 65, 96},  {2, 3, 33},   {5, 33},   {1, 96},      {7, 2, 256}, {3, 5, 768}, {61, 768},
          {2, 3, 1600}, {2, 2, 2048}, {5, 3000}, {2, 3, 4096}, {3, 8192},   {3, 10001},  {2, 17000}};
}

void norm_cases(std::vector<Case>& list, DType t, const Shape& s, bool layer) {
  auto add = [&](const char* op, const std::string& name, std::vector<Arg> in, Attrs attrs) -> Case& {
    std::string n = "dropout_" + name + s.text() + (layer ? "_layer_" : "_rms_") + std::string(crest::name(t));
    list.push_back({op, n, std::move(in), std::move(attrs), nullptr, some_scalars(), nullptr});
    return list.back();
  };
  const DType f = DType::f32;
  const Shape c = {s.back()}, rows = {s.rows()};
  const Attrs kind = Attrs().set("kind", layer ? "layer" : "rms");
  Arg x = tensor(t, s, 3), gamma = positive(t, c), beta = layer ? tensor(t, c) : absent(), none = absent();
  // Sums are exact in every dtype: half of the elements, times two.
  add("add_norm", "", {x, x, gamma, beta, scalars_arg()}, with(Attrs(kind).set("eps", 1e-5), 0.5)).complete =
      [](Values& v) {
        for (size_t i : {0, 1})
          for (double& e : v[i]) e = std::round(e * 4) / 4;
      };
  Arg dy = tensor(t, s), rstd = tensor(f, rows), mean = layer ? tensor(f, rows) : none, acc = tensor(f, c, 10);
  auto statistics = [=](Values& v) {
    Case norm = {"norm", "", {x, gamma}, Attrs(kind).set("eps", 1e-5), nullptr, some_scalars(), nullptr};
    Values out = reference_outputs(in_double(norm), {v[1], v[2]});
    v[3] = out[1];
    if (layer) v[4] = out[2];
  };
  const Attrs grad = with(Attrs(kind).set("beta", layer).set("dtype", "f32"), 0.3);
  Arg acc_beta = layer ? acc : none;
  std::vector<Arg> in = {dy, x, gamma, rstd, mean, dy, acc, acc_beta, none, none, scalars_arg()};
  for (int apart : {0, 1}) {
    std::string n = apart ? "apart_" : "";
    add("norm_grad", n, in, Attrs(grad).set("apart", apart)).complete = statistics;
    if (layer) {
      in[8] = acc;
      add("norm_grad", n + "bias_", in, Attrs(grad).set("apart", apart).set("bias", 1)).complete = statistics;
    }
    in[9] = beta;
    Attrs all = Attrs(grad).set("apart", apart).set("bias", layer).set("keep", 1);
    add("norm_grad", n + "keep_", in, all).complete = statistics;
    in[8] = in[9] = none;
  }
}

void add_cases(std::vector<Case>& list, DType t) {
  for (const Shape& s : shapes())
    for (bool layer : {true, false}) norm_cases(list, t, s, layer);
  for (const Shape& s : {Shape{3, 65, 96}, Shape{2, 5, 33}, Shape{1, 1, 1}, Shape{2, 3, 2100}}) {
    const std::string n = "dropout_" + s.text() + "_" + std::string(name(t));
    const Attrs p = with({}, 0.3);
    Arg table = tensor(t, {9, s.back()}), tokens = ids({s[0], s[1]}, 9), positions = tensor(t, {70, s.back()});
    auto add = [&](const char* op, const std::string& suffix, std::vector<Arg> in, Attrs attrs) {
      list.push_back({op, n + suffix, std::move(in), std::move(attrs), nullptr, some_scalars(), nullptr});
    };
    add("embedding", "", {tokens, table, scalars_arg()}, p);
    add("embedding", "_to_f32", {tokens, table, scalars_arg()}, Attrs(p).set("dtype", "f32"));
    add("add_position", "", {tensor(t, s), positions, absent(), scalars_arg()}, p);
    // The second of three ranks: it has a part of the rows of all samples, or a part of their
    // heads.
    const Attrs shared = with(Attrs().set("axes", "tensor"), 0.5), rows = Attrs(shared).set("seq", 26);
    const Arg x = tensor(t, {s.rows(), s.back()}), gamma = positive(t, {s.back()});
    add("dropout", "_rows", {x, scalars_arg()}, rows);
    add("dropout", "_heads", {tensor(t, {2, s[0], s[1], s.back()}), scalars_arg()}, shared);
    add("add_norm", "_rows", {x, x, gamma, gamma, scalars_arg()}, Attrs(rows).set("kind", "layer").set("eps", 1e-5));
    for (size_t back : {1, 2, 3}) on_rank(list[list.size() - back], 1);
    list.back().complete = [](Values& v) {  // sums are exact in every dtype
      for (size_t i : {0, 1})
        for (double& e : v[i]) e = std::round(e * 4) / 4;
    };
  }
}

const CaseFile file = {add_cases};

// The results of a list of instructions, run one after the other on the first accepting kernels.
using Build = std::function<std::vector<ValueId>(Builder&, const std::vector<ValueId>&)>;
std::vector<std::vector<uint8_t>> made(const Device& device, const std::vector<Arg>& in, const Build& build) {
  Program p;
  Builder b(p);
  std::vector<ValueId> ids;
  for (size_t i = 0; i < in.size(); ++i) {
    const bool has = in[i].fill != Arg::Fill::absent;
    ids.push_back(has ? b.declare("in" + std::to_string(i), in[i].dtype, in[i].shape, Role::input, Lifetime::micro_step)
                      : no_value);
  }
  const std::vector<ValueId> out = build(b, ids);
  Case c = {"", "", in, {}, nullptr, some_scalars(), nullptr};
  const Values values = make_values(c);
  Memory memory(p);
  for (size_t i = 0; i < in.size(); ++i)
    if (ids[i] != no_value) memory.write(ids[i], values[i]);
  for (const Instr& instr : p.code) {
    const Kernel* taken = nullptr;
    for (const Kernel* k : kernels_for(instr.op->name, device))
      if (!taken && k->reject({p, instr, device}).empty()) taken = k;
    if (!taken) {
      ADD_FAILURE() << "no kernel takes " << instr.op->name;
      return {};
    }
    launch(*taken, device, p, instr, memory);
  }
  std::vector<std::vector<uint8_t>> bytes;
  for (ValueId v : out) bytes.push_back(memory.bytes(v));
  return bytes;
}

class JoinedDropout : public testing::TestWithParam<const Device*> {
 protected:
  const Device& device = *GetParam();
  const Attrs mask = with({}, 0.1);

  void expect_equal(const std::vector<Arg>& in, const Build& joined, const Build& apart) {
    auto a = made(device, in, joined), b = made(device, in, apart);
    ASSERT_EQ(a.size(), b.size());
    for (size_t o = 0; o < a.size(); ++o) EXPECT_TRUE(a[o] == b[o]) << "output " << o;
  }
  void over(const std::function<void(DType, const Shape&, bool layer)>& body) {
    for (DType t : {DType::f32, DType::bf16, DType::f16})
      for (const Shape& s : shapes())
        for (bool layer : {true, false}) {
          SCOPED_TRACE(std::string(name(t)) + " " + s.text() + (layer ? " layer" : " rms"));
          body(t, s, layer);
        }
  }
};

TEST_P(JoinedDropout, OfAResidualSumHasTheBitsOfDropoutBeforeIt) {
  over([&](DType t, const Shape& s, bool layer) {
    Arg beta = layer ? tensor(t, {s.back()}) : absent();
    std::vector<Arg> in = {tensor(t, s), tensor(t, s), positive(t, {s.back()}), beta, scalars_arg()};
    const Attrs norm = Attrs().set("kind", layer ? "layer" : "rms").set("eps", 1e-5);
    expect_equal(
        in,
        [&](Builder& b, const std::vector<ValueId>& v) {
          return b.emit("add_norm", {v[0], v[1], v[2], v[3], v[4]}, with(norm, 0.1));
        },
        [&](Builder& b, const std::vector<ValueId>& v) {
          return b.emit("add_norm", {v[0], b.emit1("dropout", {v[1], v[4]}, mask), v[2], v[3]}, norm);
        });
  });
}

TEST_P(JoinedDropout, OfANormsGradientHasTheBitsOfDropoutBehindIt) {
  over([&](DType t, const Shape& s, bool layer) {
    const DType f = DType::f32;
    Arg rstd = positive(f, {s.rows()}), mean = layer ? tensor(f, {s.rows()}) : absent();
    std::vector<Arg> in = {tensor(t, s), tensor(t, s), positive(t, {s.back()}), rstd, mean,
                           tensor(t, s), scalars_arg()};
    const Attrs grad = Attrs().set("kind", layer ? "layer" : "rms").set("beta", layer).set("dtype", "f32");
    for (int apart : {0, 1}) {
      SCOPED_TRACE(apart);
      expect_equal(
          in,
          [&](Builder& b, const std::vector<ValueId>& v) {
            return b.emit("norm_grad",
                          {v[0], v[1], v[2], v[3], v[4], v[5], no_value, no_value, no_value, no_value, v[6]},
                          with(grad, 0.1).set("apart", apart));
          },
          [&](Builder& b, const std::vector<ValueId>& v) {
            auto out = b.emit("norm_grad", {v[0], v[1], v[2], v[3], v[4], v[5]}, grad);
            ValueId d = b.emit1("dropout", {out[0], v[6]}, mask);
            apart ? out.push_back(d) : void(out[0] = d);
            return out;
          });
    }
  });
}

TEST_P(JoinedDropout, OfEmbeddingsHasTheBitsOfDropoutBehindThem) {
  for (DType t : {DType::f32, DType::bf16, DType::f16})
    for (const Shape& s : {Shape{3, 65, 96}, Shape{2, 5, 33}, Shape{2, 3, 2100}}) {
      SCOPED_TRACE(std::string(name(t)) + " " + s.text());
      std::vector<Arg> in = {ids({s[0], s[1]}, 9), tensor(t, {9, s.back()}), tensor(t, s), tensor(t, {70, s.back()}),
                             scalars_arg()};
      expect_equal(
          in,
          [&](Builder& b, const std::vector<ValueId>& v) {
            return std::vector{b.emit1("embedding", {v[0], v[1], v[4]}, mask),
                               b.emit1("add_position", {v[2], v[3], no_value, v[4]}, mask)};
          },
          [&](Builder& b, const std::vector<ValueId>& v) {
            ValueId x = b.emit1("embedding", {v[0], v[1]}), y = b.emit1("add_position", {v[2], v[3]});
            return std::vector{b.emit1("dropout", {x, v[4]}, mask), b.emit1("dropout", {y, v[4]}, mask)};
          });
    }
}

// The cast of autocast, on either side.
TEST_P(JoinedDropout, OfACastHasTheBitsOfBoth) {
  for (DType half : {DType::bf16, DType::f16})
    for (const Shape& s : {Shape{3, 65, 96}, Shape{5, 7, 11}, Shape{2, 2100}}) {
      SCOPED_TRACE(std::string(name(half)) + " " + s.text());
      const std::string narrow(name(half));
      std::vector<Arg> in = {tensor(half, s), tensor(DType::f32, s), scalars_arg()};
      expect_equal(
          in,
          [&](Builder& b, const std::vector<ValueId>& v) {
            return std::vector{b.emit1("dropout", {v[0], v[2]}, Attrs(mask).set("dtype", "f32")),
                               b.emit1("dropout", {v[1], v[2]}, Attrs(mask).set("dtype", narrow))};
          },
          [&](Builder& b, const std::vector<ValueId>& v) {
            ValueId x = b.emit1("dropout", {v[0], v[2]}, mask);
            ValueId y = b.emit1("cast", {v[1]}, Attrs().set("dtype", narrow));
            return std::vector{b.emit1("cast", {x}, Attrs().set("dtype", "f32")), b.emit1("dropout", {y, v[2]}, mask)};
          });
    }
}

// A column sum of dropped values, in f32 of rounded numbers: any order of summation.
TEST_P(JoinedDropout, TheBiasGradientIsThatOfWhatIsDroppedOut) {
  if (device.kind == "cpu") GTEST_SKIP() << "the CPU's kernel makes no bias gradient";
  for (DType t : {DType::f32, DType::bf16, DType::f16}) {
    SCOPED_TRACE(name(t));
    const Shape s = {3, 65, 96}, c = {96};
    Arg row = positive(DType::f32, {s.rows()});
    std::vector<Arg> in = {tensor(t, s), tensor(t, s), positive(t, c), row, row, tensor(t, s), scalars_arg()};
    const Attrs grad = Attrs().set("kind", "layer").set("beta", 1).set("dtype", "f32");
    auto joined = [&](Builder& b, const std::vector<ValueId>& v) {
      auto out = b.emit("norm_grad", {v[0], v[1], v[2], v[3], v[4], v[5], no_value, no_value, no_value, no_value, v[6]},
                        with(grad, 0.1).set("apart", 1).set("bias", 1));
      return std::vector{out[out::norm_grad::dbias], out[out::norm_grad::dropped]};
    };
    auto apart = [&](Builder& b, const std::vector<ValueId>& v) {
      ValueId dx = b.emit("norm_grad", {v[0], v[1], v[2], v[3], v[4], v[5]}, grad)[0];
      ValueId d = b.emit1("dropout", {dx, v[6]}, mask);
      return std::vector{b.emit1("bias_grad", {d}, Attrs().set("dtype", "f32")), d};
    };
    auto a = made(device, in, joined), b = made(device, in, apart);
    EXPECT_TRUE(a[1] == b[1]);
    auto floats = [](const std::vector<uint8_t>& bytes) {
      std::vector<double> x(96);
      for (size_t i = 0; i < x.size(); ++i) x[i] = load_element(bytes.data(), DType::f32, int64_t(i));
      return x;
    };
    EXPECT_LE(relative_error(floats(a[0]), floats(b[0])), 1e-6);
  }
}

std::vector<const Device*> all_devices() {
  std::vector<const Device*> list;
  for (const Device& d : devices()) list.push_back(&d);
  return list;
}
INSTANTIATE_TEST_SUITE_P(Ops, JoinedDropout, testing::ValuesIn(all_devices()),
                         [](auto& info) { return device_name(*info.param); });

TEST(JoinedDropout, IsWhereTheAttributesSay) {
  EXPECT_EQ(place_of_dropped(Attrs()), 2u);
  EXPECT_EQ(place_of_dropped(Attrs().set("beta", 1)), 3u);
  EXPECT_EQ(place_of_dropped(Attrs().set("beta", 1).set("bias", 1)), size_t(out::norm_grad::dropped));
}

}  // namespace
}  // namespace crest::test
