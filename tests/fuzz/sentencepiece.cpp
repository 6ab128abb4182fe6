// Any bytes as a SentencePiece model, as the parts of a tokenizer.json of characters before its
// model, and as text for such a tokenizer: a clear error, or a tokenizer for any bytes, with a
// tokenizer.json of the same tokenizer.
#include "data/tokenizer.h"
#include "fuzz.h"

using namespace crest;
using namespace crest::fuzz;

static const char* const head =
    R"("added_tokens": [{"id": 6, "content": "<x>", "special": false, "normalized": true}], )";
static const char* const llama =
    R"("normalizer": {"type": "Sequence", "normalizers": [{"type": "Prepend", "prepend": "▁"}, {"type": "Replace",
    "pattern": {"String": " "}, "content": "▁"}]}, "decoder": {"type": "Sequence", "decoders": [{"type": "Replace",
    "pattern": {"String": "▁"}, "content": " "}, {"type": "Fuse"}, {"type": "Strip", "content": " ", "start": 1}]}, )";
static const char* const model =
    R"("model": {"type": "BPE", "unk_token": "?", "fuse_unk": true, "vocab": {"?": 0, "▁": 1,
    "a": 2, "b": 3, "▁a": 4, "aa": 5}, "merges": ["▁ a", "a a"]}})";

static void check_tokenizer(const Tokenizer& t, std::string_view text) {
  auto ids = t.encode(text);
  t.encode(text, true);
  t.decode(ids);
  check(Tokenizer::parse(t.to_json(), "written").encode(text) == ids);
}

static void fuzz_sentencepiece(std::string_view text) {
  static const Tokenizer whole = Tokenizer::parse("{" + std::string(head) + llama + model, "whole");
  unsigned way = choose(text, 3);
  or_error([&] {
    switch (way) {
      case 0: return check_tokenizer(Tokenizer::parse_sentencepiece(text, "input"), text);
      case 1: return check_tokenizer(Tokenizer::parse("{" + std::string(text) + head + model, "input"), text);
      default: check_tokenizer(whole, text);
    }
  });
}
CREST_FUZZ_TARGET(fuzz_sentencepiece)
