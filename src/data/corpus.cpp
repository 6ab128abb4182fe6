#include "data/corpus.h"

#include <fmt/format.h>

#include <algorithm>

#include "core/content_hash.h"
#include "core/error.h"
#include "core/io.h"
#include "core/text.h"
#include "data/fnv.h"
#include "data/json_lines.h"
#include "data/split_rule.h"

namespace crest {

namespace fs = std::filesystem;

namespace {

constexpr size_t sniff_bytes = 8192;
// How far a held-out boundary looks for a safe cut before it splits a word.
constexpr size_t boundary_search = 64 << 10;

std::string first_bytes(const fs::path& path) {
  std::string start(sniff_bytes, '\0');
  start.resize(File::open_read(path.string()).read_some_at(start.data(), start.size(), 0));
  return start;
}

void refuse_compressed(const std::string& start, const std::string& name) {
  using namespace std::string_view_literals;
  static constexpr std::pair<std::string_view, const char*> kinds[] = {{"\x1f\x8b"sv, "zcat"},
                                                                       {"\x28\xb5\x2f\xfd"sv, "zstdcat"},
                                                                       {"\xfd\x37zXZ"sv, "xzcat"},
                                                                       {"BZh"sv, "bzcat"},
                                                                       {"PK\x03\x04"sv, "unzip -p"}};
  for (auto& [magic, tool] : kinds)
    if (start.starts_with(magic))
      fail("the input is compressed", printable(name),
           fmt::format("Decompress it first: {} {} | crest data prepare - --out FOLDER", tool, printable(name)));
}

SourceFile describe(const fs::path& path) {
  SourceFile s;
  s.path = path;
  s.name = path.string();
  std::error_code error;
  s.file_bytes = fs::file_size(path, error);
  s.json_lines = is_json_lines(s.name);
  if (!s.json_lines) s.bytes = s.file_bytes;
  if (error) fail(fmt::format("cannot read the size: {}", error.message()), printable(s.name));
  return s;
}

SourceFile spool(File input, const std::string& name, const fs::path& folder, size_t number) {
  if (folder.empty())
    fail_usage("standard input and pipes can be read only once", name,
               "Write the text to a file, or use crest data prepare.");
  SourceFile s;
  s.path = folder / fmt::format("spool-{}", number);
  s.name = name;
  File copy = File::create(s.path.string());
  std::string block(1 << 20, '\0');
  while (size_t n = input.read_some(block.data(), block.size())) {
    if (s.bytes == 0) refuse_compressed(block.substr(0, std::min(n, sniff_bytes)), name);
    copy.write(block.data(), n);
    s.bytes += n;
  }
  s.file_bytes = s.bytes;
  copy.close();
  return s;
}

void list_folder(const fs::path& folder, std::vector<SourceFile>& sources, const Message& message) {
  std::vector<fs::path> files;
  std::error_code error;
  auto options = fs::directory_options::none;
  for (fs::recursive_directory_iterator it(folder, options, error), end; !error && it != end; it.increment(error)) {
    const fs::path& path = it->path();
    bool hidden = path.filename().string().starts_with(".");
    std::error_code ignored;
    if (it->is_directory(ignored)) {
      bool prepared = fs::exists(path / "meta.json", ignored) && fs::exists(path / "tokenizer.json", ignored);
      if (prepared && message) message(fmt::format("skipped {}: prepared data", printable(path.string())));
      if (hidden || prepared) it.disable_recursion_pending();
    } else if (!hidden && it->is_regular_file(ignored)) {
      files.push_back(path);
    }
  }
  if (error) fail(fmt::format("cannot list the folder: {}", error.message()), printable(folder.string()));
  std::sort(files.begin(), files.end());
  for (auto& path : files) {
    std::string start = first_bytes(path);
    if (start.find('\0') != std::string::npos) {
      if (message) message(fmt::format("skipped {}: not text (it has NUL bytes)", printable(path.string())));
    } else if (!start.empty()) {
      sources.push_back(describe(path));
    }
  }
}

}  // namespace

std::vector<SourceFile> list_sources(const std::vector<std::string>& inputs, const fs::path& spool_folder,
                                     int standard_input, const Message& message) {
  if (inputs.empty()) fail_usage("no input given", "data prepare", "Give text files, folders, or - (standard input).");
  std::vector<SourceFile> sources;
  for (auto& input : inputs) {
    fs::path path = input;
    std::error_code error;
    auto status = fs::status(path, error);
    if (input == "-") {
      File input_file = File::duplicate(standard_input, "standard input");
      sources.push_back(spool(std::move(input_file), "-", spool_folder, sources.size()));
    } else if (status.type() == fs::file_type::not_found) {
      fail("no such file or folder", printable(input), "Check the path.");
    } else if (error) {
      fail(fmt::format("cannot read: {}", error.message()), printable(input));
    } else if (fs::is_directory(status)) {
      list_folder(path, sources, message);
    } else if (fs::is_regular_file(status)) {
      std::string start = first_bytes(path);
      refuse_compressed(start, input);
      if (start.empty() && message) message(fmt::format("skipped {}: empty", printable(input)));
      if (!start.empty()) sources.push_back(describe(path));
    } else {
      sources.push_back(spool(File::open_stream(input), input, spool_folder, sources.size()));
    }
  }
  uint64_t total = 0;
  for (auto& s : sources) total += s.file_bytes;
  if (total == 0)
    fail("the input contains no text", printable(join(inputs, ", ")), "Give at least one file with text.");
  return sources;
}

namespace {

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
        if (!clean && usable.size() >= 16 * options_.block_bytes) cut = last_character_cut(usable);
        emit(usable.substr(0, cut), clean);
        done += cut;
      }
      buffer_.erase(0, done);
      return;
    }
  }

  // A prompt and its answer stay in one part and are not split. The first record is never held out.
  void add_record(const JsonDocument& record) {
    uint64_t end = position_ + record.prompt.size() + record.text.size();
    held_out_ |= position_ > 0 && end > options_.boundary;
    position_ += record.prompt.size();
    use_({record.prompt, true, held_out_, true, false, position_});
    position_ = end;
    use_({record.text, false, held_out_, false, true, position_});
    begin_document();
  }

 private:
  // clean_end: the text ends where words end anyway (a safe cut, or the end of a document).
  void emit(std::string_view text, bool clean_end) {
    if (!held_out_ && position_ + text.size() > options_.boundary) {
      size_t target = options_.boundary > position_ ? size_t(options_.boundary - position_) : 0;
      size_t cut = target ? safe_cut_after(text, target) : 0;
      // Some of the last document must be left to hold out.
      bool corpus_ends = total_ - position_ - text.size() <= options_.separator.size() + 2;
      bool at_end = cut == text.size() && (corpus_ends || !clean_end);
      if (target && (at_end || cut - target > boundary_search)) {
        cut = target;
        while (cut < text.size() && (uint8_t(text[cut]) & 0xc0) == 0x80) ++cut;  // not inside a character
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
    use_({text, new_document_, held_out_, false, false, position_});
    new_document_ = false;
  }

  const CorpusOptions& options_;
  const std::function<void(const CorpusPiece&)>& use_;
  std::string buffer_;
  uint64_t total_, position_ = 0;
  bool new_document_ = true, drop_newline_ = false, held_out_ = false;
};

// The bytes of a source, block by block. Computes its hash, or compares it with that of an earlier
// reading.
void read_source(SourceFile& source, std::string& block, const std::function<void(std::string_view, bool)>& use) {
  File file = File::open_read(source.path.string());
  Fnv64 hash;
  ContentHash content;
  uint64_t done = 0;
  do {
    size_t n = file.read_some_at(block.data(), block.size(), done);
    done += n;
    if (done > source.file_bytes || (n < block.size() && done != source.file_bytes))
      fail("the file changed while it was read", printable(source.name),
           "Start again when no program is writing to it.");
    hash.update({block.data(), n});
    content.update(block.data(), n);
    use({block.data(), n}, done == source.file_bytes);
  } while (done < source.file_bytes);
  if (!source.hash.empty() && source.hash != hash.hex())
    fail("the file changed between two readings", printable(source.name),
         "Start again when no program is writing to it.");
  if (!source.content.empty() && source.content != content.hex())
    fail("the file changed between two readings", printable(source.name),
         "Start again when no program is writing to it.");
  source.hash = hash.hex();
}

}  // namespace

