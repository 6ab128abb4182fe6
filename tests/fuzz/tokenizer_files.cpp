// Any bytes as GPT-2's pair of files (divided at a NUL), as .tiktoken and as the tokenizer.json of another split rule:
// a clear error, or a tokenizer that encodes any bytes, and whose tokenizer.json is the same tokenizer.
#include <cstdlib>
#include <string_view>

#include "core/error.h"
#include "data/tokenizer.h"

using namespace crest;

static const char* const digits = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";

// All bytes, so that what follows them can be a whole vocabulary.
static std::string all_ranks() {
  std::string text;
  for (int b = 0; b < 256; ++b)
    text += {digits[b >> 2], digits[(b & 3) << 4], '=', '='}, text += " " + std::to_string(b) + "\n";
  return text;
}

template <class Make>
static void check(std::string_view text, bool lossless, Make make) {
  try {
    Tokenizer t = make();
    auto ids = t.encode(text);
    if (lossless && t.decode(ids) != text) std::abort();
    if (Tokenizer::parse(t.to_json(), "written").encode(text) != ids) std::abort();
  } catch (const Error&) {
  }
}

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  static const std::string ranks = all_ranks();
  static const std::string json = Tokenizer::parse_tiktoken(ranks, "ranks", "o200k").to_json();
  static const std::string vocabulary = [] {
    std::string all = json.substr(json.find("\"vocab\": ") + 9);
    return all.substr(0, all.find('}'));
  }();
  std::string_view text(reinterpret_cast<const char*>(data), size);
  const SplitRule& rule = split_rules()[size % split_rules().size()];
  std::string all(text);
  check(text, true, [&] { return Tokenizer::parse_tiktoken(ranks + all, "input", rule.name); });
  check(text, true, [&] { return Tokenizer::parse_tiktoken(text, "input", rule.name); });
  size_t middle = std::min(text.find('\0'), text.size());
  std::string first(text.substr(0, middle)), second(text.substr(middle));
  check(text, true, [&] { return Tokenizer::parse_gpt2(vocabulary + first + "}", second, "input", rule.name); });
  check(text, true, [&] { return Tokenizer::parse_gpt2(first, second, "input"); });
  // Between the head of a right file and its model: pre-tokenizers, normalizers, added tokens.
  size_t model = json.find("\"model\""), added = json.find("\"added_tokens\"");
  check(text, false, [&] { return Tokenizer::parse("{" + all + json.substr(model), "input"); });
  check(text, false, [&] { return Tokenizer::parse(json.substr(0, added) + all + json.substr(model), "input"); });
  return 0;
}
