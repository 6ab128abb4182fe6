// A window over all tokens hides nothing: the same kernel gives the same bits as without a window.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>

#include "ops/harness.h"

namespace crest::test {

namespace {

std::vector<std::vector<uint8_t>> outputs_of(const Kernel& kernel, const Device& device, const Case& c,
                                             const Values& values) {
  Single s(c);
  Memory memory(s.program);
  s.fill(memory, values);
  BoundKernel(kernel, device, s.program, s.instr(), memory).launch();
  std::vector<std::vector<uint8_t>> out;
  for (ValueId v : s.instr().out) out.push_back(memory.bytes(v));
  return out;
}

// The most tokens visible to a query of the case.
int64_t most_keys(const Case& c) {
  if (c.op == "cached_attention") return c.in[1].shape[3];
  return c.op == "causal_mask" ? c.in[0].shape[2] : c.in[c.op == "attention_grad"].shape[1];
}

bool takes(const Kernel& kernel, const Device& device, const Case& c) {
  Single s(c);
  return kernel.reject({s.program, s.instr(), device}).empty();
}

}  // namespace

TEST(Window, ThatHoldsEveryTokenIsNone) {
  const std::vector<std::string> ops = {"attention", "attention_grad", "cached_attention", "causal_mask"};
  for (const Device& device : devices()) {
    int compared = 0;
    for (const Case& c : all_cases()) {
      bool asked = std::find(ops.begin(), ops.end(), c.op) != ops.end() && c.name.starts_with("window");
      if (!asked || most_keys(c) > 70) continue;  // longer ones take minutes in the emulation
      Case without = c, all = c;
      without.attrs.erase("window");
      all.attrs.set("window", most_keys(c));
      Values values = make_values(all);
      for (const Kernel* k : kernels_for(c.op, device)) {
        if (!takes(*k, device, without)) continue;
        SCOPED_TRACE(device_name(device) + " " + k->name + " " + c.op + " " + c.name);
        ASSERT_TRUE(takes(*k, device, all));
        EXPECT_EQ(outputs_of(*k, device, all, values), outputs_of(*k, device, without, values));
        ++compared;
      }
    }
    EXPECT_GT(compared, 50) << device_name(device) << " " << compared;
  }
}

// A window shorter by one token hides a token, so the test above can fail.
TEST(Window, ThatHoldsAllTokensButOneHidesOne) {
  for (const Device& device : devices()) {
    int compared = 0;
    for (const Case& c : all_cases()) {
      if (c.op != "attention" || !c.name.starts_with("window_7_of_63")) continue;
      Case without = c, shorter = c;
      without.attrs.erase("window");
      shorter.attrs.set("window", most_keys(c) - 1);
      Values values = make_values(c);
      for (const Kernel* k : kernels_for(c.op, device)) {
        if (!takes(*k, device, shorter)) continue;
        SCOPED_TRACE(device_name(device) + " " + k->name + " " + c.name);
        EXPECT_NE(outputs_of(*k, device, shorter, values), outputs_of(*k, device, without, values));
        ++compared;
      }
    }
    EXPECT_GE(compared, 3) << device_name(device);
  }
}

}  // namespace crest::test
