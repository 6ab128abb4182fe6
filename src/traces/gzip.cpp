#include "traces/gzip.h"

#include <fmt/format.h>
#include <zlib.h>

#include <array>

#include "core/error.h"
#include "core/text.h"

namespace crest {

bool is_gzip(const File& file) {
  std::array<uint8_t, 2> magic{};
  return file.read_some_at(magic.data(), magic.size(), 0) == 2 && magic[0] == 0x1f && magic[1] == 0x8b;
}

struct GzipBuffer::State {
  State(File& f, uint64_t limit) : file(f), most(limit) {
    constexpr int with_gzip_header = 16;
    if (inflateInit2(&stream, MAX_WBITS + with_gzip_header) != Z_OK) fail_internal("zlib is not usable", "gzip");
  }
  ~State() { inflateEnd(&stream); }

  // Returns the number of bytes of text now available; 0: the end.
  size_t unpack() {
    stream.next_out = text.data(), stream.avail_out = unsigned(text.size());
    while (stream.avail_out == text.size()) {
      if (stream.avail_in == 0) {
        size_t n = file.read_some(packed.data(), packed.size());
        if (n == 0 && between_members) return 0;
        if (n == 0) fail_damaged("it is truncated");
        stream.next_in = packed.data(), stream.avail_in = unsigned(n);
      }
      // gzip allows several consecutive members.
      if (between_members) inflateReset(&stream), between_members = false;
      int result = inflate(&stream, Z_NO_FLUSH);
      if (result == Z_STREAM_END)
        between_members = true;
      else if (result != Z_OK && result != Z_BUF_ERROR)
        fail_damaged("it is damaged");
    }
    size_t n = text.size() - stream.avail_out;
    done += n;
    if (done > most)
      fail(fmt::format("is larger than {} when unpacked", format_bytes(double(most))), printable(file.path()),
           "Record fewer steps, or without stacks.");
    return n;
  }

  [[noreturn]] void fail_damaged(const char* how) const {
    fail(fmt::format("cannot be unpacked: {}", how), printable(file.path()), "Export or copy the file again.");
  }

  File& file;
  uint64_t most, done = 0;
  bool between_members = false;
  z_stream stream{};
  std::array<uint8_t, 1 << 16> packed, text;
};

GzipBuffer::GzipBuffer(File& file, uint64_t most) : state_(std::make_unique<State>(file, most)) {}
GzipBuffer::~GzipBuffer() = default;

std::streambuf::int_type GzipBuffer::underflow() {
  size_t n = state_->unpack();
  char* text = reinterpret_cast<char*>(state_->text.data());
  setg(text, text, text + n);
  return n == 0 ? traits_type::eof() : traits_type::to_int_type(*text);
}

}  // namespace crest
