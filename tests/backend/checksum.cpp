// Numbers for comparing the weights of ranks on GPUs.
#include "backend/cuda/checksum.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <set>

#include "backend/runtime.h"
#include "core/random.h"
#include "device/checksum.h"
#include "gpu.h"

namespace crest::test {

// Every byte and its place count, also bytes short of a word; alignment and memory do not.
TEST(Checksum, ChangesWithEveryByte) {
  NEEDS_GPU();
  const Device device = gpu();
  auto runtime = make_runtime(device, nullptr);
  auto of = [&](const std::vector<char>& bytes, int64_t shift) {
    auto n = int64_t(bytes.size());
    auto* data = static_cast<char*>(runtime->allocate(n + 64));
    auto* sum = static_cast<unsigned long long*>(runtime->allocate(8));
    runtime->write(data + shift, bytes.data(), n);
    runtime->synchronize();
    cuda::add_checksums({{data + shift, n}}, sum);
    unsigned long long result = 0;
    runtime->read(&result, sum, 8);
    runtime->release(data, n + 64), runtime->release(sum, 8);
    return result;
  };
  for (int64_t n : {1, 3, 4, 19, 1030}) {
    SCOPED_TRACE(n);
    std::vector<char> bytes(static_cast<size_t>(n));
    for (size_t i = 0; i < bytes.size(); ++i) bytes[i] = char(random_bits(5, 1, i));
    unsigned long long whole = of(bytes, 0);
    EXPECT_EQ(of(bytes, 0), whole);
    EXPECT_EQ(of(bytes, 4), whole) << "not aligned to 16 bytes";
    std::set<unsigned long long> seen = {whole};
    for (size_t i = 0; i<bytes.size(); i += n> 100 ? 103 : 1) {
      bytes[i] ^= 1;
      EXPECT_TRUE(seen.insert(of(bytes, 0)).second) << "byte " << i;
      bytes[i] ^= 1;
    }
    if (n >= 8) {
      std::rotate(bytes.begin(), bytes.begin() + 4, bytes.begin() + 8);
      EXPECT_TRUE(seen.insert(of(bytes, 0)).second) << "two words change places";
    }
  }
}

TEST(Checksum, OfTensors) {
  const Device device = this_cpu(1);
  auto runtime = make_runtime(device, nullptr);
  float a[3] = {1, 2, 3}, b[3] = {1, 2, 4};
  TensorRef first{a, DType::f32, {3}, runtime.get()}, second{b, DType::f32, {3}, runtime.get()};
  auto sums = checksums({first, second, first});
  EXPECT_EQ(sums[0], sums[2]);
  EXPECT_NE(sums[0], sums[1]);
}

}  // namespace crest::test
