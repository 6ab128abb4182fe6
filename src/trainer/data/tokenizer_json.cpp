// Hugging Face `tokenizers`' tokenizer.json. SAX events read it, so an untrusted file never builds
// a document; it is written as a whole.
#include <fmt/format.h>

#include <algorithm>
#include <iterator>
#include <nlohmann/json.hpp>
#include <string>
#include <string_view>

#include "core/error.h"
#include "core/io.h"
#include "core/text.h"
#include "data/byte_alphabet.h"
#include "data/tokenizer.h"
#include "data/tokenizer_parts.h"
#include "data/unicode.h"

namespace crest {

namespace {

constexpr size_t max_depth = 32, max_steps = 16;
constexpr size_t longest_replacement = 256;  // bytes added by a normalizer at one place

// Copies a part of a document to text while its SAX events pass by.
class JsonEcho {
 public:
  // The next value, an object or a list, goes to `out`, which must outlive it.
  void start(std::string& out) { out_ = &out, out.clear(), depth_ = 0, first_ = true; }
  bool active() const { return out_ != nullptr; }
  void value(std::string_view text) {
    separate();
    *out_ += text;
  }
  void string(const std::string& text) { value(nlohmann::json(text).dump()); }
  void key(const std::string& name) {
    string(name);
    *out_ += ": ";
    first_ = true;
  }
  void open(char bracket) {
    separate();
    *out_ += bracket;
    first_ = true;
    ++depth_;
  }
  void close(char bracket) {
    *out_ += bracket;
    first_ = false;
    if (--depth_ == 0) out_ = nullptr;
  }

 private:
  void separate() {
    if (!first_) *out_ += ", ";
    first_ = false;
  }
  std::string* out_ = nullptr;
  int depth_ = 0;
  bool first_ = true;
};

class TokenizerReader : public nlohmann::json_sax<nlohmann::json> {
 public:
  explicit TokenizerReader(const std::string& where) : parts_(where) {}

