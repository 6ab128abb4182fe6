// The GPU of the tests, through CUDA's runtime. A build without CUDA has the functions, too, and
// never calls them.
#pragma once
#include <cstddef>
#include <functional>
#include <vector>

namespace crest::test::gpu {

class Buffer {
 public:
  explicit Buffer(size_t bytes);  // aligned to 256 bytes
  ~Buffer();
  Buffer(Buffer&& b) noexcept : data_(b.data_), size_(b.size_) { b.data_ = nullptr; }
  Buffer& operator=(Buffer&&) = delete;
  void* data() const { return data_; }
  size_t size() const { return size_; }
  void fill(int byte);
  void upload(const void* from, size_t bytes);
  void download(void* to, size_t bytes) const;
  // Repeats the first `bytes` bytes to the end.
  void repeat(size_t bytes);

 private:
  void* data_ = nullptr;
  size_t size_;
};

// The stream of all launches of the tests. It does not synchronize with the default stream.
void* stream();
// Waits for the stream. After a failure on the device, throws an Error with `what`.
void synchronize(const char* what);
// Seconds of each of `repetitions` calls of launch(), measured with events on the device. launch()
// enqueues work on stream().
std::vector<double> measure(const std::function<void()>& launch, int repetitions);
// Bytes per second, read and written, of a device-to-device copy far larger than the caches.
double copy_rate();

}  // namespace crest::test::gpu
