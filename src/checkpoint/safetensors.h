// Reading and writing safetensors (https://huggingface.co/docs/safetensors): 8 bytes header length (little endian), a
// JSON header {name: {dtype, shape, data_offsets}}, then the tensors without gaps. Whatever a file says is checked
// before use.
#pragma once
#include <cstdint>
#include <functional>
#include <map>
#include <string>
#include <string_view>
#include <vector>

#include "core/dtype.h"
#include "core/io.h"
#include "core/sha256.h"

namespace crest {

struct TensorSpec {
  std::string name;
  DType dtype = DType::f32;
  std::vector<int64_t> shape;  // row-major, contiguous; empty = scalar
  bool operator==(const TensorSpec&) const = default;
};
// Product of the shape (1 for a scalar), and times the element size. Throw on negative sizes and overflow.
int64_t element_count(const TensorSpec& spec);
uint64_t byte_count(const TensorSpec& spec);
// "h.0.attn.weight f32 [768, 2304]", safe for a terminal.
std::string describe(const TensorSpec& spec);

// A tensor to write or hash: byte_count(spec) bytes at data, or `make` writes them when they are needed, which may be
// more than once and in any thread.
struct TensorSource {
  TensorSpec spec;
  const void* data = nullptr;
  std::function<void(void* to)> make = nullptr;

  // The bytes: at data, or made in scratch.
  const char* bytes(std::vector<char>& scratch) const;
};
// Where a tensor that is read shall go: byte_count(spec) bytes at data, or to `take`, called in any thread.
struct TensorTarget {
  TensorSpec spec;
  void* data = nullptr;
  std::function<void(const void* from)> take = nullptr;
};

// One tensor of a file.
struct TensorEntry {
  TensorSpec spec;
  uint64_t offset = 0;  // from the start of the file
  uint64_t bytes = 0;
  std::string stored_as;  // dtype as the file writes it: "BF16"
  bool readable = true;   // false: a dtype Crest has no type for (spec.dtype is then u8 and means nothing)
};

struct SafetensorsHeader {
  std::vector<TensorEntry> tensors;  // in file order (by offset)
  std::map<std::string, std::string> metadata;
  uint64_t data_start = 0;  // 8 + header length
};

// Checks and parses a header (the JSON text without the 8 length bytes) of a file that has `data_bytes` bytes after it.
// Depth at most 4, 100,000 tensors, names of 512 bytes, rank 8, no duplicates, shape x dtype equal to the length,
// tensors without gaps from the first byte to the last. Throws with what was wrong.
SafetensorsHeader parse_safetensors_header(std::string_view json, uint64_t data_bytes, const std::string& where);

class SafetensorsFile {
 public:
  // Throws for anything but a valid file; pickles (.pt, .bin) and zip archives are refused with a conversion hint.
  static SafetensorsFile open(const std::string& path);

  const std::string& path() const { return file_.path(); }
  const std::vector<TensorEntry>& tensors() const { return header_.tensors; }
  const std::map<std::string, std::string>& metadata() const { return header_.metadata; }
  // SHA-256 of the first 8 + header length bytes: with the hashes of all tensors it covers every byte of the file.
  const Digest& header_digest() const { return header_digest_; }
  // Index of a tensor, -1 when there is none of that name.
  int64_t find(std::string_view name) const;
  // Reads tensor `index` whole; `bytes` must be its size. Safe from several threads.
  void read(size_t index, void* to, uint64_t bytes) const;
  // The same, and returns the SHA-256 of what was read.
  Digest read_hashed(size_t index, void* to, uint64_t bytes) const;
  // SHA-256 of a tensor's bytes with a small buffer.
  Digest hash(size_t index) const;

 private:
  File file_;
  SafetensorsHeader header_;
  Digest header_digest_{};
  std::vector<uint32_t> by_name_;  // indices sorted by name
};

enum class TensorOrder {
  given,
  canonical,  // larger elements first, then by name: as the safetensors library writes, so that all tensors are aligned
};

// What write_safetensors will write before the tensors: length bytes and header padded with spaces to a multiple of 8.
// `order` receives the order of the tensors in the file as indices into `tensors`. Throws on duplicate or empty names.
std::string safetensors_preamble(const std::vector<TensorSource>& tensors, TensorOrder order_by,
                                 const std::map<std::string, std::string>& metadata, std::vector<size_t>* order);
// Writes, syncs and closes the file. `metadata` gets {"format": "pt"} added, which transformers asks for.
void write_safetensors(const std::string& path, const std::vector<TensorSource>& tensors,
                       TensorOrder order = TensorOrder::canonical,
                       const std::map<std::string, std::string>& metadata = {});

// SHA-256 of every tensor, in parallel, so that as many are made at a time as there are threads.
std::vector<Digest> hash_tensors(const std::vector<TensorSource>& tensors);

// Throws when `found` is not exactly `expected` (any order): names, shapes and dtypes; names the first differences.
// `what` says what differs: "weights".
void require_same_tensors(const std::vector<TensorSpec>& expected, const std::vector<TensorSpec>& found,
                          const std::string& what, const std::string& where);

// Whether a file is a pickle or a zip archive (what torch.save writes: opening it can run any code), by its first bytes
// and its name.
bool is_pickle(const std::string& path, std::string_view first_bytes);
// Throws for one, and for what is named .bin (transformers' pickles are); says how to convert.
void refuse_pickle(const std::string& path, std::string_view first_bytes);

}  // namespace crest
