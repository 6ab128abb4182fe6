#include "interop/gguf_tokenizer.h"

#include <fmt/format.h>

#include <algorithm>
#include <nlohmann/json.hpp>
#include <optional>
#include <string_view>
#include <unordered_map>
#include <unordered_set>

#include "core/error.h"
#include "core/text.h"
#include "data/tokenizer.h"

namespace crest {

namespace {

// Values of tokenizer.ggml.token_type.
enum TokenType : int32_t { normal = 1, unknown = 2, control = 3, user_defined = 4, unused = 5, byte = 6 };

// llama.cpp's names for the ways to split a text (tokenizer.ggml.pre). digits: every digit is
// divided from the rest first. whole: a pre-token equal to a token stays one (ignore_merges).
struct Split {
  std::string_view rule;
  bool digits, whole;
  const char* name;
};
constexpr Split splits[] = {{"gpt2", false, false, "gpt-2"},      {"gpt2", true, false, "smollm"},
                            {"llama3", false, true, "llama-bpe"}, {"llama3", false, false, "dbrx"},
                            {"qwen2", false, false, "qwen2"},     {"o200k", false, false, "gpt-4o"}};

class Vocabulary {
  using Json = nlohmann::json;

 public:
  explicit Vocabulary(const LoadedModel& model)
      : model_(model), tokenizer_(*model.tokenizer), json_(Json::parse(tokenizer_.to_json())) {
    require_embeddings(tokenizer_.vocab_size(), model.config, model.tokenizer_path);
    for (int64_t id = 0; id < model.config.vocab; ++id) tokens_.push_back(fmt::format("[PAD{}]", id));
    types_.assign(tokens_.size(), unused);
    for (auto& item : json_["model"]["vocab"].items()) set(item.value().get<size_t>(), item.key(), normal);
    for (auto& added : json_["added_tokens"])
      set(added["id"].get<size_t>(), added["content"], added["special"] == true ? control : user_defined);
  }

  void write(GgufHeader& h, std::vector<std::string>& notes) {
    if (tokenizer_.byte_level())
      write_bytes(h, notes);
    else
      write_characters(h);
    write_special(h, notes);
  }

 private:
  // The steps of a normalizer or pre-tokenizer, one after another.
  static std::vector<Json> steps_of(const Json& part) {
    if (!part.is_object()) return {};
    if (part.value("type", "") != "Sequence") return {part};
    for (const char* key : {"normalizers", "pretokenizers"})
      if (part.contains(key)) {
        std::vector<Json> steps;
        for (auto& inner : part[key])
          for (auto& step : steps_of(inner)) steps.push_back(step);
        return steps;
      }
    return {};
  }

  void set(size_t id, const std::string& text, TokenType type) {
    tokens_.at(id) = text;
    types_[id] = type;
  }

  [[noreturn]] void refuse(const std::string& part) const {
    fail(fmt::format("the tokenizer has {}, which llama.cpp lacks", part), printable(model_.tokenizer_path),
         "llama.cpp would make other tokens of a text. transformers opens checkpoints with a config.json as they are.");
  }

  std::vector<std::string> merges() const {
    std::vector<std::string> out;
    for (auto& merge : json_["model"]["merges"]) out.push_back(merge);
    return out;
  }

  const char* split_name() const {
    bool digits = false;
    for (auto& step : steps_of(json_["pre_tokenizer"])) {
      const std::string type = step.value("type", "");
      if (type == "ByteLevel" && step.value("add_prefix_space", true)) refuse("add_prefix_space = true");
      if (type != "Digits") continue;
      if (!step.value("individual_digits", false)) refuse("the pre-tokenizer Digits of whole numbers");
      digits = true;
    }
    const bool whole = json_["model"].value("ignore_merges", false);
    const std::string_view rule = tokenizer_.split_rule().name;
    for (auto& split : splits)
      if (split.rule == rule && split.digits == digits && split.whole == whole) return split.name;
    refuse(fmt::format("the split rule {}{}{}", rule, digits ? " with digits apart" : "",
                       whole ? " with ignore_merges" : ""));
  }

