// An update of masters in two halves (core/split_float.h) is that of f32 masters: the same kernel, the same bits.
#include <gtest/gtest.h>

#include <bit>
#include <cmath>

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
      if (halves.in.size() < 2 || halves.in[1].dtype != DType::u16) continue;
      Case whole = halves;
      // Aligned alike: the code for vectors may join other products and sums than the code for single elements.
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

// A step of zero keeps every bit, of what random numbers hardly meet, too. (-0 becomes 0 as in any subtraction.)
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

}  // namespace crest::test
