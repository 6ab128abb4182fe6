// GGUF version 3, the file of llama.cpp: a header with metadata and the tensors' names, shapes and
// places, then the tensors' data. All numbers are little-endian.
#pragma once
#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace crest {

// How a tensor's elements are stored. Values as in ggml. q8_0: blocks of 32 elements, each a scale
// in f16 and 32 whole numbers of 8 bits.
enum class GgufType : uint32_t { f32 = 0, f16 = 1, q8_0 = 8, bf16 = 30 };
// "f32", "q8_0", ...
std::string_view name(GgufType type);

inline constexpr int64_t q8_0_block = 32, q8_0_bytes = 34;
// Bytes of `elements`; for q8_0 whole blocks.
uint64_t stored_bytes(GgufType type, int64_t elements);
// Writes stored_bytes(type, values.size()) bytes to `out`. False: a value is not finite, or becomes
// infinite in this type.
bool store_values(GgufType type, std::span<const float> values, uint8_t* out);

// The header. Metadata keep the order of the calls, and tensors the order of their data.
class GgufHeader {
 public:
  static constexpr uint64_t alignment = 32;  // of every tensor's data

  void number(std::string_view key, int64_t value);  // uint32
  void real(std::string_view key, double value);     // float32
  void flag(std::string_view key, bool value);
  void text(std::string_view key, std::string_view value);
  void numbers(std::string_view key, const std::vector<int32_t>& values);
  void reals(std::string_view key, const std::vector<float>& values);
  void flags(std::string_view key, const std::vector<bool>& values);
  void texts(std::string_view key, const std::vector<std::string>& values);
  // shape: [rows, columns] or [elements], as in PyTorch. The file has it backwards.
  void tensor(std::string_view name, const std::vector<int64_t>& shape, GgufType type);

  // Complete, padded to the alignment: the first tensor's data follow.
  std::string bytes() const;
  // Of all tensors, with the padding after each.
  uint64_t data_bytes() const { return data_bytes_; }

 private:
  void key(std::string_view key, uint32_t type);
  void array(std::string_view key, uint32_t type, size_t elements);
  std::string metadata_, tensors_;
  uint64_t metadata_count_ = 0, tensor_count_ = 0, data_bytes_ = 0;
};

}  // namespace crest
