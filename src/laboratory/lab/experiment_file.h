// Reads an experiment's TOML and keeps the places of tables and keys, for errors with line and
// column.
#pragma once
#include <string>

#include "lab/experiment.h"

namespace crest::lab {

// Parses the formula; throws a usage error with line and column.
void parse_formula(Formula& formula);
// Throws a usage error with the place if the formula uses an unknown name.
void check_formula(const Formula& formula, const Vocabulary& vocabulary);
// Turns an ExpressionError into a usage error with the formula's place.
[[noreturn]] void fail_formula(const Formula& formula, const ExpressionError& error);

}  // namespace crest::lab
