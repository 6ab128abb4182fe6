// The kind of a file other than text, by its first bytes.
#pragma once
#include <cstddef>
#include <optional>
#include <string>
#include <string_view>

#include "core/unpack.h"

namespace crest {

// How many bytes of a file `not_text` needs: NUL bytes further on are not looked for.
inline constexpr size_t kind_bytes = size_t(64) << 10;

struct NotText {
  std::string what;    // "a PDF document"
  std::string advice;  // the remedy, with the name of the file
};

// `start`: the first bytes of the file, unpacked; `name`: the file's own name. Empty if it is text,
// in UTF-8 or in an encoding of one byte a character.
std::optional<NotText> not_text(std::string_view start, Compression compression, std::string_view name);

}  // namespace crest
