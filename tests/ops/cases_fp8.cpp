// Cases of quantization to 8-bit floats and of their matmul.
#include <algorithm>
#include <cmath>
#include <limits>

#include "ops/case.h"
#include "ops/harness.h"
#include "ops/index.h"
#include "ops/quantized_norms.h"
#include "program/builder.h"

namespace crest::test {

namespace {

constexpr int64_t slots = 6;

Arg counters(const Shape& s) { return {Arg::Fill::ids, DType::i64, s, 1, 1000}; }

void quantize_cases(std::vector<Case>& list, DType t, const std::string& dtype) {
  const DType f = DType::f32;
  for (const Shape& s : {Shape{3, 65, 96}, Shape{128, 64}, Shape{7, 33}, Shape{1, 16}, Shape{390, 264}})
    for (const char* format : {"e4m3", "e5m2"})
      for (bool columns : {false, true}) {
        if (columns != (std::string(format) == "e5m2") && s[0] != 7) continue;
        Attrs a = Attrs().set("format", format).set("slot", 2).set("margin", 1);
        if (columns) a.set("columns", 1);
        std::string name = s.text() + "_" + format + (columns ? "_columns_" : "_") + dtype;
        std::vector<Arg> in = {tensor(t, s, 0.01), positive(f, {1, slots}), positive(f, {slots, 2}),
                               counters({slots, 2})};
        // Of the tensor itself: nothing is known of the step before.
        list.push_back({"quantize", "first_" + name, in, a, nullptr, {}, [](Values& v) { v[1][2] = 0; }});
        if (s[0] == 7 || s[0] == 390) {
          // The values have grown by far: many saturate. They have shrunk: many vanish.
          in[0] = tensor(t, s, 3);
          list.push_back({"quantize", "grown_" + name, in, a});
          in[0] = tensor(t, s, 1e-4);
          list.push_back({"quantize", "shrunk_" + name, in, a, nullptr, {}, [](Values& v) { v[1][2] = 40000; }});
        }
        if (s[0] != 7) continue;
        // NaN has no magnitude, infinity saturates and is recorded; with all zeros no scale is
        // known.
        in[0] = tensor(t, s, 0.01);
        list.push_back({"quantize", "infinite_" + name, in, a, nullptr, {}, [](Values& v) {
                          v[0][5] = std::numeric_limits<double>::infinity(), v[1][2] = 0;
                        }});
        list.push_back({"quantize", "zero_" + name, in, a, nullptr, {}, [](Values& v) {
                          for (double& x : v[0]) x = 0;
                          v[1][2] = 0;
                        }});
      }
  for (const Shape& s : {Shape{3, 65, 96}, Shape{16, 16}, Shape{130, 70}})
    list.push_back({"quantize_columns",
                    s.text() + "_" + dtype,
                    {tensor(t, s), positive(f, {1})},
                    Attrs().set("format", "e4m3"),
                    nullptr,
                    {},
                    [](Values& v) { v[1][0] = 0.0078125; }});
}

// A body over x0.. of one shape that ends with quantization; after them come amax, record, counts
// and a scale, and a sum so far if there is a bias.
struct Body {
  Builder& b;
  std::vector<ValueId> x;
  ValueId amax, record, counts, scale, acc = no_value;
  std::vector<ValueId> outputs = {};

