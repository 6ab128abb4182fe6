#include "backend/cuda/checksum.h"

#include "backend/cuda/device/numeric.h"
#include "backend/cuda/launch_stream.h"

namespace crest::cuda {

#if CREST_HAS_DEVICE_CODE
namespace {

constexpr int threads = 256, blocks = 1024, quad = 4;

// splitmix64 (Steele, Lea and Flood 2014) of a word and its place.
__device__ inline unsigned long long mixed(uint32_t word, int64_t place) {
  unsigned long long z = (static_cast<unsigned long long>(place) << 32) + word + 0x9e3779b97f4a7c15ull;
  z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9ull;
  z = (z ^ (z >> 27)) * 0x94d049bb133111ebull;
  return z ^ (z >> 31);
}

// V words at once; the last bytes, short of a word, are one more.
template <int V>
__global__ void __launch_bounds__(threads)
    checksum(const uint32_t* words, int64_t n, const unsigned char* rest, int count, unsigned long long* sum) {
  wait_for_predecessors();
  unsigned long long own = 0;
  int64_t id = int64_t(blockIdx.x) * threads + threadIdx.x, stride = int64_t(gridDim.x) * threads * V;
  for (int64_t i = id * V; i < n; i += stride) {
    if (i + V <= n) {
      Vec<uint32_t, V> x = load_vec<V>(words + i);
#pragma unroll
      for (int e = 0; e < V; ++e) own += mixed(x.x[e], i + e);
    } else {
      for (int64_t e = i; e < n; ++e) own += mixed(words[e], e);
    }
  }
  if (id == 0 && count > 0) {
    uint32_t last = 0;
    for (int b = 0; b < count; ++b) last |= uint32_t(rest[b]) << (8 * b);
    own += mixed(last, n);
  }
  __shared__ unsigned long long part[threads];
  part[threadIdx.x] = own;
  for (unsigned half = threads / 2; half > 0; half /= 2) {
    __syncthreads();
    if (threadIdx.x < half) part[threadIdx.x] += part[threadIdx.x + half];
  }
  if (threadIdx.x == 0) atomicAdd(sum, part[0]);
}

void add_checksum(const Bytes& m, unsigned long long* sum) {
  if (m.bytes <= 0) return;
  int64_t n = m.bytes / 4;
  int count = int(m.bytes % 4);
  auto* kernel = aligned({m.data}) ? checksum<quad> : checksum<1>;
  auto* words = static_cast<const uint32_t*>(m.data);
  auto* rest = static_cast<const unsigned char*>(m.data) + n * 4;
  unsigned grid = std::min(blocks_for(std::max<int64_t>(n, 1), threads * quad), unsigned(blocks));
  launch_on_stream(nullptr, "checksum", kernel, grid, threads, words, n, rest, count, sum);
}

}  // namespace

void add_checksums(const std::vector<Bytes>& memory, unsigned long long* sums) {
  for (size_t i = 0; i < memory.size(); ++i) add_checksum(memory[i], sums + i);
#if defined(__CUDACC__)
  check(cudaStreamSynchronize(nullptr), "checksum");
#endif
}
#else
void add_checksums(const std::vector<Bytes>&, unsigned long long*) {
  fail_internal("a build without CUDA was asked for a checksum");
}
#endif

}  // namespace crest::cuda
