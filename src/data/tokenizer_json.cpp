// Hugging Face `tokenizers`' tokenizer.json. It is read with SAX events, so that an untrusted file
// never builds a document; it is written as a whole.
#include <fmt/format.h>

#include <nlohmann/json.hpp>
#include <string>
#include <string_view>

#include "core/error.h"
#include "core/io.h"
#include "core/text.h"
#include "data/byte_alphabet.h"
#include "data/tokenizer.h"
#include "data/tokenizer_parts.h"

namespace crest {

namespace {

constexpr size_t max_depth = 32, max_steps = 16;

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
    if (at(Part::step) && k == "add_prefix_space" && value) parts_.refuse("add_prefix_space = true");
    if (at(Part::step) && k == "use_regex") step().use_regex = value;
    if (at(Part::step) && k == "invert") step().invert = value;
    if (at(Part::model) && k == "byte_fallback" && value) parts_.refuse("byte_fallback = true");
    if (at(Part::model) && k == "ignore_merges") parts_.ignore_merges = value;
    if (at(Part::added_token) && k == "special") added_.special = value;
    if (at(Part::added_token) && k == "normalized") added_.normalized = value;
    if (at(Part::added_token) && (k == "single_word" || k == "lstrip" || k == "rstrip") && value)
      parts_.refuse(fmt::format("an added token with {} = true", k));
    return true;
  }
  bool number_integer(int64_t value) override {
    if (echo_.active()) echo_.value(std::to_string(value));
    return number("a negative number");
  }
  bool number_unsigned(uint64_t value) override {
    if (echo_.active()) echo_.value(std::to_string(value));
    if (at(Part::vocab)) parts_.add_token(key_, value);
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
    size_t longest = TokenizerParts::max_token_bytes + at(Part::merges);  // two tokens that make one, and a space
    if (value.size() > longest && !at(Part::other)) parts_.bad(fmt::format("a string of {} bytes", value.size()));
    if (at(Part::model) && key_ == "type" && value != "BPE")
      parts_.refuse(fmt::format("model type {}", printable(value)));
    if (at(Part::model) && (key_ == "continuing_subword_prefix" || key_ == "end_of_word_suffix") && !value.empty())
      parts_.refuse(key_);
    if (at(Part::step) && key_ == "type") step().type = value;
    if (at(Part::step) && key_ == "behavior") step().behavior = value;
    if (at(Part::pattern)) step().pattern = key_ == "Regex" ? value : "the text '" + value + "'";
    if (at(Part::normalizer)) read_normalizer(value);
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
    else if ((at(Part::root) && key_ == "pre_tokenizer") || at(Part::steps))
      next = Part::step, open_step();
    else if (at(Part::step) && key_ == "pattern")
      next = Part::pattern;
    else if ((at(Part::root) && key_ == "normalizer") || at(Part::normalizer))
      next = Part::normalizer;
    else if (at(Part::root) && key_ == "post_processor")
      echo_.start(parts_.post_processor);
    else if (at(Part::model) && key_ == "vocab")
      next = Part::vocab;
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
      next = Part::merges;
    else if (at(Part::merges))
      next = Part::merge_pair, pair_size_ = 0;
    else if (at(Part::step) && key_ == "pretokenizers")
      next = Part::steps;
    else if (at(Part::normalizer))
      next = Part::normalizer;
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

  Tokenizer finish() {
    if (!has_model_) parts_.bad("it has no \"model\"");
    parts_.rule = &split_rule();
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
    step,  // of the pre-tokenizer
    steps,
    pattern,
    normalizer,
    other
  };
  struct Step {
    std::string type, pattern, behavior;
    bool use_regex = true, invert = false;
  };

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
  void open_step() {
    if (steps_.size() >= max_steps) parts_.refuse("a pre_tokenizer of many steps");
    open_steps_.push_back(steps_.size());
    steps_.emplace_back();
  }
  Step& step() { return steps_[open_steps_.back()]; }
  void read_normalizer(const std::string& value) {
    if (key_ == "type" && value == "NFC")
      parts_.nfc = true;
    else if (key_ != "type" || value != "Sequence")
      parts_.refuse(fmt::format("the normalizer {}", printable(value)));
  }

  // A lone ByteLevel splits by GPT-2's rule. Otherwise there is a Split with a known rule, then
  // ByteLevel for the alphabet.
  const SplitRule& split_rule() {
    std::erase_if(steps_, [](const Step& s) { return s.type == "Sequence"; });
    if (steps_.empty()) parts_.refuse("a missing pre_tokenizer");
    for (auto& s : steps_)
      if (s.type != "Split" && s.type != "ByteLevel") parts_.refuse(fmt::format("pre_tokenizer {}", printable(s.type)));
    if (steps_.back().type != "ByteLevel") parts_.refuse("a pre_tokenizer that does not end with ByteLevel");
    if (steps_.size() == 1) {
      if (!steps_[0].use_regex) parts_.refuse("use_regex = false without a split rule");
      return gpt2_split_rule();
    }
    const Step& split = steps_[0];
    if (steps_.size() > 2 || split.type != "Split" || steps_[1].use_regex)
      parts_.refuse("a pre_tokenizer with more than one split rule");
    bool whole = split.invert ? split.behavior == "Removed" : split.behavior == "Isolated";
    if (!whole) parts_.refuse(fmt::format("a Split with behavior {}", printable(split.behavior)));
    const SplitRule* rule = split_rule_of_pattern(split.pattern);
    if (!rule) parts_.refuse(fmt::format("the split rule {}", printable(split.pattern)));
    return *rule;
  }

  TokenizerParts parts_;
  std::string key_;
  std::vector<Part> stack_;
  bool has_model_ = false;
  std::vector<Step> steps_;
  std::vector<size_t> open_steps_;
  std::string pair_[2];
  int pair_size_ = 0;
  TokenizerParts::Added added_;
  JsonEcho echo_;
};

}  // namespace

Tokenizer Tokenizer::parse(std::string_view json, const std::string& where) {
  TokenizerReader reader(where);
  nlohmann::json::sax_parse(json.begin(), json.end(), &reader);
  return reader.finish();
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
    return tokens_[id].added ? std::string(decode_token(id)) : to_alphabet(decode_token(id));
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
                       {"single_word", false},
                       {"lstrip", false},
                       {"rstrip", false},
                       {"normalized", t.normalized},
                       {"special", t.special}});
  }
  std::string merge_list;
  for (auto& m : merges_) {
    std::string pair = spelled(m.left) + " " + spelled(m.right);
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
