// 128-bit XXH3 of the xxHash library: compares contents at memory speed. Not for security.
#pragma once
#include <cstddef>
#include <memory>
#include <string>

namespace crest {

class ContentHash {
 public:
  ContentHash();
  ~ContentHash();
  void update(const void* data, size_t bytes);
  // Hash of everything given so far: 32 lowercase hexadecimal digits.
  std::string hex() const;

 private:
  struct State;
  std::unique_ptr<State> state_;
};

}  // namespace crest
