// Cases of quantization to 8-bit floats: with a scale of the tensor and with scales of blocks, of
// tensors in memory and of results of norms and fused bodies.
#include <algorithm>
#include <cmath>
#include <limits>

#include "ops/case.h"
#include "ops/fp8.h"
#include "ops/harness.h"
#include "ops/index.h"
#include "ops/quantized_norms.h"
#include "program/builder.h"

namespace crest::test {

namespace {

constexpr int64_t slots = 6;

void quantize_cases(std::vector<Case>& list, DType t, const std::string& dtype) {
  const DType f = DType::f32;
  for (const Shape& s : {Shape{3, 65, 96}, Shape{128, 64}, Shape{7, 33}, Shape{1, 16}, Shape{390, 264}})
    for (const char* format : {"e4m3", "e5m2"})
      for (bool columns : {false, true}) {
        if (columns != (std::string(format) == "e5m2") && s[0] != 7) continue;
        Attrs a = Attrs().set("format", format).set("slot", 2).set("margin", 1);
        if (columns) a.set("columns", 1);
        std::string name = s.text() + "_" + format + (columns ? "_columns_" : "_") + dtype;
        std::vector<Arg> in = {tensor(t, s, 0.01), positive(f, {1, slots}), positive(f, {slots, 2}), counters(slots)};
        // The first step: the scale comes from the tensor itself.
        list.push_back({"quantize", "first_" + name, in, a, nullptr, {}, [](Values& v) { v[1][2] = 0; }});
        if (s[0] == 7 || s[0] == 390) {
          // The values are much larger than in the step before: many saturate. They are much
          // smaller: many vanish.
          in[0] = tensor(t, s, 3);
          list.push_back({"quantize", "grown_" + name, in, a});
          in[0] = tensor(t, s, 1e-4);
          list.push_back({"quantize", "shrunk_" + name, in, a, nullptr, {}, [](Values& v) { v[1][2] = 40000; }});
        }
        if (s[0] != 7) continue;
        // NaN has no magnitude. Infinity saturates and is recorded. With all zeros no scale is
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

// Magnitudes different from block to block, and within some blocks by more than a format's range;
// f16, with its small range, has no smaller ones.
void spread(std::vector<double>& x, const Shape& s, DType t) {
  const int64_t width = s.back();
  const int down = t == DType::f16 ? 0 : 12;
  for (int64_t i = 0; i < int64_t(x.size()); ++i) {
    const int64_t r = i / width, c = i % width, block = r / fp8_block * 3 + c / fp8_block;
    x[size_t(i)] *= std::ldexp(1.0, int(block % 5 * 2) - (r % 7 == 3 ? down : 0) + (c % 11 == 5 ? 5 : 0));
  }
}

// The last shape has two blocks of rows, for two ranks.
void block_cases(std::vector<Case>& list, DType t, const std::string& dtype) {
  for (const Shape& s : {Shape{3, 65, 96}, Shape{128, 128}, Shape{7, 33}, Shape{1, 16}, Shape{390, 264}, Shape{256, 4}})
    for (const char* format : {"e4m3", "e5m2"})
      for (Fp8Blocks blocks : {Fp8Blocks::rows, Fp8Blocks::squares})
        for (bool columns : {false, true}) {
          if (columns != (std::string(format) == "e5m2") && s[0] != 7 && blocks == Fp8Blocks::rows) continue;
          Attrs a = Attrs().set("format", format).set("slot", 2).set("blocks", name_of(blocks));
          if (columns) a.set("columns", 1);
          std::string name = s.text() + "_" + format + "_" + name_of(blocks) + (columns ? "_columns_" : "_") + dtype;
          list.push_back({"quantize_blocks", name, {tensor(t, s), counters(slots)}, a, nullptr, {}, [s, t](Values& v) {
                            spread(v[0], s, t);
                          }});
          if (s[0] != 7 && s[0] != 390) continue;
          // Infinity is no magnitude and saturates; a block of zeros has scale 1.
          list.push_back(
              {"quantize_blocks", "infinite_" + name, {tensor(t, s), counters(slots)}, a, nullptr, {}, [](Values& v) {
                 v[0][5] = std::numeric_limits<double>::infinity();
               }});
          list.push_back(
              {"quantize_blocks", "zero_" + name, {tensor(t, s), counters(slots)}, a, nullptr, {}, [s](Values& v) {
                 for (size_t i = 0; i < v[0].size(); ++i)
                   if (int64_t(i) / s.back() < fp8_block) v[0][i] = 0;
               }});
          // Magnitudes at the end of a scale, and the next ones; the largest number of f32.
          list.push_back(
              {"quantize_blocks",
               "edges_" + name,
               {tensor(t, s, 0.1), counters(slots)},
               a,
               nullptr,
               {},
               [=](Values& v) {
                 const int64_t width = s.back();
                 const double next = 1 + std::ldexp(1.0, t == DType::bf16 ? -7 : t == DType::f16 ? -10 : -23);
                 for (int64_t r = 0; r < s.rows(); ++r)
                   v[0][size_t(r * width + r % width)] = std::ldexp(1.75, int(r % 5)) * (r % 2 ? next : 1);
                 if (t == DType::f32) v[0][0] = std::numeric_limits<float>::max();
               }});
        }
  for (const Shape& s : {Shape{3, 65, 96}, Shape{16, 16}, Shape{130, 270}, Shape{256, 4}})
    for (auto& [format, blocks] :
         {std::pair{"e4m3", Fp8Blocks::rows}, {"e5m2", Fp8Blocks::rows}, {"e4m3", Fp8Blocks::squares}})
      list.push_back({"quantize_blocks_columns",
                      s.text() + "_" + format + "_" + name_of(blocks) + "_" + dtype,
                      {tensor(t, s)},
                      Attrs().set("format", format).set("blocks", name_of(blocks)),
                      nullptr,
                      {},
                      [s, t](Values& v) { spread(v[0], s, t); }});
}

// An input of a body or a norm: the spread of its numbers and, with scales of blocks, a fixed
// magnitude (the peak) for one number in four. So every row and column of a block has a peak. Peaks
// are the largest numbers. Their results are far from 1.75 times a power of two, where another
// scale begins, and from the middle between two codes. So the reference, without rounding, finds
// the same scales and the same codes of peaks.
struct Spread {
  double deviation = 1, peak = 0;
  bool positive = false;  // peaks
};

void set_peaks(std::vector<double>& x, int64_t width, const Spread& spread) {
  for (size_t i = 0; i < x.size(); ++i)
    if (int64_t(i) / width % 4 == int64_t(i) % width % 4)
      x[i] = spread.positive ? spread.peak : std::copysign(spread.peak, x[i]);
}

// A body over x0.. of one shape, with quantization at its end. After them come the tables: counts,
// and with a scale of the tensor amax, record and the scale of transposes; then a sum so far.
struct Body {
  Builder& b;
  std::vector<ValueId> x;
  bool blocks;
  ValueId counts, amax = no_value, record = no_value, scale = no_value, acc = no_value;
  std::vector<ValueId> outputs = {};

  void sum(ValueId v) { outputs.push_back(b.emit1("bias_grad", {v, acc}, Attrs().set("dtype", "f32"))); }
  void store(ValueId v) { outputs.push_back(v); }
  void quantize(ValueId v, const char* format, int64_t slot, bool columns) {
    Attrs a = Attrs().set("format", format).set("slot", slot);
    if (columns) a.set("columns", 1);
    std::vector<ValueId> out;
    if (blocks) {
      namespace to = out::quantize_blocks;
      out = b.emit("quantize_blocks", {v, counts}, a.set("blocks", name_of(Fp8Blocks::rows)));
      counts = out[to::counts];
      if (columns) outputs.push_back(out[to::t]), outputs.push_back(out[to::t_scale]);
    } else {
      namespace to = out::quantize;
      out = b.emit("quantize", {v, amax, record, counts}, a.set("margin", 1));
      record = out[to::record], counts = out[to::counts];
      if (columns) outputs.push_back(out[to::t]);
    }
    outputs.push_back(out[0]), outputs.push_back(out[1]);  // q and its scale
  }
  void columns(ValueId v) {
    Attrs a = Attrs().set("format", "e4m3");
    if (!blocks) return outputs.push_back(b.emit1("quantize_columns", {v, scale}, a));
    for (ValueId o : b.emit("quantize_blocks_columns", {v}, a.set("blocks", name_of(Fp8Blocks::rows))))
      outputs.push_back(o);
  }
};

enum class Scales { delayed, first, blocks };

std::string suffix(Scales s) { return s == Scales::delayed ? "" : s == Scales::first ? "_first" : "_blocks"; }

void add_body(std::vector<Case>& list, const std::string& name, const Shape& s, const std::vector<Spread>& inputs,
              bool bias, Scales scales, const std::function<void(Body&)>& make) {
  const DType f = DType::f32;
  const bool blocks = scales == Scales::blocks;
  const size_t tables = inputs.size();
  std::vector<Arg> in;
  for (const Spread& x : inputs) in.push_back(tensor(DType::bf16, s, blocks ? x.deviation : 1));
  in.push_back(counters(slots));
  if (!blocks)
    for (const Shape& table : {Shape{1, slots}, Shape{slots, 2}, Shape{1}}) in.push_back(positive(f, table));
  if (bias) in.push_back(tensor(f, {s.back()}, 10));
  auto program = std::make_shared<Program>();
  Builder b(*program);
  b.origin = Origin("test");
  for (size_t i = 0; i < in.size(); ++i)
    program->inputs.push_back(
        b.declare("x" + std::to_string(i), in[i].dtype, in[i].shape, Role::activation, Lifetime::micro_step));
  const std::vector<ValueId> all = program->inputs;
  Body body{b, {all.begin(), all.begin() + int64_t(tables)}, blocks, all[tables]};
  if (!blocks) body.amax = all[tables + 1], body.record = all[tables + 2], body.scale = all[tables + 3];
  if (bias) body.acc = all.back();
  make(body);
  if (!blocks && body.record != all[tables + 2]) body.outputs.push_back(body.record);
  if (body.counts != all[tables]) body.outputs.push_back(body.counts);
  program->outputs = body.outputs;
  Case c = {"fused", name + "_" + s.text() + suffix(scales), in};
  c.body = program;
  c.complete = [=](Values& v) {
    for (size_t i = 0; blocks && i < tables; ++i)
      if (inputs[i].peak > 0) set_peaks(v[i], s.back(), inputs[i]);
    if (blocks) return;
    v[tables + 3][0] = 0.03125;
    for (int slot : {1, 2, 3}) v[tables + 1][size_t(slot)] = scales == Scales::first ? 0 : 4.5;
    // A step's records so far are below a tensor's values.
    for (double& r : v[tables + 2]) r = std::min(r, 0.01);
  };
  list.push_back(c);
}

// Pass quantization's results for activations, their gradients and bias gradients.
void body_cases(std::vector<Case>& list, const std::vector<Shape>& shapes, const std::vector<Scales>& recipes) {
  const Spread active = {1, 8, true}, dy = {0.5, 5}, up = {0.3, 1.5}, da = {0.3, 1.4};
  for (const Shape& s : shapes)
    for (Scales scales : recipes)
      for (const char* format : {"e5m2", "e4m3"}) {  // of gradients
        if (std::string(format) == "e4m3" && scales != Scales::blocks) continue;
        auto add = [&](const std::string& name, const std::vector<Spread>& inputs, bool bias,
                       const std::function<void(Body&)>& make) {
          add_body(list, name + (std::string(format) == "e4m3" ? "_e4m3" : ""), s, inputs, bias, scales, make);
        };
        if (std::string(format) == "e5m2") {
          add("quantized_gelu", {active}, false,
              [](Body& b) { b.quantize(b.b.emit1("gelu", {b.x[0]}), "e4m3", 1, false); });
          add("quantized_gelu_kept", {active}, false, [](Body& b) {
            ValueId a = b.b.emit1("gelu", {b.x[0]});
            b.store(a), b.quantize(a, "e4m3", 1, true);
          });
          add("quantized_swiglu", {active, up}, false, [](Body& b) {
            b.quantize(b.b.emit1("mul", {b.b.emit1("silu", {b.x[0]}), b.x[1]}), "e4m3", 1, false);
          });
        }
        add("quantized_gelu_grad", {dy, active}, true, [=](Body& b) {
          ValueId a = b.b.emit1("gelu", {b.x[1]}), dx = b.b.emit1("gelu_grad", {b.x[0], b.x[1]});
          b.sum(dx), b.columns(a), b.quantize(dx, format, 2, true);
        });
        add("quantized_swiglu_grad", {da, active, up}, false, [=](Body& b) {
          ValueId act = b.b.emit1("silu", {b.x[1]}), a = b.b.emit1("mul", {act, b.x[2]});
          ValueId du = b.b.emit1("mul", {b.x[0], act}), ds = b.b.emit1("mul", {b.x[0], b.x[2]});
          ValueId dg = b.b.emit1("silu_grad", {ds, b.x[1]});
          b.columns(a), b.quantize(du, format, 2, true), b.quantize(dg, format, 3, true);
        });
        add("quantized_bias", std::vector<Spread>(1), true,
            [=](Body& b) { b.sum(b.x[0]), b.quantize(b.x[0], format, 2, true); });
      }
}

void norm_cases(std::vector<Case>& list, const std::vector<Shape>& shapes, const std::vector<Scales>& recipes) {
  const DType f = DType::f32, t = DType::bf16;
  for (const Shape& s : shapes)
    for (bool layer : {true, false})
      for (Scales scales : recipes) {
        const bool blocks = scales == Scales::blocks;
        const int64_t width = s.back(), rows = s.rows();
        const std::string n = s.text() + (layer ? "_layer" : "_rms") + suffix(scales);
        const Spread spread = {0.5, 3};
        Arg x = tensor(t, s, blocks ? spread.deviation : 3), gamma = positive(t, {width}),
            beta = layer ? tensor(t, {width}, blocks ? 0.05 : 1) : absent();
        Attrs norm = Attrs().set("kind", layer ? "layer" : "rms").set("eps", 1e-5);
        Attrs a = Attrs(norm).set("format", "e4m3").set("slot", 1);
        if (blocks)
          a.set("blocks", name_of(Fp8Blocks::rows));
        else
          a.set("margin", 1);
        std::vector<Arg> in = {x,
                               gamma,
                               blocks ? absent() : positive(f, {1, slots}),
                               blocks ? absent() : positive(f, {slots, 2}),
                               counters(slots),
                               absent(),
                               beta};
        // Peaks of the norm are about 2.5 then: the root mean square of x is 1.56.
        auto of_blocks = [=](Values& v) {
          set_peaks(v[0], width, spread);
          for (double& g : v[1]) g = 1.25 + 0.1 * std::min(g, 1.0);
        };
        auto complete = [=](Values& v) {
          if (blocks) return of_blocks(v);
          v[2][1] = scales == Scales::first ? 0 : 9;
          for (double& r : v[3]) r = std::min(r, 0.01);
        };
        list.push_back({"norm_quantize", n, in, a, nullptr, {}, complete});
        if (!layer && rows * width < 1 << 15) {
          list.push_back({"norm_quantize", n + "_plain", in, a, nullptr, {}, complete});
          list.back().in[1] = absent();
        }
        in[5] = x;
        list.push_back({"norm_quantize", n + "_sum", in, a, nullptr, {}, [=](Values& v) {
                          complete(v);
                          if (blocks) set_peaks(v[5], width, {});  // the peaks of a
                          for (size_t i : {0, 5})                  // sums are exact
                            for (double& e : v[i]) e = std::round(e * 4) / 4;
                        }});
        in.push_back(scalars_arg());
        list.push_back({"norm_quantize", n + "_dropout", in, Attrs(a).set("p", 0.5).set("rng_id", 2), nullptr,
                        some_scalars(), list.back().complete});
        if (scales == Scales::first) continue;
        Arg rstd = tensor(f, {rows}), mean = layer ? tensor(f, {rows}) : absent();
        Attrs columns = Attrs().set("kind", layer ? "layer" : "rms").set("format", "e4m3");
        if (blocks) columns.set("blocks", name_of(Fp8Blocks::rows));
        list.push_back({"norm_quantize_columns",
                        n,
                        {x, gamma, rstd, blocks ? absent() : positive(f, {1}), mean, beta},
                        columns,
                        nullptr,
                        {},
                        [=](Values& v) {
                          if (blocks) of_blocks(v);
                          Case of = {"norm", "", {x, gamma}, norm};
                          Values out = reference_outputs(in_double(of), {v[0], v[1]});
                          v[2] = out[1];
                          if (!blocks) v[3][0] = 0.03125;
                          if (layer) v[4] = out[2];
                        }});
      }
}

void cases(std::vector<Case>& list, DType t) {
  std::string dtype(name(t));
  quantize_cases(list, t, dtype);
  block_cases(list, t, dtype);
  if (t != DType::bf16) return;
  const std::vector<Scales> recipes = {Scales::delayed, Scales::first, Scales::blocks};
  // The second shape has more tiles than all blocks of an emulated GPU work on at once.
  body_cases(list, {{3, 65, 96}, {260, 328}}, recipes);
  norm_cases(list, {{3, 65, 96}, {13, 1600}, {5, 4096}, {132, 72}}, recipes);
  norm_cases(list, {{256, 8}}, {Scales::blocks});  // two blocks of rows
}

const CaseFile file = {cases, nullptr};

}  // namespace

std::vector<Case> quantization_cases(const Shape& s) {
  std::vector<Case> list;
  const std::vector<Scales> recipes = {Scales::delayed, Scales::blocks};
  body_cases(list, {s}, recipes), norm_cases(list, {s}, recipes);
  for (Case& c : list)
    if (c.op == "norm_quantize_columns") c.complete = nullptr;  // statistics of all of x
  const Arg x = tensor(DType::bf16, s);
  auto known = [](Values& v) { v[1][0] = 4.5; };
  for (bool columns : {false, true}) {
    const std::string name = s.text() + (columns ? " rows and columns" : " rows");
    const Attrs a = Attrs().set("format", "e4m3").set("slot", 0).set("columns", columns);
    list.push_back({"quantize",
                    name,
                    {x, positive(DType::f32, {1, slots}), positive(DType::f32, {slots, 1}), counters(slots)},
                    Attrs(a).set("margin", 1),
                    nullptr,
                    {},
                    known});
    for (Fp8Blocks blocks : {Fp8Blocks::rows, Fp8Blocks::squares})
      list.push_back({"quantize_blocks",
                      name + " " + name_of(blocks),
                      {x, counters(slots)},
                      Attrs(a).set("blocks", name_of(blocks))});
  }
  const Attrs e4m3 = Attrs().set("format", "e4m3");
  list.push_back({"quantize_columns", s.text(), {x, positive(DType::f32, {1})}, e4m3});
  for (Fp8Blocks blocks : {Fp8Blocks::rows, Fp8Blocks::squares})
    list.push_back(
        {"quantize_blocks_columns", s.text() + " " + name_of(blocks), {x}, Attrs(e4m3).set("blocks", name_of(blocks))});
  return list;
}

}  // namespace crest::test
