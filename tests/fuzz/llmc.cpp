// Any bytes as a checkpoint of llm.c: a clear error, or weights that all lie inside of the file.
#include <sys/mman.h>
#include <unistd.h>

#include <cstdlib>
#include <string>

#include "core/error.h"
#include "interop/llmc.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using namespace crest;
  static const int fd = ::memfd_create("llmc", MFD_CLOEXEC);
  static const std::string path = "/proc/self/fd/" + std::to_string(fd);
  if (::ftruncate(fd, 0) != 0 || ::pwrite(fd, data, size, 0) != ssize_t(size)) std::abort();
  try {
    // The header's checks with a size that is not the file's: as after a file was cut short.
    parse_llmc_header({data, size < LlmcHeader::bytes ? size : LlmcHeader::bytes}, size * 3 + 1, "input");
  } catch (const Error&) {
  }
  try {
    LlmcCheckpoint checkpoint(path);
    std::vector<float> values;
    for (auto& p : parameters_of(checkpoint.header().config)) {
      size_t n = 1;
      for (int64_t d : p.shape) n *= size_t(d);
      if (n > size) std::abort();  // a number takes two bytes at least
      values.resize(n);
      checkpoint.read(p, values.data());
    }
  } catch (const Error&) {
  }
  return 0;
}
