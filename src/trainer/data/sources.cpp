#include "data/sources.h"

#include <fmt/format.h>

#include <algorithm>
#include <optional>
#include <utility>

#include "core/content_hash.h"
#include "core/error.h"
#include "core/io.h"
#include "core/shell_word.h"
#include "core/text.h"
#include "data/file_kind.h"
#include "data/fnv.h"
#include "data/interrupt.h"
#include "data/json_lines.h"
#include "data/parquet.h"

namespace crest {

namespace fs = std::filesystem;

namespace {

constexpr std::string_view byte_order_mark = "\xef\xbb\xbf";

// Text is packed by a factor of 3 to 20.
uint64_t most_text(uint64_t file_bytes) { return std::max(uint64_t(1) << 30, file_bytes * 200); }

// The first bytes of the text, unpacked. Fills `compression`.
std::string first_text(const fs::path& path, const std::string& name, Compression& compression) {
  File file = File::open_read(path.string());
  std::string start(kind_bytes, '\0');
  start.resize(file.read_some_at(start.data(), start.size(), 0));
  compression = compression_of(start);
  if (compression == Compression::none) return start;
  Unpacker unpacker(compression, name, [&](char* to, size_t bytes) { return file.read_some(to, bytes); });
  start.resize(kind_bytes);
  start.resize(unpacker.read(start.data(), start.size()));
  return start;
}

// Whether the text begins with an object and its first key, on one line.
bool begins_as_json_lines(std::string_view start) {
  if (start.starts_with(byte_order_mark)) start.remove_prefix(byte_order_mark.size());
  start.remove_prefix(std::min(start.find_first_not_of(" \t\r\n"), start.size()));
  if (!start.starts_with("{")) return false;
  start.remove_prefix(1);
  start.remove_prefix(std::min(start.find_first_not_of(" \t"), start.size()));
  return start.starts_with("\"");
}

bool begins_as_json_array(std::string_view start) {
  start.remove_prefix(std::min(start.find_first_not_of(" \t\r\n"), start.size()));
  if (!start.starts_with("[")) return false;
  start.remove_prefix(1);
  start.remove_prefix(std::min(start.find_first_not_of(" \t\r\n"), start.size()));
  return start.starts_with("{");
}

// Whether JSON without such a name is text, only the user knows. Trained on as text, it would teach
// a model braces and keys. (Standard input and pipes have no name: their JSON lines are read so.)
void refuse_json_as_text(const std::string& name, std::string_view start, Compression compression) {
  const bool array = begins_as_json_array(start);
  if (!array && !begins_as_json_lines(start)) return;
  const std::string inside(name_inside(name)), ending = name.substr(inside.size());
  const std::string lines = inside + (inside.ends_with(".json") ? "l" : ".jsonl") + ending;
  const std::string file = shell_path(name == "-" ? "FILE" : name);
  const std::string as_text = fmt::format("crest data prepare {} --format text --out DIR", file);
  if (!array)
    fail("this looks like JSON lines, but its name does not end in .jsonl", printable(name),
         fmt::format("If each line is a document or a conversation: mv {} {}. If it is plain text: {}", file,
                     shell_path(lines), as_text));
  const std::string unpack =
      compression == Compression::none ? "" : fmt::format("{} {} | ", unpacking_tool(compression), file);
  fail("this looks like a JSON array", printable(name),
       fmt::format("To make JSON lines of it: {}jq -c '.[]' {}> data.jsonl. To read it as plain text: {}", unpack,
                   unpack.empty() ? file + " " : "", as_text));
}

// Whether the rows of this file are documents. `start`: its first bytes.
bool has_rows(const fs::path& path, std::string_view start, TextFormat format) {
  return format == TextFormat::automatic && start.starts_with(parquet_mark) && is_parquet(path.string());
}

// A file of rows.
SourceFile describe_rows(const fs::path& path, const std::string& name) {
  SourceFile s;
  s.path = path, s.name = name, s.parquet = true;
  s.file_bytes = File::open_read(path.string()).size();
  return s;
}

// How a file is to be read. named: the user gave it, and it is not just a file of a folder.
SourceFile describe(const fs::path& path, const std::string& name, std::string_view start, Compression compression,
                    TextFormat format, bool named) {
  SourceFile s;
  s.path = path;
  s.name = name;
  s.compression = compression;
  s.byte_order_mark = start.starts_with(byte_order_mark);
  std::error_code error;
  s.file_bytes = fs::file_size(path, error);
  if (error) fail(fmt::format("cannot read the size: {}", error.message()), printable(name));
  s.json_lines = format == TextFormat::json_lines || (format == TextFormat::automatic && is_json_lines(name));
  if (named && format == TextFormat::automatic && !s.json_lines) refuse_json_as_text(name, start, compression);
  if (!s.json_lines && s.compression == Compression::none)
    s.bytes = s.file_bytes - (s.byte_order_mark ? byte_order_mark.size() : 0);
  return s;
}

// Like not_text, for a file that has no rows to read either.
std::optional<NotText> neither_text_nor_rows(std::string_view start, Compression compression, std::string_view name) {
  auto kind = not_text(start, compression, name);
  if (kind && start.starts_with(parquet_mark))
    kind->advice =
        "crest data prepare FILE.parquet --text-key COLUMN reads a whole file by its name: not a part of one, a "
        "compressed one, or standard input.";
  return kind;
}

[[noreturn]] void fail_not_text(const NotText& kind, const std::string& name) {
  fail(fmt::format("this looks like {}", kind.what), printable(name), kind.advice);
}

SourceFile spool(File input, const std::string& name, const fs::path& folder, size_t number, TextFormat format,
                 const Message& message) {
  if (folder.empty())
    fail_usage("standard input and pipes can be read only once", name,
               "Write the text to a file, or use crest data prepare.");
  fs::path path = folder / fmt::format("spool-{}", number);
  File copy = File::create(path.string());
  std::string block(1 << 20, '\0');
  bool first = true, ended = false;
  while (!ended) {
    size_t n = 0;  // whole blocks: the first one shows the kind of text
    while (n < block.size() && !ended) {
      size_t got = input.read_available(block.data() + n, block.size() - n, check_interrupted);
      n += got, ended = got == 0;
    }
    if (n && std::exchange(first, false) && compression_of(block) == Compression::none)
      if (auto kind = neither_text_nor_rows({block.data(), n}, Compression::none, name)) fail_not_text(*kind, name);
    copy.write(block.data(), n);
  }
  copy.close();
  Compression compression;
  std::string start = first_text(path, name, compression);
  if (auto kind = neither_text_nor_rows(start, compression, name)) fail_not_text(*kind, name);
  if (format == TextFormat::automatic && begins_as_json_lines(start)) {
    format = TextFormat::json_lines;
    if (message)
      message(fmt::format("{} is read as JSON lines (--format text reads it as text)",
                          name == "-" ? "standard input" : printable(name)));
  }
  return describe(path, name, start, compression, format, true);
}

// skipped: the kind of the first file skipped for not being text, if it is empty.
void list_folder(const fs::path& folder, TextFormat format, std::vector<SourceFile>& sources, const Message& message,
                 std::string& skipped) {
  std::vector<fs::path> files;
  std::error_code error;
  auto options = fs::directory_options::none;
  for (fs::recursive_directory_iterator it(folder, options, error), end; !error && it != end; it.increment(error)) {
    check_interrupted();
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
    check_interrupted();
    Compression compression;
    std::string name = path.string(), start = first_text(path, name, compression);
    if (has_rows(path, start, format)) {
      sources.push_back(describe_rows(path, name));
    } else if (auto kind = neither_text_nor_rows(start, compression, name)) {
      if (message) message(fmt::format("skipped {}: it looks like {}", printable(name), kind->what));
      if (skipped.empty()) skipped = fmt::format("{} looks like {}. {}", printable(name), kind->what, kind->advice);
    } else if (!start.empty()) {
      sources.push_back(describe(path, name, start, compression, format, false));
    }
  }
}

}  // namespace

void fail_no_text(const std::vector<std::string>& inputs, const std::string& skipped) {
  fail("the input contains no text", printable(join(inputs, ", ")),
       skipped.empty() ? "Give at least one file with text." : skipped);
}

TextFormat parse_text_format(std::string_view name) {
  if (name == "auto") return TextFormat::automatic;
  if (name == "text") return TextFormat::text;
  if (name == "jsonl") return TextFormat::json_lines;
  fail_usage(fmt::format("unknown format '{}'", printable(name)), "--format", "Choose one of: auto, text, jsonl.");
}

std::vector<SourceFile> list_sources(const std::vector<std::string>& inputs, const fs::path& spool_folder,
                                     int standard_input, const Message& message, TextFormat format) {
  if (inputs.empty()) fail_usage("no input given", "data prepare", "Give text files, folders, or - (standard input).");
  std::vector<SourceFile> sources;
  std::string skipped;
  for (auto& input : inputs) {
    fs::path path = input;
    std::error_code error;
    auto status = fs::status(path, error);
    if (input == "-") {
      File input_file = File::duplicate(standard_input, "standard input");
      sources.push_back(spool(std::move(input_file), "-", spool_folder, sources.size(), format, message));
    } else if (status.type() == fs::file_type::not_found) {
      fail("no such file or folder", printable(input), "Check the path.");
    } else if (error) {
      fail(fmt::format("cannot read: {}", error.message()), printable(input));
    } else if (fs::is_directory(status)) {
      list_folder(path, format, sources, message, skipped);
    } else if (fs::is_regular_file(status)) {
      Compression compression;
      std::string start = first_text(path, input, compression);
      if (has_rows(path, start, format)) {
        sources.push_back(describe_rows(path, input));
        continue;
      }
      if (auto kind = neither_text_nor_rows(start, compression, input)) fail_not_text(*kind, input);
      if (start.empty() && message) message(fmt::format("skipped {}: empty", printable(input)));
      if (!start.empty()) sources.push_back(describe(path, input, start, compression, format, true));
    } else {
      sources.push_back(spool(File::open_stream(input), input, spool_folder, sources.size(), format, message));
    }
  }
  uint64_t total = 0;
  for (auto& s : sources) total += s.file_bytes;
  if (total == 0) fail_no_text(inputs, skipped);
  return sources;
}

void hash_contents(std::vector<SourceFile>& sources, const std::function<void(uint64_t, uint64_t)>& progress) {
  std::string block(256 << 10, '\0');  // fits the processor's cache
  uint64_t all = 0, before = 0;
  for (auto& source : sources) all += source.file_bytes;
  for (auto& source : sources) {
    File file = File::open_read(source.path.string());
    ContentHash content;
    uint64_t done = 0;
    while (size_t n = file.read_some_at(block.data(), block.size(), done)) {
      content.update(block.data(), n);
      done += n;
      check_interrupted();
      if (progress) progress(before + done, all);
    }
    before += done;
    if (done != source.file_bytes)
      fail("the file changed while it was read", printable(source.name),
           "Start again when no program is writing to it.");
    source.content = content.hex();
  }
}

namespace {

// Reads a file once, and computes or compares its hash.
class HashedFile {
 public:
  explicit HashedFile(SourceFile& source) : source_(source), file_(File::open_read(source.path.string())) {}
  // Fewer bytes only at the end.
  size_t read(char* to, size_t bytes) {
    check_interrupted();
    size_t n = file_.read_some_at(to, bytes, done_);
    done_ += n;
    if (done_ > source_.file_bytes || (n < bytes && done_ != source_.file_bytes))
      fail("the file changed while it was read", printable(source_.name),
           "Start again when no program is writing to it.");
    hash_.update({to, n});
    content_.update(to, n);
    return n;
  }
  uint64_t done() const { return done_; }
  void finish() {
    if ((!source_.hash.empty() && source_.hash != hash_.hex()) ||
        (!source_.content.empty() && source_.content != content_.hex()))
      fail("the file changed between two readings", printable(source_.name),
           "Start again when no program is writing to it.");
    source_.hash = hash_.hex();
  }

