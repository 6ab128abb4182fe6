// Files read by transformers next to a vocabulary: added_tokens.json, special_tokens_map.json and
// tokenizer_config.json. Its rules (PreTrainedTokenizerBase._from_pretrained): the
// added_tokens_decoder of tokenizer_config.json replaces the other two files; tokens named in any
// of them (eos_token, ...) are special. generation_config.json has the ids at the end of texts.
#include <fmt/format.h>

#include <algorithm>
#include <charconv>
#include <map>
#include <nlohmann/json.hpp>
#include <set>

#include "core/error.h"
#include "core/io.h"
#include "core/json.h"
#include "core/text.h"
#include "data/tokenizer_parts.h"
#include "data/unicode.h"

namespace crest {

namespace {

using CompanionJson = nlohmann::ordered_json;

constexpr const char* named_tokens[] = {"bos_token", "eos_token", "unk_token", "sep_token",
                                        "pad_token", "cls_token", "mask_token"};
constexpr const char *added_name = "added_tokens.json", *special_name = "special_tokens_map.json",
                     *config_name = "tokenizer_config.json", *generation_name = "generation_config.json";
constexpr const char* listed_tokens[] = {"additional_special_tokens", "extra_special_tokens"};

class CompanionReader {
 public:
  CompanionReader(TokenizerParts& parts, const TokenizerCompanions& files) : parts_(parts), files_(files) {
    for (auto& token : parts_.added) put(token);
    of_file_ = added_.size();
  }

  void read() {
    CompanionJson config = object(files_.tokenizer_config, config_name), special = CompanionJson::object();
    auto decoder = config.find("added_tokens_decoder");
    const bool replaces = decoder != config.end();
    if (!replaces) special = object(files_.special_tokens_map, special_name);
    find_named(config, special);
    if (replaces)
      read_decoder(*decoder);
    else
      read_added(object(files_.added_tokens, added_name));
    if (files_.all_tokens) check_next_ids();
    add_named();
    find_ends();
    check_prefix(config);
    parts_.added.clear();
    for (auto& token : added_) parts_.add_added(token);
  }

 private:
  using Added = TokenizerParts::Added;

  [[noreturn]] void bad(const char* file, const std::string& what) const {
    fail("not a usable tokenizer: " + what, printable(join_path(files_.folder, file)),
         "Correct the file or move it elsewhere.");
  }

  // Where transformers would follow one file or the other, depending on its version and the class.
  [[noreturn]] void disagree(const std::string& what) const {
    fail("the tokenizer's files disagree: " + what, printable(parts_.where),
         fmt::format("Correct it or the files next to it ({}, {}), so that they agree.", config_name, added_name));
  }

