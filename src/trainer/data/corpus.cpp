#include "data/corpus.h"

#include <algorithm>

#include "data/interrupt.h"
#include "data/json_lines.h"
#include "data/parquet.h"
#include "data/split_rule.h"
#include "data/unicode.h"

namespace crest {

namespace {

// How far a held-out boundary looks for a safe cut before it splits a word.
constexpr size_t boundary_search = 64 << 10;
// Text before a safe cut is in memory several times.
constexpr size_t longest_wait = 4 << 20;

// The last position after a line break and before a letter or number, where words end by most
// rules; else one between two characters.
size_t last_line(std::string_view text) {
  for (size_t p = text.rfind('\n'); p != std::string_view::npos && p >= text.size() / 2; p = text.rfind('\n', p - 1)) {
    CharClass next = p + 1 < text.size() ? character_at(text, p + 1).kind : CharClass::space;
    if (is_letter(next) || next == CharClass::number) return p + 1;
  }
  return last_character_cut(text);
}

// Turns the bytes of a file into pieces.
class PieceMaker {
 public:
  PieceMaker(const CorpusOptions& options, uint64_t total, const std::function<void(const CorpusPiece&)>& use)
      : options_(options), use_(use), total_(total) {}

  void begin_document() { new_document_ = true, drop_newline_ = false; }

  void add(std::string_view block, bool last) {
    buffer_.append(block);
    const std::string& sep = options_.separator;
    size_t done = 0;
    while (true) {
      std::string_view rest = std::string_view(buffer_).substr(done);
      size_t line_break = rest.starts_with("\r\n") ? 2 : rest.starts_with("\n") ? 1 : 0;
      if (drop_newline_ && (rest.size() >= 2 || last)) {
        drop_newline_ = false;
        position_ += line_break, done += line_break;
        continue;
      }
      size_t p = sep.empty() || drop_newline_ ? std::string_view::npos : rest.find(sep);
      if (p != std::string_view::npos) {
        emit(rest.substr(0, p), true);
        position_ += sep.size(), done += p + sep.size();
        new_document_ = drop_newline_ = true;
        continue;
      }
      if (last) {
        emit(rest, true);
        done = buffer_.size();
      } else if (!drop_newline_) {
        // The end may be the start of a separator, so it waits for the next block.
        size_t waiting = sep.empty() ? 0 : std::min(rest.size(), sep.size() - 1);
        std::string_view usable = rest.substr(0, rest.size() - waiting);
        size_t cut = last_safe_cut(usable);
        // Text without a space must not fill the memory: the cut then splits a word.
        bool clean = cut > 0;
        if (!clean && usable.size() >= std::min(16 * options_.block_bytes, longest_wait)) cut = last_line(usable);
        emit(usable.substr(0, cut), clean);
        done += cut;
      }
      buffer_.erase(0, done);
      return;
    }
  }

  // A record stays in one split, and its parts are whole. The first record is never held out.
  void add_record(std::span<const DocumentPart> parts, bool conversation) {
    if (is_left_out(true)) return begin_document();
    uint64_t end = position_;
    for (auto& part : parts) end += part.text.size();
    held_out_ |= position_ > 0 && end > options_.boundary;
    for (auto& part : parts) {
      position_ += part.text.size();
      use_({.text = part.text,
            .starts_document = &part == &parts.front(),
            .held_out = held_out_,
            .trained = part.trained,
            .conversation = conversation,
            .ends_record = &part == &parts.back(),
            .token = part.token,
            .position = position_});
    }
    begin_document();
  }

 private:
  // Whether the document of this text is left out. begins: the text is its first.
  bool is_left_out(bool begins) {
    if (!options_.left_out) return false;
    // A file that grew since it was compared is an error at its end.
    if (begins) left_out_ = documents_ < options_.left_out->size() && (*options_.left_out)[documents_], ++documents_;
    return left_out_;
  }

