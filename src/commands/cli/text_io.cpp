#include "cli/text_io.h"

#include <unistd.h>

#include <cerrno>
#include <cstdio>

#include "core/error.h"
#include "core/retry.h"
#include "core/text.h"
#include "run/text_stream.h"

namespace crest {

void write_output(std::string_view text) {
  if (std::fwrite(text.data(), 1, text.size(), stdout) != text.size() || std::fflush(stdout) != 0)
    fail("could not write to standard output", "", "Is the disk full, or has the reader gone away?");
}

TextOutput::TextOutput(bool quiet) : quiet_(quiet), terminal_(isatty(STDOUT_FILENO) == 1) {}

void TextOutput::write(std::string_view text) {
  if (quiet_ || text.empty()) return;
  terminal_ ? write_output(displayable(text)) : write_output(text);
}

bool read_line(std::string& line, int64_t number) {
  line.clear();
  int c = 0;
  while ((c = std::getc(stdin)) != EOF && c != '\n') {
    if (line.size() == max_prompt_bytes)
      fail(fmt::format("the line is longer than {}", format_bytes(double(max_prompt_bytes))),
           fmt::format("standard input, line {}", number), "Shorten it.");
    line += char(c);
  }
  if (std::ferror(stdin)) fail_errno(errno, "read", "standard input");
  if (c == EOF && line.empty()) return false;
  if (line.ends_with('\r')) line.pop_back();
  return true;
}

}  // namespace crest
