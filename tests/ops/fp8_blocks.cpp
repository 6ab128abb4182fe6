// Properties of block scales besides their values: a batch may be divided between samples, a weight
// and its transpose hold the same numbers, and quantization inside kernels changes no bit.
#include <gtest/gtest.h>

#include <array>
#include <cmath>
#include <map>

#include "ops/fp8.h"
#include "ops/harness.h"
#include "ops/index.h"
#include "ops/quantized_norms.h"
#include "program/builder.h"

namespace crest::test {

namespace {

struct Result {
  std::vector<std::vector<double>> out;
  std::vector<std::vector<uint8_t>> bytes;  // of the outputs
};

Result run_case(const Kernel& kernel, const Device& device, const Case& c, const Values& values) {
  Single single(c);
  Memory memory(single.program);
  single.fill(memory, values);
  BoundKernel bound(kernel, device, single.program, single.instr(), memory);
  bound.launch();
  Result r;
  for (ValueId v : single.instr().out) r.out.push_back(memory.read(v)), r.bytes.push_back(memory.bytes(v));
  return r;
}

Case columns_case(const Shape& s) {
  return {"quantize_blocks_columns",
          "",
          {tensor(DType::bf16, s)},
          Attrs().set("format", "e4m3").set("blocks", name_of(Fp8Blocks::rows))};
}

// Magnitudes different from token to token.
std::vector<double> numbers_of(const Shape& s) {
  std::vector<double> x = make_values(columns_case(s))[0];
  for (size_t i = 0; i < x.size(); ++i) x[i] *= std::ldexp(1.0, int(int64_t(i) / s.back() * 7 % 13) - 6);
  return x;
}

void for_each_kernel(const char* op, const std::function<void(const Kernel&, const Device&)>& body) {
  for (const Device& device : devices())
    for (const Kernel* kernel : kernels_for(op, device)) {
      SCOPED_TRACE(device_name(device) + " " + kernel->name);
      body(*kernel, device);
    }
}

}  // namespace

// Transposes of tokens, for the gradient of a weight: of a batch, or of one sample at a time.
TEST(Fp8Blocks, OfWholeSamplesAreThoseOfTheBatch) {
  constexpr int64_t samples = 3, features = 48;
  for_each_kernel("quantize_blocks_columns", [](const Kernel& kernel, const Device& device) {
    for (int64_t tokens : {128, 256, 96}) {
      SCOPED_TRACE(tokens);
      const Shape all = {samples, tokens, features}, one = {1, tokens, features};
      const std::vector<double> x = numbers_of(all);
      Result whole = run_case(kernel, device, columns_case(all), {x});
      bool same_codes = true, same_scales = true;
      for (int64_t s = 0; s < samples; ++s) {
        const auto begin = x.begin() + s * tokens * features;
        Result part = run_case(kernel, device, columns_case(one), {{begin, begin + tokens * features}});
        const int64_t pitch = samples * tokens, blocks = fp8_blocks_of(tokens);
        for (int64_t f = 0; f < features; ++f) {
          for (int64_t t = 0; t < tokens; ++t)
            same_codes &= part.out[0][size_t(f * tokens + t)] == whole.out[0][size_t(f * pitch + s * tokens + t)];
          for (int64_t b = 0; b < blocks; ++b)
            same_scales &= part.out[1][size_t(b * features + f)] ==
                           whole.out[1][size_t((s * tokens / fp8_block + b) * features + f)];
        }
      }
      EXPECT_EQ(same_codes, tokens % fp8_block == 0);
      EXPECT_EQ(same_scales, tokens % fp8_block == 0);
    }
  });
}

// NaN has no magnitude: in its place a zero gives the same scales.
TEST(Fp8Blocks, DoNotDependOnNaN) {
  const Shape s = {130, 144};
  for (DType t : {DType::f32, DType::bf16, DType::f16})
    for (Fp8Blocks blocks : {Fp8Blocks::rows, Fp8Blocks::squares}) {
      Case c = {"quantize_blocks", "", {tensor(t, s), counters(1)}};
      c.attrs.set("format", "e4m3").set("slot", 0).set("blocks", name_of(blocks)).set("columns", 1);
      for_each_kernel("quantize_blocks", [&](const Kernel& kernel, const Device& device) {
        Values with = make_values(c), without = with;
        for (size_t i : {3, 144 * 5 + 127, 144 * 129 + 143})
          with[0][i] = std::numeric_limits<double>::quiet_NaN(), without[0][i] = 0;
        for (size_t i = 144; i < 2 * 144; ++i) with[0][i] = std::numeric_limits<double>::quiet_NaN(), without[0][i] = 0;
        Result a = run_case(kernel, device, c, with), b = run_case(kernel, device, c, without);
        namespace to = out::quantize_blocks;
        EXPECT_EQ(a.bytes[to::scale], b.bytes[to::scale]);
        EXPECT_EQ(a.bytes[to::t_scale], b.bytes[to::t_scale]);
      });
    }
}

TEST(Fp8Blocks, OfAWeightServeItsTranspose) {
  const int64_t n = 272, k = 144;
  Case c = {"quantize_blocks", "", {tensor(DType::bf16, {n, k}), {Arg::Fill::ids, DType::i64, {1, 2}, 1, 9}}};
  c.attrs.set("format", "e4m3").set("slot", 0).set("blocks", "128x128").set("columns", 1);
  for_each_kernel("quantize_blocks", [&](const Kernel& kernel, const Device& device) {
    Values values = make_values(c);
    values[0] = numbers_of({n, k});
    Result r = run_case(kernel, device, c, values);
    namespace to = out::quantize_blocks;
    for (int64_t i = 0; i < n; ++i)
      for (int64_t j = 0; j < k; ++j)
        ASSERT_EQ(r.out[to::q][size_t(i * k + j)], r.out[to::t][size_t(j * n + i)]) << i << " " << j;
    const Shape scales = fp8_scales(Fp8Blocks::squares, n, k), turned = fp8_scales(Fp8Blocks::squares, k, n);
    EXPECT_EQ(scales, (Shape{3, 4}));
    EXPECT_EQ(turned, (Shape{2, 4}));
    for (int64_t i = 0; i < scales[0]; ++i)
      for (int64_t j = 0; j < turned[0]; ++j) {
        const double scale = r.out[to::scale][size_t(i * scales[1] + j)];
        EXPECT_EQ(scale, r.out[to::t_scale][size_t(j * turned[1] + i)]);
        EXPECT_GT(scale, 0);
      }
  });
}

namespace {

// By the device's first accepting kernel.
Result run_on(const Device& device, const Case& c, const Values& values) {
  const Single single(c);
  for (const Kernel* kernel : kernels_for(c.op, device))
    if (kernel->reject({single.program, single.instr(), device}).empty()) return run_case(*kernel, device, c, values);
  ADD_FAILURE() << "no kernel of " << device.name << " takes " << c.op;
  return {};
}

Attrs of_rows(const char* format) { return Attrs().set("format", format).set("blocks", name_of(Fp8Blocks::rows)); }

// quantize_blocks of y, with its transpose, on a device.
Result quantized_apart(const Device& device, const Shape& s, const char* format, const std::vector<double>& y,
                       const std::vector<double>& counts) {
  Case c = {"quantize_blocks", "", {tensor(DType::bf16, s), counters(1)}, of_rows(format)};
  c.attrs.set("slot", 0).set("columns", 1);
  return run_on(device, c, {y, counts});
}

const std::vector<Shape> sizes = {{3, 65, 96}, {260, 328}, {1, 8}, {129, 136}, {128, 128}};

}  // namespace

// Tiles of three inputs need more shared memory than compute capability 8.9 has; with blocks, so do
// tiles of two.
TEST(Fp8Blocks, AreLeftApartWhereTilesDoNotFit) {
  const Device& gpu = devices().back();
  if (gpu.kind != "cuda") GTEST_SKIP() << why_no_gpu();
  Device small = gpu;
  small.shared_per_block = 101376;
  int fit = 0, too_large = 0;
  for (const Case& c : all_cases()) {
    if (c.op != "fused" || !c.name.starts_with("quantized")) continue;
    const Single single(c);
    const size_t inputs = c.name.find("swiglu_grad") != c.name.npos                                         ? 3
                          : c.name.find("gelu_grad") != c.name.npos || c.name.find("swiglu") != c.name.npos ? 2
                                                                                                            : 1;
    const bool fits = inputs < (c.name.ends_with("blocks") ? 2u : 3u);
    for (const Kernel* kernel : kernels_for(c.op, small)) {
      if (std::string(kernel->name) != "cuda.fused.quantize") continue;
      EXPECT_EQ(kernel->reject({single.program, single.instr(), gpu}), "");
      const std::string why = kernel->reject({single.program, single.instr(), small});
      EXPECT_EQ(why.find("bytes of shared memory") == why.npos, fits) << c.name << ": " << why;
      ++(fits ? fit : too_large);
    }
  }
  EXPECT_GT(fit, 0);
  EXPECT_GT(too_large, 0);
}

// Two tiles of 128 rows, staged in whole vectors, need 64 KiB where they are f32 or of blocks.
TEST(Fp8Blocks, KernelsAreRefusedWhereTilesDoNotFit) {
  const Device& gpu = devices().back();
  if (gpu.kind != "cuda") GTEST_SKIP() << why_no_gpu();
  Device ada = gpu, small = gpu;
  ada.shared_per_block = 101376, small.shared_per_block = 65536;
  std::map<std::string, std::array<int, 2>> judged;  // by operation: taken, refused
  for (const Case& c : all_cases()) {
    const bool norm = c.op == "norm_quantize_columns", blocks = c.attrs.has("blocks");
    if (!norm && !c.op.starts_with("quantize_blocks") && c.op != "quantize" && c.op != "quantize_columns") continue;
    const Single single(c);
    const size_t bytes = size_of(c.in[0].dtype), columns = blocks ? 128 : 64;
    const bool staged = c.in[0].shape.back() % 8 == 0 && (bytes == 2 || !blocks);
    const bool fits = !staged || 2 * 128 * columns * bytes < 65536;
    for (const Kernel* kernel : kernels_for(c.op, gpu)) {
      if (!std::string_view(kernel->name).ends_with(".tiles") ||
          !kernel->reject({single.program, single.instr(), gpu}).empty())
        continue;
      EXPECT_EQ(kernel->reject({single.program, single.instr(), ada}), "");
      const std::string why = kernel->reject({single.program, single.instr(), small});
      EXPECT_EQ(why.find("bytes of shared memory") == why.npos, fits) << c.op << " " << c.name << ": " << why;
      ++judged[c.op][!fits];
    }
  }
  EXPECT_EQ(judged.size(), 5u);
  for (const auto& [op, count] : judged) {
    EXPECT_GT(count[0], 0) << op;
    EXPECT_GT(count[1], 0) << op;
  }
}

// Activations, their gradients and bias gradients: a body with the quantized values as additional
// outputs.
TEST(Fp8Blocks, OfABodyAreThoseOfWhatItMade) {
  struct Function {
    const char* name;
    size_t inputs;
    std::function<std::vector<ValueId>(Builder&, const std::vector<ValueId>&)> make;  // the quantized values
  };
  const std::vector<Function> functions = {
      {"gelu", 1, [](Builder& b, const std::vector<ValueId>& x) { return std::vector{b.emit1("gelu", {x[0]})}; }},
      {"gelu_grad", 2,
       [](Builder& b, const std::vector<ValueId>& x) {
         ValueId a = b.emit1("gelu", {x[1]});
         return std::vector{b.emit1("gelu_grad", {x[0], x[1]}), a};
       }},
      {"swiglu", 2,
       [](Builder& b, const std::vector<ValueId>& x) {
         return std::vector{b.emit1("mul", {b.emit1("silu", {x[0]}), x[1]})};
       }},
      {"swiglu_grad", 3,
       [](Builder& b, const std::vector<ValueId>& x) {
         ValueId s = b.emit1("silu", {x[1]}), a = b.emit1("mul", {s, x[2]}), du = b.emit1("mul", {x[0], s});
         return std::vector{b.emit1("silu_grad", {b.emit1("mul", {x[0], x[2]}), x[1]}), du, a};
       }},
  };
  for (const Device& device : devices())
    for (const Function& f : functions)
      for (const Shape& s : sizes)
        for (const char* format : {"e4m3", "e5m2"}) {
          const bool gradients = f.inputs > 1 && std::string(f.name).ends_with("grad");
          if (!gradients && std::string(format) == "e5m2") continue;  // activations are e4m3
          SCOPED_TRACE(device_name(device) + " " + f.name + " " + s.text() + " " + format);
          Case c = {"fused", "", std::vector<Arg>(f.inputs, tensor(DType::bf16, s))};
          c.in.push_back(counters(1));
          auto body = std::make_shared<Program>();
          Builder b(*body);
          b.origin = Origin("test");
          for (const Arg& a : c.in)
            body->inputs.push_back(b.declare("x" + std::to_string(body->inputs.size()), a.dtype, a.shape,
                                             Role::activation, Lifetime::micro_step));
          const std::vector<ValueId> x = body->inputs, made = f.make(b, {x.begin(), x.end() - 1});
          ValueId counts = x.back();
          for (size_t i = 0; i < made.size(); ++i) {
            const bool rows = i + 1 < made.size() || !gradients;  // of an activation, the gradient has the transpose
            body->outputs.push_back(made[i]);
            std::vector<ValueId> out =
                rows ? b.emit("quantize_blocks", {made[i], counts}, of_rows(format).set("slot", 0).set("columns", 1))
                     : b.emit("quantize_blocks_columns", {made[i]}, of_rows("e4m3"));
            if (rows) counts = out[out::quantize_blocks::counts];
            for (size_t o = 0; o < out.size(); ++o)
              if (!rows || o != out::quantize_blocks::counts) body->outputs.push_back(out[o]);
          }
          body->outputs.push_back(counts);
          c.body = body;
          Values values = make_values(c);
          for (size_t i = 0; i < f.inputs; ++i) values[i] = numbers_of(s);
          if (f.inputs > 1)  // not all alike
            for (size_t i = 0; i < values[1].size(); ++i) values[1][i] = std::fmod(values[1][i] * 7, 5);
          const Result at_once = run_on(device, c, values);
          ASSERT_EQ(at_once.out.size(), body->outputs.size());
          std::vector<double> so_far = values.back();
          size_t o = 0;
          for (size_t i = 0; i < made.size(); ++i) {
            const bool rows = i + 1 < made.size() || !gradients;
            const Result apart = quantized_apart(device, s, rows ? format : "e4m3", at_once.out[o++], so_far);
            namespace to = out::quantize_blocks;
            if (rows) {
              so_far = apart.out[to::counts];
              EXPECT_EQ(at_once.bytes[o++], apart.bytes[to::q]);
              EXPECT_EQ(at_once.bytes[o++], apart.bytes[to::scale]);
            }
            EXPECT_EQ(at_once.bytes[o++], apart.bytes[to::t]);
            EXPECT_EQ(at_once.bytes[o++], apart.bytes[to::t_scale]);
          }
          EXPECT_EQ(at_once.out[o], so_far) << "counts";
        }
}

TEST(Fp8Blocks, OfANormAreThoseOfWhatItMade) {
  const DType t = DType::bf16;
  for (const Device& device : devices())
    for (const Shape& s : sizes)
      for (bool layer : {true, false})
        for (bool sum : {true, false}) {
          SCOPED_TRACE(device_name(device) + " " + s.text() + (layer ? " layer" : " rms") + (sum ? " sum" : ""));
          const Arg x = tensor(t, s), weight = tensor(t, {s.back()}), beta = layer ? weight : absent();
          const Attrs norm = Attrs().set("kind", layer ? "layer" : "rms").set("eps", 1e-5);
          Case of = {"norm", "", {x, weight}, norm}, at_once = {"norm_quantize", "", {}, norm};
          if (sum) of.op = "add_norm", of.in = {x, x, weight};
          if (layer) of.in.push_back(weight);
          Values values = make_values(of);
          for (size_t i = 0; i < (sum ? 2 : 1); ++i) values[i] = numbers_of(s);
          const Result made = run_on(device, of, values);

          at_once.in = {x, weight, absent(), absent(), counters(1), sum ? x : absent(), beta};
          at_once.attrs.set("format", "e4m3").set("slot", 0).set("blocks", name_of(Fp8Blocks::rows));
          const std::vector<double> counts = {3, 5};
          const std::vector<double>&gamma = values[sum ? 2 : 1], &last = values.back();
          const Result got = run_on(device, at_once,
                                    {values[0],
                                     gamma,
                                     {},
                                     {},
                                     counts,
                                     sum ? values[1] : std::vector<double>(),
                                     layer ? last : std::vector<double>()});
          const size_t y = sum ? size_t(out::add_norm::y) : size_t(out::norm::y), rstd = y + 1;
          const Result apart = quantized_apart(device, s, "e4m3", made.out[y], counts);
          namespace to = out::quantize_blocks;
          for (size_t o : {size_t(to::q), size_t(to::scale), size_t(to::counts)})
            EXPECT_EQ(got.bytes[o], apart.bytes[o]) << o;
          EXPECT_EQ(got.bytes[norm_quantize_rstd(at_once.attrs)], made.bytes[rstd]);
          if (layer) {
            EXPECT_EQ(got.bytes[norm_quantize_rstd(at_once.attrs) + 1], made.bytes[rstd + 1]);
          }
          if (sum) {
            EXPECT_EQ(got.bytes.back(), made.bytes[out::add_norm::s]);
          }

          const Arg row = tensor(DType::f32, {s.rows()});
          Case columns = {"norm_quantize_columns", "", {x, weight, row, absent(), layer ? row : absent(), beta}};
          columns.attrs = of_rows("e4m3").set("kind", layer ? "layer" : "rms");
          const Result turned = run_on(device, columns,
                                       {sum ? made.out[out::add_norm::s] : values[0],
                                        gamma,
                                        made.out[rstd],
                                        {},
                                        layer ? made.out[rstd + 1] : std::vector<double>(),
                                        layer ? last : std::vector<double>()});
          EXPECT_EQ(turned.bytes[0], apart.bytes[to::t]);
          EXPECT_EQ(turned.bytes[1], apart.bytes[to::t_scale]);
        }
}

}  // namespace crest::test
