#include "device/checksum.h"

#include <cstdlib>

#include "backend/cuda/checksum.h"
#include "core/content_hash.h"

namespace crest {

static std::vector<uint64_t> of_host_memory(const std::vector<TensorRef>& tensors) {
  constexpr size_t digits = 16;
  std::vector<uint64_t> sums(tensors.size());
#pragma omp parallel for schedule(dynamic)
  for (size_t i = 0; i < tensors.size(); ++i) {
    ContentHash hash;
    hash.update(tensors[i].data, size_t(tensors[i].bytes()));
    sums[i] = std::strtoull(hash.hex().substr(0, digits).c_str(), nullptr, 16);
  }
  return sums;
}

std::vector<uint64_t> checksums(const std::vector<TensorRef>& tensors) {
  if (tensors.empty() || tensors[0].on_host()) return of_host_memory(tensors);
  Runtime& runtime = *tensors[0].runtime;
  std::vector<uint64_t> sums(tensors.size());
  auto bytes = int64_t(sums.size() * sizeof sums[0]);
  void* memory = runtime.allocate(bytes);
  runtime.synchronize();
  std::vector<cuda::Bytes> list;
  for (auto& t : tensors) list.push_back({t.data, t.bytes()});
  cuda::add_checksums(list, static_cast<unsigned long long*>(memory));
  runtime.read(sums.data(), memory, bytes);
  runtime.release(memory, bytes);
  return sums;
}

}  // namespace crest
