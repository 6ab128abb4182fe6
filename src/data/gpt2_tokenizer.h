// GPT-2's tokenizer, out of a package that has it: crest data get-gpt2-tokenizer.
#pragma once
#include <string>

#include "data/tokenizer.h"

namespace crest {

struct Gpt2Download {
  std::string from;  // a package (.tar.gz, .whl) or gpt2.tiktoken, as file or URL; "": the pinned URL
  std::string out;   // *.tiktoken: the file as it is, else a tokenizer.json
  bool overwrite = false;
};

struct Gpt2Tokenizer {
  Tokenizer tokenizer;
  std::string file, source;  // that it was written to, and read from
  std::string sha256;        // of the vocabulary
};

// Fetches GPT-2's vocabulary out of PyPI's openai-whisper, checks its hash, writes the tokenizer. Nothing of the
// package is executed.
Gpt2Tokenizer get_gpt2_tokenizer(Gpt2Download options);

}  // namespace crest
