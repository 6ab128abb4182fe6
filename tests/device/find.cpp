// Finding a device.
#include "device/find.h"

#include <gtest/gtest.h>

#include "contains.h"

namespace crest::test {

// Somebody whose processor or virtual machine has no AVX2 learns why Crest is slow there.
TEST(FindDevice, SaysThatKernelsAreSlowWithoutAvx2) {
#if defined(__x86_64__)
  EXPECT_TRUE(contains(slow_kernels_note(Isa::generic), "has no AVX2"));
#endif
  for (Isa isa : {Isa::avx2, Isa::avx512, Isa::amx}) EXPECT_EQ(slow_kernels_note(isa), "");
  EXPECT_EQ(cpu_device(Isa::generic, 1).note, slow_kernels_note(best_isa())) << "of the machine, not of a plan";
}

}  // namespace crest::test
