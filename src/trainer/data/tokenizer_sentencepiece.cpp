// SentencePiece models (Kudo & Richardson 2018): the fields of sentencepiece_model.proto relevant
// to the tokens of BPE, written as a tokenizer.json with the same tokens.
#include <fmt/format.h>

#include <algorithm>
#include <bit>
#include <nlohmann/json.hpp>
#include <unordered_map>
#include <unordered_set>

#include "core/error.h"
#include "core/text.h"
#include "data/tokenizer.h"
#include "data/tokenizer_parts.h"
#include "data/unicode.h"

namespace crest {

namespace {

constexpr size_t longest_piece = 1024;  // SentencePiece's default is 16 characters
constexpr std::string_view mark = "\xe2\x96\x81";

// A message of protocol buffers, field by field. Every length is checked before it is used.
class Message {
 public:
  Message(std::string_view bytes, const TokenizerParts& parts) : bytes_(bytes), parts_(parts) {}

  // The next field: its number, and its value as a number or as bytes. False at the end.
  bool next() {
    if (bytes_.empty()) return false;
    uint64_t key = varint();
    field = key >> 3;
    number = 0, text = {};
    switch (key & 7) {
      case 0: number = varint(); break;
      case 1: number = fixed(8); break;
      case 2: {
        uint64_t length = varint();
        if (length > bytes_.size()) parts_.bad("the SentencePiece model ends within a field");
        text = bytes_.substr(0, size_t(length));
        bytes_.remove_prefix(size_t(length));
        break;
      }
      case 5: number = fixed(4); break;
      default: parts_.bad("not a SentencePiece model");
    }
    return true;
  }
  uint64_t field = 0, number = 0;
  std::string_view text;

