#include "core/unpack.h"

#include <fmt/format.h>
#include <lzma.h>
#include <zlib.h>
#include <zstd.h>
#include <zstd_errors.h>

#include <algorithm>
#include <array>
#include <vector>

#include "core/error.h"
#include "core/shell_word.h"
#include "core/text.h"

namespace crest {

using namespace std::string_view_literals;

namespace {

// A dictionary of xz's presets has at most 64 MiB; a window of zstd, without --long, 128 MiB.
constexpr uint64_t largest_dictionary = uint64_t(256) << 20;
constexpr int largest_window_log = 27;

struct Format {
  Compression compression;
  std::string_view suffix, tool;
};
constexpr std::array<Format, 3> formats{
    {{Compression::gzip, ".gz", "zcat"}, {Compression::zstd, ".zst", "zstdcat"}, {Compression::xz, ".xz", "xzcat"}}};

const Format* format_of(Compression compression) {
  for (auto& f : formats)
    if (f.compression == compression) return &f;
  return nullptr;
}

}  // namespace

Compression compression_of(std::string_view start) {
  if (start.starts_with("\x1f\x8b"sv)) return Compression::gzip;
  if (start.starts_with("\x28\xb5\x2f\xfd"sv)) return Compression::zstd;
  // A skippable frame: parallel compressors write one first.
  if (start.size() >= 4 && (uint8_t(start[0]) & 0xf0) == 0x50 && start.substr(1, 3) == "\x2a\x4d\x18"sv)
    return Compression::zstd;
  if (start.starts_with("\xfd\x37zXZ\0"sv)) return Compression::xz;
  return Compression::none;
}

std::string_view unpacking_tool(Compression compression) {
  auto* f = format_of(compression);
  return f ? f->tool : "";
}

std::string_view name_inside(std::string_view name) {
  for (auto& f : formats)
    if (name.size() > f.suffix.size() && name.ends_with(f.suffix)) return name.substr(0, name.size() - f.suffix.size());
  return name;
}

class Unpacker::Decoder {
 public:
  Decoder(std::string name, Source source) : name_(std::move(name)), source_(std::move(source)) {}
  virtual ~Decoder() = default;
  // Up to `bytes` of text, and at least one except at the end.
  virtual size_t unpack(char* to, size_t bytes) = 0;

 protected:
  // Reads more of the file after all earlier bytes are used. False at its end.
  bool refill() {
    if (position_ < available_) return true;
    before_ += available_;
    position_ = 0;
    available_ = ended_ ? 0 : source_(packed_.data(), packed_.size());
    ended_ |= available_ < packed_.size();
    return available_ > 0;
  }
  const uint8_t* next() const { return reinterpret_cast<const uint8_t*>(packed_.data()) + position_; }
  size_t left() const { return available_ - position_; }
  void take(size_t bytes) { position_ += bytes; }
  uint64_t offset() const { return before_ + position_; }

  [[noreturn]] void fail_damaged(std::string_view how) const {
    fail(fmt::format("the file cannot be unpacked: {} at byte {}", how, offset()), printable(name_),
         "Copy or download the file again.");
  }
  [[noreturn]] void fail_truncated() const {
    fail(fmt::format("the file cannot be unpacked: it is truncated, it ends at byte {}", offset()), printable(name_),
         "Copy or download the file again.");
  }
  std::string unpack_advice(std::string_view command) const {
    std::string_view inside = name_inside(name_);
    return fmt::format("Unpack it first: {} {} > {}", command, shell_path(name_),
                       shell_path(inside == name_ ? "unpacked" : inside));
  }
  std::string name_;

 private:
  Source source_;
  std::vector<char> packed_ = std::vector<char>(size_t(256) << 10);
  size_t position_ = 0, available_ = 0;
  uint64_t before_ = 0;  // bytes of the file before packed_
  bool ended_ = false;
};

namespace {

class Gzip final : public Unpacker::Decoder {
 public:
  Gzip(std::string name, Unpacker::Source source) : Decoder(std::move(name), std::move(source)) {
    constexpr int with_gzip_header = 16;
    if (inflateInit2(&stream_, MAX_WBITS + with_gzip_header) != Z_OK) fail_internal("zlib is not usable", "gzip");
  }
  ~Gzip() override { inflateEnd(&stream_); }

  size_t unpack(char* to, size_t bytes) override {
    bytes = std::min(bytes, size_t(1) << 30);  // zlib counts in unsigned int
    stream_.next_out = reinterpret_cast<Bytef*>(to), stream_.avail_out = unsigned(bytes);
    while (stream_.avail_out == bytes) {
      if (!refill()) {
        if (between_members_) return 0;
        fail_truncated();
      }
      if (between_members_ && !next_member()) continue;
      stream_.next_in = const_cast<Bytef*>(next()), stream_.avail_in = unsigned(left());
      int result = inflate(&stream_, Z_NO_FLUSH);
      take(left() - stream_.avail_in);
      if (result == Z_STREAM_END)
        between_members_ = true, first_ = false;
      else if (result != Z_OK && result != Z_BUF_ERROR)
        fail_damaged("it is damaged");
    }
    return bytes - stream_.avail_out;
  }