  bool null() override {
    if (echo_.active()) echo_.value("null");
    return true;
  }
  bool boolean(bool value) override {
    if (echo_.active()) echo_.value(value ? "true" : "false");
    std::string_view k = key_;
    if (at(Part::step)) step().flags.emplace_back(k, value);
    if (at(Part::model) && k == "byte_fallback") parts_.byte_fallback = value;
    if (at(Part::model) && k == "fuse_unk") parts_.fuse_unknown = value;
    if (at(Part::model) && k == "ignore_merges") parts_.ignore_merges = value;
    if (at(Part::added_token) && k == "special") added_.special = value;
    if (at(Part::added_token) && k == "normalized") added_.normalized = value;
    if (at(Part::added_token) && k == "lstrip") added_.borders.left = value;
    if (at(Part::added_token) && k == "rstrip") added_.borders.right = value;
    if (at(Part::added_token) && k == "single_word") added_.borders.word = value;
    return true;
  }
  bool number_integer(int64_t value) override {
    if (echo_.active()) echo_.value(std::to_string(value));
    return number("a negative number");
  }
  bool number_unsigned(uint64_t value) override {
    if (echo_.active()) echo_.value(std::to_string(value));
    if (at(Part::vocab)) parts_.add_token(key_, value);
    if (at(Part::step)) step().numbers.emplace_back(key_, value);
    if (at(Part::added_token) && key_ == "id") added_.id = parts_.check_id(value), added_.has_id = true;
    if (at(Part::model) && key_ == "dropout" && value != 0) parts_.refuse("dropout");
    return true;
  }
  bool number_float(double value, const std::string& text) override {
    if (echo_.active()) echo_.value(text);
    if (at(Part::model) && key_ == "dropout" && value == 0) return true;
    return number("a fraction");
  }
  bool string(std::string& value) override {
    if (echo_.active()) echo_.string(value);
    if (at(Part::step) && key_ == "precompiled_charsmap") {
      step().type = "Precompiled";  // refused by its name; the string is large
      return true;
    }
    size_t longest = TokenizerParts::max_token_bytes + at(Part::merges);  // two tokens with one text, and a space
    if (value.size() > longest && !at(Part::other)) parts_.bad(fmt::format("a string of {} bytes", value.size()));
    if (at(Part::model) && key_ == "type" && value != "BPE")
      parts_.refuse(fmt::format("model type {}", printable(value)));
    if (at(Part::model) && (key_ == "continuing_subword_prefix" || key_ == "end_of_word_suffix") && !value.empty())
      parts_.refuse(key_);
    if (at(Part::model) && key_ == "unk_token") parts_.unknown = value;
    if (at(Part::step) && key_ == "type") step().type = value;
    if (at(Part::step) && key_ != "type") step().texts.emplace_back(key_, value);
    if (at(Part::pattern)) step().texts.emplace_back(key_, value);
    if (at(Part::added_token) && key_ == "content") added_.content = value;
    if (at(Part::merges)) parts_.add_merge_line(value);
    if (at(Part::merge_pair)) {
      if (pair_size_ == 2) parts_.bad("a merge of more than two tokens");
      pair_[pair_size_++] = value;
    }
    if (at(Part::vocab)) parts_.bad("a token whose id is not a number");
    return true;
  }
  bool binary(binary_t&) override { return true; }
  bool key(std::string& value) override {
    if (echo_.active()) echo_.key(value);
    key_ = value;
    return true;
  }
  bool start_object(size_t) override {
    Part next = Part::other;
    if (stack_.empty())
      next = Part::root;
    else if (at(Part::root) && key_ == "model")
      next = Part::model, has_model_ = true;
    else if (at(Part::root) && key_ == "normalizer")
      next = Part::step, begin(normalizer_, parts_.rules.normalizer_json);
    else if (at(Part::root) && key_ == "pre_tokenizer")
      next = Part::step, begin(pre_tokenizer_, parts_.rules.pre_tokenizer_json);
    else if (at(Part::root) && key_ == "decoder")
      next = Part::step, begin(decoder_, parts_.rules.decoder_json);
    else if (at(Part::steps))
      next = Part::step, open_step();
    else if (at(Part::step) && key_ == "pattern")
      next = Part::pattern;
    else if (at(Part::root) && key_ == "post_processor")
      echo_.start(parts_.post_processor);
    else if (at(Part::model) && key_ == "vocab")
      next = Part::vocab, has_vocab_ = true;
    else if (at(Part::added))
      next = Part::added_token, added_ = {};
    else if (at(Part::vocab) || at(Part::merges) || at(Part::merge_pair))
      parts_.bad("an object where a token is expected");
    if (echo_.active()) echo_.open('{');
    return push(next);
  }
  bool end_object() override {
    if (echo_.active()) echo_.close('}');
    if (at(Part::added_token)) parts_.add_added(added_);
    if (at(Part::step)) open_steps_.pop_back();
    stack_.pop_back();
    return true;
  }
  bool start_array(size_t) override {
    Part next = Part::other;
    if (stack_.empty()) parts_.bad("the file is a list, not an object");
    if (at(Part::root) && key_ == "added_tokens")
      next = Part::added;
    else if (at(Part::model) && key_ == "merges")
      next = Part::merges, has_merges_ = true;
    else if (at(Part::merges))
      next = Part::merge_pair, pair_size_ = 0;
    else if (at(Part::step) && (key_ == "pretokenizers" || key_ == "normalizers" || key_ == "decoders"))
      next = Part::steps;
    else if (at(Part::model) && key_ == "vocab")
      parts_.refuse("a Unigram vocabulary");
    else if (at(Part::vocab) || at(Part::merge_pair))
      parts_.bad("a list where a token is expected");
    if (echo_.active()) echo_.open('[');
    return push(next);
  }
  bool end_array() override {
    if (echo_.active()) echo_.close(']');
    if (at(Part::merge_pair)) {
      if (pair_size_ != 2) parts_.bad("a merge of fewer than two tokens");
      parts_.add_merge(pair_[0], pair_[1]);
    }
    stack_.pop_back();
    return true;
  }
  bool parse_error(size_t position, const std::string&, const nlohmann::json::exception&) override {
    parts_.bad(fmt::format("not valid JSON at byte {}", position));
  }

