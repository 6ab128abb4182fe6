// .tiktoken: one token per line, its bytes in base64 and its rank, the id.
#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <charconv>

#include "core/error.h"
#include "data/tokenizer_parts.h"

namespace crest {

namespace {

// Longer ones would make a hostile file slow to read. Real vocabularies have up to 128 bytes.
constexpr size_t max_token_bytes = 512;

const std::array<int8_t, 256> base64_value = [] {
  std::array<int8_t, 256> table;
  table.fill(-1);
  std::string_view alphabet = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
  for (size_t i = 0; i < alphabet.size(); ++i) table[uint8_t(alphabet[i])] = int8_t(i);
  return table;
}();

bool decode_base64(std::string_view text, std::string& out) {
  out.clear();
  if (text == "=") return true;  // a token without bytes, as in Whisper's file
  if (text.empty() || text.size() % 4) return false;
  size_t padding = text.ends_with("==") ? 2 : text.ends_with('=') ? 1 : 0;
  text.remove_suffix(padding);
  uint32_t bits = 0;
  int count = 0;
  for (char c : text) {
    int value = base64_value[uint8_t(c)];
    if (value < 0) return false;
    bits = bits << 6 | uint32_t(value);
    if ((count += 6) >= 8) out += char(bits >> (count -= 8));
  }
  return true;
}

// Tokens in the order of their ranks.
struct Ranks {
  StringTable tokens;
  std::vector<uint32_t> ids;
  uint32_t count = 0;  // including those without bytes
  uint32_t next_id = 0;
};

Ranks read_ranks(std::string_view text, const TokenizerParts& parts) {
  Ranks ranks;
  std::vector<std::pair<uint32_t, std::string>> tokens;
  size_t line_number = 0;
  std::string bytes;
  while (!text.empty()) {
    size_t end = std::min(text.find('\n'), text.size());
    std::string_view line = text.substr(0, end);
    text.remove_prefix(std::min(end + 1, text.size()));
    ++line_number;
    if (line.ends_with('\r')) line.remove_suffix(1);
    if (line.empty()) continue;
    size_t space = line.find(' ');
    uint64_t id = 0;
    bool good = space != std::string_view::npos;
    if (good) {
      auto [last, error] = std::from_chars(line.data() + space + 1, line.data() + line.size(), id);
      good = error == std::errc() && last == line.data() + line.size() && decode_base64(line.substr(0, space), bytes);
    }
    if (!good) parts.bad(fmt::format("line {} is not a token in base64 and its rank", line_number));
    if (bytes.size() > max_token_bytes)
      parts.bad(fmt::format("the token of line {} has more than {} bytes", line_number, max_token_bytes));
    tokens.emplace_back(parts.check_id(id), bytes);
  }
  std::sort(tokens.begin(), tokens.end());
  ranks.count = uint32_t(tokens.size());
  ranks.next_id = tokens.empty() ? 0 : tokens.back().first + 1;
  for (size_t i = 0; i < tokens.size(); ++i) {
    auto& [id, spelling] = tokens[i];
    if (i > 0 && tokens[i - 1].first == id) parts.bad(fmt::format("two tokens have id {}", id));
    if (spelling.empty()) continue;
    if (ranks.tokens.insert(spelling) != ranks.ids.size()) parts.bad(fmt::format("token {} appears twice", id));
    ranks.ids.push_back(id);
  }
  parts.check_unused_ids(ranks.next_id, ranks.ids.size());
  return ranks;
}

// tiktoken merges two neighbors if their bytes together are a token, lowest rank first. If a token
// arises this way from its own bytes, the last step is the only one that ever makes it: inside a
// longer pre-token it is merged in the same order as alone, because nothing was merged across its
// ends. So one merge per token gives the same tokens. Other tokens get all their splits as merges,
// and are also matched as whole pre-tokens (ignore_merges).
class TiktokenMerges {
 public:
  TiktokenMerges(const Ranks& ranks, const uint32_t* byte_ids) : ranks_(ranks), byte_ids_(byte_ids) {}

  // add(left, right, result), in the order of ranks. Returns whether merges make every token.
  template <class Add>
  bool each(Add add) {
    bool all = true;
    for (uint32_t i = 0; i < ranks_.ids.size(); ++i) {
      std::string_view token = ranks_.tokens[i];
      if (token.size() < 2) continue;
      symbols_.clear();
      for (char c : token) symbols_.push_back(byte_ids_[uint8_t(c)]);
      parts_.clear();
      merge_pretoken(table_, symbols_.data(), symbols_.size(), parts_);
      auto take = [&](uint32_t left, uint32_t right) {
        table_.set(left, right, {count_++, ranks_.ids[i]});
        add(left, right, ranks_.ids[i]);
      };
      if (parts_.size() == 2) {
        take(parts_[0], parts_[1]);
        continue;
      }
      all = false;
      for (size_t k = 1; k < token.size(); ++k) {
        uint32_t left = ranks_.tokens.find(token.substr(0, k)), right = ranks_.tokens.find(token.substr(k));
        if (left != StringTable::none && right != StringTable::none) take(ranks_.ids[left], ranks_.ids[right]);
      }
    }
    return all;
  }

 private:
  const Ranks& ranks_;
  const uint32_t* byte_ids_;
  MergeTable table_;
  uint32_t count_ = 0;
  std::vector<uint32_t> symbols_, parts_;
};

}  // namespace

Tokenizer Tokenizer::parse_tiktoken(std::string_view text, const std::string& where, std::string_view split_rule) {
  TokenizerParts parts(where);
  Ranks ranks = read_ranks(text, parts);
  const KnownVocabulary* known = find_known_vocabulary(ranks.count);
  if (!known && split_rule.empty())
    fail(fmt::format(
             "a .tiktoken file does not state how text is split into words, and no vocabulary of {} tokens is known",
             ranks.count),
         where, fmt::format("Give the rule: crest data prepare --split-rule, one of {}.", split_rule_names()));
  Tokenizer t;
  t.rule_ = &find_split_rule(split_rule.empty() ? known->split_rule : split_rule);
  if (known && known->nfc) t.rules_.steps.push_back({TextRules::Step::Kind::nfc});
  for (uint32_t i = 0; i < ranks.ids.size(); ++i) t.set_token(ranks.ids[i], ranks.tokens[i]);
  auto set_special = [&](std::string_view name, uint32_t id) {
    uint32_t there = ranks.tokens.find(name);  // it may be among the tokens
    if (there != StringTable::none) id = ranks.ids[there];
    if (there != StringTable::none || id >= t.tokens_.size() || !t.tokens_[id].used)
      t.set_added_token(parts.check_id(id), name, true);
  };
  if (known)
    for (auto& [name, id] : known->special_tokens()) set_special(name, id);
  else
    set_special(end_of_text_name, ranks.next_id);
  t.find_bytes(where);
  TiktokenMerges merges(ranks, t.byte_ids_);
  t.ignore_merges_ = !merges.each([&](uint32_t left, uint32_t right, uint32_t result) {
    if (t.merges_.size() >= TokenizerParts::max_tokens) parts.bad("too many ways to split its tokens");
    t.merges_.push_back({left, right, result});
  });
  t.finish(where);
  return t;
}

}  // namespace crest