  // clean_end: the text ends where words end anyway (a safe cut, or the end of a document).
  void emit(std::string_view text, bool clean_end) {
    if (text.empty()) return;
    if (is_left_out(new_document_)) {
      new_document_ = false;
      return;
    }
    if (!held_out_ && position_ + text.size() > options_.boundary) {
      size_t target = options_.boundary > position_ ? size_t(options_.boundary - position_) : 0;
      size_t cut = target ? safe_cut_after(text, target) : 0;
      // Some of the last document must be left to hold out.
      bool corpus_ends = total_ - position_ - text.size() <= options_.separator.size() + 2;
      bool at_end = cut == text.size() && (corpus_ends || !clean_end);
      if (target && (at_end || cut - target > boundary_search)) {
        cut = target;
        cut = character_cut_after(text, cut);
      }
      give(text.substr(0, cut));
      held_out_ = true;
      text.remove_prefix(cut);
    }
    give(text);
  }

  void give(std::string_view text) {
    if (text.empty()) return;
    position_ += text.size();
    use_({.text = text, .starts_document = new_document_, .held_out = held_out_, .position = position_});
    new_document_ = false;
  }

  const CorpusOptions& options_;
  const std::function<void(const CorpusPiece&)>& use_;
  std::string buffer_;
  uint64_t total_, position_ = 0;
  bool new_document_ = true, drop_newline_ = false, held_out_ = false, left_out_ = false;
  size_t documents_ = 0;  // begun, with options_.left_out
};

// The texts of a Parquet file's rows.
void read_rows(SourceFile& source, const CorpusOptions& options,
               const std::function<void(std::string_view, uint64_t row, uint64_t rows)>& use) {
  hash_source(source);
  read_parquet(source.path.string(), source.name, options.text_key, options.bad_lines, check_interrupted, use);
}

}  // namespace

void measure_sources(std::vector<SourceFile>& sources, const CorpusOptions& options,
                     const std::function<void(uint64_t, uint64_t)>& progress) {
  auto unknown = [](const SourceFile& s) { return s.json_lines || s.parquet || s.compression != Compression::none; };
  uint64_t all = 0, done = 0;
  for (auto& s : sources) all += unknown(s) ? s.file_bytes : 0;
  std::string block(all ? options.block_bytes : 0, '\0');
  for (auto& s : sources) {
    if (!unknown(s)) continue;
    JsonLines lines(s.name, options.text_key, options.chat, options.bad_lines);
    uint64_t text = 0;
    auto document = [&](const JsonDocument& d) {
      text += d.text.size();
      for (auto& part : d.parts) text += part.text.size();
      s.records += d.record(), s.chats += d.chat;
    };
    if (s.parquet)
      read_rows(s, options, [&](std::string_view row, uint64_t rows_done, uint64_t rows) {
        text += row.size();
        if (progress && rows_done % 256 == 0)
          progress(done + uint64_t(double(s.file_bytes) * double(rows_done) / double(rows)), all);
      });
    else
      read_source(s, block, [&](std::string_view part, bool last, uint64_t file_done) {
        if (s.json_lines)
          lines.add(part, last, document);
        else
          text += part.size();
        if (progress) progress(done + file_done, all);
      });
    s.bytes = text, done += s.file_bytes;
  }
}

void read_corpus(std::vector<SourceFile>& sources, const CorpusOptions& options,
                 const std::function<void(const CorpusPiece&)>& use) {
  uint64_t total = 0;
  for (auto& source : sources) total += source.bytes;
  PieceMaker pieces(options, total - options.left_out_bytes, use);
  std::string block(options.block_bytes, '\0');
  for (auto& source : sources) {
    JsonLines lines(source.name, options.text_key, options.chat, options.bad_lines);
    auto document = [&](const JsonDocument& d) {
      pieces.begin_document();
      if (d.record())
        pieces.add_record(d.parts, d.chat);
      else
        pieces.add(d.text, true);
    };
    if (source.parquet) {
      read_rows(source, options, [&](std::string_view row, uint64_t, uint64_t) {
        pieces.begin_document();
        pieces.add(row, true);
      });
      continue;
    }
    if (!source.json_lines) pieces.begin_document();
    read_source(source, block, [&](std::string_view part, bool last, uint64_t) {
      if (source.json_lines)
        lines.add(part, last, document);
      else
        pieces.add(part, last);
    });
  }
}

}  // namespace crest
