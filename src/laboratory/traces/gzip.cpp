#include "traces/gzip.h"

#include <array>

#include "core/unpack.h"

namespace crest {

bool is_gzip(const File& file) {
  std::array<char, 2> start{};
  size_t n = file.read_some_at(start.data(), start.size(), 0);
  return compression_of({start.data(), n}) == Compression::gzip;
}

struct GzipBuffer::State {
  State(File& file, uint64_t most)
      : unpacker(
            Compression::gzip, file.path(), [&file](char* to, size_t bytes) { return file.read_some(to, bytes); },
            most) {}
  Unpacker unpacker;
  std::array<char, 1 << 16> text;
};

GzipBuffer::GzipBuffer(File& file, uint64_t most) : state_(std::make_unique<State>(file, most)) {}
GzipBuffer::~GzipBuffer() = default;

std::streambuf::int_type GzipBuffer::underflow() {
  size_t n = state_->unpacker.read(state_->text.data(), state_->text.size());
  char* text = state_->text.data();
  setg(text, text, text + n);
  return n == 0 ? traits_type::eof() : traits_type::to_int_type(*text);
}

}  // namespace crest
