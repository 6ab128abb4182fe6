// Any bytes as GPT-2's pair of files (divided at a NUL), as .tiktoken and as the tokenizer.json of
// another split rule: a clear error, or a tokenizer for any bytes, with a tokenizer.json of the
// same tokenizer.
#include "data/tokenizer.h"
#include "fuzz.h"

using namespace crest;
using namespace crest::fuzz;

static const char* const digits = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";

// All bytes, so a whole vocabulary can follow them.
static std::string all_ranks() {
  std::string text;
  for (int b = 0; b < 256; ++b)
    text += {digits[b >> 2], digits[(b & 3) << 4], '=', '='}, text += " " + std::to_string(b) + "\n";
  return text;
}

static void check_tokenizer(const Tokenizer& t, std::string_view text, bool lossless) {
  auto ids = t.encode(text);
  if (lossless) check(t.decode(ids) == text);
  check(Tokenizer::parse(t.to_json(), "written").encode(text) == ids);
}

static void fuzz_tokenizer_files(std::string_view text) {
  static const std::string ranks = all_ranks();
  static const std::string json = Tokenizer::parse_tiktoken(ranks, "ranks", "o200k").to_json();
  static const size_t model = json.find("\"model\""), added = json.find("\"added_tokens\"");
  static const std::string vocabulary = [] {
    std::string all = json.substr(json.find("\"vocab\": ") + 9);
    return all.substr(0, all.find('}'));
  }();
  unsigned way = choose(text, 6);
  auto rule = split_rules()[text.size() % split_rules().size()].name;
  std::string all(text), first = all.substr(0, all.find('\0')), second = all.substr(first.size());
  or_error([&] {
    switch (way) {
      case 0: return check_tokenizer(Tokenizer::parse_tiktoken(ranks + all, "input", rule), text, true);
      case 1: return check_tokenizer(Tokenizer::parse_tiktoken(text, "input", rule), text, true);
      case 2:
        return check_tokenizer(Tokenizer::parse_gpt2(vocabulary + first + "}", second, "input", rule), text, true);
      case 3: return check_tokenizer(Tokenizer::parse_gpt2(first, second, "input"), text, true);
      // Between the head of a right file and its model: pre-tokenizers, normalizers, added tokens.
      case 4: return check_tokenizer(Tokenizer::parse("{" + all + json.substr(model), "input"), text, false);
      default:
        check_tokenizer(Tokenizer::parse(json.substr(0, added) + all + json.substr(model), "input"), text, false);
    }
  });
}
CREST_FUZZ_TARGET(fuzz_tokenizer_files)