  Tokenizer finish(const TokenizerCompanions& files) {
    if (!has_model_) parts_.bad("it has no \"model\"");
    if (!has_vocab_) parts_.bad("its model has no \"vocab\"");
    if (!has_merges_) parts_.bad("its model has no \"merges\"");
    for (Steps* steps : {&normalizer_, &pre_tokenizer_, &decoder_})
      std::erase_if(*steps, [](const Step& s) { return s.type == "Sequence"; });
    parts_.byte_level = !pre_tokenizer_.empty() && pre_tokenizer_.back().type == "ByteLevel";
    read_normalizer();
    if (parts_.byte_level) {
      if (parts_.byte_fallback) parts_.refuse("byte_fallback = true of a byte-level vocabulary");
      parts_.rule = &split_rule();
    } else {
      read_metaspace();
      read_decoder();
      // Otherwise a pre-token is a whole text, and long texts are encoded in parts.
      if (parts_.ignore_merges && !parts_.rules.splits_at_spaces)
        parts_.refuse("ignore_merges = true without ByteLevel or a Metaspace with split = true");
    }
    forget_standard_json();
    parts_.read(files);
    return parts_.build();
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
    step,  // of the normalizer, the pre-tokenizer or the decoder
    steps,
    pattern,
    other
  };
  struct Step {
    std::string type;
    std::vector<std::pair<std::string, std::string>> texts;  // "String" or "Regex": its pattern
    std::vector<std::pair<std::string, bool>> flags;
    std::vector<std::pair<std::string, uint64_t>> numbers;

    template <class T>
    static T in(const std::vector<std::pair<std::string, T>>& list, std::string_view key, T otherwise) {
      for (auto& [k, value] : list)
        if (k == key) return value;
      return otherwise;
    }
    std::string text(std::string_view key, std::string otherwise = "") const {
      return in(texts, key, std::move(otherwise));
    }
    bool flag(std::string_view key, bool otherwise) const { return in(flags, key, otherwise); }
    uint64_t number(std::string_view key) const { return in<uint64_t>(numbers, key, 0); }
  };
  using Steps = std::vector<Step>;

  bool at(Part part) const { return (stack_.empty() ? Part::other : stack_.back()) == part; }
  bool push(Part part) {
    if (stack_.size() >= max_depth) parts_.bad(fmt::format("it nests deeper than {} levels", max_depth));
    stack_.push_back(part);
    return true;
  }
  bool number(const char* what) {
    if (at(Part::vocab) || (at(Part::added_token) && key_ == "id"))
      parts_.bad(fmt::format("{} as the id of a token", what));
    if (at(Part::model) && key_ == "dropout") parts_.refuse("dropout");
    return true;
  }
  void begin(Steps& steps, std::string& json) {
    steps_ = &steps;
    echo_.start(json);
    open_step();
  }
  void open_step() {
    if (steps_->size() >= max_steps) parts_.refuse(fmt::format("a {} of many steps", key_));
    open_steps_.push_back(steps_->size());
    steps_->emplace_back();
  }
  Step& step() { return (*steps_)[open_steps_.back()]; }

  void read_normalizer() {
    using Kind = TextRules::Step::Kind;
    constexpr std::pair<std::string_view, Kind> forms[] = {{"NFC", Kind::nfc},
                                                           {"NFD", Kind::nfd},
                                                           {"NFKC", Kind::nfkc},
                                                           {"NFKD", Kind::nfkd},
                                                           {"Lowercase", Kind::lowercase}};
    TextRules& rules = parts_.rules;
    auto in_text = [&](const std::string& s) { return rules.mark.empty() ? s : replaced(s, rules.mark, " "); };
    for (const Step& s : normalizer_) {
      auto form = std::find_if(std::begin(forms), std::end(forms), [&](auto& f) { return s.type == f.first; });
      if (form != std::end(forms)) {
        rules.steps.push_back({form->second, "", ""});
      } else if (s.type == "Prepend") {
        if (parts_.byte_level) parts_.refuse("the normalizer Prepend with ByteLevel");
        if (s.text("prepend").size() > longest_replacement) parts_.refuse("the normalizer Prepend of a long text");
        rules.steps.push_back({Kind::prepend, "", in_text(s.text("prepend"))});
      } else if (s.type == "Strip") {
        if (!rules.mark.empty()) parts_.refuse("the normalizer Strip after spaces are replaced");
        rules.steps.push_back({Kind::strip, "", "", s.flag("strip_left", true), s.flag("strip_right", true)});
      } else if (s.type == "Replace") {
        read_replace(s, in_text);
      } else {
        parts_.refuse(fmt::format("the normalizer {}", printable(s.type)));
      }
    }
  }