 private:
  // Zeros after the last member are padding, as in gzip.
  bool next_member() {
    if (!first_ && *next() == 0) {
      take(1);
      padding_ = true;
      return false;
    }
    if (padding_ || (!first_ && *next() != 0x1f)) fail_damaged("it is damaged, with something else after its end,");
    inflateReset(&stream_);
    between_members_ = false;
    return true;
  }
  z_stream stream_{};
  bool first_ = true, between_members_ = true, padding_ = false;
};

class Zstd final : public Unpacker::Decoder {
 public:
  Zstd(std::string name, Unpacker::Source source) : Decoder(std::move(name), std::move(source)) {
    if (!stream_ || ZSTD_isError(ZSTD_DCtx_setParameter(stream_, ZSTD_d_windowLogMax, largest_window_log)))
      fail_internal("libzstd is not usable", "zstd");
  }
  ~Zstd() override { ZSTD_freeDCtx(stream_); }

  size_t unpack(char* to, size_t bytes) override {
    ZSTD_outBuffer out{to, bytes, 0};
    while (out.pos == 0) {
      // The decoder may still have text after the end of the file.
      bool more = refill();
      if (!more && (between_frames_ || drained_)) {
        if (between_frames_) return 0;
        fail_truncated();
      }
      ZSTD_inBuffer in{next(), left(), 0};
      size_t result = ZSTD_decompressStream(stream_, &out, &in);
      take(in.pos);
      if (ZSTD_isError(result)) fail_error(result);
      between_frames_ = result == 0;
      drained_ = !more && out.pos == 0;
    }
    return out.pos;
  }

 private:
  [[noreturn]] void fail_error(size_t result) const {
    if (ZSTD_getErrorCode(result) == ZSTD_error_frameParameter_windowTooLarge)
      fail(fmt::format("the file needs a window of more than {} of memory to unpack",
                       format_bytes(double(uint64_t(1) << largest_window_log))),
           printable(name_), unpack_advice("zstd -dc --long=31"));
    fail_damaged("it is damaged");
  }
  ZSTD_DCtx* stream_ = ZSTD_createDCtx();
  bool between_frames_ = true, drained_ = false;
};

class Xz final : public Unpacker::Decoder {
 public:
  Xz(std::string name, Unpacker::Source source) : Decoder(std::move(name), std::move(source)) {
    if (lzma_stream_decoder(&stream_, largest_dictionary, LZMA_CONCATENATED) != LZMA_OK)
      fail_internal("liblzma is not usable", "xz");
  }
  ~Xz() override { lzma_end(&stream_); }

  size_t unpack(char* to, size_t bytes) override {
    stream_.next_out = reinterpret_cast<uint8_t*>(to), stream_.avail_out = bytes;
    while (stream_.avail_out == bytes && !ended_) {
      bool more = refill();
      stream_.next_in = next(), stream_.avail_in = left();
      lzma_ret result = lzma_code(&stream_, more ? LZMA_RUN : LZMA_FINISH);
      take(left() - stream_.avail_in);
      if (result == LZMA_STREAM_END)
        ended_ = true;
      else if (result == LZMA_BUF_ERROR)
        fail_truncated();
      else if (result == LZMA_MEMLIMIT_ERROR)
        fail(fmt::format("the file needs more than {} of memory to unpack", format_bytes(double(largest_dictionary))),
             printable(name_), unpack_advice("xzcat"));
      else if (result != LZMA_OK)
        fail_damaged("it is damaged");
    }
    return bytes - stream_.avail_out;
  }

 private:
  lzma_stream stream_ = LZMA_STREAM_INIT;
  bool ended_ = false;
};

class Plain final : public Unpacker::Decoder {
 public:
  Plain(std::string name, Unpacker::Source source) : Decoder(std::move(name), {}), plain_(std::move(source)) {}
  size_t unpack(char* to, size_t bytes) override { return plain_(to, bytes); }

 private:
  Unpacker::Source plain_;
};

std::unique_ptr<Unpacker::Decoder> decoder(Compression compression, const std::string& name, Unpacker::Source source) {
  switch (compression) {
    case Compression::gzip: return std::make_unique<Gzip>(name, std::move(source));
    case Compression::zstd: return std::make_unique<Zstd>(name, std::move(source));
    case Compression::xz: return std::make_unique<Xz>(name, std::move(source));
    case Compression::none: break;
  }
  return std::make_unique<Plain>(name, std::move(source));
}

}  // namespace

Unpacker::Unpacker(Compression compression, std::string name, Source source, uint64_t most)
    : compression_(compression),
      decoder_(decoder(compression, name, std::move(source))),
      name_(std::move(name)),
      most_(most) {}

Unpacker::~Unpacker() = default;

size_t Unpacker::read(char* to, size_t bytes) {
  size_t filled = 0;
  while (filled < bytes) {
    size_t n = decoder_->unpack(to + filled, bytes - filled);
    if (n == 0) break;
    filled += n, done_ += n;
    if (done_ > most_)
      fail(fmt::format("the file unpacks to more than {}", format_bytes(double(most_))), printable(name_),
           fmt::format("If that is right, unpack it first with {}.", unpacking_tool(compression_)));
  }
  return filled;
}

}  // namespace crest
