#include "data/text_rules.h"

#include <fmt/format.h>

#include <algorithm>

#include "core/error.h"
#include "data/unicode.h"

namespace crest {

std::string replaced(std::string_view text, std::string_view from, std::string_view to) {
  std::string out;
  size_t done = 0;
  for (size_t p = text.find(from); !from.empty() && p != std::string_view::npos; p = text.find(from, done)) {
    out.append(text.substr(done, p - done)).append(to);
    done = p + from.size();
  }
  return out.append(text.substr(done));
}

namespace {

// Runs of two and more spaces become `to`.
std::string with_one_space(std::string_view text, std::string_view to) {
  std::string out;
  for (size_t i = 0; i < text.size();) {
    size_t end = i;
    while (end < text.size() && text[end] == ' ') ++end;
    if (end - i >= 2) {
      out.append(to);
      i = end;
    } else {
      out += text[i++];
    }
  }
  return out;
}

std::string_view stripped(std::string_view text, bool left, bool right) {
  while (left && !text.empty()) {
    CharacterOfClass c = character_at(text, 0);
    if (c.kind != CharClass::space) break;
    text.remove_prefix(c.length);
  }
  while (right && !text.empty() && class_before(text, text.size()) == CharClass::space) {
    size_t last = text.size() - 1;
    while (last > 0 && (uint8_t(text[last]) & 0xc0) == 0x80) --last;
    text = text.substr(0, last);
  }
  return text;
}

}  // namespace

bool TextRules::same(const TextRules& o) const {
  return steps == o.steps && mark == o.mark && marks_in_pretokens == o.marks_in_pretokens &&
         splits_at_spaces == o.splits_at_spaces && digits == o.digits && prefix == o.prefix &&
         leading_space == o.leading_space;
}

bool TextRules::normalize(std::string_view text, bool begins, std::string& out) const {
  using Kind = Step::Kind;
  std::string current, next;
  std::string_view now = text;
  bool changed = false;
  for (const Step& s : steps) {
    bool differs = true;
    switch (s.kind) {
      case Kind::nfc: differs = normalize_nfc(now, next); break;
      case Kind::nfd: differs = crest::normalize(UnicodeForm::nfd, now, next); break;
      case Kind::nfkc: differs = crest::normalize(UnicodeForm::nfkc, now, next); break;
      case Kind::nfkd: differs = crest::normalize(UnicodeForm::nfkd, now, next); break;
      case Kind::lowercase: next = lowercase(now); break;
      case Kind::prepend:
        differs = begins && !now.empty();
        if (differs) next = s.to + std::string(now);
        break;
      case Kind::mark: differs = now.find(mark) != std::string_view::npos; [[fallthrough]];
      case Kind::replace:
        if (differs) next = s.kind == Kind::mark ? replaced(now, mark, " ") : replaced(now, s.from, s.to);
        break;
      case Kind::one_space: next = with_one_space(now, s.to); break;
      case Kind::strip: next = std::string(stripped(now, s.left && begins, s.right)); break;
    }
    if (!differs) continue;
    if (next.size() > 64 * text.size() + (64 << 10))  // steps with texts that grow multiply
      fail(fmt::format("the tokenizer's normalizer makes {} bytes of a text of {}", next.size(), text.size()),
           "tokenizer.json", "Use a tokenizer with fewer Replace steps.");
    current.swap(next);
    next.clear();
    now = current;
    changed = true;
  }
  if (changed) out = std::move(current);
  return changed;
}

size_t next_word(std::string_view text, size_t start) {
  for (size_t p = text.find(' ', start + 1); p != std::string_view::npos; p = text.find(' ', p + 1))
    if (class_before(text, p) != CharClass::space) return p;
  return text.size();
}

size_t next_space(std::string_view text, size_t start) { return std::min(text.find(' ', start + 1), text.size()); }

size_t next_digits(std::string_view text, size_t start, bool single) {
  CharacterOfClass c = character_at(text, start);
  bool number = c.kind == CharClass::number;
  size_t end = start + c.length;
  if (number && single) return end;
  while (end < text.size()) {
    c = character_at(text, end);
    if ((c.kind == CharClass::number) != number) break;
    end += c.length;
  }
  return end;
}

}  // namespace crest
