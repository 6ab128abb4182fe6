// Any bytes as a token shard: a clear error or tokens below the vocabulary, never a crash.
#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <cstdlib>
#include <string>

#include "core/error.h"
#include "data/shards.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using namespace crest;
  static const int fd = ::memfd_create("shard", MFD_CLOEXEC);
  static const std::string path = "/proc/self/fd/" + std::to_string(fd);
  constexpr uint32_t vocab = 50257;
  if (::ftruncate(fd, 0) != 0 || ::pwrite(fd, data, size, 0) != ssize_t(size)) std::abort();
  try {
    // The header's checks with a size that is not the file's: as after a file was cut short.
    parse_shard_header({data, size < ShardHeader::bytes ? size : ShardHeader::bytes}, size * 3 + 1, "input");
  } catch (const Error&) {
  }
  try {
    ShardReader reader(path, vocab);
    if (reader.file_bytes() != size) std::abort();
    int32_t out[100];
    for (uint64_t at = 0; at < reader.tokens(); at += 100) {
      size_t n = size_t(std::min<uint64_t>(100, reader.tokens() - at));
      reader.read(at, n, out);
      for (size_t i = 0; i < n; ++i)
        if (out[i] < 0 || uint32_t(out[i]) >= vocab) std::abort();
    }
    try {
      reader.read(reader.tokens(), 1, out);
      std::abort();
    } catch (const Error&) {
    }
  } catch (const Error&) {
  }
  return 0;
}
