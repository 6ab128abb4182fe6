// The printable stand-ins for bytes in tokenizer.json (GPT-2's bytes_to_unicode): printable Latin-1
// characters are themselves; the other 68 bytes become U+0100 ... in order.
#pragma once
#include <array>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

namespace crest {

// Bytes in the order of their stand-ins' code points: id 0 is '!', as in GPT-2's vocabulary.
const std::array<uint8_t, 256>& alphabet_order();
// Bytes -> stand-ins as UTF-8.
std::string to_alphabet(std::string_view bytes);
// Stand-ins -> bytes; nullopt if a character is not in the alphabet.
std::optional<std::string> from_alphabet(std::string_view text);

}  // namespace crest
