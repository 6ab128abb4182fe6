// Programs as text: the output of `crest program` and the contents of .prog files. parse(print(p))
// == p.
#pragma once
#include <functional>
#include <string>

#include "program/program.h"

namespace crest {

struct PrintOptions {
  // Text after each instruction, following " # " (costs, offsets). parse skips comments.
  std::function<std::string(const Program&, int instr)> comment;
};

std::string print(const Program& program, const PrintOptions& options = {});
// Throws an error with line and problem. `where` is the file.
Program parse_program(std::string_view text, std::string_view where);

}  // namespace crest
