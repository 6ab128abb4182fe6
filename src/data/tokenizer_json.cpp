// tokenizer.json of Hugging Face `tokenizers`: read with SAX events (an untrusted file never builds a document),
// written whole.
#include <fmt/format.h>

#include <algorithm>
#include <nlohmann/json.hpp>

#include "core/error.h"
#include "core/io.h"
#include "core/text.h"
#include "data/byte_alphabet.h"
#include "data/tokenizer.h"

namespace crest {

namespace {
constexpr size_t max_file_bytes = 256 << 20, max_depth = 32, max_tokens = 1 << 20, max_token_bytes = 1 << 16;
constexpr const char* supported =
    "Crest reads byte-level BPE with GPT-2's split rule: \"model\": BPE, \"pre_tokenizer\": ByteLevel.";
}  // namespace

class TokenizerReader : public nlohmann::json_sax<nlohmann::json> {
 public:
  explicit TokenizerReader(const std::string& where) : where_(where) {}

  bool null() override { return true; }
  bool boolean(bool value) override {
    std::string_view k = key_;
    if (at(Part::pre_tokenizer) && k == "add_prefix_space" && value) refuse("add_prefix_space = true");
    if (at(Part::pre_tokenizer) && k == "use_regex" && !value) refuse("use_regex = false");
    if (at(Part::model) && (k == "byte_fallback" || k == "ignore_merges") && value) refuse(fmt::format("{} = true", k));
    if (at(Part::added_token) && k == "special") added_.special = value;
    return true;
  }
  bool number_integer(int64_t) override { return number("a negative number"); }
  bool number_unsigned(uint64_t value) override {
    if (at(Part::vocab)) add_vocabulary(value);
    if (at(Part::added_token) && key_ == "id") added_.id = check_id(value), added_.has_id = true;
    if (at(Part::model) && key_ == "dropout" && value != 0) refuse("dropout");
    return true;
  }
  bool number_float(double value, const std::string&) override {
    if (at(Part::model) && key_ == "dropout" && value == 0) return true;
    return number("a fraction");
  }
  bool string(std::string& value) override {
    if (value.size() > max_token_bytes && !at(Part::other)) bad(fmt::format("a string of {} bytes", value.size()));
    if (at(Part::model) && key_ == "type" && value != "BPE") refuse(fmt::format("model type {}", printable(value)));
    if (at(Part::model) && (key_ == "continuing_subword_prefix" || key_ == "end_of_word_suffix") && !value.empty())
      refuse(key_);
    if (at(Part::pre_tokenizer) && key_ == "type") {
      if (value != "ByteLevel") refuse(fmt::format("pre_tokenizer {}", printable(value)));
      byte_level_ = true;
    }
    if (at(Part::normalizer)) refuse("a normalizer");
    if (at(Part::added_token) && key_ == "content") added_.content = value;
    if (at(Part::merges)) {
      size_t space = value.find(' ');
      if (space == 0 || space == std::string::npos || space + 1 == value.size() ||
          value.find(' ', space + 1) != std::string::npos)
        bad(fmt::format("merge '{}' is not two tokens", printable(value)));
      add_merge(value.substr(0, space), value.substr(space + 1));
    }
    if (at(Part::merge_pair)) {
      if (pair_size_ == 2) bad("a merge of more than two tokens");
      pair_[pair_size_++] = value;
    }
    if (at(Part::vocab)) bad("a token whose id is not a number");
    return true;
  }
  bool binary(binary_t&) override { return true; }
  bool key(std::string& value) override {
    key_ = value;
    return true;
  }
  bool start_object(size_t) override {
    Part next = Part::other;
    if (stack_.empty())
      next = Part::root;
    else if (at(Part::root) && key_ == "model")
      next = Part::model, has_model_ = true;
    else if (at(Part::root) && key_ == "pre_tokenizer")
      next = Part::pre_tokenizer;
    else if (at(Part::root) && key_ == "normalizer")
      next = Part::normalizer;
    else if (at(Part::model) && key_ == "vocab")
      next = Part::vocab;
    else if (at(Part::added))
      next = Part::added_token, added_ = {};
    else if (at(Part::vocab) || at(Part::merges) || at(Part::merge_pair))
      bad("an object where a token is expected");
    return push(next);
  }
  bool end_object() override {
    if (at(Part::added_token)) {
      if (!added_.has_id || added_.content.empty()) bad("an added token without id or content");
      if (added_list_.size() >= 65536) bad("more than 65536 added tokens");
      added_list_.push_back(added_);
    }
    stack_.pop_back();
    return true;
  }
  bool start_array(size_t) override {
    Part next = Part::other;
    if (stack_.empty()) bad("the file is a list, not an object");
    if (at(Part::root) && key_ == "added_tokens")
      next = Part::added;
    else if (at(Part::model) && key_ == "merges")
      next = Part::merges;
    else if (at(Part::merges))
      next = Part::merge_pair, pair_size_ = 0;
    else if (at(Part::model) && key_ == "vocab")
      refuse("a Unigram vocabulary");
    else if (at(Part::vocab) || at(Part::merge_pair))
      bad("a list where a token is expected");
    return push(next);
  }
  bool end_array() override {
    if (at(Part::merge_pair)) {
      if (pair_size_ != 2) bad("a merge of fewer than two tokens");
      add_merge(pair_[0], pair_[1]);
    }
    stack_.pop_back();
    return true;
  }
  bool parse_error(size_t position, const std::string&, const nlohmann::json::exception&) override {
    bad(fmt::format("not valid JSON at byte {}", position));
  }

