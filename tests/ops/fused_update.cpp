// A quantizing update has the bits of the update and of the quantization behind it.
#include <gtest/gtest.h>

#include <string_view>

#include "ops/harness.h"
#include "program/op.h"

namespace crest::test {

namespace {

const Kernel* kernel_of(const KernelQuery& q) {
  for (const Kernel* k : kernels_for(q.instr.op->name, q.device))
    if (k->reject(q).empty()) return k;
  return nullptr;
}

}  // namespace

TEST(FusedUpdate, HasTheBitsOfItsParts) {
  int compared = 0;
  for (const Case& c : all_cases()) {
    if (c.op != "fused_update") continue;
    const Values values = make_values(c);
    for (const Device& device : devices()) {
      SCOPED_TRACE(c.name + " on " + device_name(device));
      Single whole(c);
      Memory at_once(whole.program);
      whole.fill(at_once, values);
      const Kernel* kernel = kernel_of({whole.program, whole.instr(), device});
      ASSERT_TRUE(kernel && !std::string_view(kernel->name).ends_with(".reference"));
      launch(*kernel, device, whole.program, whole.instr(), at_once);

      const Program& body = *c.body;
      Memory apart(body);
      for (size_t i = 0; i < body.inputs.size(); ++i) apart.write(body.inputs[i], values[i]);
      for (const Instr& part : body.code) {
        const Kernel* k = kernel_of({body, part, device});
        ASSERT_TRUE(k) << part.op->name;
        launch(*k, device, body, part, apart);
      }
      for (size_t o = 0; o < body.outputs.size(); ++o, ++compared)
        EXPECT_TRUE(at_once.bytes(whole.instr().out[o]) == apart.bytes(body.outputs[o])) << "output " << o;
    }
  }
  EXPECT_GT(compared, 100);
}

}  // namespace crest::test