  void write_bytes(GgufHeader& h, std::vector<std::string>& notes) const {
    const char* split = split_name();
    for (auto& step : steps_of(json_["normalizer"])) {
      const std::string type = step.value("type", "");
      if (type != "NFC") refuse(fmt::format("the normalizer {}", printable(type)));
      notes.push_back("llama.cpp does not normalize text (NFC): give it composed characters, as most text has them.");
    }
    if (tokenizer_.split_rule().name == "o200k")
      notes.push_back("llama.cpp splits o200k at capitals of ASCII only: other letters may give other tokens.");
    h.text("tokenizer.ggml.model", "gpt2");
    h.text("tokenizer.ggml.pre", split);
    h.texts("tokenizer.ggml.tokens", tokens_);
    h.numbers("tokenizer.ggml.token_type", types_);
    h.texts("tokenizer.ggml.merges", merges());
  }

  // Whether a space is put before a text.
  bool reads_characters() const {
    bool prefix = false;
    for (auto& step : steps_of(json_["normalizer"])) {
      const std::string type = step.value("type", "");
      const Json pattern = step.value("pattern", Json::object());
      if (type == "Prepend" && step.value("prepend", "") == mark)
        prefix = true;
      else if (type != "Replace" || pattern.value("String", "") != " " || step.value("content", "") != mark)
        refuse(fmt::format("the normalizer {}", printable(type)));
    }
    for (auto& step : steps_of(json_["pre_tokenizer"])) {
      if (step.value("type", "") != "Metaspace") continue;  // Gemma's split at spaces finds none
      if (step.value("replacement", std::string(mark)) != mark) refuse("another mark of spaces than U+2581");
      if (step.value("prepend_scheme", step.value("add_prefix_space", true) ? "always" : "never") != "never")
        prefix = true;
      if (!step.value("split", true)) continue;
      for (size_t id = 0; id < tokens_.size(); ++id)
        if (types_[id] == normal && tokens_[id].starts_with(std::string(mark) + std::string(mark)))
          refuse(fmt::format("a split at every space, and the token '{}'", printable(tokens_[id])));
    }
    return prefix;
  }

  // llama.cpp joins neighbors by the score of their joint text, the best one first, then the
  // leftmost. Merges in order do the same on two conditions: all merges to one token follow each
  // other, and every way to divide a token into two is a merge.
  std::vector<float> scores() const {
    std::vector<float> scores(tokens_.size(), 0);
    std::unordered_map<std::string_view, size_t> ids;
    for (size_t id = 0; id < tokens_.size(); ++id)
      if (types_[id] == normal) ids.emplace(tokens_[id], id);
    const std::vector<std::string> all = merges();
    std::unordered_set<std::string_view> known(all.begin(), all.end());
    std::unordered_set<std::string> made;
    std::string last;
    float score = 0;
    for (auto& merge : all) {
      const size_t space = merge.find(' ');
      const std::string text = merge.substr(0, space) + merge.substr(space + 1);
      if (text == last) continue;
      if (!made.insert(text).second) refuse_order(text);
      last = text;
      auto id = ids.find(text);
      if (id == ids.end()) refuse(fmt::format("the special token '{}', made by a merge", printable(text)));
      scores[id->second] = score -= 1;
    }
    for (auto& [text, id] : ids)
      for (size_t i = first_character(text).size; i < text.size(); i += first_character(text.substr(i)).size) {
        const std::string_view left = text.substr(0, i), right = text.substr(i);
        if (ids.contains(left) && ids.contains(right) && !known.contains(fmt::format("{} {}", left, right)))
          refuse_order(text);
      }
    return scores;
  }
  [[noreturn]] void refuse_order(std::string_view token) const {
    refuse(fmt::format("merges to the token '{}' in an order of their own", printable(token)));
  }

  void write_characters(GgufHeader& h) {
    if (!json_["model"].value("byte_fallback", false)) refuse("characters without byte_fallback");
    const bool prefix = reads_characters();
    for (size_t id = 0; id < tokens_.size(); ++id)
      if (types_[id] == normal && tokens_[id].size() == 6 && tokens_[id].starts_with("<0x")) types_[id] = byte;
    const Json unknown_token = json_["model"].value("unk_token", Json());
    std::optional<uint32_t> unknown_id;
    if (unknown_token.is_string()) unknown_id = tokenizer_.added(unknown_token.get<std::string>());
    if (unknown_id) types_[*unknown_id] = unknown;
    h.text("tokenizer.ggml.model", "llama");
    h.text("tokenizer.ggml.pre", "default");
    h.texts("tokenizer.ggml.tokens", tokens_);
    h.reals("tokenizer.ggml.scores", scores());
    h.numbers("tokenizer.ggml.token_type", types_);
    h.flag("tokenizer.ggml.add_space_prefix", prefix);
    if (unknown_id) h.number("tokenizer.ggml.unknown_token_id", *unknown_id);
  }

