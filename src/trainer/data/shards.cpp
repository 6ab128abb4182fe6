#include "data/shards.h"

#include <fmt/format.h>
#include <sys/resource.h>

#include <algorithm>
#include <cstring>

#include "core/error.h"
#include "core/text.h"
#include "data/interrupt.h"

namespace crest {

namespace {

constexpr int32_t magic_u16 = 20240520, version_u16 = 1, magic_u32 = 20240801, version_u32 = 7;
constexpr int32_t magic_mask = 20260301, version_mask = 1, version_mask_inside = 2;
constexpr uint8_t mark_trained = 1, mark_inside = 2;
constexpr const char* expected =
    "Token shards are llm.c's .bin files or nanoGPT's uint16 .bin files; make them with "
    "`crest data prepare`.";
constexpr size_t flush_tokens = 1 << 20;  // also bytes
constexpr const char* copy_again = "The file was cut short or overwritten; copy or prepare it again.";

struct Foreign {
  std::string_view start;
  const char* what;
};
// Files people put into a data folder. Without a header, nothing else distinguishes them from
// nanoGPT's tokens.
constexpr Foreign foreign[] = {{"\x1f\x8b", "a gzip file"},
                               {"PK\x03\x04", "a zip file (or a PyTorch checkpoint)"},
                               {"\x28\xb5\x2f\xfd", "a zstd file"},
                               {"\xfd"
                                "7zXZ",
                                "an xz file"},
                               {"BZh", "a bzip2 file"},
                               {"\x93NUMPY", "a NumPy file"},
                               {"\x7f"
                                "ELF",
                                "a program"},
                               {"PAR1", "a Parquet file"},
                               {"GGUF", "a GGUF model"},
                               {"%PDF", "a PDF file"}};

int32_t read_int32(std::span<const uint8_t> bytes, size_t index) {
  uint32_t v = 0;
  for (int b = 3; b >= 0; --b) v = v << 8 | bytes[index * 4 + b];
  return int32_t(v);
}

void put_int32(uint8_t* header, size_t index, int32_t value) {
  for (int b = 0; b < 4; ++b) header[index * 4 + b] = uint8_t(uint32_t(value) >> (8 * b));
}

void refuse_foreign(std::span<const uint8_t> start, const std::string& where) {
  std::string_view text(reinterpret_cast<const char*>(start.data()), start.size());
  for (auto& f : foreign)
    if (text.starts_with(f.start)) fail(fmt::format("this is {}, not a token shard", f.what), where, expected);
  bool printable_text = text.size() >= 8 && std::all_of(text.begin(), text.end(), [](char c) {
                          return (c >= 0x20 && c < 0x7f) || c == '\n' || c == '\r' || c == '\t';
                        });
  if (printable_text) fail("this is a text file, not a token shard", where, expected);
  if (start.size() < 4) return;
  int32_t magic = read_int32(start, 0);
  if (magic == 20240326 || magic == 20240327 || magic == 20240522 || magic == 20240803)
    fail("this is an llm.c model, state or evaluation file, not a token shard", where, expected);
  auto swapped = int32_t(__builtin_bswap32(uint32_t(magic)));
  if (swapped == magic_u16 || swapped == magic_u32)
    fail("the shard was written in big-endian byte order", where, "Write it on a little-endian machine.");
}

std::filesystem::path mask_beside(const std::filesystem::path& shard) {
  return std::filesystem::path(shard).replace_extension(".mask");
}

// Opens the mask of a shard with this number of tokens.
File open_mask(const std::filesystem::path& path, uint64_t tokens, uint8_t& largest_mark) {
  File file = File::open_read(path.string());
  uint8_t start[12];
  uint64_t bytes = file.size();
  if (file.read_some_at(start, sizeof start, 0) < sizeof start || read_int32(start, 0) != magic_mask)
    fail("not a loss mask of a token shard", file.path(), "Masks are made by `crest data prepare`.");
  const int32_t version = read_int32(start, 1);
  if (version != version_mask && version != version_mask_inside)
    fail(fmt::format("unknown mask version {}; supported: {}, {}", version, version_mask, version_mask_inside),
         file.path());
  largest_mark = version == version_mask_inside ? mark_trained | mark_inside : mark_trained;
  int32_t count = read_int32(start, 2);
  if (count < 0 || uint64_t(count) != tokens)
    fail(fmt::format("the mask has {}, but its shard has {}", format_number_of(count, "token"), tokens), file.path(),
         "They do not belong together; prepare the data again.");
  if (bytes != ShardHeader::bytes + tokens)
    fail(fmt::format("the mask has {} bytes, but its {} tokens need {}", bytes, tokens, ShardHeader::bytes + tokens),
         file.path(), copy_again);
  return file;
}

}  // namespace

ShardHeader parse_shard_header(std::span<const uint8_t> start, uint64_t file_bytes, const std::string& where) {
  if (file_bytes == 0) fail("the shard is empty", where, copy_again);
  int32_t magic = start.size() >= 4 ? read_int32(start, 0) : 0;
  if (magic == magic_u16 || magic == magic_u32) {
    ShardHeader h;
    h.format = magic == magic_u16 ? ShardFormat::llmc_u16 : ShardFormat::llmc_u32;
    h.data_offset = ShardHeader::bytes;
    if (file_bytes < ShardHeader::bytes || start.size() < 12)
      fail(fmt::format("the shard is cut short: {} bytes, but the header alone has {}", file_bytes, ShardHeader::bytes),
           where, copy_again);
    int32_t version = read_int32(start, 1), tokens = read_int32(start, 2);
    int32_t known = magic == magic_u16 ? version_u16 : version_u32;
    if (version != known)
      fail(fmt::format("unknown shard version {}; supported: {} (magic {})", version, known, magic), where, expected);
    if (tokens < 0) fail(fmt::format("the header claims {} tokens", tokens), where, copy_again);
    h.tokens = uint64_t(tokens);
    uint64_t wanted = h.data_offset + h.tokens * h.token_bytes();
    if (file_bytes < wanted)
      fail(fmt::format("the shard is cut short: {} bytes, but its header says {} tokens, which need {} bytes",
                       file_bytes, tokens, wanted),
           where, copy_again);
    if (file_bytes > wanted)
      fail(fmt::format("the shard has {} more than the {} of its header",
                       format_number_of(int64_t(file_bytes - wanted), "byte"), format_number_of(tokens, "token")),
           where, copy_again);
    return h;
  }
  refuse_foreign(start, where);
  if (file_bytes % 2)
    fail(fmt::format("no llm.c header, and {} bytes are not a whole number of uint16 tokens", file_bytes), where,
         expected);
  return {ShardFormat::nanogpt, file_bytes / 2, 0};
}

ShardReader::ShardReader(const std::filesystem::path& path, uint32_t vocab_size)
    : file_(File::open_read(path.string())), vocab_size_(vocab_size) {
  uint8_t start[ShardHeader::bytes];
  size_t n = file_.read_some_at(start, sizeof start, 0);
  header_ = parse_shard_header({start, n}, file_.size(), file_.path());
  if (std::filesystem::path mask = mask_beside(path); std::filesystem::exists(mask))
    mask_ = open_mask(mask, header_.tokens, largest_mark_);
}

void ShardReader::read_marks(uint64_t position, size_t n, uint8_t* out) const {
  if (position > header_.tokens || n > header_.tokens - position)
    fail(fmt::format("the mask of tokens {}..{} was requested, but the shard has {}", position, position + n,
                     header_.tokens),
         file_.path());
  if (!mask_) {
    std::fill_n(out, n, mark_trained);
    return;
  }
  size_t got = mask_->read_some_at(out, n, ShardHeader::bytes + position);
  if (got != n)
    fail(fmt::format("the mask is cut short: it ends at token {}", position + got), mask_->path(), copy_again);
  for (size_t i = 0; i < n; ++i)
    if (out[i] > largest_mark_)
      fail(fmt::format("the mask of token {} is {}, not between 0 and {}", position + i, out[i], largest_mark_),
           mask_->path(), copy_again);
}

void ShardReader::read_mask(uint64_t position, size_t n, uint8_t* out) const {
  read_marks(position, n, out);
  for (size_t i = 0; i < n; ++i) out[i] &= mark_trained;
}

void ShardReader::read_inside(uint64_t position, size_t n, uint8_t* out) const {
  read_marks(position, n, out);
  for (size_t i = 0; i < n; ++i) out[i] = (out[i] & mark_inside) != 0;
}

void ShardReader::read(uint64_t position, size_t n, int32_t* out) const {
  if (position > header_.tokens || n > header_.tokens - position)
    fail(fmt::format("tokens {}..{} were requested, but the shard has {}", position, position + n, header_.tokens),
         file_.path());
  uint8_t buffer[16384];
  size_t width = header_.token_bytes(), at_once = sizeof buffer / width;
  for (size_t done = 0; done < n;) {
    size_t count = std::min(at_once, n - done);
    uint64_t offset = header_.data_offset + (position + done) * width;
    size_t got = file_.read_some_at(buffer, count * width, offset);
    if (got != count * width)
      fail(fmt::format("the shard is cut short: it ends at byte {}, before token {}", offset + got,
                       position + done + got / width),
           file_.path(), copy_again);
    for (size_t i = 0; i < count; ++i) {
      uint32_t token = buffer[i * width] | uint32_t(buffer[i * width + 1]) << 8;
      if (width == 4) token |= uint32_t(buffer[i * 4 + 2]) << 16 | uint32_t(buffer[i * 4 + 3]) << 24;
      if (token > INT32_MAX || (vocab_size_ && token >= vocab_size_))
        fail(fmt::format("token {} at position {} is outside the vocabulary of {} tokens", token, position + done + i,
                         vocab_size_),
             file_.path(),
             "The data was made with another tokenizer. Prepare it again, or choose a model with its vocabulary.");
      out[done + i] = int32_t(token);
    }
    done += count;
  }
}

ShardWriter::ShardWriter(std::filesystem::path folder, std::string prefix, uint32_t vocab_size, uint64_t shard_tokens,
                         bool masks)
    : folder_(std::move(folder)),
      prefix_(std::move(prefix)),
      vocab_size_(vocab_size),
      shard_tokens_(shard_tokens),
      masks_(masks) {
  if (shard_tokens_ == 0 || shard_tokens_ > INT32_MAX)
    fail_usage(fmt::format("the shard size is {}", format_number_of(int64_t(shard_tokens_), "token")), "shard size",
               "It must be from 1 to 2147483647.");
}

ShardWriter::~ShardWriter() {
  std::error_code ignored;
  if (open_) std::filesystem::remove(temporary_, ignored);
}

void ShardWriter::append(std::span<const uint32_t> tokens, bool trained, bool inside) {
  while (!tokens.empty()) {
    if (!open_) open_shard();
    size_t n = size_t(std::min<uint64_t>(tokens.size(), std::min(shard_tokens_ - in_shard_, uint64_t(flush_tokens))));
    put(tokens.first(n));
    tokens = tokens.subspan(n);
    if (masks_) mask_.insert(mask_.end(), n, uint8_t((trained ? mark_trained : 0) | (inside ? mark_inside : 0)));
    in_shard_ += n, total_ += n, trained_ += trained ? n : 0;
    if (in_shard_ == shard_tokens_)
      close_shard();
    else if (buffer_.size() >= flush_tokens)
      flush();
  }
}

void ShardWriter::put(std::span<const uint32_t> tokens) {
  uint32_t highest = *std::max_element(tokens.begin(), tokens.end());
  if (highest >= vocab_size_)
    fail_internal(fmt::format("token {} is outside a vocabulary of {}", highest, vocab_size_), prefix_);
  size_t width = vocab_size_ > 65536 ? 4 : 2, before = buffer_.size();
  buffer_.resize(before + width * tokens.size());
  uint8_t* out = buffer_.data() + before;
  for (uint32_t token : tokens) {
    out[0] = uint8_t(token), out[1] = uint8_t(token >> 8);
    if (width == 4) out[2] = uint8_t(token >> 16), out[3] = uint8_t(token >> 24);
    out += width;
  }
}

void ShardWriter::finish() {
  if (open_) close_shard();
  sync_directory(folder_.string());
}

// Reading keeps all shards of training and validation open: half of the files for each. The rest is
// for other files of the process.
static size_t most_shards(bool masks) {
  constexpr rlim_t others = 64;
  rlimit files{};
  if (::getrlimit(RLIMIT_NOFILE, &files) != 0 || files.rlim_cur == RLIM_INFINITY) return SIZE_MAX;
  return std::max<size_t>(1, size_t(std::max<rlim_t>(files.rlim_cur, others + 1) - others) / (masks ? 4 : 2));
}

void ShardWriter::open_shard() {
  check_interrupted();
  if (size_t most = most_shards(masks_); names_.size() >= most)
    fail(fmt::format("the text needs more than {} of {}, and a process may not open so many files",
                     format_number_of(int64_t(most), "shard"), format_number_of(int64_t(shard_tokens_), "token")),
         folder_.string(), "Give a larger --shard-tokens, or raise the limit (ulimit -n).");
  std::string name = fmt::format("{}-{:06}.bin", prefix_, names_.size());
  temporary_ = folder_ / (name + ".tmp");
  file_ = File::create_new(temporary_.string());
  open_ = true;
  names_.push_back(name);
  in_shard_ = 0;
  mask_.clear();
  buffer_.assign(ShardHeader::bytes, 0);  // filled in once the count is known
}

void ShardWriter::flush() {
  file_.write(buffer_.data(), buffer_.size());
  buffer_.clear();
}

// Written before the shard gets its name: a shard never exists without its mask.
void ShardWriter::write_mask() const {
  std::string text(ShardHeader::bytes, '\0');
  auto* header = reinterpret_cast<uint8_t*>(text.data());
  put_int32(header, 0, magic_mask);
  bool inside = std::any_of(mask_.begin(), mask_.end(), [](uint8_t mark) { return mark & mark_inside; });
  put_int32(header, 1, inside ? version_mask_inside : version_mask);
  put_int32(header, 2, int32_t(in_shard_));
  text.append(mask_.begin(), mask_.end());
  write_file_synced(mask_beside(folder_ / names_.back()).string(), text);
}

void ShardWriter::close_shard() {
  flush();
  uint8_t header[12];
  bool wide = vocab_size_ > 65536;
  put_int32(header, 0, wide ? magic_u32 : magic_u16);
  put_int32(header, 1, wide ? version_u32 : version_u16);
  put_int32(header, 2, int32_t(in_shard_));
  file_.seek(0);
  file_.write(header, sizeof header);
  file_.sync();
  file_.close();
  if (masks_) write_mask();
  rename_path(temporary_.string(), (folder_ / names_.back()).string());
  open_ = false;
}

}  // namespace crest
