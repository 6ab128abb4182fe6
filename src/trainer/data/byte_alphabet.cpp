#include "data/byte_alphabet.h"

namespace crest {

namespace {

struct Alphabet {
  std::array<uint8_t, 256> order{};
  std::array<uint16_t, 256> code{};    // byte -> code point
  std::array<int16_t, 324> byte_of{};  // code point -> byte or -1
  Alphabet() {
    byte_of.fill(-1);
    auto printable = [](int b) { return (b >= 0x21 && b <= 0x7e) || (b >= 0xa1 && b <= 0xff && b != 0xad); };
    int n = 0, extra = 256;
    for (int b = 0; b < 256; ++b)
      if (printable(b)) code[b] = uint16_t(b), order[n++] = uint8_t(b);
    for (int b = 0; b < 256; ++b)
      if (!printable(b)) code[b] = uint16_t(extra++), order[n++] = uint8_t(b);
    for (int b = 0; b < 256; ++b) byte_of[code[b]] = int16_t(b);
  }
};

const Alphabet& alphabet() {
  static const Alphabet a;
  return a;
}

}  // namespace

const std::array<uint8_t, 256>& alphabet_order() { return alphabet().order; }

std::string to_alphabet(std::string_view bytes) {
  std::string out;
  for (char b : bytes) {
    uint16_t c = alphabet().code[uint8_t(b)];
    if (c < 0x80) {
      out += char(c);
    } else {
      out += char(0xc0 | (c >> 6));
      out += char(0x80 | (c & 0x3f));
    }
  }
  return out;
}

std::optional<std::string> from_alphabet(std::string_view text) {
  std::string out;
  for (size_t i = 0; i < text.size();) {
    uint32_t c = uint8_t(text[i++]);
    if (c >= 0x80) {
      if (c < 0xc2 || c > 0xdf || i == text.size() || (text[i] & 0xc0) != 0x80) return std::nullopt;
      c = ((c & 0x1f) << 6) | (uint8_t(text[i++]) & 0x3f);
    }
    if (c >= alphabet().byte_of.size() || alphabet().byte_of[c] < 0) return std::nullopt;
    out += char(alphabet().byte_of[c]);
  }
  return out;
}

}  // namespace crest
