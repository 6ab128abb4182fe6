// Sentences computed from the numbers of a comparison; they claim nothing that the numbers do not show.
#pragma once
#include <string>

#include "compare/compare.h"

namespace crest {

// Fills the sentences of causes, levers and memory, and RunComparison::sentences.
void write_sentences(RunComparison& comparison);

// The steps differ beyond noise.
bool told(const RunComparison& comparison);
// The figures behind the factor that moved a group most; work is of the step, or of 1000 tokens.
std::string factor_text(const RunComparison& comparison, const Cause& cause);
// "12 x softmax, 24 x matmul and 3 other kinds"
std::string ops_text(const GroupSide& side);
// The same operations, as often in every layer.
bool same_instructions(const Cause& cause);
// What changed in a group: instructions, kernels or arithmetic.
std::string change_text(const Cause& cause);

}  // namespace crest
