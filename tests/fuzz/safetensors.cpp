// The whole reader on an in-memory file, and the header parser with the length that fits, which random files rarely
// have.
#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>

#include "core/error.h"
#include "train/safetensors.h"

static void check(bool condition) {
  if (!condition) __builtin_trap();
}

static void check_layout(const std::vector<crest::TensorEntry>& tensors, uint64_t start, uint64_t end) {
  for (auto& t : tensors) {
    check(t.offset == start && t.spec.shape.size() <= 8 && t.spec.name.size() <= 512);
    if (t.readable) check(crest::byte_count(t.spec) == t.bytes);
    start += t.bytes;
  }
  check(start == end);
}

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t bytes) {
  using namespace crest;
  static const int fd = ::memfd_create("fuzz", MFD_CLOEXEC);
  static const std::string path = "/proc/self/fd/" + std::to_string(fd);
  check(::ftruncate(fd, 0) == 0 && ::pwrite(fd, data, bytes, 0) == ssize_t(bytes));
  try {
    SafetensorsFile file = SafetensorsFile::open(path);
    uint64_t total = 0;
    for (auto& t : file.tensors()) total += t.bytes;
    check_layout(file.tensors(), bytes - total, bytes);
    for (size_t i = 0; i < file.tensors().size(); ++i) {
      auto& t = file.tensors()[i];
      check(file.find(t.spec.name) == int64_t(i));
      std::vector<char> buffer(t.bytes);
      if (t.readable) check(file.read_hashed(i, buffer.data(), t.bytes) == file.hash(i));
    }
  } catch (const Error&) {
  }
  // The first byte chooses how many bytes of data follow the header.
  if (bytes < 1) return 0;
  try {
    auto header = parse_safetensors_header({reinterpret_cast<const char*>(data) + 1, bytes - 1}, data[0], "fuzz");
    check_layout(header.tensors, header.data_start, header.data_start + data[0]);
  } catch (const Error&) {
  }
  return 0;
}