  // Texts are cut before spaces: replaced text must not reach over a cut, nor make it unsafe.
  template <class InText>
  void read_replace(const Step& s, InText in_text) {
    using Kind = TextRules::Step::Kind;
    TextRules& rules = parts_.rules;
    std::string from = in_text(s.text("String")), content = s.text("content"), to = in_text(content);
    auto refuse = [&] {
      parts_.refuse(fmt::format("the normalizer Replace of '{}' by '{}'", printable(s.text("Regex", s.text("String"))),
                                printable(content)));
    };
    if (s.text("Regex") == " {2,}" && (to == " " || is_mark(content))) {
      rules.steps.push_back({Kind::one_space, "", " "});
      return;
    }
    if (from.empty() || from.size() > longest_replacement || to.size() > longest_replacement) refuse();
    if (from == " " && is_mark(content) && !parts_.byte_level) {
      set_mark(content);
      rules.steps.push_back({Kind::mark, "", ""});
      return;
    }
    bool begins = character_at(from, 0).kind == CharClass::space,
         ends = class_before(from, from.size()) == CharClass::space;
    bool to_begins = to.starts_with(' '), to_ends = !to.empty() && class_before(to, to.size()) == CharClass::space;
    if (safe_cut_after(from, 1) < from.size() || (begins && !to_begins) || (!ends && (to.empty() || to_ends))) refuse();
    rules.steps.push_back({Kind::replace, from, to});
  }

  static bool is_mark(const std::string& text) {
    return text.size() > 1 && character_at(text, 0).length == text.size() && text != "\xef\xbf\xbd";
  }
  void set_mark(const std::string& mark) {
    if (!parts_.rules.mark.empty() && parts_.rules.mark != mark) parts_.refuse("two marks for spaces");
    parts_.rules.mark = mark;
  }

  // SentencePiece's pre-tokenizer; none, if the normalizer marks spaces. Then Gemma's split at
  // spaces finds none.
  void read_metaspace() {
    TextRules& rules = parts_.rules;
    if (!rules.mark.empty())
      std::erase_if(pre_tokenizer_, [](const Step& s) { return s.type == "Split" && s.text("String") == " "; });
    for (auto& s : pre_tokenizer_)
      if (s.type != "Metaspace" || pre_tokenizer_.size() > 1)
        parts_.refuse(
            fmt::format("pre_tokenizer {}{}", printable(s.type),
                        s.type == "ByteLevel" || s.type == "Split" ? " that does not end with ByteLevel" : ""));
    if (pre_tokenizer_.empty()) return;
    const Step& s = pre_tokenizer_[0];
    std::string mark = s.text("replacement", "\xe2\x96\x81");
    if (!is_mark(mark)) parts_.refuse(fmt::format("Metaspace with replacement '{}'", printable(mark)));
    set_mark(mark);
    rules.marks_in_pretokens = true;
    rules.splits_at_spaces = s.flag("split", true);
    std::string scheme = prepend_scheme(s);
    rules.prefix = scheme == "never"   ? TextRules::Prefix::never
                   : scheme == "first" ? TextRules::Prefix::first
                   : scheme == "always"
                       ? TextRules::Prefix::always
                       : (parts_.refuse(fmt::format("prepend_scheme {}", printable(scheme))), TextRules::Prefix::never);
  }
  // Files before prepend_scheme have add_prefix_space.
  static std::string prepend_scheme(const Step& s) {
    return s.text("prepend_scheme", s.flag("add_prefix_space", true) ? "always" : "never");
  }

