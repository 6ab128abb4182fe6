// The files read by transformers next to a vocabulary.
#pragma once
#include <cstddef>
#include <filesystem>
#include <string>

namespace crest {

struct TokenizerCompanions {
  static constexpr size_t max_bytes = 16 << 20;  // of a file
  // The files in the folder of a vocabulary's file. all_tokens: this file is a tokenizer.json.
  static TokenizerCompanions next_to(const std::filesystem::path& file, bool all_tokens);

  std::string folder;  // for errors
  // Their texts; "": no such file. generation_config: config.json if it is absent, as in generate()
  // of transformers.
  std::string added_tokens, special_tokens_map, tokenizer_config, generation_config;
  // The vocabulary's file lists all tokens, so a token named only here is in no model. Otherwise it
  // gets the next id.
  bool all_tokens = false;
};

}  // namespace crest
