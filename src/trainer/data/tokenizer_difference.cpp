// Whether two tokenizers give the same tokens of every text, however their files are written.
#include <fmt/format.h>

#include <algorithm>
#include <numeric>

#include "core/text.h"
#include "data/tokenizer.h"
#include "data/unicode.h"

namespace crest {

namespace {

constexpr uint32_t no_merge = MergeTable::no_rank;

// Merges the bytes of one token alone. Returns the rank of its last merge, or no_merge if they give
// other tokens. Inside any pre-token, merges within the bytes of a token happen in the same order
// as alone: so no other merge ever makes this token.
uint32_t rank_that_makes(const MergeTable& table, std::vector<uint32_t>& symbols, uint32_t token) {
  uint32_t last = no_merge;
  while (symbols.size() > 1) {
    MergeTable::Merge best{no_merge, 0};
    size_t at = 0;
    for (size_t i = 0; i + 1 < symbols.size(); ++i)
      if (auto m = table.find(symbols[i], symbols[i + 1]); m.rank < best.rank) best = m, at = i;
    if (best.rank == no_merge) return no_merge;
    symbols[at] = best.result, last = best.rank;
    symbols.erase(symbols.begin() + ptrdiff_t(at) + 1);
  }
  return symbols[0] == token ? last : no_merge;
}

}  // namespace

void Tokenizer::first_symbols(std::string_view text, std::vector<uint32_t>& symbols) const {
  symbols.clear();
  for (size_t i = 0; i < text.size();) {
    size_t length = byte_level_ ? 1 : character_at(text, i).length;
    uint32_t index = byte_level_ ? StringTable::none : characters_.find(text.substr(i, length));
    if (index != StringTable::none)
      symbols.push_back(character_ids_[index]);
    else if (byte_level_ || byte_fallback_)
      append_bytes(text.substr(i, length), symbols);
    else
      symbols.push_back(unknown_);
    i += length;
  }
}

std::vector<uint32_t> Tokenizer::working_merges(bool& whole_matter) const {
  constexpr size_t longest = 1024;  // above, merging one by one takes too long: all merges are compared
  std::vector<uint32_t> ranks, symbols;
  whole_matter = false;
  for (uint32_t id = 0; id < tokens_.size(); ++id) {
    const Token& t = tokens_[id];
    if (!t.used || t.added || t.byte || t.length < 2) continue;
    if (t.length > longest) {
      ranks.resize(merges_.size());
      std::iota(ranks.begin(), ranks.end(), 0u);
      whole_matter = true;
      return ranks;
    }
    first_symbols(decode_token(id), symbols);
    if (symbols.size() == 1 && symbols[0] == id) continue;  // a character
    uint32_t rank = rank_that_makes(ranks_, symbols, id);
    if (rank == no_merge)
      whole_matter = true;
    else
      ranks.push_back(rank);
  }
  std::sort(ranks.begin(), ranks.end());
  return ranks;
}

std::string Tokenizer::difference(const Tokenizer& other, std::string_view mine, std::string_view theirs) const {
  auto differ = [&](const std::string& what, const std::string& a, const std::string& b) {
    return fmt::format("{} is {} in {}, {} in {}", what, a, mine, b, theirs);
  };
  if (vocab_size() != other.vocab_size())
    return differ("the vocabulary", fmt::format("{} tokens", vocab_size()),
                  fmt::format("{} tokens", other.vocab_size()));
  auto shown = [](const Tokenizer& t, uint32_t id) {
    const Token& token = t.tokens_[id];
    if (!token.used) return std::string("unused");
    return fmt::format("'{}'{}", printable(t.decode_token(id), 40),
                       token.special ? " (special)"
                       : token.added ? " (added)"
                                     : "");
  };
  for (uint32_t id = 0; id < vocab_size(); ++id) {
    const Token &a = tokens_[id], &b = other.tokens_[id];
    // An added token is searched before or after normalization; without any, it does not matter.
    bool order = a.added && !rules_.steps.empty() && a.normalized != b.normalized;
    if (a.used != b.used || decode_token(id) != other.decode_token(id) || a.special != b.special ||
        a.added != b.added || a.byte != b.byte || a.borders != b.borders || order)
      return differ(fmt::format("token {}", id), shown(*this, id), shown(other, id));
  }
  auto level = [](const Tokenizer& t) { return std::string(t.byte_level_ ? "bytes" : "characters"); };
  if (byte_level_ != other.byte_level_) return differ("the unit of merges", level(*this), level(other));
  auto rule = [](const Tokenizer& t) { return std::string(t.rule_ ? t.rule_->name : "none"); };
  if (byte_level_ && rule_ != other.rule_) return differ("the split rule", rule(*this), rule(other));
  auto normalizer = [](const Tokenizer& t) {
    return t.rules_.steps.empty() ? "none" : t.rules_.normalizer_json.empty() ? "NFC" : t.rules_.normalizer_json;
  };
  if (rules_.steps != other.rules_.steps) return differ("the normalizer", normalizer(*this), normalizer(other));
  if (!rules_.same(other.rules_))
    return fmt::format("{} and {} divide texts or write spaces differently (pre_tokenizer, decoder)", mine, theirs);
  auto unknown = [](const Tokenizer& t) {
    return t.byte_fallback_         ? std::string("their bytes")
           : t.unknown_ == no_token ? std::string("an error")
                                    : fmt::format("token {}{}", t.unknown_, t.fuse_unknown_ ? " for a run" : "");
  };
  if (!byte_level_ && unknown(*this) != unknown(other))
    return differ("the form of unknown characters", unknown(*this), unknown(other));
  auto same = [](const Merge& a, const Merge& b) {
    return a.left == b.left && a.right == b.right && a.result == b.result;
  };
  if (ignore_merges_ == other.ignore_merges_ && std::ranges::equal(merges_, other.merges_, same)) return "";
  // The lists may differ in merges that never happen,
  // as in .tiktoken files and their conversions.
  bool whole = false, other_whole = false;
  auto a = working_merges(whole), b = other.working_merges(other_whole);
  for (size_t i = 0; i < std::max(a.size(), b.size()); ++i) {
    auto spelled = [](const Tokenizer& t, const std::vector<uint32_t>& ranks, size_t at) {
      if (at >= ranks.size()) return std::string("absent");
      const Merge& m = t.merges_[ranks[at]];
      return fmt::format("'{}' + '{}'", printable(t.decode_token(m.left), 40), printable(t.decode_token(m.right), 40));
    };
    if (i >= a.size() || i >= b.size() || !same(merges_[a[i]], other.merges_[b[i]]))
      return differ(fmt::format("merge {}", i + 1), spelled(*this, a, i), spelled(other, b, i));
  }
  if (ignore_merges_ != other.ignore_merges_ && (whole || other_whole))
    return differ("ignore_merges", ignore_merges_ ? "true" : "false", other.ignore_merges_ ? "true" : "false");
  return "";
}

}  // namespace crest
