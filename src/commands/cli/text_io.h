// Standard input and output of commands that write text as it is generated.
#pragma once
#include <fmt/format.h>

#include <cstdint>
#include <string>
#include <string_view>

#include "core/to_stderr.h"

namespace crest {

inline constexpr uint64_t max_prompt_bytes = uint64_t(64) << 20;

// A line on standard error.
template <class... T>
void message(fmt::format_string<T...> format, T&&... values) {
  to_stderr("{}\n", fmt::format(format, std::forward<T>(values)...));
}

// Writes to standard output at once. Throws if that fails.
void write_output(std::string_view text);

// Standard output, written at once. The model's control characters never reach a terminal.
class TextOutput {
 public:
  explicit TextOutput(bool quiet);
  void write(std::string_view text);

 private:
  bool quiet_, terminal_;
};

// Reads a line of standard input, without its end. False at the end of the input. Throws if the
// line is longer than max_prompt_bytes. number: of the line, for the error.
bool read_line(std::string& line, int64_t number);

}  // namespace crest
