// A number of the bytes of device memory, to compare the weights of ranks without copying them.
#pragma once
#include <cstdint>
#include <vector>

namespace crest::cuda {

struct Bytes {
  const void* data;
  int64_t bytes;
};
// Adds the checksum of memory i to sums[i], which is zero (device memory), and waits for it. The
// checksum depends on every byte and its place, not on the order of the threads.
void add_checksums(const std::vector<Bytes>& memory, unsigned long long* sums);

}  // namespace crest::cuda
