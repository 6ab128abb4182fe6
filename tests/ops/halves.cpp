// An update of split masters (core/split_float.h) gives the bits of an update of f32 masters by the
// same kernel.
#include <gtest/gtest.h>

#include <bit>
#include <cmath>

#include "core/random.h"
#include "core/split_float.h"
#include "ops/harness.h"

namespace crest::test {

namespace {

Values outputs_of(const Kernel& kernel, const Device& device, const Case& c, const Values& values) {
  Single s(c);
  Memory memory(s.program);
  s.fill(memory, values);
  BoundKernel(kernel, device, s.program, s.instr(), memory).launch();
  Values out;
  for (ValueId v : s.instr().out) out.push_back(memory.read(v));
  return out;
}

}  // namespace

TEST(MasterHalves, AreTheF32MasterBitForBit) {
  for (const Device& device : devices()) {
    int compared = 0;
    for (const Case& halves : all_cases()) {
      // A body has types of its own; its update is one of the compared ones.
      if (halves.in.size() < 2 || halves.in[1].dtype != DType::u16 || halves.body) continue;
      Case whole = halves;
      // Aligned alike: the code for vectors may join other products and sums than the code for
      // single elements.
      whole.in[1].fill = Arg::Fill::normal, whole.in[1].dtype = DType::f32;
      Values values = make_values(halves), joined_values = values;
      joined_values[1] = joined(values[1], values.back());
      for (const Kernel* k : kernels_for(halves.op, device)) {
        Single a(halves), b(whole);
        if (!k->reject({a.program, a.instr(), device}).empty()) continue;
        SCOPED_TRACE(device.kind + " " + k->name + " " + halves.name);
        ASSERT_EQ(k->reject({b.program, b.instr(), device}), "");
        Values got = outputs_of(*k, device, halves, values), expected = outputs_of(*k, device, whole, joined_values);
        EXPECT_EQ(joined(got[0], got.back()), expected[0]);
        for (size_t o = 1; o + 1 < expected.size(); ++o) EXPECT_EQ(got[o], expected[o]) << "state " << o;
        ++compared;
      }
    }
    EXPECT_GT(compared, 60) << device.kind;
  }
}

// A step of zero keeps every bit, including bits that are rare in random numbers. (-0 becomes 0 as
// in any subtraction.)
TEST(MasterHalves, KeepWhatRandomNumbersHardlyMeet) {
  std::vector<uint32_t> bits;
  for (uint32_t high : {0x3f80u, 0x3f81u, 0xbf80u, 0xbf81u, 0x0000u, 0x0001u, 0x8001u, 0x7f7fu, 0xff7fu, 0x3fffu})
    for (uint32_t low : {0x0000u, 0x0001u, 0x7fffu, 0x8000u, 0x8001u, 0xffffu}) bits.push_back((high << 16) | low);
  bits.push_back(0x7fc00001u), bits.push_back(0x7fffffffu), bits.push_back(0xffffffffu);  // NaN
  auto n = int64_t(bits.size());
  for (const Device& device : devices())
    for (const char* name : {"adamw", "sgd", "lion"}) {
      std::vector<Arg> in = {scalars_arg(), {Arg::Fill::ids, DType::u16, {n}, 1, 1 << 16}, positive(DType::f32, {n})};
      if (name == std::string("adamw")) in.push_back(positive(DType::f32, {n}));
      in.push_back(tensor(DType::f32, {n})), in.push_back(tensor(DType::bf16, {n}));
      Attrs attrs = Attrs().set("momentum", 0.9).set("beta1", 0.9).set("beta2", 0.95).set("eps", 1e-8);
      Case c{name, "specials", in, attrs.set("weight_decay", 0.1), nullptr, some_scalars(), nullptr};
      c.scalars.lr = 0;
      Values values = make_values(c);
      for (size_t i = 0; i < bits.size(); ++i) {
        SplitFloat s = split(std::bit_cast<float>(bits[i]));
        values[1][i] = s.low, values.back()[i] = to_float(s.high);
      }
      for (const Kernel* k : kernels_for(name, device)) {
        SCOPED_TRACE(device.kind + " " + k->name);
        Values out = outputs_of(*k, device, c, values);
        std::vector<double> got = joined(out[0], out.back());
        for (size_t i = 0; i < bits.size(); ++i) {
          auto x = std::bit_cast<float>(bits[i]);
          if (std::isnan(x)) {
            EXPECT_TRUE(std::isnan(got[i]) && std::isnan(out.back()[i])) << std::hex << bits[i];
            continue;
          }
          EXPECT_EQ(std::bit_cast<uint32_t>(float(got[i])), bits[i]) << std::hex << bits[i];
          EXPECT_EQ(out.back()[i], to_float(split(x).high)) << std::hex << bits[i];
        }
      }
    }
}

// Updates with whole masters give the same weights as with split ones. The 50,000 numbers include
// ties, the edge of infinity, infinities, NaN and denormals.
TEST(MasterHalves, WeightsOfWholeMastersAreTheUpperHalves) {
  constexpr int64_t rows = 50, cols = 1000, n = rows * cols;
  std::vector<double> masters(size_t(n), 0);
  for (size_t i = 0; i < masters.size(); ++i) {
    uint32_t bits = random_bits(5, 1, i);
    if (i % 2) bits = (bits & 0xffff0000u) | 0x8000u;                               // a tie
    if (i % 16 == 3) bits &= 0x807fffffu;                                           // denormal
    if (i % 16 == 5) bits = (bits & 0x80000000u) | 0x7f7f8000u | (bits & 0x7fffu);  // rounds to infinity
    if (i % 64 == 9) bits = (bits & 0x80000000u) | 0x7f800000u;
    if (i % 64 == 10) bits |= 0x7f800001u;  // NaN
    masters[i] = double(std::bit_cast<float>(bits));
  }
  Attrs adam = Attrs().set("beta1", 0.9).set("beta2", 0.95).set("eps", 1e-8).set("weight_decay", 0.0);
  Arg f = tensor(DType::f32, {n}), w = tensor(DType::bf16, {n}), positives = positive(DType::f32, {n});
  Arg codes = {Arg::Fill::ids, DType::u8, {n}, 1, 256}, floats = {Arg::Fill::ids, DType::u8, {n}, 1, 127},
      scales = positive(DType::f32, {(n + 255) / 256});
  Arg matrix = tensor(DType::f32, {rows, cols}), row = positive(DType::f32, {rows}), col = positive(DType::f32, {cols});
  auto made = [](const char* op, std::vector<Arg> in, Attrs attrs) {
    in.insert(in.begin(), scalars_arg());
    return Case{op, "weights", in, attrs, nullptr, some_scalars(), nullptr};
  };
  std::vector<Case> cases = {
      made("adamw", {f, f, positives, f, w}, adam),
      made("sgd", {f, f, f, w}, Attrs().set("momentum", 0.9).set("weight_decay", 0.0)),
      made("lion", {f, f, f, w}, Attrs().set("beta1", 0.9).set("beta2", 0.95).set("weight_decay", 0.0)),
      made("adamw_8bit", {f, codes, scales, codes, scales, f, w}, Attrs(adam).set("block", 256)),
      made("adamw_8bit", {f, floats, scales, floats, scales, f, w}, Attrs(adam).set("block", 256).set("codes", "e4m3")),
      made("factored_update", {matrix, matrix, row, col, tensor(DType::bf16, {rows, cols})},
           Attrs().set("clip", 1.0).set("weight_decay", 0.0)),
      made("axpby", {w, f}, Attrs().set("a", 0.0).set("b", 1.0).set("weights", 1))};
  for (const Device& device : devices())
    for (Case& c : cases) {
      bool copies = c.op == std::string("axpby");
      c.scalars.lr = 1e-30f;
      Values values = make_values(c);
      values[copies ? 2 : 1] = masters;
      for (const Kernel* k : kernels_for(c.op, device)) {
        SCOPED_TRACE(device.kind + " " + k->name);
        Single single(c);
        ASSERT_EQ(k->reject({single.program, single.instr(), device}), "");
        Values out = outputs_of(*k, device, c, values);
        const std::vector<double>&from = copies ? masters : out[0], &to = out.back();
        int64_t wrong = 0, infinite = 0, ties = 0;
        for (size_t i = 0; i < from.size(); ++i) {
          auto master = float(from[i]);
          double expected = to_float(split(master).high);
          bool same = std::isnan(expected) ? std::isnan(to[i])
                                           : to[i] == expected && std::signbit(to[i]) == std::signbit(expected);
          wrong += !same;
          infinite += std::isinf(expected);
          ties += (std::bit_cast<uint32_t>(master) & 0xffffu) == 0x8000u;
        }
        EXPECT_EQ(wrong, 0);
        EXPECT_GT(infinite, 1250);
        EXPECT_GT(ties, 5000);
      }
    }
}

}  // namespace crest::test
