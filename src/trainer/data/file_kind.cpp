#include "data/file_kind.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstdint>

#include "core/git_lfs.h"
#include "core/shell_word.h"
#include "data/json_lines.h"

namespace crest {

namespace {

using namespace std::string_view_literals;

constexpr const char* give_text = "Give a text file. To train on token shards, use --data FOLDER.";

// {} in the advice is the name of the file, as a word of a shell.
struct Signature {
  std::string_view bytes;
  size_t at;
  // Text may begin so, too: then NUL bytes decide.
  bool may_be_text;
  const char* what;
  const char* advice;
};

constexpr const char* unpack_archive =
    "Unpack it into a folder, and give the folder: mkdir texts && tar -xf {} -C texts";
constexpr const char* to_json_lines =
    "Convert it to JSON lines: python3 -c \"import pandas, sys; pandas.read_{}(sys.argv[1]).to_json('data.jsonl', "
    "orient='records', lines=True)\" {}";

constexpr Signature signatures[] = {
    {lfs_pointer_start, 0, false, "a pointer of Git LFS",
     "Fetch the file itself: git lfs install && git lfs pull. Or download it."},
    {"PAR1\x15"sv, 0, false, "a Parquet file", "parquet"},
    {"PAR1"sv, 0, true, "a Parquet file", "parquet"},
    {"ARROW1\0\0"sv, 0, false, "an Arrow file", "feather"},
    {"ustar"sv, 257, true, "a tar archive", unpack_archive},
    {"PK\x03\x04"sv, 0, false, "a zip archive, or a document made of one (.docx, .xlsx, .epub)",
     "Unpack it into a folder, and give the folder: unzip {} -d texts. Save documents as text."},
    {"PK\x05\x06"sv, 0, false, "an empty zip archive", give_text},
    {"%PDF-"sv, 0, false, "a PDF document", "Extract its text: pdftotext {} text.txt"},
    {"\xd0\xcf\x11\xe0\xa1\xb1\x1a\xe1"sv, 0, false, "a document of Microsoft Office", "Save it as text."},
    {"\x1f\x8b"sv, 0, false, "a file compressed twice", "Unpack it once: zcat {} > unpacked.gz"},
    {"\x28\xb5\x2f\xfd"sv, 0, false, "a file compressed twice", "Unpack it once with zstdcat or zcat."},
    {"\xfd\x37zXZ\0"sv, 0, false, "a file compressed twice", "Unpack it once with xzcat or zcat."},
    {"\x37\x7a\xbc\xaf\x27\x1c"sv, 0, false, "a 7z archive",
     "Unpack it into a folder, and give the folder: 7z x {} -otexts"},
    {"Rar!\x1a\x07"sv, 0, false, "a RAR archive", "Unpack it into a folder, and give the folder: unrar x {} texts/"},
    {"\x7f"
     "ELF"sv,
     0, false, "an executable program or library", give_text},
    {"MZ"sv, 0, true, "an executable program or library of Windows", give_text},
    {"\xfe\xed\xfa\xce"sv, 0, false, "an executable program of macOS", give_text},
    {"\xfe\xed\xfa\xcf"sv, 0, false, "an executable program of macOS", give_text},
    {"\xcf\xfa\xed\xfe"sv, 0, false, "an executable program of macOS", give_text},
    {"\xca\xfe\xba\xbe"sv, 0, false, "an executable program of macOS or a Java class", give_text},
    {"\0asm"sv, 0, false, "a WebAssembly program", give_text},
    {"\x89PNG\r\n\x1a\n"sv, 0, false, "a PNG image", give_text},
    {"\x89PNG"sv, 0, true, "a PNG image", give_text},
    {"\xff\xd8\xff"sv, 0, false, "a JPEG image", give_text},
    {"GIF8"sv, 0, true, "a GIF image", give_text},
    {"RIFF"sv, 0, true, "an image, sound or video (RIFF)", give_text},
    {"ID3"sv, 0, true, "a sound file (MP3)", give_text},
    {"OggS\0"sv, 0, false, "a sound or video file (Ogg)", give_text},
    {"fLaC"sv, 0, true, "a sound file (FLAC)", give_text},
    {"ftyp"sv, 4, true, "a video or sound file (MP4)", give_text},
    {"SQLite format 3\0"sv, 0, false, "an SQLite database", "Export its texts to a text or .jsonl file."},
    {"\x89HDF\r\n\x1a\n"sv, 0, false, "an HDF5 file", "Export its texts to a text or .jsonl file."},
    {"\x93NUMPY"sv, 0, false, "a NumPy array", "Export its texts to a text or .jsonl file."},
    {"GGUF"sv, 0, true, "model weights (GGUF)", give_text},
    {"\x80\x02"sv, 0, true, "a Python pickle", give_text},
    {"\x80\x03"sv, 0, true, "a Python pickle", give_text},
    {"\x80\x04\x95"sv, 0, false, "a Python pickle", give_text},
    {"\x80\x05\x95"sv, 0, false, "a Python pickle", give_text},
    // Magic numbers of data/shards.h.
    {"\x88\xda\x34\x01"sv, 0, true, "a token shard of llm.c", "Train on its folder: crest train --data FOLDER"},
    {"\xa1\xd9\x34\x01"sv, 0, true, "a token shard of llm.c", "Train on its folder: crest train --data FOLDER"},
};

// Compressions Crest cannot unpack.
struct ForeignCompression {
  std::string_view bytes;
  size_t at;
  const char* what;
  const char* tool;
};
constexpr ForeignCompression foreign_compressions[] = {
    {"1AY&SY"sv, 4, "a file compressed with bzip2", "bzcat"},
    {"\x04\x22\x4d\x18"sv, 0, "a file compressed with lz4", "lz4cat"},
    {"\x1f\x9d"sv, 0, "a file compressed with compress", "zcat"},
    {"\x5d\0\0\x80\0"sv, 0, "a file compressed with lzma", "xzcat"},
};

// "UTF-16", ...: by the byte order mark, or by where NUL bytes are in mostly Latin text.
const char* wide_encoding(std::string_view start) {
  if (start.starts_with("\xff\xfe\0\0"sv) || start.starts_with("\0\0\xfe\xff"sv)) return "UTF-32";
  if (start.starts_with("\xff\xfe"sv) || start.starts_with("\xfe\xff"sv)) return "UTF-16";
  size_t nul[2] = {}, text[2] = {};
  for (size_t i = 0; i < start.size(); ++i) {
    uint8_t c = uint8_t(start[i]);
    nul[i % 2] += c == 0;
    text[i % 2] += (c >= 0x20 && c < 0x7f) || c == '\n' || c == '\r' || c == '\t';
  }
  size_t pairs = start.size() / 2;
  if (pairs < 2) return nullptr;
  if (nul[1] * 2 > pairs && nul[0] == 0 && text[0] * 10 > pairs * 9) return "UTF-16LE";
  if (nul[0] * 2 > pairs && nul[1] == 0 && text[1] * 10 > pairs * 9) return "UTF-16BE";
  return nullptr;
}

// Control characters foreign to text; with more than a tenth of them a file is not text.
bool mostly_control(std::string_view start) {
  auto count = std::count_if(start.begin(), start.end(), [](char byte) {
    auto c = uint8_t(byte);
    return (c < 0x20 && !(c >= '\b' && c <= '\r') && c != 0x1b) || c == 0x7f;
  });
  return count > 0 && size_t(count) * 10 > start.size();
}

std::string advice_of(const Signature& s, const std::string& name) {
  if (s.advice == "parquet"sv || s.advice == "feather"sv) return fmt::format(to_json_lines, s.advice, name);
  return fmt::format(fmt::runtime(s.advice), name);
}

bool matches(std::string_view start, std::string_view bytes, size_t at) {
  return start.size() >= at && start.substr(at).starts_with(bytes);
}

}  // namespace

std::optional<NotText> not_text(std::string_view start, Compression compression, std::string_view file) {
  start = start.substr(0, kind_bytes);
  const bool packed = compression != Compression::none;
  const std::string tool(unpacking_tool(compression)), name = shell_path(packed ? name_inside(file) : file);
  if (const char* encoding = wide_encoding(start))
    return NotText{fmt::format("{} text, not UTF-8", encoding),
                   packed ? fmt::format("Convert it to UTF-8: {} {} | iconv -f {} -t UTF-8 > utf8.txt", tool,
                                        shell_path(file), encoding)
                          : fmt::format("Convert it to UTF-8: iconv -f {} -t UTF-8 {} > utf8.txt", encoding, name)};
  auto other = [&](const char* what, const std::string& advice) {
    return NotText{fmt::format("{}, not a text file", what),
                   packed && advice != give_text ? fmt::format("Unpack it with {} first. {}", tool, advice) : advice};
  };
  for (auto& f : foreign_compressions)
    if (matches(start, f.bytes, f.at)) {
      bool lines = is_json_lines(file.substr(0, file.rfind('.')));
      return other(f.what, fmt::format("Unpack it: {} {} | crest data prepare -{} --out DIR", f.tool, name,
                                       lines ? " --format jsonl" : ""));
    }
  const bool nul = start.find('\0') != std::string_view::npos;
  for (auto& s : signatures)
    if (matches(start, s.bytes, s.at) && (!s.may_be_text || nul)) {
      if (s.advice == unpack_archive)  // tar unpacks it, too
        return NotText{fmt::format("{}, not a text file", s.what), advice_of(s, shell_path(file))};
      return other(s.what, advice_of(s, name));
    }
  if (nul) return other("binary data (it has NUL bytes)", give_text);
  if (mostly_control(start)) return other("binary data (it has many control characters)", give_text);
  return std::nullopt;
}

}  // namespace crest
