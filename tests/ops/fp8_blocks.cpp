// What scales of blocks promise beyond their values: a batch may be divided between samples, and a
// weight and its transpose are the same numbers.
#include <gtest/gtest.h>

#include <cmath>

#include "ops/fp8.h"
#include "ops/harness.h"
#include "ops/index.h"

namespace crest::test {

namespace {

struct Result {
  std::vector<std::vector<double>> out;
};

Result run_case(const Kernel& kernel, const Device& device, const Case& c, const Values& values) {
  Single single(c);
  Memory memory(single.program);
  single.fill(memory, values);
  BoundKernel bound(kernel, device, single.program, single.instr(), memory);
  bound.launch();
  Result r;
  for (ValueId v : single.instr().out) r.out.push_back(memory.read(v));
  return r;
}

Case columns_case(const Shape& s) {
  return {"quantize_blocks_columns",
          "",
          {tensor(DType::bf16, s)},
          Attrs().set("format", "e4m3").set("blocks", name_of(Fp8Blocks::rows))};
}

// Magnitudes that differ from token to token.
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

}  // namespace crest::test