 private:
  uint64_t varint() {
    uint64_t value = 0;
    for (int shift = 0; shift < 64; shift += 7) {
      if (bytes_.empty()) parts_.bad("the SentencePiece model ends within a field");
      uint8_t b = uint8_t(bytes_[0]);
      bytes_.remove_prefix(1);
      value |= uint64_t(b & 0x7f) << shift;
      if (b < 0x80) return value;
    }
    parts_.bad("not a SentencePiece model");
  }
  uint64_t fixed(size_t n) {
    if (bytes_.size() < n) parts_.bad("the SentencePiece model ends within a field");
    uint64_t value = 0;
    for (size_t i = 0; i < n; ++i) value |= uint64_t(uint8_t(bytes_[i])) << (8 * i);
    bytes_.remove_prefix(n);
    return value;
  }
  std::string_view bytes_;
  const TokenizerParts& parts_;
};

// Of ModelProto.SentencePiece.
enum PieceType : uint64_t { normal = 1, unknown = 2, control = 3, user_defined = 4, unused = 5, byte = 6 };
struct Piece {
  std::string_view text;
  float score = 0;
  uint64_t type = normal;
};

// Everything that decides the tokens; defaults as in the .proto.
struct Model {
  std::vector<Piece> pieces;
  uint64_t type = 1;  // of trainer_spec: 1 Unigram, 2 BPE, 3 words, 4 characters
  bool byte_fallback = false, suffix = false;
  std::string_view normalization;                        // its name
  bool charsmap = false;                                 // it changes characters
  bool prefix = true, one_space = true, escapes = true;  // normalizer_spec
};

void read_piece(Message m, Model& model, const TokenizerParts& parts) {
  Piece piece;
  while (m.next()) {
    if (m.field == 1) piece.text = m.text;
    if (m.field == 2) piece.score = std::bit_cast<float>(uint32_t(m.number));
    if (m.field == 3) piece.type = m.number;
  }
  if (model.pieces.size() >= TokenizerParts::max_tokens)
    parts.bad(fmt::format("more than {} tokens", TokenizerParts::max_tokens));
  if (piece.text.empty()) parts.bad("an empty token");
  if (piece.text.size() > longest_piece) parts.bad(fmt::format("a piece longer than {} bytes", longest_piece));
  model.pieces.push_back(piece);
}

Model read_model(std::string_view bytes, const TokenizerParts& parts) {
  Model model;
  Message m(bytes, parts);
  while (m.next()) {
    if (m.field == 1) read_piece(Message(m.text, parts), model, parts);
    Message inner(m.text, parts);
    while (m.field == 2 && inner.next()) {  // trainer_spec
      if (inner.field == 3) model.type = inner.number;
      if (inner.field == 24) model.suffix = inner.number != 0;
      if (inner.field == 35) model.byte_fallback = inner.number != 0;
    }
    while (m.field == 3 && inner.next()) {  // normalizer_spec
      if (inner.field == 1) model.normalization = inner.text;
      if (inner.field == 2) model.charsmap = !inner.text.empty();
      if (inner.field == 3) model.prefix = inner.number != 0;
      if (inner.field == 4) model.one_space = inner.number != 0;
      if (inner.field == 5) model.escapes = inner.number != 0;
    }
    while (m.field == 5 && inner.next())  // denormalizer_spec
      if (inner.field == 2 && !inner.text.empty()) parts.refuse("a SentencePiece model with a denormalizer");
  }
  if (model.pieces.empty()) parts.bad("a SentencePiece model without pieces");
  return model;
}

void check_supported(const Model& model, const TokenizerParts& parts) {
  constexpr const char* types[] = {"Unigram", "BPE", "words", "characters"};
  if (model.type != 2)
    parts.refuse(model.type >= 1 && model.type <= 4
                     ? fmt::format("a SentencePiece model of type {}", types[model.type - 1])
                     : fmt::format("a SentencePiece model of type {}", model.type));
  if (model.charsmap)
    parts.refuse(fmt::format("a SentencePiece model with the normalization {}", printable(model.normalization)));
  if (model.one_space) parts.refuse("a SentencePiece model with remove_extra_whitespaces");
  if (model.suffix) parts.refuse("a SentencePiece model with treat_whitespace_as_suffix");
  if (!model.escapes) parts.refuse("a SentencePiece model without escape_whitespaces");
  for (auto& p : model.pieces) {
    if (p.type == user_defined || p.type == unused)
      parts.refuse(fmt::format("a SentencePiece model with the {} piece '{}'",
                               p.type == unused ? "unused" : "user-defined", printable(p.text)));
    if (p.type < normal || p.type > byte) parts.bad(fmt::format("a piece of type {}", p.type));
  }
}

using Json = nlohmann::ordered_json;

// SentencePiece joins the two neighbors with the best-scored joint piece, leftmost first. So every
// way to divide a piece into two pieces is a merge.
Json merges_of(const Model& model, const TokenizerParts& parts) {
  std::unordered_map<std::string_view, uint32_t> ids;
  for (uint32_t id = 0; id < model.pieces.size(); ++id)
    if (model.pieces[id].type == normal) ids.emplace(model.pieces[id].text, id);
  std::vector<uint32_t> order;
  std::unordered_set<float> scores;
  for (auto [text, id] : ids) {
    bool joined = character_at(text, 0).length < text.size();
    for (size_t i = 0; i < text.size() && joined;) {
      size_t length = character_at(text, i).length;
      if (!ids.contains(text.substr(i, length)))
        parts.refuse(fmt::format("the piece '{}', whose characters are not all pieces", printable(text)));
      i += length;
    }
    if (!joined) continue;
    float score = model.pieces[id].score;
    if (!(score > -1e30f && score < 1e30f)) parts.bad("a score that is not a number");
    if (!scores.insert(score).second)
      parts.refuse(fmt::format("the piece '{}', with the score of another", printable(text)));
    order.push_back(id);
  }
  std::sort(order.begin(), order.end(),
            [&](uint32_t a, uint32_t b) { return model.pieces[a].score > model.pieces[b].score; });
  Json merges = Json::array();
  for (uint32_t id : order) {
    std::string_view text = model.pieces[id].text;
    for (size_t i = character_at(text, 0).length; i < text.size(); i += character_at(text, i).length)
      if (ids.contains(text.substr(0, i)) && ids.contains(text.substr(i))) {
        if (merges.size() >= TokenizerParts::max_tokens)
          parts.bad(fmt::format("more than {} merges", TokenizerParts::max_tokens));
        merges.push_back({text.substr(0, i), text.substr(i)});
      }
  }
  return merges;
}

}  // namespace

Tokenizer Tokenizer::parse_sentencepiece(std::string_view bytes, const std::string& where,
                                         const TokenizerCompanions& files) {
  TokenizerParts parts(where);
  Model model = read_model(bytes, parts);
  check_supported(model, parts);
  // Texts as they are: JSON would refuse pieces other than UTF-8.
  Json added = Json::array(), unknown_piece;
  std::string vocabulary;
  for (uint32_t id = 0; id < model.pieces.size(); ++id) {
    const Piece& p = model.pieces[id];
    for (size_t i = 0; i < p.text.size(); i += character_at(p.text, i).length)
      if (uint8_t(p.text[i]) >= 0x80 && character_at(p.text, i).length == 1) parts.bad("a piece that is not UTF-8");
    vocabulary += fmt::format("{}{}: {}", vocabulary.empty() ? "" : ", ", Json(p.text).dump(), id);
    if (p.type == unknown) unknown_piece = p.text;
    if (p.type == control || p.type == unknown)
      added.push_back({{"id", id}, {"content", p.text}, {"special", true}, {"normalized", false}});
  }
  Json normalizers = Json::array(), decoders = Json::array();
  if (model.prefix) normalizers.push_back({{"type", "Prepend"}, {"prepend", mark}});
  normalizers.push_back({{"type", "Replace"}, {"pattern", {{"String", " "}}}, {"content", mark}});
  decoders.push_back({{"type", "Replace"}, {"pattern", {{"String", mark}}}, {"content", " "}});
  if (model.byte_fallback) decoders.push_back({{"type", "ByteFallback"}});
  decoders.push_back({{"type", "Fuse"}});
  if (model.prefix) decoders.push_back({{"type", "Strip"}, {"content", " "}, {"start", 1}, {"stop", 0}});
  return parse(fmt::format(R"({{"added_tokens": {}, "normalizer": {}, "pre_tokenizer": null, "decoder": {}, "model": )"
                           R"({{"type": "BPE", "unk_token": {}, "fuse_unk": true, "byte_fallback": {}, )"
                           R"("vocab": {{{}}}, "merges": {}}}}})",
                           added.dump(), Json({{"type", "Sequence"}, {"normalizers", normalizers}}).dump(),
                           Json({{"type", "Sequence"}, {"decoders", decoders}}).dump(), unknown_piece.dump(),
                           model.byte_fallback, vocabulary, merges_of(model, parts).dump()),
               where, files);
}

}  // namespace crest
