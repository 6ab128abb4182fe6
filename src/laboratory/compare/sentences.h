// Sentences computed from the figures of a comparison. They claim nothing more.
#pragma once
#include <string>

#include "compare/compare.h"

namespace crest {

// Fills the sentences of causes, settings and memory, and RunComparison::sentences.
void write_sentences(RunComparison& comparison);

// The steps differ beyond noise.
bool conclusive(const RunComparison& comparison);
// The effect exceeds the noise between equal groups.
bool beyond_noise(const RunComparison& comparison, const SettingEffect& effect);
// Whether the effects of settings can be stated: the steps differ, or measured effects do.
bool attributable(const RunComparison& comparison);
// How the difference was divided among the settings: "an attribution: Shapley values of ...".
std::string attribution_text(const RunComparison& comparison);
// The figures of a group's main factor; work is per step, or per 1000 tokens.
std::string factor_text(const RunComparison& comparison, const Cause& cause);
// "12 x softmax, 24 x matmul and 3 other kinds"
std::string ops_text(const GroupSide& side);
// The same operations, equally often per layer.
bool same_instructions(const Cause& cause);
// The change in a group: instructions, kernels or arithmetic.
std::string change_text(const RunComparison& comparison, const Cause& cause);

// How well more ranks scale, and where they lose most time.
std::string scaling_sentence(const Scaling& scaling);

// The summary sentence: how much faster, how much memory, and why. "" if neither times nor memory
// are known.
std::string headline(const RunComparison& comparison);

// Whether a sentence has every changed setting with its values.
bool names_changed_settings(const RunComparison& comparison);

}  // namespace crest
