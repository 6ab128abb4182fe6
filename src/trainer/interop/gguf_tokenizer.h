// A model's tokenizer in the words of llama.cpp.
#pragma once
#include <string>
#include <vector>

#include "checkpoint/weights_io.h"
#include "interop/gguf_file.h"

namespace crest {

// Writes the keys tokenizer.*: byte-level BPE as "gpt2" with its split rule, BPE of characters as
// "llama" (SentencePiece) with scores. Throws if llama.cpp would make other tokens of a text, and
// names the missing part. `notes` get sentences about smaller differences.
void gguf_tokenizer(const LoadedModel& model, GgufHeader& header, std::vector<std::string>& notes);

}  // namespace crest
