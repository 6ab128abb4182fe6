// An update of masters in two halves (core/split_float.h) is that of f32 masters: the same kernel, the same bits.
#include <gtest/gtest.h>

#include <cmath>

#include "core/split_float.h"
#include "ops/harness.h"

namespace crest::test {

namespace {

std::vector<double> joined(const std::vector<double>& low, const std::vector<double>& high) {
  std::vector<double> x;
  for (size_t i = 0; i < low.size(); ++i) x.push_back(join(to_bfloat16(float(high[i])), uint16_t(low[i])));
  return x;
}

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
  int compared = 0;
  for (const Device& device : devices())
    for (const Case& halves : all_cases()) {
      if (halves.in.size() < 2 || halves.in[1].dtype != DType::u16) continue;
      Case whole = halves;
      whole.in[1] = tensor(DType::f32, halves.in[1].shape);
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
        for (size_t i = 0; i < expected[0].size(); ++i)
          EXPECT_LE(std::abs(got.back()[i] - expected[0][i]), 0x1p-8 * std::abs(expected[0][i])) << "weight " << i;
        ++compared;
      }
    }
  EXPECT_GT(compared, 60);
}

}  // namespace crest::test