  void read_decoder() {
    TextRules& rules = parts_.rules;
    if (rules.mark.empty()) parts_.refuse("a vocabulary of characters whose spaces are not marked");
    bool bytes = false, spaces = false, metaspace = false;
    for (const Step& s : decoder_) {
      if (s.type == "Metaspace") {
        metaspace = true;
        spaces = s.text("replacement", rules.mark) == rules.mark;
        if (prepend_scheme(s) != "never") rules.leading_space = TextRules::LeadingSpace::drop_of_first_token;
      } else if (s.type == "Replace" && s.text("String") == rules.mark && s.text("content") == " ") {
        spaces = true;
      } else if (s.type == "ByteFallback") {
        bytes = true;
      } else if (s.type == "Strip" && s.text("content") == " " && s.number("start") <= 1 && s.number("stop") == 0) {
        if (s.number("start") == 1) rules.leading_space = TextRules::LeadingSpace::drop_one;
      } else if (s.type != "Fuse") {
        parts_.refuse(fmt::format("the decoder {}", printable(s.type)));
      }
    }
    if (!spaces || (metaspace && decoder_.size() > 2)) parts_.refuse("a decoder that does not turn marks into spaces");
    if (parts_.byte_fallback && !bytes) parts_.refuse("byte_fallback = true without the decoder ByteFallback");
  }

  // Crest writes these itself.
  void forget_standard_json() {
    TextRules& rules = parts_.rules;
    if (!parts_.byte_level) return;
    rules.decoder_json.clear();
    if (rules.steps.size() == 1 && rules.steps[0].kind == TextRules::Step::Kind::nfc) rules.normalizer_json.clear();
    if (rules.prefix == TextRules::Prefix::never && rules.digits == TextRules::Digits::ordinary)
      rules.pre_tokenizer_json.clear();
  }

  // A lone ByteLevel splits by GPT-2's rule. Otherwise there is a Split with a known rule, then
  // ByteLevel for the alphabet.
  const SplitRule& split_rule() {
    Steps steps = pre_tokenizer_;
    for (auto& s : steps)
      if (s.type != "Split" && s.type != "ByteLevel" && s.type != "Digits")
        parts_.refuse(fmt::format("pre_tokenizer {}", printable(s.type)));
    TextRules& rules = parts_.rules;
    if (steps[0].type == "Digits") {
      rules.digits = steps[0].flag("individual_digits", false) ? TextRules::Digits::single : TextRules::Digits::runs;
      steps.erase(steps.begin());
    }
    if (steps.back().flag("add_prefix_space", true)) rules.prefix = TextRules::Prefix::always;
    bool use_regex = steps.back().flag("use_regex", true);
    if (steps.size() == 1) {
      if (!use_regex) parts_.refuse("use_regex = false without a split rule");
      return gpt2_split_rule();
    }
    const Step& split = steps[0];
    if (steps.size() > 2 || split.type != "Split" || use_regex)
      parts_.refuse(split.type == "Split"
                        ? "a pre_tokenizer with more than one split rule"
                        : "a pre_tokenizer of several steps that does not begin with Digits or Split");
    if (rules.prefix != TextRules::Prefix::never) parts_.refuse("add_prefix_space = true after a Split");
    std::string behavior = split.text("behavior"), text = split.text("String"), pattern = split.text("Regex");
    bool whole = split.flag("invert", false) ? behavior == "Removed" : behavior == "Isolated";
    if (!whole) parts_.refuse(fmt::format("a Split with behavior {}", printable(behavior)));
    if (!text.empty()) pattern = "the text '" + text + "'";
    const SplitRule* rule = split_rule_of_pattern(pattern);
    if (!rule) parts_.refuse(fmt::format("the split rule {}", printable(pattern)));
    return *rule;
  }

