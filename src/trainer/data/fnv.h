// FNV-1a, 64 bits (Fowler, Noll, Vo): detects changed inputs. Not for security.
#pragma once
#include <cstdint>
#include <string>
#include <string_view>

namespace crest {

class Fnv64 {
 public:
  void update(std::string_view bytes) {
    for (char c : bytes) value_ = (value_ ^ uint8_t(c)) * 0x100000001b3ull;
  }
  uint64_t value() const { return value_; }
  // 16 lowercase hexadecimal digits.
  std::string hex() const {
    std::string text(16, '0');
    for (int digit = 0; digit < 16; ++digit) text[size_t(digit)] = "0123456789abcdef"[value_ >> (60 - 4 * digit) & 15];
    return text;
  }

 private:
  uint64_t value_ = 0xcbf29ce484222325ull;
};

}  // namespace crest
