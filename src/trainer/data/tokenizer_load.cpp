// Detects the format of a tokenizer file.
#include <fmt/format.h>

#include <algorithm>

#include "core/error.h"
#include "core/git_lfs.h"
#include "core/io.h"
#include "core/text.h"
#include "data/tokenizer.h"

namespace crest {

namespace fs = std::filesystem;

namespace {

constexpr size_t max_json_bytes = 256 << 20, max_tiktoken_bytes = 16 << 20, max_merges_bytes = 64 << 20;

// The names of the two files of GPT-2's format.
constexpr std::pair<std::string_view, std::string_view> pairs[] = {{"vocab.json", "merges.txt"},
                                                                   {"encoder.json", "vocab.bpe"}};

bool is_file(const fs::path& path) {
  std::error_code error;
  return fs::is_regular_file(path, error);
}

// Without a byte order mark, as editors of Windows add one.
std::string read_tokenizer_text(const fs::path& path, size_t most) {
  constexpr std::string_view byte_order_mark = "\xef\xbb\xbf";
  std::string text = read_file(path.string(), most);
  refuse_lfs_pointer(text, path.string());
  if (text.starts_with(byte_order_mark)) text.erase(0, byte_order_mark.size());
  return text;
}

// Vocabulary and merges, if `path` is one of the two. A name may have any prefix: gpt2-vocab.json.
bool find_pair(const fs::path& path, fs::path& vocabulary, fs::path& merges) {
  std::string name = path.filename().string();
  for (auto& [v, m] : pairs)
    for (std::string_view end : {v, m}) {
      if (!name.ends_with(end)) continue;
      std::string start = name.substr(0, name.size() - end.size());
      vocabulary = path.parent_path() / (start + std::string(v));
      merges = path.parent_path() / (start + std::string(m));
      for (auto& part : {vocabulary, merges})
        if (!is_file(part))
          fail(fmt::format("GPT-2's format has two files, but {} is missing", printable(part.filename().string())),
               printable(path.string()), fmt::format("Put {} and {} into one folder.", v, m));
      return true;
    }
  return false;
}

// In the order of the search.
constexpr const char* file_names[] = {"tokenizer.json", "vocab.json", "encoder.json", "tokenizer.model"};

fs::path in_folder(const fs::path& folder) {
  if (auto found = Tokenizer::find(folder)) return *found;
  fail("the folder has no tokenizer", printable(folder.string()),
       "Give a tokenizer.json, GPT-2's vocab.json with merges.txt next to it, a .tiktoken file or a SentencePiece "
       "model.");
}

[[noreturn]] void no_split_rule() {
  fail_usage("this tokenizer has no split rule: its tokens are of characters", "--split-rule", "Leave it out.");
}

// "SGVsbG8= 17"
bool is_rank_line(std::string_view text) {
  std::string_view line = text.substr(0, text.find_first_of("\r\n"));
  size_t space = line.find(' ');
  auto digit = [](char c) { return c >= '0' && c <= '9'; };
  return space != std::string_view::npos && space > 0 && space + 1 < line.size() &&
         std::all_of(line.begin() + ptrdiff_t(space) + 1, line.end(), digit);
}

}  // namespace

std::optional<fs::path> Tokenizer::find(const fs::path& folder) {
  for (const char* name : file_names)
    if (is_file(folder / name)) return folder / name;
  return std::nullopt;
}

Tokenizer Tokenizer::load(const fs::path& named, std::string_view split_rule) {
  std::error_code error;
  fs::path path = fs::is_directory(named, error) ? in_folder(named) : named, vocabulary, merges;
  std::string where = printable(path.string());
  if (!split_rule.empty()) find_split_rule(split_rule);
  const std::string name = path.filename().string();
  TokenizerCompanions files;
  if (std::ranges::find(file_names, name) != std::end(file_names) || name == pairs[0].second || name == pairs[1].second)
    files = TokenizerCompanions::next_to(path, name == file_names[0]);
  if (find_pair(path, vocabulary, merges))
    return parse_gpt2(read_tokenizer_text(vocabulary, max_json_bytes), read_tokenizer_text(merges, max_merges_bytes),
                      where, split_rule, files);
  std::string text = read_tokenizer_text(path, max_json_bytes);
  size_t first = text.find_first_not_of(" \t\r\n");
  if (first != std::string::npos && (text[first] == '{' || text[first] == '[')) {
    Tokenizer t = parse(text, where, files);
    if (!split_rule.empty() && !t.byte_level()) no_split_rule();
    if (!split_rule.empty() && t.split_rule().name != split_rule)
      fail_usage(fmt::format("the file states its split rule: {}", t.split_rule().name), "--split-rule",
                 "Leave it out.");
    return t;
  }
  if (is_rank_line(text)) {
    if (text.size() > max_tiktoken_bytes)
      fail(fmt::format("the .tiktoken file is too large: {}", format_bytes(double(text.size()))), where,
           "Check that this is the right file.");
    return parse_tiktoken(text, where, split_rule);
  }
  // Its first field is a message of pieces.
  if (text.starts_with('\n')) {
    if (!split_rule.empty()) no_split_rule();
    return parse_sentencepiece(text, where, files);
  }
  fail(
      "unknown tokenizer format", where,
      "Crest reads tokenizer.json, GPT-2's vocab.json with merges.txt next to it, .tiktoken and SentencePiece models.");
}

}  // namespace crest
