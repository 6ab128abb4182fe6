#include "data/prepare.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <charconv>
#include <nlohmann/json.hpp>
#include <optional>

#include "core/error.h"
#include "core/io.h"
#include "core/text.h"
#include "core/timer.h"
#include "data/bpe_train.h"
#include "data/corpus.h"
#include "data/duplicates.h"
#include "data/fnv.h"
#include "data/interrupt.h"
#include "data/staging.h"

namespace crest {

namespace fs = std::filesystem;

namespace {

constexpr uint64_t largest_auto_val = 32 << 20;  // bytes
constexpr size_t listed_sources = 1000;

struct Spec {
  enum Kind { bytes, bpe, file } kind = bytes;
  uint32_t vocab = 0;
};

Spec parse_spec(const PrepareOptions& o) {
  const std::string& text = o.tokenizer;
  if (!o.split_rule.empty()) find_split_rule(o.split_rule);
  if (text == "bytes" && !o.split_rule.empty())
    fail_usage("the tokenizer 'bytes' has no split rule", "--split-rule",
               "Leave it out, or train a vocabulary: bpe:VOCAB.");
  if (text == "bytes") return {};
  if (text.starts_with("bpe:")) {
    uint32_t vocab = 0;
    auto [end, error] = std::from_chars(text.data() + 4, text.data() + text.size(), vocab);
    if (error == std::errc() && end == text.data() + text.size()) return {Spec::bpe, vocab};
    fail_usage(fmt::format("'{}' is not a vocabulary size", printable(text.substr(4))), "--tokenizer",
               "For example: bpe:4096.");
  }
  if (fs::exists(text)) return {Spec::file, 0};
  std::string hint = did_you_mean(text, {"bytes"});
  fail_usage(fmt::format("'{}' is neither bytes, bpe:VOCAB, nor a file", printable(text)), "--tokenizer",
             hint + (hint.empty() ? "" : " ") +
                 "For example: bpe:4096, or tokenizer.json. crest data get-gpt2-tokenizer writes GPT-2's.");
}

// Whether the path is the folder, or lies in it.
bool is_inside(const fs::path& path, const fs::path& folder) {
  std::error_code ignored;
  fs::path at = fs::weakly_canonical(path, ignored);
  for (; !at.empty(); at = at.parent_path()) {
    if (fs::equivalent(at, folder, ignored)) return true;
    if (at == at.parent_path()) break;
  }
  return false;
}

void refuse_input_inside(const fs::path& input, const fs::path& out) {
  if (is_inside(input, out))
    fail("--overwrite would remove an input of this command", printable(input.string(), 1000),
         "Choose an --out that does not hold it.");
}

// A file foreign to `prepare`, or no file at all.
bool is_foreign(const fs::directory_entry& entry) {
  if (entry.symlink_status().type() != fs::file_type::regular) return true;
  const std::string name = entry.path().filename().string();
  if (name == "meta.json" || name == "tokenizer.json" || name == "tokenizer_config.json") return false;
  const std::string kind = entry.path().extension().string(), stem = entry.path().stem().string();
  const size_t dash = stem.find('-');
  const std::string split = stem.substr(0, dash);
  return (kind != ".bin" && kind != ".mask") || (split != "train" && split != "val") || dash == std::string::npos ||
         stem.find_first_not_of("0123456789", dash + 1) != std::string::npos;
}

// --overwrite cannot be undone, so it removes only a folder with data prepared by Crest, and
// nothing else.
void check_replaced(const PrepareOptions& o) {
  const std::string folder = printable(o.out.string(), 1000);
  auto refuse = [&](const std::string& why) {
    fail("--overwrite replaces prepared data only: " + why, folder, "Choose another --out.");
  };
  if (!fs::is_directory(o.out)) refuse("this is not a folder");
  if (fs::is_empty(o.out)) return;
  if (!fs::exists(o.out / "meta.json")) refuse("this folder has no meta.json");
  if (!is_prepared_data(o.out)) refuse("the meta.json of this folder was not written by crest data prepare");
  for (auto& entry : fs::directory_iterator(o.out))
    if (is_foreign(entry))
      fail("--overwrite would remove this, which crest data prepare did not write",
           printable(entry.path().string(), 1000), "Move it elsewhere, or choose another --out.");
  for (auto& input : o.inputs)
    if (input != "-") refuse_input_inside(input, o.out);
  std::error_code ignored;
  if (fs::exists(o.tokenizer, ignored)) refuse_input_inside(o.tokenizer, o.out);
}

void check_out(const PrepareOptions& o, bool in_cache) {
  if (o.out.empty()) fail_usage("no output folder given", "--out", "Give a folder: --out DIR.");
  if (o.val_fraction >= 1 || o.val_fraction != o.val_fraction)
    fail_usage(fmt::format("the validation fraction is {}", o.val_fraction), "--val-fraction",
               "It must be at least 0 and below 1, for example 0.1.");
  if (o.block_bytes == 0) fail_usage("the block size is 0", "block size");
  std::error_code error;
  put_back_replaced(o.out);
  if (!fs::exists(o.out, error)) return;
  if (!o.overwrite)
    fail("the output folder exists", o.out.string(), "Choose another --out, or give --overwrite to replace it.");
  if (!in_cache) check_replaced(o);  // a folder of the cache is Crest's own, also if it is damaged
}

void check_space(const fs::path& folder, const fs::path& out, bool in_cache, const Spec& spec, uint64_t total) {
  struct statvfs space;
  if (syscalls->statvfs(folder.c_str(), &space) != 0) return;  // the write will report it
  uint64_t available = uint64_t(space.f_bavail) * uint64_t(space.f_frsize);
  // Two bytes per token. Hardly any text compresses to fewer than one token per 16 bytes.
  uint64_t least = spec.kind == Spec::bytes ? 2 * total : total / 8;
  if (available < least)
    fail(fmt::format("the disk has {} free, but the tokens need at least {}", format_bytes(double(available)),
                     format_bytes(double(least))),
         printable(out.string()),
         in_cache ? "Free some space, or set CREST_CACHE to a folder on another disk."
                  : "Free some space, or choose an --out on another disk.");
}

uint64_t held_out_bytes(const PrepareOptions& o, const Spec& spec, uint64_t total) {
  if (o.val_fraction == 0) return 0;
  double wanted =
      o.val_fraction > 0 ? o.val_fraction * double(total) : std::min(0.1 * double(total), double(largest_auto_val));
  double window = double(o.window + 1) * (spec.kind == Spec::bytes ? 1 : 6);
  return uint64_t(std::max(wanted, std::min(window, double(total) / 4)) + 0.5);
}

// The tokenizer, unless it is trained on the text.
std::optional<Tokenizer> given_tokenizer(const PrepareOptions& o, const Spec& spec) {
  if (spec.kind == Spec::bytes) return Tokenizer::bytes();
  if (spec.kind == Spec::file) return Tokenizer::load(o.tokenizer, o.split_rule);
  return std::nullopt;
}

Tokenizer train_tokenizer(const PrepareOptions& o, const Spec& spec, std::vector<SourceFile>& sources,
                          const CorpusOptions& corpus, uint64_t total) {
  BpeTrainer trainer(spec.vocab, o.split_rule.empty() ? gpt2_split_rule() : find_split_rule(o.split_rule));
  read_corpus(sources, corpus, [&](const CorpusPiece& piece) {
    if (!piece.held_out) trainer.add(piece.text);
    if (o.progress) o.progress({"counting words", piece.position, total});
  });
  Tokenizer t = trainer.train([&](size_t done, size_t all) {
    if (o.progress) o.progress({"training the tokenizer", done, all});
  });
  if (t.vocab_size() < spec.vocab && o.message)
    o.message(fmt::format("the text has only enough pairs for a vocabulary of {}, not {}", t.vocab_size(), spec.vocab));
  return t;
}

struct Split {
  ShardWriter shards;
  uint64_t text_bytes = 0;   // of the trained parts
  uint64_t first_bytes = 0;  // of these, the bytes of the first token
};

void write_meta(const fs::path& path, const PrepareOptions& o, const Tokenizer& tokenizer,
                const std::vector<SourceFile>& sources, const Split& train, const Split& val, uint64_t documents,
                uint64_t total, bool masks, std::string_view chat_template, const std::string& cache_key) {
  nlohmann::ordered_json meta, list = nlohmann::ordered_json::array();
  Fnv64 all;
  for (auto& s : sources) {
    all.update(s.hash);
    if (list.size() < listed_sources) list.push_back({{"path", s.name}, {"bytes", s.bytes}, {"hash", s.hash}});
  }
  meta["format"] = data_format;
  meta["format_version"] = 1;
  meta["created_by"] = "crest " CREST_VERSION;
  meta["tokenizer"] = tokenizer.kind_name();
  meta["tokenizer_requested"] = o.tokenizer;
  meta["vocab_size"] = tokenizer.vocab_size();
  meta["token_dtype"] = ShardWriter::token_dtype(tokenizer.vocab_size()) == DType::u16 ? "u16" : "u32";
  meta["train_tokens"] = train.shards.total_tokens();
  meta["val_tokens"] = val.shards.total_tokens();
  meta["train_shards"] = train.shards.file_names();
  meta["val_shards"] = val.shards.file_names();
  if (masks) {
    meta["loss_mask"] = true;
    meta["train_targets"] = train.shards.trained_tokens();
    meta["val_targets"] = val.shards.trained_tokens();
  }
  if (!chat_template.empty()) meta["chat_template"] = chat_template;
  if (o.add_bos) meta["add_bos"] = true;
  meta["documents"] = documents;
  meta["text_bytes"] = total;
  meta["train_text_bytes"] = train.text_bytes;
  meta["train_first_bytes"] = train.first_bytes;
  meta["val_text_bytes"] = val.text_bytes;
  meta["val_first_bytes"] = val.first_bytes;
  meta["source_files"] = sources.size();
  meta["content_hash"] = all.hex();
  meta["cache_key"] = cache_key;
  meta["sources"] = std::move(list);
  // File names need not be UTF-8.
  write_file_synced(path.string(), meta.dump(2, ' ', false, nlohmann::ordered_json::error_handler_t::replace) + "\n");
}

// Pieces encoded together: enough work for threads when documents are short.
struct Batch {
  static constexpr size_t most_pieces = 1 << 16;
  std::string text;
  std::vector<CorpusPiece> pieces;
  std::vector<size_t> ends;  // end of piece i's text

