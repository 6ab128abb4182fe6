// Words of shell commands, as Crest runs them or prints them to be pasted.
#pragma once
#include <string>
#include <string_view>

namespace crest {

// One word of a POSIX shell: in quotes if it needs them.
std::string shell_word(std::string_view text);
// The same word for a terminal. Bytes replaced by `printable` become octal in $'...', for bash,
// zsh, ksh and POSIX.1-2024.
std::string printed_word(std::string_view text);
// A path in a printed command: a leading '-' does not make it an option.
std::string shell_path(std::string_view path);

}  // namespace crest
