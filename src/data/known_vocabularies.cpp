#include "data/known_vocabularies.h"

#include <fmt/format.h>

namespace crest {

namespace {

using Specials = std::vector<std::pair<std::string, uint32_t>>;

Specials gpt2_specials() { return {{"<|endoftext|>", 50256}}; }

Specials cl100k_specials() {
  return {{"<|endoftext|>", 100257},
          {"<|fim_prefix|>", 100258},
          {"<|fim_middle|>", 100259},
          {"<|fim_suffix|>", 100260},
          {"<|endofprompt|>", 100276}};
}

Specials o200k_specials() { return {{"<|endoftext|>", 199999}, {"<|endofprompt|>", 200018}}; }

// 256 tokens, in the order and with the names of Llama 3's release (3.1 gave names to some of the reserved ones).
Specials llama3_specials() {
  Specials out;
  int reserved = 0;
  auto reserve = [&](int until) {
    while (reserved < until) out.emplace_back(fmt::format("<|reserved_special_token_{}|>", reserved++), 0);
  };
  out.emplace_back("<|begin_of_text|>", 0);
  out.emplace_back("<|end_of_text|>", 0);
  reserve(4);
  out.emplace_back("<|start_header_id|>", 0);
  out.emplace_back("<|end_header_id|>", 0);
  reserve(5);
  out.emplace_back("<|eot_id|>", 0);
  reserve(251);
  for (uint32_t i = 0; i < out.size(); ++i) out[i].second = 128000 + i;
  return out;
}

Specials qwen_specials() { return {{"<|endoftext|>", 151643}, {"<|im_start|>", 151644}, {"<|im_end|>", 151645}}; }

const KnownVocabulary table[] = {
    {"gpt2", 50256, "gpt2", false, gpt2_specials},
    {"p50k_base", 50280, "gpt2", false, gpt2_specials},
    {"cl100k_base", 100256, "cl100k", false, cl100k_specials},
    {"o200k_base", 199998, "o200k", false, o200k_specials},
    {"Llama 3", 128000, "llama3", false, llama3_specials},
    {"Qwen", 151643, "qwen2", true, qwen_specials},
};

}  // namespace

const KnownVocabulary* find_known_vocabulary(uint32_t tokens) {
  for (auto& known : table)
    if (known.tokens == tokens) return &known;
  return nullptr;
}

}  // namespace crest
