// GPT-2's tokenizer, extracted from a package: crest data get-gpt2-tokenizer.
#pragma once
#include <string>

#include "data/tokenizer.h"

namespace crest {

struct Gpt2Download {
  std::string from;  // a package (.tar.gz, .whl) or gpt2.tiktoken, as a file or URL; "": the pinned URL
  std::string out;   // *.tiktoken: an unchanged copy; else a tokenizer.json
  bool overwrite = false;
};

struct Gpt2Tokenizer {
  Tokenizer tokenizer;
  std::string file, source;  // the file written, and where it came from
  std::string sha256;        // of the vocabulary
};

// Downloads PyPI's openai-whisper, takes GPT-2's vocabulary from it, checks its hash, and writes
// the tokenizer. Nothing in the package is executed.
Gpt2Tokenizer get_gpt2_tokenizer(Gpt2Download options);

}  // namespace crest
