// XXH3 with 128 bits, of the xxHash library: tells contents apart as fast as memory is read. Not made for security.
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
  // Of all that was given so far: 32 lower-case hexadecimal digits.
  std::string hex() const;

 private:
  struct State;
  std::unique_ptr<State> state_;
};

}  // namespace crest
