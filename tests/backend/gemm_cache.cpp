// The process keeps a bounded number of matmul primitives. A kernel's primitive stays valid after
// it leaves the cache.
#include <gtest/gtest.h>

#include <algorithm>

#include "backend/cpu/gemm.h"

using namespace crest;

TEST(GemmCache, IsBoundedAndWhatIsHeldStaysUsable) {
  auto shape = [](int64_t rows) {
    GemmShape s;
    s.m = rows, s.n = s.k = s.lda = s.ldb = s.ldc = 4;
    return s;
  };
  FoundGemm held = find_gemm(shape(1));
  ASSERT_TRUE(held.gemm) << held.refused;
  for (int64_t rows = 2; rows < int64_t(most_gemms) + 100; ++rows) find_gemm(shape(rows));
  EXPECT_EQ(kept_gemms(), most_gemms);
  ASSERT_EQ(held.gemm->workspace(), 0u);
  float a[] = {1, 2, 3, 4}, b[16] = {}, c[4] = {};
  for (int i = 0; i < 4; ++i) b[5 * i] = 2;  // twice the identity
  held.gemm->run(a, b, nullptr, c, nullptr);
  for (int i = 0; i < 4; ++i) EXPECT_EQ(c[i], 2 * a[i]);
}
