#include "cli/input_text.h"

#include <fmt/format.h>
#include <unistd.h>

#include <vector>

#include "core/error.h"
#include "core/io.h"
#include "core/text.h"

namespace crest {

std::string input_name(const std::string& file) { return file == "-" ? "standard input" : printable(file); }

std::string read_input(const std::string& file, uint64_t limit) {
  if (file != "-") return read_file(file, limit);
  File in = File::duplicate(STDIN_FILENO, input_name(file));
  std::string text;
  std::vector<char> buffer(size_t(1) << 16);
  while (const size_t n = in.read_some(buffer.data(), buffer.size())) {
    text.append(buffer.data(), n);
    if (text.size() > limit)
      fail(fmt::format("is larger than the {} allowed here", format_bytes(double(limit))), input_name(file));
  }
  return text;
}

}  // namespace crest
