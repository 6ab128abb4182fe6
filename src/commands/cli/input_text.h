// Text that a command reads from a file, or from standard input.
#pragma once
#include <cstdint>
#include <string>

namespace crest {

// For messages: "standard input" of -.
std::string input_name(const std::string& file);
// The whole file, or with - the rest of standard input. More than `limit` bytes is an error.
std::string read_input(const std::string& file, uint64_t limit);

}  // namespace crest
