// Sentences computed from the numbers of a comparison; they claim nothing that the numbers do not show.
#pragma once
#include <string>

#include "compare/compare.h"

namespace crest {

// Fills the sentences of causes, levers and memory, and RunComparison::sentences.
void write_sentences(RunComparison& comparison);

// The steps differ beyond noise.
bool told(const RunComparison& comparison);
// More than groups differ by for no reason.
bool beyond_noise(const RunComparison& comparison, const LeverEffect& effect);
// The figures behind the factor that moved a group most; work is of the step, or of 1000 tokens.
std::string factor_text(const RunComparison& comparison, const Cause& cause);
// "12 x softmax, 24 x matmul and 3 other kinds"
std::string ops_text(const GroupSide& side);
// The same operations, as often in every layer.
bool same_instructions(const Cause& cause);
// What changed in a group: instructions, kernels or arithmetic.
std::string change_text(const Cause& cause);

// The one sentence that somebody reads who reads no more: how much faster, how much memory, and because of what.
// "" when neither times nor memory are known.
std::string headline(const RunComparison& comparison);

}  // namespace crest