  void add(const CorpusPiece& piece) {
    text += piece.text;
    pieces.push_back(piece);
    pieces.back().text = {};  // valid during this call only
    ends.push_back(text.size());
  }
  std::vector<std::string_view> texts() const {
    std::vector<std::string_view> all;
    for (size_t i = 0; i < pieces.size(); ++i) all.push_back(text_of(i));
    return all;
  }
  std::string_view text_of(size_t i) const {
    size_t begin = i ? ends[i - 1] : 0;
    return std::string_view(text).substr(begin, ends[i] - begin);
  }
  // Texts that continue the one before, and parts of conversations.
  std::vector<uint8_t> continues() const {
    std::vector<uint8_t> all;
    for (auto& piece : pieces) all.push_back(!piece.starts_document);
    return all;
  }
  std::vector<uint8_t> conversation() const {
    std::vector<uint8_t> all;
    for (auto& piece : pieces) all.push_back(piece.conversation);
    return all;
  }
  void clear() { text.clear(), pieces.clear(), ends.clear(); }
};

// Data with a tokenizer Crest cannot read back would be useless for training. tokenizer.json has no
// place for the tokens at the beginning and end of texts.
void save_tokenizer(const PrepareOptions& o, const Tokenizer& tokenizer, const fs::path& folder) {
  try {
    tokenizer.save(folder / "tokenizer.json");
  } catch (const Tokenizer::Unreadable& e) {
    fail(e.problem(), printable(o.tokenizer), "Use another tokenizer.");
  }
  nlohmann::ordered_json config = {{"tokenizer_class", "PreTrainedTokenizerFast"},
                                   {"clean_up_tokenization_spaces", false}};
  for (auto [key, id] : {std::pair{"bos_token", tokenizer.begin_of_text()}, {"eos_token", tokenizer.end_of_text()}})
    if (id) config[key] = tokenizer.decode_token(*id);
  write_file_synced((folder / "tokenizer_config.json").string(), config.dump(2) + "\n");
}

// Data is published only if it can be opened.
DatasetInfo checked_info(const fs::path& folder, const fs::path& out) {
  try {
    DatasetInfo info = Dataset::open(folder).info();
    info.folder = out.string();
    return info;
  } catch (const Error& e) {
    fail("the prepared data cannot be read: " + e.problem(), printable(out.string()), "No files were left behind.");
  }
}

// The files must have the content behind the cache key.
void expect_content(std::vector<SourceFile>& sources, const std::vector<SourceFile>& keyed, const PrepareOptions& o) {
  bool same = sources.size() == keyed.size();
  for (size_t i = 0; same && i < sources.size(); ++i) {
    same = sources[i].path == keyed[i].path && sources[i].file_bytes == keyed[i].file_bytes;
    sources[i].content = keyed[i].content;
  }
  if (!same)
    fail("the files changed while they were read", printable(join(o.inputs, ", ")),
         "Start again when no program is writing to them.");
}

// A template is of use for conversations only, and its tokens should be special ones of the
// tokenizer.
void check_chats(const PrepareOptions& o, const ChatFormat& chat, const std::vector<SourceFile>& sources,
                 uint64_t chats) {
  if (chats == 0 && chat.named())
    fail_usage("no line of the input is a conversation", "--chat-template",
               std::any_of(sources.begin(), sources.end(), [](auto& s) { return s.json_lines; })
                   ? "Leave it out: templates are for lines with \"messages\", \"conversations\" or \"instruction\"."
                   : "Leave it out: templates are for .jsonl files, or --format jsonl.");
  if (chats == 0 || !o.message) return;
  o.message(fmt::format("{} with the chat template {}{}", format_number_of(int64_t(chats), "conversation"),
                        chat.form().name, chat.named() ? "" : " (--chat-template chooses another)"));
  auto list = [](const std::vector<std::string_view>& tokens) { return join({tokens.begin(), tokens.end()}, ", "); };
  if (!chat.missing().empty())
    o.message(fmt::format("note: the tokenizer has no token {}: the template writes ordinary text instead",
                          list(chat.missing())));
  if (!chat.not_special().empty())
    o.message(
        fmt::format("note: the tokenizer does not call {} special: the template uses the {} anyway, and a "
                    "message that spells one stays text",
                    list(chat.not_special()), chat.not_special().size() == 1 ? "token" : "tokens"));
}

// The token at the beginning of every document, if any.
std::optional<uint32_t> begin_token(const PrepareOptions& o, const Tokenizer& tokenizer) {
  auto begin = tokenizer.begin_of_text();
  if (!begin && o.add_bos)
    fail_usage("the tokenizer has no begin-of-text token", "--add-bos",
               "Leave it out, or use a tokenizer whose files name one.");
  if (begin && o.message)
    o.message(o.add_bos ? fmt::format("{} begins every document", printable(tokenizer.decode_token(*begin)))
                        : fmt::format("note: documents begin without {} (--add-bos puts it there)",
                                      printable(tokenizer.decode_token(*begin))));
  return o.add_bos ? begin : std::nullopt;
}

Duplicates deduplicate(const PrepareOptions& o, std::vector<SourceFile>& sources, const CorpusOptions& corpus,
                       uint64_t total) {
  Duplicates found = find_duplicates(sources, corpus, [&](uint64_t done) {
    if (o.progress) o.progress({"comparing documents", done, total});
  });
  if (o.message)
    o.message(fmt::format("{} of {} left out ({}): an earlier one is the same",
                          format_number_of(int64_t(found.duplicates), "duplicate"),
                          format_number_of(int64_t(found.documents), "document"), format_bytes(double(found.bytes))));
  return found;
}

// keyed: the sources when the cache key was made; empty: no cache.
PrepareResult prepare_into(const PrepareOptions& o, const std::string& cache_key,
                           const std::vector<SourceFile>& keyed) {
  Timer timer;
  Spec spec = parse_spec(o);
  if (spec.kind == Spec::bpe) BpeTrainer check(spec.vocab);
  const bool in_cache = !cache_key.empty();
  check_out(o, in_cache);
  StagingFolder staging(o.out);
  std::optional<Tokenizer> given = given_tokenizer(o, spec);
  BadLines bad_lines(o.skip_bad_lines, o.message);
  CorpusOptions corpus{o.separator, o.block_bytes, UINT64_MAX, o.text_key, {o.chat_template, given ? &*given : nullptr},
                       &bad_lines};
  auto sources = list_sources(o.inputs, staging.path(), o.standard_input, o.message, o.format);
  if (!keyed.empty()) expect_content(sources, keyed, o);
  if (o.overwrite && !in_cache)  // links in a folder lead anywhere
    for (auto& s : sources) refuse_input_inside(s.path, staging.out());
  measure_sources(sources, corpus, [&](uint64_t done, uint64_t all) {
    if (o.progress) o.progress({"reading", done, all});
  });
  bad_lines.end_first_reading();
  uint64_t total = 0, records = 0, chats = 0;
  for (auto& s : sources) total += s.bytes, records += s.records, chats += s.chats;
  if (total == 0) fail_no_text(o.inputs);
  Duplicates duplicates;
  if (o.deduplicate) {
    duplicates = deduplicate(o, sources, corpus, total);
    corpus.left_out = &duplicates.left_out, corpus.left_out_bytes = duplicates.bytes;
    total -= duplicates.bytes;
  }
  check_space(staging.path(), o.out, in_cache, spec, total);
  check_chats(o, corpus.chat, sources, chats);
  uint64_t held_out = held_out_bytes(o, spec, total);
  if (held_out) corpus.boundary = total - held_out;

  Tokenizer tokenizer = given ? std::move(*given) : train_tokenizer(o, spec, sources, corpus, total);
  corpus.chat.set_end_of_text(tokenizer.end_of_text());
  save_tokenizer(o, tokenizer, staging.path());
  Encoder encoder(tokenizer);
  const bool masks = records > 0;
  if (masks && !tokenizer.end_of_text())
    fail(
        "the tokenizer has no end-of-text token, which must end every answer", printable(o.tokenizer),
        "Use a tokenizer with <|endoftext|>, <|end_of_text|> or </s>, or name its eos_token in tokenizer_config.json.");
  const std::optional<uint32_t> begin = begin_token(o, tokenizer);
  Split train{ShardWriter(staging.path(), "train", tokenizer.vocab_size(), o.shard_tokens, masks)};
  Split val{ShardWriter(staging.path(), "val", tokenizer.vocab_size(), o.shard_tokens, masks)};
  uint64_t documents = 0;
  bool ended = true;    // the last document has its end-of-text token, or there was no document
  bool trained = true;  // so was its last piece
  Batch batch;
  auto flush = [&] {
    check_interrupted();
    const std::vector<Encoder::Tokens>& parts = encoder.encode(batch.texts(), batch.continues(), batch.conversation());
    size_t part = 0;
    for (size_t i = 0; i < batch.pieces.size(); ++i) {
      const CorpusPiece& piece = batch.pieces[i];
      Split& split = piece.held_out ? val : train;
      auto end = [&] {
        if (!ended && tokenizer.end_of_text()) split.shards.append(std::array{*tokenizer.end_of_text()}, trained);
        ended = true;
      };
      if (piece.starts_document) {
        if (++documents == 2 && !tokenizer.end_of_text() && o.message)
          o.message(
              fmt::format("warning: the tokenizer {} has no end-of-text token: documents follow each other with "
                          "nothing between them",
                          printable(o.tokenizer)));
        end();
        // Some templates have it already.
        if (begin && piece.token != begin) split.shards.append(std::array{*begin}, !masks);
      }
      ended = false, trained = piece.trained;
      if (piece.token && trained && split.shards.total_tokens() == 0)
        split.first_bytes = tokenizer.text_bytes(*piece.token);
      if (piece.token) split.shards.append(std::array{*piece.token}, trained, piece.token == tokenizer.end_of_text());
      if (trained) split.text_bytes += piece.token ? tokenizer.text_bytes(*piece.token) : batch.text_of(i).size();
      for (; part < encoder.ends()[i]; ++part) {
        if (trained && split.shards.total_tokens() == 0 && !parts[part].empty())
          split.first_bytes = tokenizer.first_bytes(batch.text_of(i), parts[part][0], piece.starts_document);
        split.shards.append(parts[part], trained);
      }
      if (piece.ends_record) end();
    }
    if (o.progress && !batch.pieces.empty()) o.progress({"encoding", batch.pieces.back().position, total});
    batch.clear();
  };
  read_corpus(sources, corpus, [&](const CorpusPiece& piece) {
    if (batch.text.size() + piece.text.size() > 2 * o.block_bytes) flush();  // a piece may be a block
    batch.add(piece);
    if (batch.text.size() >= o.block_bytes || batch.pieces.size() >= Batch::most_pieces) flush();
  });
  flush();
  train.shards.finish();
  val.shards.finish();
  const bool splits = o.val_fraction != 0;  // below 0: as large as suits the text
  if (train.shards.total_tokens() < 2 || (held_out && val.shards.total_tokens() < 2))
    fail(fmt::format("the text of {} is too short: it gives {}{}", format_number_of(int64_t(total), "byte"),
                     format_number_of(int64_t(train.shards.total_tokens()), "training token"),
                     splits ? fmt::format(" and {} for validation", val.shards.total_tokens()) : ""),
         printable(join(o.inputs, ", ")),
         fmt::format("Give more text: {} at least 2 tokens, one to predict the other.",
                     splits ? "both parts need" : "training needs"));
  for (auto& s : sources)
    if (s.path.parent_path() == staging.path()) remove_tree(s.path.string());
  write_meta(staging.path() / "meta.json", o, tokenizer, sources, train, val, documents, total, masks,
             chats ? corpus.chat.form().name : "", cache_key);
  PrepareResult result;
  result.bad_lines = bad_lines.skipped();
  result.duplicates = duplicates.duplicates, result.duplicate_bytes = duplicates.bytes;
  result.folder = staging.out();
  result.info = checked_info(staging.path(), staging.out());
  std::error_code ignored;
  if (o.overwrite && !in_cache && fs::exists(o.out, ignored)) check_replaced(o);  // it may have changed meanwhile
  staging.publish(o.overwrite);
  result.seconds = timer.seconds();
  return result;
}

}  // namespace

PrepareResult prepare(const PrepareOptions& options) { return prepare_into(options, "", {}); }

PrepareResult prepare_cached(PrepareOptions o, const fs::path& cache_root) {
  Spec spec = parse_spec(o);
  std::string what = fmt::format("6|{}|{}|{}|{}|{}|{}|{}|{}|{}", o.tokenizer, o.split_rule, o.separator, int(o.format),
                                 o.text_key, o.chat_template, o.add_bos, o.val_fraction, o.window);
  if (o.skip_bad_lines || o.deduplicate) what += fmt::format("|{}|{}", o.skip_bad_lines, o.deduplicate);
  if (spec.kind == Spec::file) {  // one file or two: hash the resulting tokenizer
    Fnv64 content;
    const Tokenizer tokenizer = Tokenizer::load(o.tokenizer, o.split_rule);
    content.update(tokenizer.to_json());
    what += fmt::format("|{}|{}|{}", content.hex(), int64_t(tokenizer.begin_of_text().value_or(UINT32_MAX)),
                        int64_t(tokenizer.end_of_text().value_or(UINT32_MAX)));
  }
  auto sources = list_sources(o.inputs, {}, o.standard_input, {}, o.format);
  hash_contents(sources, [&](uint64_t done, uint64_t all) {
    if (o.progress) o.progress({"reading", done, all});
  });
  for (auto& s : sources)
    what += fmt::format("|{}|{}|{}", fs::absolute(s.path).lexically_normal().string(), s.file_bytes, s.content);
  Fnv64 hash;
  hash.update(what);
  o.out = cache_root / hash.hex();
  put_back_replaced(o.out);
  auto reuse = [&](PrepareResult& result) {
    if (!fs::exists(o.out / "meta.json") || read_cache_key(o.out / "meta.json") != hash.hex()) return false;
    result.folder = fs::absolute(o.out).lexically_normal();
    result.info = Dataset::open(o.out).info();
    result.reused = true;
    return true;
  };
  PrepareResult result;
  try {
    if (reuse(result)) return result;
  } catch (const Error& e) {
    if (o.message) o.message(fmt::format("the cached data is damaged and will be prepared again ({})", e.problem()));
  }
  std::error_code ignored;
  if (!fs::exists(o.out / "meta.json", ignored)) fs::remove_all(o.out, ignored);  // the cache's own folder, damaged
  o.overwrite = fs::exists(o.out, ignored);
  try {
    return prepare_into(o, hash.hex(), sources);
  } catch (const Error&) {
    // Another process may have published the same data meanwhile.
    bool there = false;
    try {
      there = reuse(result);
    } catch (const Error&) {
    }
    if (!there) throw;
    return result;
  }
}

}  // namespace crest