  CompanionJson object(const std::string& text, const char* file) const {
    if (text.empty()) return CompanionJson::object();
    CompanionJson json = parse_ordered_json_guarded(text, {.bytes = TokenizerCompanions::max_bytes, .keys = 10'000},
                                                    join_path(files_.folder, file));
    if (!json.is_object()) bad(file, "it is not a JSON object");
    return json;
  }

  // A token is a text, or an object with its content.
  std::string content_of(const CompanionJson& token, const char* file, std::string_view key) const {
    const CompanionJson content = token.is_object() ? token.value("content", CompanionJson()) : token;
    if (!content.is_string()) bad(file, fmt::format("{} is not a token", key));
    return content;
  }

  // special_tokens_map.json overrides tokenizer_config.json.
  void find_named(const CompanionJson& config, const CompanionJson& special) {
    auto each = [&](const char* key, auto&& use) {
      for (auto [file, json] : {std::pair{special_name, &special}, std::pair{config_name, &config}})
        if (auto found = json->find(key); found != json->end() && !found->is_null()) return use(*found, file);
    };
    for (const char* key : named_tokens)
      each(key, [&](const CompanionJson& token, const char* file) { named_.push_back(content_of(token, file, key)); });
    for (auto [key, to] : {std::pair{"bos_token", &parts_.begin_of_text}, {"eos_token", &parts_.end_of_text}})
      each(key, [&, key = key, to = to](const CompanionJson& token, const char* file) {
        *to = content_of(token, file, key);
      });
    for (const char* key : listed_tokens)
      each(key, [&](const CompanionJson& list, const char* file) {
        if (!list.is_array() && !list.is_object()) bad(file, fmt::format("{} is not a list of tokens", key));
        for (auto& token : list) named_.push_back(content_of(token, file, key));
      });
    std::erase(named_, "");
    named_set_ = {named_.begin(), named_.end()};
  }

  // {"32000": {"content": "<|im_end|>", "special": true, ...}}
  void read_decoder(const CompanionJson& decoder) {
    if (!decoder.is_object()) bad(config_name, "added_tokens_decoder is not an object");
    for (auto& [key, token] : decoder.items()) {
      uint64_t id = 0;
      auto [end, error] = std::from_chars(key.data(), key.data() + key.size(), id);
      if (error != std::errc() || end != key.data() + key.size() || !token.is_object())
        bad(config_name, fmt::format("'{}' of added_tokens_decoder is not an id and its token", printable(key)));
      Added a{parts_.check_id(id), true, false, false, content_of(token, config_name, "added_tokens_decoder")};
      auto flag = [&token = token](const char* name, bool otherwise) {
        const CompanionJson value = token.value(name, CompanionJson());
        return value.is_boolean() ? value.get<bool>() : otherwise;
      };
      a.borders = {flag("lstrip", false), flag("rstrip", false), flag("single_word", false)};
      a.special = flag("special", false) || named_set_.contains(a.content);
      a.normalized = flag("normalized", !a.special);
      put(a);
    }
  }

  // {"<|im_end|>": 32000}
  void read_added(const CompanionJson& tokens) {
    for (auto& [text, id] : tokens.items()) {
      if (!id.is_number_unsigned()) bad(added_name, fmt::format("the id of '{}' is not a number", printable(text)));
      const bool special = named_set_.contains(text);
      put({parts_.check_id(id.get<uint64_t>()), true, special, !special, text});
    }
  }

  // The id after all others; of the first `added` added tokens and the vocabulary.
  uint64_t next_id(size_t added) const {
    uint64_t next = 0;
    for (uint32_t id : parts_.ids) next = std::max<uint64_t>(next, uint64_t(id) + 1);
    for (size_t i = 0; i < added; ++i) next = std::max<uint64_t>(next, uint64_t(added_[i].id) + 1);
    return next;
  }

  // transformers numbers tokens missing in tokenizer.json one after another, whatever their ids.
  void check_next_ids() const {
    std::vector<const Added*> fresh;
    for (size_t i = of_file_; i < added_.size(); ++i)
      if (parts_.vocabulary.find(added_[i].content) == StringTable::none) fresh.push_back(&added_[i]);
    std::ranges::sort(fresh, {}, [](const Added* a) { return a->id; });
    uint64_t next = next_id(of_file_);
    for (const Added* a : fresh)
      if (a->id != next++)
        disagree(fmt::format("token '{}' has the id {}, but transformers would give it the id {}, the next one",
                             printable(a->content), a->id, next - 1));
  }

  // Classes for one kind of tokenizer follow this key, whatever tokenizer.json states.
  void check_prefix(const CompanionJson& config) const {
    const CompanionJson given = config.value("add_prefix_space", CompanionJson());
    const CompanionJson type = config.value("tokenizer_class", CompanionJson());
    if (!given.is_boolean() || !type.is_string() || type == "PreTrainedTokenizerFast" || type == "TokenizersBackend")
      return;
    const TextRules& rules = parts_.rules;
    bool adds = rules.prefix != TextRules::Prefix::never;
    for (auto& step : rules.steps) adds = adds || step.kind == TextRules::Step::Kind::prepend;
    if (given != adds)
      disagree(fmt::format("add_prefix_space is {}, but the tokenizer's own file {} a space before texts", given.dump(),
                           adds ? "puts" : "does not put"));
  }

  // Adds named tokens. A token made by merges stays ordinary text.
  void add_named() {
    uint64_t next = next_id(added_.size());
    for (auto& text : named_) {
      if (index_.contains(text)) continue;
      uint32_t there = parts_.vocabulary.find(text);
      if (there == StringTable::none ? files_.all_tokens : is_ordinary(text)) continue;
      put({parts_.check_id(there == StringTable::none ? next++ : parts_.ids[there]), true, true, false, text});
    }
  }

  // Other programs have a config.json, too, and generation reports a damaged one.
  void find_ends() {
    CompanionJson config;
    try {
      config = object(files_.generation_config, generation_name);
    } catch (const Error&) {
      return;
    }
    const CompanionJson ids = config.value("eos_token_id", CompanionJson());
    for (auto& id : ids.is_array() ? ids : CompanionJson::array({ids}))
      if (id.is_number_unsigned() && id.get<uint64_t>() < TokenizerParts::max_tokens) parts_.ends.push_back(id);
  }

  bool is_ordinary(const std::string& text) {
    if (made_.size() == 0)
      for (size_t i = 0, start = 0; i < parts_.merge_ends.size(); start = parts_.merge_ends[i++].second)
        made_.insert(std::string_view(parts_.merge_text).substr(start, parts_.merge_ends[i].second - start));
    return character_at(text, 0).length == text.size() || made_.find(text) != StringTable::none;
  }

  // Overrides the vocabulary's file.
  void put(const Added& token) {
    auto [there, fresh] = index_.emplace(token.content, added_.size());
    auto [same_id, new_id] = of_id_.emplace(token.id, added_.size());
    if (fresh && !new_id)
      disagree(fmt::format("token {} is '{}' and '{}'", token.id, printable(added_[same_id->second].content),
                           printable(token.content)));
    if (fresh) return added_.push_back(token);
    Added& before = added_[there->second];
    if (before.id != token.id)
      parts_.bad(
          fmt::format("the added token '{}' has two ids, {} and {}", printable(token.content), before.id, token.id));
    before = token;
  }

  TokenizerParts& parts_;
  const TokenizerCompanions& files_;
  std::vector<std::string> named_;
  std::set<std::string> named_set_;
  std::vector<Added> added_;
  size_t of_file_ = 0;                   // how many of added_ the vocabulary's file has
  std::map<std::string, size_t> index_;  // of a text in added_
  std::map<uint32_t, size_t> of_id_;     // of an id
  StringTable made_;                     // by merges
};

}  // namespace

TokenizerCompanions TokenizerCompanions::next_to(const std::filesystem::path& file, bool all_tokens) {
  TokenizerCompanions found;
  found.folder = file.parent_path().string();
  found.all_tokens = all_tokens;
  auto read = [&](const char* name) {
    std::filesystem::path path = file.parent_path() / name;
    std::error_code error;
    return std::filesystem::is_regular_file(path, error) ? read_file(path.string(), max_bytes) : std::string();
  };
  found.added_tokens = read(added_name);
  found.special_tokens_map = read(special_name);
  found.tokenizer_config = read(config_name);
  found.generation_config = read(generation_name);
  if (found.generation_config.empty()) found.generation_config = read("config.json");
  return found;
}

void TokenizerParts::read(const TokenizerCompanions& files) {
  if (!files.added_tokens.empty() || !files.special_tokens_map.empty() || !files.tokenizer_config.empty() ||
      !files.generation_config.empty())
    CompanionReader(*this, files).read();
}

}  // namespace crest
