// 128-bit XXH3 of the xxHash library: compares contents at memory speed. Not for security.
#pragma once
#include <array>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>

namespace crest {

class ContentHash {
 public:
  ContentHash();
  ~ContentHash();
  void update(const void* data, size_t bytes);
  // Hash of everything given so far: the lower and the upper 64 bits.
  using Digest = std::array<uint64_t, 2>;
  Digest digest() const;
  // 32 lowercase hexadecimal digits, the upper half first.
  std::string hex() const;
  // Starts again.
  void reset();

 private:
  struct State;
  std::unique_ptr<State> state_;
};

}  // namespace crest
