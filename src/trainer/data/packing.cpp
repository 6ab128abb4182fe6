#include "data/packing.h"

#include <algorithm>
#include <set>

#include "core/random.h"
#include "data/loader.h"

namespace crest {

Packing::Packing(const TokenStream& stream, uint32_t end_of_text, int64_t seq) : end_of_text_(end_of_text), seq_(seq) {
  place(find_pieces(stream));
}

std::span<const Packing::Piece> Packing::row(uint64_t r) const {
  return std::span(pieces_).subspan(starts_[r], starts_[r + 1] - starts_[r]);
}

double Packing::filled() const { return rows() ? double(slots_) / (double(rows()) * double(seq_)) : 0; }

std::vector<Packing::Piece> Packing::find_pieces(const TokenStream& stream) {
  std::vector<Piece> pieces;
  std::vector<int32_t> block(1 << 16);
  std::vector<uint8_t> inside(stream.masked() ? block.size() : 0);  // a conversation
  uint64_t begin = 0, total = stream.total_tokens();
  for (uint64_t at = 0; at < total; at += block.size()) {
    size_t n = size_t(std::min<uint64_t>(block.size(), total - at));
    stream.read(at, n, block.data());
    if (stream.masked()) stream.read_inside(at, n, inside.data());
    for (size_t i = 0; i < n; ++i)
      if (block[i] == int32_t(end_of_text_) && (inside.empty() || !inside[i]))
        add_document(stream, begin, at + i + 1, pieces), begin = at + i + 1;
  }
  add_document(stream, begin, total, pieces);
  return pieces;
}

void Packing::add_document(const TokenStream& stream, uint64_t begin, uint64_t end, std::vector<Piece>& pieces) {
  if (end < begin + 2) return;
  std::vector<uint8_t> trained;
  if (stream.masked()) {
    trained.resize(size_t(end - begin - 1));
    stream.read_mask(begin + 1, trained.size(), trained.data());
  }
  uint64_t slots = end - begin - 1;
  size_t before = pieces.size();
  for (uint64_t at = 0; at < slots; at += uint64_t(seq_)) {
    uint64_t n = std::min<uint64_t>(uint64_t(seq_), slots - at);
    auto first = trained.begin() + int64_t(trained.empty() ? 0 : at);
    if (!trained.empty() && std::find(first, first + int64_t(n), 1) == first + int64_t(n)) continue;
    pieces.push_back({begin + at, uint32_t(n)});
  }
  documents_ += pieces.size() > before;
  cut_ += pieces.size() > before && slots > uint64_t(seq_);
}

void Packing::place(const std::vector<Piece>& pieces) {
  std::vector<uint32_t> order(pieces.size()), row_of(pieces.size()), counts;
  for (size_t i = 0; i < order.size(); ++i) order[i] = uint32_t(i);
  std::stable_sort(order.begin(), order.end(),
                   [&](uint32_t a, uint32_t b) { return pieces[a].slots > pieces[b].slots; });
  std::vector<std::vector<uint32_t>> by_room(size_t(seq_) + 1);  // rows
  std::set<uint32_t> rooms;                                      // in some row
  for (uint32_t i : order) {
    uint32_t n = pieces[i].slots, room = uint32_t(seq_), row = uint32_t(counts.size());
    if (auto fits = rooms.lower_bound(n); fits != rooms.end()) {
      room = *fits, row = by_room[room].back();
      by_room[room].pop_back();
      if (by_room[room].empty()) rooms.erase(fits);
    } else {
      counts.push_back(0);
    }
    row_of[i] = row, ++counts[row], slots_ += n;
    if (room == n) continue;
    by_room[room - n].push_back(row);
    rooms.insert(room - n);
  }
  // The rows of long documents come first. Mix them, so a validation on a few rows does not see
  // long documents only.
  std::vector<uint64_t> at(counts.size());
  starts_.assign(counts.size() + 1, 0);
  if (!counts.empty()) {
    Permutation mixed(counts.size(), mix(uint64_t(seq_)));
    std::vector<uint64_t> place_of(counts.size());
    for (size_t r = 0; r < counts.size(); ++r) place_of[r] = mixed(r), starts_[place_of[r] + 1] = counts[r];
    for (size_t r = 0; r < counts.size(); ++r) starts_[r + 1] += starts_[r];
    for (size_t r = 0; r < counts.size(); ++r) at[r] = starts_[place_of[r]];
  }
  pieces_.resize(pieces.size());
  for (uint32_t i : order) pieces_[at[row_of[i]]++] = pieces[i];
}

}  // namespace crest
