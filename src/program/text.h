// Programs as text: what `crest program` prints, what .prog files hold. parse(print(p)) == p.
#pragma once
#include <functional>
#include <string>

#include "program/program.h"

namespace crest {

struct PrintOptions {
  // Text after each instruction, behind " # " (costs, offsets); comments are skipped by parse.
  std::function<std::string(const Program&, int instr)> comment;
};

std::string print(const Program& program, const PrintOptions& options = {});
// Throws an error that names line and problem; `where` is the file.
Program parse_program(std::string_view text, std::string_view where);

}  // namespace crest