  // Whether a text begins with `begin` by the model's files.
  bool adds_begin(uint32_t begin, const Json& settings) const {
    if (const Json stated = settings.value("add_bos_token", Json()); stated.is_boolean()) return stated;
    auto begins = [&](const Json& step) {
      const Json single = step.value("single", Json::array());
      if (step.value("type", "") != "TemplateProcessing" || !single.is_array() || single.empty()) return false;
      const Json special = single[0].value("SpecialToken", Json::object());
      return special.value("id", "") == tokenizer_.decode_token(begin);
    };
    const Json& processor = json_["post_processor"];
    if (!processor.is_object()) return false;
    if (begins(processor)) return true;
    for (auto& step : processor.value("processors", Json::array()))
      if (begins(step)) return true;
    return false;
  }

  void write_special(GgufHeader& h, std::vector<std::string>& notes) const {
    const TextEnds ends = text_ends(model_);
    std::optional<uint32_t> end = tokenizer_.end_of_text();
    if (!ends.end.empty() && (!end || std::find(ends.end.begin(), ends.end.end(), *end) == ends.end.end()))
      end = ends.end[0];
    if (!end)
      fail("the tokenizer names no token for the end of a text, and llama.cpp needs one",
           printable(model_.tokenizer_path), "Name it: eos_token in tokenizer_config.json.");
    const uint32_t begin = ends.begin.value_or(*end);
    const std::string& chat = model_.text.chat_template;
    const Json settings =
        model_.text.tokenizer_config.empty() ? Json::object() : Json::parse(model_.text.tokenizer_config);
    h.number("tokenizer.ggml.bos_token_id", begin);
    h.number("tokenizer.ggml.eos_token_id", *end);
    std::vector<uint32_t> others;
    for (uint32_t id : ends.end)
      if (id != *end && id < tokenizer_.vocab_size()) others.push_back(id);
    std::stable_partition(others.begin(), others.end(),
                          [&](uint32_t id) { return chat.find(tokenizer_.decode_token(id)) != std::string::npos; });
    if (!others.empty()) h.number("tokenizer.ggml.eot_token_id", others[0]);
    if (others.size() > 1)
      notes.push_back(fmt::format("The model ends its answers with {}, and a GGUF file has places for two.",
                                  format_number_of(int64_t(others.size()) + 1, "token")));
    Json padding = settings.value("pad_token", Json());
    if (padding.is_object()) padding = padding.value("content", Json());
    if (padding.is_string())
      if (auto id = tokenizer_.added(padding.get<std::string>())) h.number("tokenizer.ggml.padding_token_id", *id);
    h.flag("tokenizer.ggml.add_bos_token", adds_begin(begin, settings));
    h.flag("tokenizer.ggml.add_eos_token", false);
    if (!chat.empty()) h.text("tokenizer.chat_template", chat);
  }

  static constexpr std::string_view mark = "\xe2\x96\x81";
  const LoadedModel& model_;
  const Tokenizer& tokenizer_;
  const Json json_;
  std::vector<std::string> tokens_;
  std::vector<int32_t> types_;
};

}  // namespace

void gguf_tokenizer(const LoadedModel& model, GgufHeader& header, std::vector<std::string>& notes) {
  if (!model.tokenizer)
    fail(model.tokenizer_problem.empty() ? "the model has no tokenizer, and llama.cpp needs one"
                                         : "the model's tokenizer was not read: " + model.tokenizer_problem,
         printable(model.weights_path), "Put its tokenizer.json into the folder with the weights.");
  try {
    Vocabulary(model).write(header, notes);
  } catch (const nlohmann::json::exception& e) {  // a value of another type than in tokenizers' files
    fail(fmt::format("not a usable tokenizer: {}", printable(e.what())), printable(model.tokenizer_path),
         "Save it again with transformers: tokenizer.save_pretrained(DIR).");
  }
}

}  // namespace crest
