#include "ops/gpu.h"

#include "core/error.h"
#if CREST_HAVE_CUDA
#include <cuda_runtime.h>

#include <algorithm>
#include <string>
#endif

namespace crest::test::gpu {

#if CREST_HAVE_CUDA

static void check(cudaError_t code, const char* what) {
  if (code != cudaSuccess) fail(std::string(what) + ": " + cudaGetErrorString(code));
}

Buffer::Buffer(size_t bytes) : size_(bytes) { check(cudaMalloc(&data_, bytes), "cudaMalloc"); }
Buffer::~Buffer() { cudaFree(data_); }
void Buffer::fill(int byte) {
  check(cudaMemsetAsync(data_, byte, size_, cudaStream_t(stream())), "cudaMemset");
  synchronize("cudaMemset");
}
void Buffer::upload(const void* from, size_t bytes) {
  check(cudaMemcpy(data_, from, bytes, cudaMemcpyHostToDevice), "copy to the GPU");
  check(cudaDeviceSynchronize(), "copy to the GPU");  // pageable memory: the call returns before the copy has arrived
}
void Buffer::download(void* to, size_t bytes) const {
  check(cudaMemcpy(to, data_, bytes, cudaMemcpyDeviceToHost), "copy from the GPU");
}
void Buffer::repeat(size_t bytes) {
  for (size_t done = bytes; done < size_; done *= 2)
    check(cudaMemcpyAsync(static_cast<char*>(data_) + done, data_, std::min(done, size_ - done),
                          cudaMemcpyDeviceToDevice, cudaStream_t(stream())),
          "copy on the GPU");
  synchronize("copy on the GPU");
}

void* stream() {
  static cudaStream_t s = [] {
    cudaStream_t s = nullptr;
    check(cudaStreamCreateWithFlags(&s, cudaStreamNonBlocking), "cudaStreamCreate");
    return s;
  }();
  return s;
}

void synchronize(const char* what) {
  check(cudaGetLastError(), what);
  check(cudaStreamSynchronize(cudaStream_t(stream())), what);
}

std::vector<double> measure(const std::function<void()>& launch, int repetitions) {
  auto s = cudaStream_t(stream());
  std::vector<cudaEvent_t> events(size_t(repetitions) + 1);
  for (auto& e : events) check(cudaEventCreate(&e), "cudaEventCreate");
  check(cudaEventRecord(events[0], s), "cudaEventRecord");
  for (int r = 0; r < repetitions; ++r) {
    launch();
    check(cudaEventRecord(events[size_t(r) + 1], s), "cudaEventRecord");
  }
  synchronize("timed launches");
  std::vector<double> seconds;
  for (int r = 0; r < repetitions; ++r) {
    float ms = 0;
    check(cudaEventElapsedTime(&ms, events[size_t(r)], events[size_t(r) + 1]), "cudaEventElapsedTime");
    seconds.push_back(double(ms) * 1e-3);
  }
  for (auto& e : events) cudaEventDestroy(e);
  return seconds;
}

double copy_rate() {
  constexpr size_t bytes = size_t(2) << 30;
  Buffer from(bytes), to(bytes);
  from.fill(1);
  auto s = cudaStream_t(stream());
  auto seconds = measure([&] { cudaMemcpyAsync(to.data(), from.data(), bytes, cudaMemcpyDeviceToDevice, s); }, 21);
  std::nth_element(seconds.begin(), seconds.begin() + 10, seconds.end());
  return 2 * double(bytes) / seconds[10];
}

#else

[[noreturn]] static void none() { fail_internal("this build has no CUDA"); }
Buffer::Buffer(size_t bytes) : size_(bytes) { none(); }
Buffer::~Buffer() = default;
void Buffer::fill(int) { none(); }
void Buffer::upload(const void*, size_t) { none(); }
void Buffer::download(void*, size_t) const { none(); }
void Buffer::repeat(size_t) { none(); }
void* stream() { none(); }
void synchronize(const char*) { none(); }
std::vector<double> measure(const std::function<void()>&, int) { none(); }
double copy_rate() { none(); }

#endif

}  // namespace crest::test::gpu
