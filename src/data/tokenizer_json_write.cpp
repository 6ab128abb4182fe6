// tokenizer.json for Hugging Face `tokenizers`, written whole.
#include <fmt/format.h>

#include <nlohmann/json.hpp>

#include "core/io.h"
#include "data/byte_alphabet.h"
#include "data/tokenizer.h"

namespace crest {

using Json = nlohmann::ordered_json;

static Json pre_tokenizer(const SplitRule& rule) {
  Json byte_level = {{"type", "ByteLevel"}, {"add_prefix_space", false}, {"trim_offsets", true}, {"use_regex", true}};
  if (&rule == &gpt2_split_rule()) return byte_level;
  byte_level["use_regex"] = false;
  Json split = {{"type", "Split"}, {"pattern", {{"Regex", rule.pattern}}}, {"behavior", "Isolated"}, {"invert", false}};
  return {{"type", "Sequence"}, {"pretokenizers", Json::array({split, byte_level})}};
}

std::string Tokenizer::to_json() const {
  Json added = Json::array();
  // Vocabulary and merges are written as text: ordered_json searches all keys at every insertion.
  std::string vocabulary;
  for (uint32_t id = 0; id < tokens_.size(); ++id) {
    const Token& t = tokens_[id];
    if (!t.used) continue;
    std::string text = t.added ? std::string(decode_token(id)) : to_alphabet(decode_token(id));
    // Added tokens stand in the vocabulary too: `tokenizers` would number them anew otherwise.
    vocabulary += fmt::format("{}\n      {}: {}", vocabulary.empty() ? "" : ",", Json(text).dump(), id);
    if (t.added)
      added.push_back({{"id", id},
                       {"content", text},
                       {"single_word", false},
                       {"lstrip", false},
                       {"rstrip", false},
                       {"normalized", t.normalized},
                       {"special", t.special}});
  }
  std::string merge_list;
  for (auto& m : merges_) {
    std::string pair = to_alphabet(decode_token(m.left)) + " " + to_alphabet(decode_token(m.right));
    merge_list += fmt::format("{}\n      {}", merge_list.empty() ? "" : ",", Json(pair).dump());
  }
  Json byte_level = {{"type", "ByteLevel"}, {"add_prefix_space", false}, {"trim_offsets", true}, {"use_regex", true}};
  return fmt::format(
      "{{\n  \"version\": \"1.0\",\n  \"truncation\": null,\n  \"padding\": null,\n  \"added_tokens\": {},\n"
      "  \"normalizer\": {},\n  \"pre_tokenizer\": {},\n  \"post_processor\": {},\n  \"decoder\": {},\n"
      "  \"model\": {{\n    \"type\": \"BPE\",\n    \"dropout\": null,\n    \"unk_token\": null,\n"
      "    \"continuing_subword_prefix\": null,\n    \"end_of_word_suffix\": null,\n    \"fuse_unk\": false,\n"
      "    \"byte_fallback\": false,\n    \"ignore_merges\": {},\n    \"vocab\": {{{}\n    }},\n    \"merges\": "
      "[{}\n    ]\n"
      "  }}\n}}\n",
      added.dump(), nfc_ ? "{\"type\":\"NFC\"}" : "null", pre_tokenizer(*rule_).dump(), post_processor_,
      byte_level.dump(), ignore_merges_, vocabulary, merge_list);
}

void Tokenizer::save(const std::filesystem::path& path) const { write_file_synced(path.string(), to_json()); }

}  // namespace crest
