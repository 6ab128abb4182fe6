// The words of the split rules (split_rule.h) over UTF-8, and the positions where a text can be cut without changing
// them.
#pragma once
#include <cstddef>
#include <string_view>

namespace crest {

// GPT-2 (Radford et al. 2019, encoder.py): a space belongs to the run of letters, numbers or symbols after it.
size_t next_gpt2_word(std::string_view text, size_t start);
// Llama 3: any one symbol or space belongs to the letters after it, numbers come in threes, line breaks stay with the
// symbols or spaces before them.
size_t next_llama3_word(std::string_view text, size_t start);
// The same, but spaces at the end of the text are one word (tiktoken's cl100k_base).
size_t next_cl100k_word(std::string_view text, size_t start);
// The same as Llama 3, but every number is a word (Qwen 2 and 2.5, Qwen 3).
size_t next_qwen2_word(std::string_view text, size_t start);
// GPT-4o: as Llama 3, but words also begin at capitals, and keep their contraction.
size_t next_o200k_word(std::string_view text, size_t start);

// A safe cut is a position before an ASCII space and after another character; before a line break only after a letter
// or number. Words on both sides are the same as those of the whole text, by every rule, and so is Normalization Form
// C. The first one at or after `from`, or text.size() when there is none.
size_t safe_cut_after(std::string_view text, size_t from);
// The last safe cut in [1, text.size()), or 0 when there is none.
size_t last_safe_cut(std::string_view text);
// The last position in [1, text.size()] that does not divide a UTF-8 character (text.size() for invalid text).
size_t last_character_cut(std::string_view text);

}  // namespace crest
