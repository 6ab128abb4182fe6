// GPT-2's pair of files: vocab.json (encoder.json) maps tokens to ids; merges.txt (vocab.bpe) has
// one merge per line.
#include <fmt/format.h>

#include <nlohmann/json.hpp>

#include "core/text.h"
#include "data/tokenizer_parts.h"

namespace crest {

namespace {

// One flat object of numbers.
class VocabularyReader : public nlohmann::json_sax<nlohmann::json> {
 public:
  explicit VocabularyReader(TokenizerParts& parts) : parts_(parts) {}
  bool null() override { not_a_number(); }
  bool boolean(bool) override { not_a_number(); }
  bool number_integer(int64_t) override { parts_.bad("a negative number as the id of a token"); }
  bool number_unsigned(uint64_t id) override {
    if (!open_) not_an_object();
    parts_.add_token(key_, id);
    return true;
  }
  bool number_float(double, const std::string&) override { parts_.bad("a fraction as the id of a token"); }
  bool string(std::string&) override { not_a_number(); }
  bool binary(binary_t&) override { not_a_number(); }
  bool key(std::string& text) override {
    key_ = text;
    return true;
  }
  bool start_object(size_t) override {
    if (open_) not_a_number();
    return open_ = true;
  }
  bool end_object() override { return true; }
  bool start_array(size_t) override { not_an_object(); }
  bool end_array() override { return true; }
  bool parse_error(size_t position, const std::string&, const nlohmann::json::exception&) override {
    parts_.bad(fmt::format("not valid JSON at byte {}", position));
  }

 private:
  [[noreturn]] void not_a_number() { parts_.bad("a token whose id is not a number"); }
  [[noreturn]] void not_an_object() { parts_.bad("the vocabulary is not an object of tokens and ids"); }
  TokenizerParts& parts_;
  std::string key_;
  bool open_ = false;
};

void read_merges(std::string_view text, TokenizerParts& parts) {
  for (bool first = true; !text.empty(); first = false) {
    size_t end = std::min(text.find('\n'), text.size());
    std::string line(text.substr(0, end));
    text.remove_prefix(std::min(end + 1, text.size()));
    if (line.ends_with('\r')) line.pop_back();
    if (line.empty() || (first && line.starts_with("#version"))) continue;
    parts.add_merge_line(line);
  }
}

}  // namespace

Tokenizer Tokenizer::parse_gpt2(std::string_view vocabulary_json, std::string_view merges, const std::string& where,
                                std::string_view split_rule, const TokenizerCompanions& files) {
  TokenizerParts parts(where);
  VocabularyReader reader(parts);
  nlohmann::json::sax_parse(vocabulary_json.begin(), vocabulary_json.end(), &reader);
  read_merges(merges, parts);
  // These files came with GPT-2's split rule, except known vocabularies.
  const KnownVocabulary* known = find_known_vocabulary(parts.vocabulary.size());
  if (known) {
    parts.rule = &find_split_rule(known->split_rule);
    if (known->nfc) parts.rules.steps.push_back({TextRules::Step::Kind::nfc});
    for (auto& [text, id] : known->special_tokens()) parts.add_added({id, true, true, false, text});
  }
  if (!split_rule.empty()) parts.rule = &find_split_rule(split_rule);
  // <|endoftext|> is one of the tokens.
  uint32_t end = parts.vocabulary.find(end_of_text_name);
  if (end != StringTable::none) parts.add_added({parts.ids[end], true, true, false, std::string(end_of_text_name)});
  parts.read(files);
  return parts.build();
}

}  // namespace crest