  Tokenizer finish() {
    if (!has_model_) bad("it has no \"model\"");
    if (!byte_level_) refuse("a missing pre_tokenizer");
    Tokenizer t;
    t.kind_ = Tokenizer::Kind::bpe;
    auto is_added = [&](std::string_view text) {
      return std::any_of(added_list_.begin(), added_list_.end(), [&](auto& a) { return a.content == text; });
    };
    WordTable decoded;  // bytes of ordinary tokens; index -> id below
    std::vector<uint32_t> ids;
    std::vector<bool> taken;
    for (uint32_t i = 0; i < vocabulary_.size(); ++i) {
      uint32_t id = vocabulary_ids_[i];
      if (id >= taken.size()) taken.resize(id + 1);
      if (taken[id]) bad(fmt::format("two tokens have id {}", id));
      taken[id] = true;
      std::string_view text = vocabulary_.word(i);
      if (is_added(text)) continue;
      auto bytes = from_alphabet(text);
      if (!bytes || bytes->empty())
        bad(fmt::format("token '{}' is not written in the byte-level alphabet", printable(text)));
      uint32_t before = decoded.size();
      if (decoded.insert(*bytes) != before) bad(fmt::format("token '{}' appears twice", printable(text)));
      ids.push_back(id);
      t.set_token(id, *bytes, false);
    }
    for (auto& a : added_list_) {
      uint32_t in_vocabulary = vocabulary_.find(a.content);
      bool same = in_vocabulary != WordTable::none && vocabulary_ids_[in_vocabulary] == a.id;
      if ((in_vocabulary != WordTable::none && !same) || (a.id < taken.size() && taken[a.id] && !same))
        bad(fmt::format("added token '{}' and the vocabulary disagree about id {}", printable(a.content), a.id));
      if (a.id < t.tokens_.size() && t.tokens_[a.id].used) bad(fmt::format("two added tokens have id {}", a.id));
      t.set_token(a.id, a.content, true);
    }
    auto id_of = [&](std::string_view text) {
      auto bytes = from_alphabet(text);
      uint32_t index = bytes ? decoded.find(*bytes) : WordTable::none;
      if (index == WordTable::none)
        bad(fmt::format("merge of token '{}', which is not in the vocabulary", printable(text)));
      return ids[index];
    };
    t.merges_.reserve(merge_ends_.size());
    size_t start = 0;
    for (auto [middle, end] : merge_ends_) {
      std::string left = merge_text_.substr(start, middle - start), right = merge_text_.substr(middle, end - middle);
      t.merges_.push_back({id_of(left), id_of(right), id_of(left + right)});
      start = end;
    }
    t.finish(where_);
    bool identity = t.merges_.empty() && t.vocab_size() == 257 && t.is_special(256);
    for (uint32_t b = 0; identity && b < 256; ++b) identity = t.byte_ids_[b] == b;
    if (identity) t.kind_ = Tokenizer::Kind::bytes;
    return t;
  }

 private:
  enum class Part : uint8_t {
    root,
    model,
    vocab,
    merges,
    merge_pair,
    added,
    added_token,
    pre_tokenizer,
    normalizer,
    other
  };
  struct Added {
    uint32_t id = 0;
    bool has_id = false, special = false;
    std::string content;
  };

