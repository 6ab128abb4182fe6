// Compressed files as streams: gzip, zstd and xz, by their first bytes.
#pragma once
#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <string_view>

namespace crest {

enum class Compression : uint8_t { none, gzip, zstd, xz };

// The compression of a file with these first bytes (8 are enough).
Compression compression_of(std::string_view start);
// The program for unpacking to standard output: "zcat", "zstdcat", "xzcat".
std::string_view unpacking_tool(Compression compression);
// The name of the file inside: "a.jsonl" for "a.jsonl.gz", ".zst" or ".xz"; other names unchanged.
std::string_view name_inside(std::string_view name);

// Unpacks a stream in constant memory (at most 256 MiB, as its header requires). Concatenated
// members are one text. An error names the file and the position of damaged or missing data.
class Unpacker {
 public:
  // The file's bytes: fills the buffer; fewer bytes only at the end.
  using Source = std::function<size_t(char* to, size_t bytes)>;
  // name: of the file, for errors. most: more bytes of text are an error, since a small file can
  // unpack to any size.
  Unpacker(Compression compression, std::string name, Source source, uint64_t most = UINT64_MAX);
  ~Unpacker();
  Unpacker(const Unpacker&) = delete;
  Unpacker& operator=(const Unpacker&) = delete;
  // Fills the buffer with text; fewer bytes only at the end.
  size_t read(char* to, size_t bytes);

  // One format's decoder.
  class Decoder;

 private:
  Compression compression_;
  std::unique_ptr<Decoder> decoder_;
  std::string name_;
  uint64_t most_, done_ = 0;
};

}  // namespace crest