  void sum(ValueId v) { outputs.push_back(b.emit1("bias_grad", {v, acc}, Attrs().set("dtype", "f32"))); }
  void store(ValueId v) { outputs.push_back(v); }
  void quantize(ValueId v, const char* format, int64_t slot, bool columns) {
    Attrs a = Attrs().set("format", format).set("slot", slot).set("margin", 1);
    if (columns) a.set("columns", 1);
    std::vector<ValueId> out = b.emit("quantize", {v, amax, record, counts}, a);
    record = out[out::quantize::record], counts = out[out::quantize::counts];
    outputs.push_back(out[0]), outputs.push_back(out[1]);
    if (columns) outputs.push_back(out[out::quantize::t]);
  }
  void columns(ValueId v) { outputs.push_back(b.emit1("quantize_columns", {v, scale}, Attrs().set("format", "e4m3"))); }
};

void add_body(std::vector<Case>& list, const std::string& name, const Shape& s, size_t inputs, bool bias, bool first,
              const std::function<void(Body&)>& make) {
  const DType f = DType::f32;
  std::vector<Arg> in(inputs, tensor(DType::bf16, s));
  for (const Arg& a : {positive(f, {1, slots}), positive(f, {slots, 2}), counters({slots, 2}), positive(f, {1})})
    in.push_back(a);
  if (bias) in.push_back(tensor(f, {s.back()}, 10));
  auto program = std::make_shared<Program>();
  Builder b(*program);
  b.origin = Origin("test");
  for (size_t i = 0; i < in.size(); ++i)
    program->inputs.push_back(
        b.declare("x" + std::to_string(i), in[i].dtype, in[i].shape, Role::activation, Lifetime::micro_step));
  const std::vector<ValueId> all = program->inputs;
  Body body{
      b, {all.begin(), all.begin() + int64_t(inputs)}, all[inputs], all[inputs + 1], all[inputs + 2], all[inputs + 3]};
  if (bias) body.acc = all[inputs + 4];
  make(body);
  if (body.record != all[inputs + 1]) body.outputs.push_back(body.record), body.outputs.push_back(body.counts);
  program->outputs = body.outputs;
  Case c = {"fused", name + "_" + s.text() + (first ? "_first" : ""), in};
  c.body = program;
  c.complete = [=](Values& v) {
    v[inputs + 3][0] = 0.03125;
    for (int slot : {1, 2, 3}) v[inputs][size_t(slot)] = first ? 0 : 4.5;
    // Records of a step so far are below what a tensor holds.
    for (double& r : v[inputs + 1]) r = std::min(r, 0.01);
  };
  list.push_back(c);
}

// What pass quantization makes of activations, their gradients and bias gradients. The second shape
// has more tiles than all blocks of an emulated GPU work on at once.
void body_cases(std::vector<Case>& list) {
  for (const Shape& s : {Shape{3, 65, 96}, Shape{260, 328}})
    for (bool first : {false, true}) {
      add_body(list, "quantized_gelu", s, 1, false, first,
               [](Body& b) { b.quantize(b.b.emit1("gelu", {b.x[0]}), "e4m3", 1, false); });
      add_body(list, "quantized_gelu_kept", s, 1, false, first, [](Body& b) {
        ValueId a = b.b.emit1("gelu", {b.x[0]});
        b.store(a), b.quantize(a, "e4m3", 1, true);
      });
      add_body(list, "quantized_gelu_grad", s, 2, true, first, [](Body& b) {
        ValueId a = b.b.emit1("gelu", {b.x[1]}), dx = b.b.emit1("gelu_grad", {b.x[0], b.x[1]});
        b.sum(dx), b.columns(a), b.quantize(dx, "e5m2", 2, true);
      });
      add_body(list, "quantized_swiglu", s, 2, false, first, [](Body& b) {
        b.quantize(b.b.emit1("mul", {b.b.emit1("silu", {b.x[0]}), b.x[1]}), "e4m3", 1, false);
      });
      add_body(list, "quantized_swiglu_grad", s, 3, false, first, [](Body& b) {
        ValueId act = b.b.emit1("silu", {b.x[1]}), a = b.b.emit1("mul", {act, b.x[2]});
        ValueId du = b.b.emit1("mul", {b.x[0], act}), ds = b.b.emit1("mul", {b.x[0], b.x[2]});
        ValueId dg = b.b.emit1("silu_grad", {ds, b.x[1]});
        b.columns(a), b.quantize(du, "e5m2", 2, true), b.quantize(dg, "e5m2", 3, true);
      });
      add_body(list, "quantized_bias", s, 1, true, first,
               [](Body& b) { b.sum(b.x[0]), b.quantize(b.x[0], "e5m2", 2, true); });
    }
}

void norm_cases(std::vector<Case>& list) {
  const DType f = DType::f32, t = DType::bf16;
  for (const Shape& s : {Shape{3, 65, 96}, Shape{13, 1600}, Shape{5, 4096}, Shape{130, 72}})
    for (bool layer : {true, false})
      for (bool first : {false, true}) {
        const int64_t width = s.back(), rows = s.rows();
        const std::string n = s.text() + (layer ? "_layer" : "_rms") + (first ? "_first" : "");
        Arg x = tensor(t, s, 3), gamma = positive(t, {width}), beta = layer ? tensor(t, {width}) : absent();
        Attrs norm = Attrs().set("kind", layer ? "layer" : "rms").set("eps", 1e-5);
        Attrs a = Attrs().set("kind", layer ? "layer" : "rms").set("eps", 1e-5);
        a.set("format", "e4m3").set("slot", 1).set("margin", 1);
        std::vector<Arg> in = {x,        gamma, positive(f, {1, slots}), positive(f, {slots, 2}), counters({slots, 2}),
                               absent(), beta};
        auto tables = [first](Values& v) {
          v[2][1] = first ? 0 : 9;
          for (double& r : v[3]) r = std::min(r, 0.01);
        };
        list.push_back({"norm_quantize", n, in, a, nullptr, {}, tables});
        in[5] = x;
        list.push_back({"norm_quantize", n + "_sum", in, a, nullptr, {}, [tables](Values& v) {
                          tables(v);
                          for (size_t i : {0, 5})  // sums are exact
                            for (double& e : v[i]) e = std::round(e * 4) / 4;
                        }});
        in.push_back(scalars_arg());
        list.push_back({"norm_quantize", n + "_dropout", in, Attrs(a).set("p", 0.5).set("rng_id", 2), nullptr,
                        some_scalars(), list.back().complete});
        if (first) continue;
        Arg rstd = tensor(f, {rows}), mean = layer ? tensor(f, {rows}) : absent();
        list.push_back({"norm_quantize_columns",
                        n,
                        {x, gamma, rstd, positive(f, {1}), mean, beta},
                        Attrs().set("kind", layer ? "layer" : "rms").set("format", "e4m3"),
                        nullptr,
                        {},
                        [=](Values& v) {
                          Case of = {"norm", "", {x, gamma}, norm};
                          Values out = reference_outputs(in_double(of), {v[0], v[1]});
                          v[2] = out[1], v[3][0] = 0.03125;
                          if (layer) v[4] = out[2];
                        }});
      }
}

// Whole vectors and odd rows; rows of all sizes, of zeros, with infinity and NaN.
void row_cases(std::vector<Case>& list, DType t, const std::string& dtype) {
  for (const Shape& s : {Shape{3, 65, 96}, Shape{7, 33}, Shape{5, 4104}, Shape{1, 1}}) {
    const std::string called = s.text() + "_" + dtype;
    const auto width = size_t(s.back());
    list.push_back({"quantize_rows", called, {tensor(t, s)}, {}, nullptr, {}, [=](Values& v) {
                      for (size_t i = 0; i < v[0].size(); ++i) v[0][i] *= std::ldexp(1, int(i / width % 12) - 6);
                      std::fill_n(v[0].begin(), s[0] > 3 ? width : 0, 0.0);
                    }});
    if (s[0] == 7)
      list.push_back({"quantize_rows", "infinite_" + called, {tensor(t, s)}, {}, nullptr, {}, [=](Values& v) {
                        v[0][2 * width + 3] = std::numeric_limits<double>::infinity();
                        v[0][3 * width + 5] = -std::numeric_limits<double>::infinity();
                      }});
    list.push_back({"dequantize",
                    "e4m3_" + called,
                    {tensor(DType::e4m3, s, 50), positive(DType::f32, {s.rows()})},
                    Attrs().set("dtype", name(t))});
  }
}

void product_cases(std::vector<Case>& list, DType t, const std::string& dtype) {
  struct Size {
    Shape x;
    int64_t n;
  };
  for (auto& [x, n] : {Size{{3, 65, 96}, 48}, Size{{48, 208}, 32}, Size{{7, 33}, 9}})
    for (DType of : {DType::e4m3, DType::e5m2}) {
      Attrs a = Attrs().set("dtype", name(t));
      std::string called = x.text() + "_" + std::to_string(n) + "_" + std::string(name(of)) + "_" + dtype;
      Arg scale = positive(DType::f32, {1});
      std::vector<Arg> in = {tensor(of, x, 20), tensor(DType::e4m3, {n, x.back()}), scale, scale};
      auto scales = [](Values& v) { v[2][0] = 0.0625, v[3][0] = 0.5; };
      list.push_back({"linear_fp8", called, in, a, nullptr, {}, scales});
      in.push_back(tensor(t, {n}));
      list.push_back({"linear_fp8", "bias_" + called, in, a, nullptr, {}, scales});
      in.back() = absent();
      in.push_back(tensor(t, x.with_back(n), 10));
      list.push_back({"linear_fp8", "acc_" + called, in, a, nullptr, {}, scales});
    }
}

void cases(std::vector<Case>& list, DType t) {
  std::string dtype(name(t));
  quantize_cases(list, t, dtype);
  row_cases(list, t, dtype);
  product_cases(list, t, dtype);
  if (t == DType::bf16) body_cases(list), norm_cases(list);
  if (t != DType::f32) return;
  for (int64_t ranks : {1, 3})
    for (int64_t n : {6, 700}) {
      const int64_t steps = n == 6 ? 1 : 3;
      std::vector<Arg> in = {positive(t, {steps, n}), positive(t, {n, ranks}), counters({n, 2}), counters({n, 2})};
      std::string called = std::to_string(n) + "_of_" + std::to_string(ranks);
      list.push_back({"amax_history", called, in, {}, nullptr, {}, [](Values& v) {
                        v[1][0] = std::numeric_limits<double>::infinity();  // is not taken
                        for (size_t i = v[1].size() / 2; i < v[1].size(); ++i) v[1][i] = 0;
                      }});
    }
}

const CaseFile file = {cases, nullptr};

}  // namespace

}  // namespace crest::test