  [[noreturn]] void bad(const std::string& what) {
    fail("not a usable tokenizer: " + what, where_, "The file may be damaged or cut short; copy or train it again.");
  }
  [[noreturn]] void refuse(const std::string& what) {
    fail(fmt::format("this kind of tokenizer is not supported: {}", what), where_, supported);
  }
  bool at(Part part) const { return (stack_.empty() ? Part::other : stack_.back()) == part; }
  bool push(Part part) {
    if (stack_.size() >= max_depth) bad(fmt::format("it nests deeper than {} levels", max_depth));
    stack_.push_back(part);
    return true;
  }
  bool number(const char* what) {
    if (at(Part::vocab) || (at(Part::added_token) && key_ == "id")) bad(fmt::format("{} as the id of a token", what));
    if (at(Part::model) && key_ == "dropout") refuse("dropout");
    return true;
  }
  uint32_t check_id(uint64_t id) {
    if (id >= max_tokens) bad(fmt::format("token id {} is above the limit of {}", id, max_tokens));
    return uint32_t(id);
  }
  void add_vocabulary(uint64_t id) {
    if (key_.size() > max_token_bytes) bad("a token longer than 64 KiB");
    uint32_t before = vocabulary_.size();
    if (before >= max_tokens) bad(fmt::format("more than {} tokens", max_tokens));
    if (vocabulary_.insert(key_) != before) bad(fmt::format("token '{}' appears twice", printable(key_)));
    vocabulary_ids_.push_back(check_id(id));
  }
  void add_merge(const std::string& left, const std::string& right) {
    if (left.empty() || right.empty()) bad("a merge with an empty token");
    if (merge_ends_.size() >= max_tokens) bad(fmt::format("more than {} merges", max_tokens));
    merge_text_ += left;
    uint64_t middle = merge_text_.size();
    merge_text_ += right;
    merge_ends_.emplace_back(middle, merge_text_.size());
  }

  std::string where_, key_;
  std::vector<Part> stack_;
  bool has_model_ = false, byte_level_ = false;
  WordTable vocabulary_;  // as written in the file
  std::vector<uint32_t> vocabulary_ids_;
  std::string merge_text_;
  std::vector<std::pair<uint64_t, uint64_t>> merge_ends_;
  std::string pair_[2];
  int pair_size_ = 0;
  Added added_;
  std::vector<Added> added_list_;
};

Tokenizer Tokenizer::parse(std::string_view json, const std::string& where) {
  TokenizerReader reader(where);
  nlohmann::json::sax_parse(json.begin(), json.end(), &reader);
  return reader.finish();
}

Tokenizer Tokenizer::load(const std::filesystem::path& path) {
  return parse(read_file(path.string(), max_file_bytes), path.string());
}

std::string Tokenizer::to_json() const {
  using Json = nlohmann::ordered_json;
  Json added = Json::array();
  // Vocabulary and merges are written as text: ordered_json searches all keys at every insertion.
  std::string vocabulary;
  for (uint32_t id = 0; id < tokens_.size(); ++id) {
    if (!tokens_[id].used) continue;
    bool special = tokens_[id].special;
    std::string text = special ? std::string(decode_token(id)) : to_alphabet(decode_token(id));
    vocabulary += fmt::format("{}\n      {}: {}", vocabulary.empty() ? "" : ",", Json(text).dump(), id);
    if (special)
      added.push_back({{"id", id},
                       {"content", text},
                       {"single_word", false},
                       {"lstrip", false},
                       {"rstrip", false},
                       {"normalized", false},
                       {"special", true}});
  }
  std::string merge_list;
  for (auto& m : merges_) {
    std::string pair = to_alphabet(decode_token(m.left)) + " " + to_alphabet(decode_token(m.right));
    merge_list += fmt::format("{}\n      {}", merge_list.empty() ? "" : ",", Json(pair).dump());
  }
  Json byte_level = {{"type", "ByteLevel"}, {"add_prefix_space", false}, {"trim_offsets", true}, {"use_regex", true}};
  return fmt::format(
      "{{\n  \"version\": \"1.0\",\n  \"truncation\": null,\n  \"padding\": null,\n  \"added_tokens\": {},\n"
      "  \"normalizer\": null,\n  \"pre_tokenizer\": {},\n  \"post_processor\": null,\n  \"decoder\": {},\n"
      "  \"model\": {{\n    \"type\": \"BPE\",\n    \"dropout\": null,\n    \"unk_token\": null,\n"
      "    \"continuing_subword_prefix\": null,\n    \"end_of_word_suffix\": null,\n    \"fuse_unk\": false,\n"
      "    \"byte_fallback\": false,\n    \"ignore_merges\": false,\n    \"vocab\": {{{}\n    }},\n    \"merges\": "
      "[{}\n    ]\n"
      "  }}\n}}\n",
      added.dump(), byte_level.dump(), byte_level.dump(), vocabulary, merge_list);
}

void Tokenizer::save(const std::filesystem::path& path) const { write_file_synced(path.string(), to_json()); }

}  // namespace crest
