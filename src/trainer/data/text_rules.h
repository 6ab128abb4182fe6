// The rules in tokenizer.json besides its model: how text is normalized and divided before the
// search for tokens, and how tokens become text again.
//
// SentencePiece's vocabularies write a space as a mark (U+2581). Here a space stays a space: marks
// in vocabulary and text become spaces, with the same tokens.
#pragma once
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

namespace crest {

struct TextRules {
  // A step of the normalizer. mark: marks become spaces (in the file: spaces become marks).
  // replace: `from` by `to`; one_space: runs of two and more spaces by `to`.
  struct Step {
    enum class Kind : uint8_t { nfc, nfd, nfkc, nfkd, lowercase, prepend, replace, one_space, strip, mark };
    Kind kind;
    std::string from = {}, to = {};
    bool left = false, right = false;  // strip
    bool operator==(const Step&) const = default;
  };
  enum class Prefix : uint8_t { never, first, always };
  // Whether numbers, or runs of them, are pre-tokens of their own.
  enum class Digits : uint8_t { ordinary, runs, single };
  enum class LeadingSpace : uint8_t { kept, drop_one, drop_of_first_token };

  // The text after all steps. `begins`: it is not the continuation of another text. Returns false,
  // and leaves `out` alone, if nothing changes.
  bool normalize(std::string_view text, bool begins, std::string& out) const;

  // The same texts and pre-tokens, however they are written.
  bool same(const TextRules& other) const;

  std::vector<Step> steps;
  std::string mark;                 // of a space; empty: none
  bool marks_in_pretokens = false;  // the pre-tokenizer, not the normalizer, writes marks
  bool splits_at_spaces = false;    // every space begins a pre-token
  Digits digits = Digits::ordinary;
  // A space before text without a leading one: before the first piece, or every piece.
  Prefix prefix = Prefix::never;
  LeadingSpace leading_space = LeadingSpace::kept;  // when tokens become text
  // As written in the file, for writing it again; empty: as byte-level BPE has them.
  std::string normalizer_json, pre_tokenizer_json, decoder_json;
};

// End of the pre-token from `start` on: before a space after another character, where no token of
// an accepted vocabulary goes on; or before every space.
size_t next_word(std::string_view text, size_t start);
size_t next_space(std::string_view text, size_t start);
// End of the run of numbers (of one number, if `single`) or of other characters.
size_t next_digits(std::string_view text, size_t start, bool single);

std::string replaced(std::string_view text, std::string_view from, std::string_view to);

}  // namespace crest
