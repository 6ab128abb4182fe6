#pragma once
#include <string>

#include "plan/compile.h"

namespace crest {
// A compiled Program as one JSON document: values, instructions with cost, kernel and addresses, memory plan, pass
// times.
std::string program_json(const CompiledProgram& program);
}  // namespace crest