 private:
  SourceFile& source_;
  File file_;
  Fnv64 hash_;
  ContentHash content_;
  uint64_t done_ = 0;
};

}  // namespace

void hash_source(SourceFile& source) {
  HashedFile file(source);
  std::string block(256 << 10, '\0');
  while (file.read(block.data(), block.size()) == block.size()) {
  }
  file.finish();
}

void read_source(SourceFile& source, std::string& block, const UseBlock& use) {
  HashedFile file(source);
  auto read = [&](char* to, size_t bytes) { return file.read(to, bytes); };
  Unpacker unpacker(source.compression, source.name, read,
                    source.compression == Compression::none ? UINT64_MAX : most_text(source.file_bytes));
  size_t mark = source.byte_order_mark ? byte_order_mark.size() : 0;  // the rest of it
  bool last = false;
  while (!last) {
    size_t n = unpacker.read(block.data(), block.size()), skipped = std::min(n, mark);
    last = n < block.size();
    mark -= skipped;
    use(std::string_view(block.data(), n).substr(skipped), last, file.done());
  }
  file.finish();
}

uint64_t text_size(const std::string& path, uint64_t most) {
  File file = File::open_read(path);
  std::string block(64 << 10, '\0');
  Compression compression = compression_of({block.data(), file.read_some_at(block.data(), 16, 0)});
  if (compression == Compression::none) return std::min(most, file.size());
  Unpacker unpacker(compression, path, [&](char* to, size_t bytes) { return file.read_some(to, bytes); });
  uint64_t size = 0;
  while (size < most) {
    size_t n = unpacker.read(block.data(), block.size());
    size += n;
    if (n < block.size()) break;
  }
  return std::min(size, most);
}

}  // namespace crest