void hash_contents(std::vector<SourceFile>& sources) {
  std::string block(256 << 10, '\0');  // fits the processor's cache
  for (auto& source : sources) {
    File file = File::open_read(source.path.string());
    ContentHash content;
    uint64_t done = 0;
    while (size_t n = file.read_some_at(block.data(), block.size(), done)) {
      content.update(block.data(), n);
      done += n;
    }
    if (done != source.file_bytes)
      fail("the file changed while it was read", printable(source.name),
           "Start again when no program is writing to it.");
    source.content = content.hex();
  }
}

void measure_json_lines(std::vector<SourceFile>& sources, const std::string& text_key, size_t block_bytes,
                        const std::function<void(uint64_t, uint64_t)>& progress) {
  uint64_t all = 0, done = 0;
  for (auto& s : sources) all += s.json_lines ? s.file_bytes : 0;
  std::string block(all ? block_bytes : 0, '\0');
  for (auto& s : sources) {
    if (!s.json_lines) continue;
    JsonLines lines(s.name, text_key);
    uint64_t text = 0;
    read_source(s, block, [&](std::string_view part, bool last) {
      lines.add(part, last, [&](const JsonDocument& document) {
        text += document.prompt.size() + document.text.size();
        s.records += document.record;
      });
      done += part.size();
      if (progress) progress(done, all);
    });
    s.bytes = text;
  }
}

void read_corpus(std::vector<SourceFile>& sources, const CorpusOptions& options,
                 const std::function<void(const CorpusPiece&)>& use) {
  uint64_t total = 0;
  for (auto& source : sources) total += source.bytes;
  PieceMaker pieces(options, total, use);
  std::string block(options.block_bytes, '\0');
  for (auto& source : sources) {
    JsonLines lines(source.name, options.text_key);
    auto document = [&](const JsonDocument& d) {
      pieces.begin_document();
      if (d.record)
        pieces.add_record(d);
      else
        pieces.add(d.text, true);
    };
    if (!source.json_lines) pieces.begin_document();
    read_source(source, block, [&](std::string_view part, bool last) {
      if (source.json_lines)
        lines.add(part, last, document);
      else
        pieces.add(part, last);
    });
  }
}

}  // namespace crest
