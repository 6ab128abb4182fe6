// Reads and writes safetensors (https://huggingface.co/docs/safetensors): 8 bytes of header length
// (little endian), a JSON header {name: {dtype, shape, data_offsets}}, then the tensors without
// gaps. Everything in a file is checked before use.
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
// Product of the shape (1 for a scalar); the second also multiplies by the element size. They throw
// on negative sizes and overflow.
int64_t element_count(const TensorSpec& spec);
uint64_t byte_count(const TensorSpec& spec);
// "h.0.attn.weight f32 [768, 2304]", safe to print in a terminal.
std::string describe(const TensorSpec& spec);

// A tensor to write or hash: byte_count(spec) bytes at data; or `make` produces them on demand,
// possibly several times and in any thread.
struct TensorSource {
  TensorSpec spec;
  const void* data = nullptr;
  std::function<void(void* to)> make = nullptr;

  // The bytes: at data, or produced in scratch.
  const char* bytes(std::vector<char>& scratch) const;
};
// The destination of a tensor: byte_count(spec) bytes at data, or passed to `take`, which may be
// called in any thread.
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
  std::string stored_as;  // dtype as the file spells it: "BF16"
  bool readable = true;   // false: Crest has no type for this dtype (spec.dtype is then u8 and meaningless)
};

struct SafetensorsHeader {
  std::vector<TensorEntry> tensors;  // in file order (by offset)
  std::map<std::string, std::string> metadata;
  uint64_t data_start = 0;  // 8 + header length
};

// Checks and parses a header (the JSON text without the 8 length bytes) of a file with `data_bytes`
// bytes after it. Limits: depth 4, 100,000 tensors, names of 512 bytes, rank 8, no duplicates,
// shape x dtype equal to the length, tensors without gaps from the first byte to the last. Throws
// with the problem.
SafetensorsHeader parse_safetensors_header(std::string_view json, uint64_t data_bytes, const std::string& where);

class SafetensorsFile {
 public:
  // Throws unless the file is valid. Pickles (.pt, .bin) and zip archives are rejected with a hint
  // how to convert them.
  static SafetensorsFile open(const std::string& path);

  const std::string& path() const { return file_.path(); }
  const std::vector<TensorEntry>& tensors() const { return header_.tensors; }
  const std::map<std::string, std::string>& metadata() const { return header_.metadata; }
  // SHA-256 of the first 8 + header length bytes. With the hashes of all tensors, it covers every
  // byte of the file.
  const Digest& header_digest() const { return header_digest_; }
  // Index of a tensor; -1 if there is none of this name.
  int64_t find(std::string_view name) const;
  // Reads tensor `index` completely; `bytes` must be its size. Thread-safe.
  void read(size_t index, void* to, uint64_t bytes) const;
  // The same; returns the SHA-256 of the bytes read.
  Digest read_hashed(size_t index, void* to, uint64_t bytes) const;
  // SHA-256 of a tensor's bytes, using a small buffer.
  Digest hash(size_t index) const;

 private:
  File file_;
  SafetensorsHeader header_;
  Digest header_digest_{};
  std::vector<uint32_t> by_name_;  // indices sorted by name
};

enum class TensorOrder {
  given,
  canonical,  // larger elements first, then by name, like the safetensors library: all tensors are aligned
};

// The bytes before the tensors: length bytes, and the header padded with spaces to a multiple of 8.
// `order` receives the order of the tensors in the file, as indices into `tensors`. Throws on
// duplicate or empty names.
std::string safetensors_preamble(const std::vector<TensorSource>& tensors, TensorOrder order_by,
                                 const std::map<std::string, std::string>& metadata, std::vector<size_t>* order);
// Writes, syncs and closes the file. Adds {"format": "pt"} to `metadata`, as transformers requires.
void write_safetensors(const std::string& path, const std::vector<TensorSource>& tensors,
                       TensorOrder order = TensorOrder::canonical,
                       const std::map<std::string, std::string>& metadata = {});
void write_safetensors(File file, const std::vector<TensorSource>& tensors, TensorOrder order = TensorOrder::canonical,
                       const std::map<std::string, std::string>& metadata = {});

// SHA-256 of every tensor, in parallel; as many tensors are produced at a time as there are
// threads.
std::vector<Digest> hash_tensors(const std::vector<TensorSource>& tensors);

// Throws unless `found` is exactly `expected` (in any order): names, shapes and dtypes. Names the
// first differences. `what` describes the tensors: "weights".
void require_same_tensors(const std::vector<TensorSpec>& expected, const std::vector<TensorSpec>& found,
                          const std::string& what, const std::string& where);

// Whether a file is a pickle or a zip archive, as torch.save writes (opening one can run any code),
// judged by its first bytes and its name.
bool is_pickle(const std::string& path, std::string_view first_bytes);
// Throws for such files, and for files named .bin (as transformers' pickles are), with a hint how
// to convert them.
void refuse_pickle(const std::string& path, std::string_view first_bytes);
// For pickles. A name pytorch_model-NNNNN-of-NNNNN.bin is one part of a model.
[[noreturn]] void fail_pickle(const std::string& path);

}  // namespace crest
