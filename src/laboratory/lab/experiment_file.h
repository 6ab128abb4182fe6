// Reads an experiment's TOML: tables and keys with their places, for errors with line and column.
#pragma once
#include <string>

#include "lab/experiment.h"

namespace crest::lab {

// Parses the formula; throws a usage error with line and column.
void parse_formula(Formula& formula);
// Throws a usage error with the place when the formula uses an unknown name.
void check_formula(const Formula& formula, const Vocabulary& vocabulary);
// An ExpressionError of a formula as a usage error with its place.
[[noreturn]] void fail_formula(const Formula& formula, const ExpressionError& error);

}  // namespace crest::lab
