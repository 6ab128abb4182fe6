#include "data/duplicates.h"

#include <unordered_set>

#include "core/content_hash.h"

namespace crest {

namespace {

struct LowerHalf {
  size_t operator()(const ContentHash::Digest& hash) const noexcept { return size_t(hash[0]); }
};

// Compares documents while their pieces come.
class SeenDocuments {
 public:
  void add(const CorpusPiece& piece) {
    if (piece.starts_document) end_document();
    open_ = true, bytes_ += piece.text.size();
    hash_.update(piece.text.data(), piece.text.size());
    // Records with other borders between their parts, or other trained parts, differ.
    const bool of_text = piece.trained && !piece.token && !piece.conversation && !piece.ends_record;
    const uint64_t part[] = {piece.text.size(), piece.trained, piece.token ? uint64_t(*piece.token) + 1 : 0};
    if (!of_text) hash_.update(part, sizeof part);
  }

  void end_document() {
    if (!open_) return;
    const bool seen = !seen_.insert(hash_.digest()).second;
    found_.left_out.push_back(seen);
    ++found_.documents, found_.duplicates += seen, found_.bytes += seen ? bytes_ : 0;
    hash_.reset(), bytes_ = 0, open_ = false;
  }

  Duplicates take() {
    end_document();
    return std::move(found_);
  }

 private:
  std::unordered_set<ContentHash::Digest, LowerHalf> seen_;
  ContentHash hash_;  // of the document so far
  uint64_t bytes_ = 0;
  bool open_ = false;
  Duplicates found_;
};

}  // namespace

Duplicates find_duplicates(std::vector<SourceFile>& sources, const CorpusOptions& options,
                           const std::function<void(uint64_t)>& progress) {
  SeenDocuments seen;
  read_corpus(sources, options, [&](const CorpusPiece& piece) {
    seen.add(piece);
    if (progress) progress(piece.position);
  });
  return seen.take();
}

}  // namespace crest
