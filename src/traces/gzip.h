// Files packed with gzip, as streams: what PyTorch writes under names that end in .gz.
#pragma once
#include <cstdint>
#include <memory>
#include <streambuf>

#include "core/io.h"

namespace crest {

bool is_gzip(const File& file);

// The text of a gzip file, unpacked piece by piece. Reading throws for what is damaged or ends in the middle, and after
// `most` bytes of text: a small file can hold any amount.
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
