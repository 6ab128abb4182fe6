// Gzip files as streams. PyTorch writes traces with names ending in .gz.
#pragma once
#include <cstdint>
#include <memory>
#include <streambuf>

#include "core/io.h"

namespace crest {

bool is_gzip(const File& file);

// The text of a gzip file, unpacked incrementally. Throws for damaged or truncated files, and after
// `most` bytes of text, since a small file can unpack to any size.
class GzipBuffer : public std::streambuf {
 public:
  GzipBuffer(File& file, uint64_t most);
  ~GzipBuffer() override;

 protected:
  int_type underflow() override;

 private:
  struct State;
  std::unique_ptr<State> state_;
};

}  // namespace crest
