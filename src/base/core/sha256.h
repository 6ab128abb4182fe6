// SHA-256 (FIPS 180-4). Uses the x86-64 SHA instructions if the processor has them (about 2 GB/s
// per core).
#pragma once
#include <array>
#include <cstddef>
#include <cstdint>
#include <string>

namespace crest {

using Digest = std::array<uint8_t, 32>;

class Sha256 {
 public:
  // use_instructions = false forces the portable rounds (for tests).
  explicit Sha256(bool use_instructions = true);
  void update(const void* data, size_t bytes);
  // The digest of everything given so far. The object must not be used afterwards.
  Digest digest();

 private:
  using Rounds = void (*)(uint32_t* state, const uint8_t* blocks, size_t count);
  Rounds rounds_;
  std::array<uint32_t, 8> state_;
  uint8_t block_[64];
  size_t filled_ = 0;
  uint64_t total_ = 0;
};

Digest sha256(const void* data, size_t bytes);
// 64 lowercase hexadecimal digits.
std::string to_hex(const Digest& digest);
std::string sha256_hex(const void* data, size_t bytes);

}  // namespace crest