  TokenizerParts parts_;
  std::string key_;
  std::vector<Part> stack_;
  bool has_model_ = false, has_vocab_ = false, has_merges_ = false;
  Steps normalizer_, pre_tokenizer_, decoder_;
  Steps* steps_ = nullptr;
  std::vector<size_t> open_steps_;
  std::string pair_[2];
  int pair_size_ = 0;
  TokenizerParts::Added added_;
  JsonEcho echo_;
};

}  // namespace

Tokenizer Tokenizer::parse(std::string_view json, const std::string& where, const TokenizerCompanions& files) {
  TokenizerReader reader(where);
  nlohmann::json::sax_parse(json.begin(), json.end(), &reader);
  return reader.finish(files);
}

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
  auto spelled = [&](uint32_t id) {
    const Token& t = tokens_[id];
    if (t.byte) return byte_name(id);
    if (t.added) return std::string(decode_token(id));
    if (!byte_level_) return replaced(decode_token(id), " ", rules_.mark);
    return to_alphabet(decode_token(id));
  };
  // Vocabulary and merges are written as text: ordered_json searches all keys at every insertion.
  std::string vocabulary;
  for (uint32_t id = 0; id < tokens_.size(); ++id) {
    const Token& t = tokens_[id];
    if (!t.used) continue;
    std::string text = spelled(id);
    // Added tokens are in the vocabulary too: otherwise `tokenizers` would renumber them.
    vocabulary += fmt::format("{}\n      {}: {}", vocabulary.empty() ? "" : ",", Json(text).dump(), id);
    if (t.added)
      added.push_back({{"id", id},
                       {"content", text},
                       {"single_word", t.borders.word},
                       {"lstrip", t.borders.left},
                       {"rstrip", t.borders.right},
                       {"normalized", t.normalized},
                       {"special", t.special}});
  }
  std::string merge_list;
  for (auto& m : merges_) {
    std::string pair = spelled(m.left) + " " + spelled(m.right);
    merge_list += fmt::format("{}\n      {}", merge_list.empty() ? "" : ",", Json(pair).dump());
  }
  Json byte_level = {{"type", "ByteLevel"}, {"add_prefix_space", false}, {"trim_offsets", true}, {"use_regex", true}};
  auto written = [&](const std::string& json, const std::string& standard) {
    return !json.empty() ? json : byte_level_ ? standard : std::string("null");
  };
  const char* nfc = rules_.steps.empty() ? "null" : "{\"type\":\"NFC\"}";
  std::string unknown = unknown_ == no_token ? "null" : Json(spelled(unknown_)).dump();
  return fmt::format(
      "{{\n  \"version\": \"1.0\",\n  \"truncation\": null,\n  \"padding\": null,\n  \"added_tokens\": {},\n"
      "  \"normalizer\": {},\n  \"pre_tokenizer\": {},\n  \"post_processor\": {},\n  \"decoder\": {},\n"
      "  \"model\": {{\n    \"type\": \"BPE\",\n    \"dropout\": null,\n    \"unk_token\": {},\n"
      "    \"continuing_subword_prefix\": null,\n    \"end_of_word_suffix\": null,\n    \"fuse_unk\": {},\n"
      "    \"byte_fallback\": {},\n    \"ignore_merges\": {},\n    \"vocab\": {{{}\n    }},\n    \"merges\": "
      "[{}\n    ]\n"
      "  }}\n}}\n",
      added.dump(), written(rules_.normalizer_json, nfc),
      written(rules_.pre_tokenizer_json, pre_tokenizer(*rule_).dump()), post_processor_,
      written(rules_.decoder_json, byte_level.dump()), unknown, fuse_unknown_, byte_fallback_, ignore_merges_,
      vocabulary, merge_list);
}

Tokenizer::Unreadable::Unreadable(const std::string& problem, const std::string& where)
    : Error(Exit::failed, "the tokenizer cannot be written as a file that Crest reads: " + problem, where) {}

void Tokenizer::save(const std::filesystem::path& path) const {
  std::string text = to_json(), problem = "it reads back as a different tokenizer";
  write_file_synced(path.string(), text);
  try {
    if (load(path).to_json() == text) return;
  } catch (const Error& e) {
    problem = e.problem();
  }
  remove_tree(path.string());
  throw Unreadable(problem, path.string());
}

}  // namespace crest
