// llm.c's GPT-2 checkpoints (gpt2_124M.bin, model_NNNNNNNN.bin): 256 little-endian int32 of header,
// then the weights.
//   header: 20240326, version (3: fp32, 5: bf16), context, vocabulary, layers, heads, width, padded vocabulary
//   weights: wte [padded, C], wpe, then each member of the layers for all layers, then ln_f; matrices are [out, in]
#pragma once
#include <map>
#include <span>

#include "core/io.h"
#include "interop/import.h"

namespace crest {

struct LlmcHeader {
  static constexpr size_t bytes = 1024;
  ModelConfig config;
  int64_t padded_vocab = 0;
  DType dtype = DType::f32;
};
bool is_llmc_checkpoint(std::span<const uint8_t> start);
// Interprets the first bytes (at most 1024) of a file of `file_bytes`. Errors name `where`:
// version, sizes, a length in contradiction to the sizes.
LlmcHeader parse_llmc_header(std::span<const uint8_t> start, uint64_t file_bytes, const std::string& where);

class LlmcCheckpoint {
 public:
  explicit LlmcCheckpoint(const std::string& path);
  const LlmcHeader& header() const { return header_; }
  void read(const Param& parameter, float* out) const;

 private:
  File file_;
  LlmcHeader header_;
  std::map<std::string, uint64_t> offsets_;  // in elements, for every parameter
};

}  // namespace crest
