#include "data/dataset.h"

#include <fmt/format.h>

#include <algorithm>

#include "core/error.h"
#include "core/io.h"
#include "core/json.h"
#include "core/json_number.h"
#include "core/text.h"
#include "data/staging.h"

namespace crest {

namespace fs = std::filesystem;
static constexpr const char* prepare_hint = "Prepare it: crest data prepare TEXT --out FOLDER";

TokenStream::TokenStream(std::string name, std::vector<ShardReader> shards, Text text)
    : name_(std::move(name)), text_(text), shards_(std::move(shards)) {
  for (auto& shard : shards_) {
    starts_.push_back(total_);
    total_ += shard.tokens();
    masked_ |= shard.masked();
  }
  if (!masked_) return;
  for (auto& shard : shards_)
    if (!shard.masked())
      fail("the shard has no loss mask, but others of its split have one", shard.path(),
           "Its .mask file is missing; prepare the data again.");
}

template <class Read>
void TokenStream::for_shards(uint64_t position, size_t n, const Read& read) const {
  if (position > total_ || n > total_ - position)
    fail(fmt::format("tokens {}..{} of the split '{}' were requested, but it has {}", position, position + n, name_,
                     total_));
  if (n == 0) return;
  size_t i = size_t(std::upper_bound(starts_.begin(), starts_.end(), position) - starts_.begin()) - 1;
  for (; n > 0; ++i) {
    uint64_t inside = position - starts_[i];
    size_t count = size_t(std::min<uint64_t>(n, shards_[i].tokens() - inside));
    read(shards_[i], inside, count);
    position += count, n -= count;
  }
}

void TokenStream::read(uint64_t position, size_t n, int32_t* out) const {
  for_shards(position, n, [&](const ShardReader& shard, uint64_t inside, size_t count) {
    shard.read(inside, count, out);
    out += count;
  });
}

void TokenStream::read_mask(uint64_t position, size_t n, uint8_t* out) const {
  for_shards(position, n, [&](const ShardReader& shard, uint64_t inside, size_t count) {
    shard.read_mask(inside, count, out);
    out += count;
  });
}

void TokenStream::read_inside(uint64_t position, size_t n, uint8_t* out) const {
  for_shards(position, n, [&](const ShardReader& shard, uint64_t inside, size_t count) {
    shard.read_inside(inside, count, out);
    out += count;
  });
}

static nlohmann::json read_meta_json(const std::string& path) {
  JsonLimits limits;
  limits.bytes = 8 << 20, limits.depth = 8;
  std::string text = read_file(path, limits.bytes);
  try {
    return parse_json_guarded(text, limits, path);
  } catch (const Error& e) {
    fail(e.problem(), e.where(), "The file may be damaged or cut short; prepare the data again.");
  }
}

DatasetInfo read_meta(const fs::path& path) {
  nlohmann::json meta = read_meta_json(path.string());
  DatasetInfo info;
  auto refuse = [&] {
    fail("a field of meta.json is missing or has the wrong type", path.string(), "Prepare the data again.");
  };
  auto whole = [&](const nlohmann::json& value, auto& to) {
    auto n = whole_number<std::remove_reference_t<decltype(to)>>(value);
    if (!n) refuse();
    to = *n;
  };
  try {
    if (meta.at("format").get<std::string>() != data_format)
      fail("this meta.json was not written by Crest", path.string());
    int version = 0;
    whole(meta.at("format_version"), version);
    if (version != 1)
      fail(fmt::format("unknown format version {}", version), path.string(),
           "It was written by another version of Crest; prepare the data again.");
    info.tokenizer = meta.at("tokenizer").get<std::string>();
    whole(meta.at("vocab_size"), info.vocab_size);
    info.token_dtype = meta.at("token_dtype").get<std::string>();
    whole(meta.at("train_tokens"), info.train_tokens);
    whole(meta.at("val_tokens"), info.val_tokens);
    if (meta.contains("loss_mask")) {
      info.loss_mask = meta.at("loss_mask").get<bool>();
      whole(meta.at("train_targets"), info.train_targets);
      whole(meta.at("val_targets"), info.val_targets);
    }
    for (auto [key, to] : {std::pair("train_text_bytes", &info.train_text.bytes),
                           {"train_first_bytes", &info.train_text.first_bytes},
                           {"val_text_bytes", &info.val_text.bytes},
                           {"val_first_bytes", &info.val_text.first_bytes}})
      if (meta.contains(key)) whole(meta.at(key), to->emplace());
    if (meta.contains("chat_template")) info.chat_template = meta.at("chat_template").get<std::string>();
    if (meta.contains("add_bos")) info.add_bos = meta.at("add_bos").get<bool>();
    whole(meta.at("documents"), info.documents);
    whole(meta.at("text_bytes"), info.text_bytes);
    whole(meta.at("source_files"), info.source_files);
    info.created_by = meta.at("created_by").get<std::string>();
    info.content_hash = meta.at("content_hash").get<std::string>();
    for (auto& s : meta.at("sources")) {
      info.sources.push_back({s.at("path").get<std::string>(), s.at("hash").get<std::string>(), 0});
      whole(s.at("bytes"), info.sources.back().bytes);
    }
  } catch (const nlohmann::json::exception&) {
    refuse();
  }
  if (info.vocab_size == 0) fail("vocab_size is 0", path.string(), "Prepare the data again.");
  return info;
}

bool is_prepared_data(const fs::path& folder) {
  try {
    nlohmann::json meta = read_meta_json((folder / "meta.json").string());
    return meta.is_object() && meta.contains("format") && meta["format"] == data_format;
  } catch (const Error&) {
    return false;
  }
}

std::string read_cache_key(const fs::path& path) {
  nlohmann::json meta = read_meta_json(path.string());
  return meta.is_object() && meta.contains("cache_key") && meta["cache_key"].is_string()
             ? meta["cache_key"].get<std::string>()
             : "";
}

static TokenStream open_split(const fs::path& folder, const std::string& split, uint32_t vocab_size,
                              const TokenStream::Text& text) {
  std::vector<fs::path> paths;
  for (auto& entry : fs::directory_iterator(folder)) {
    std::string name = entry.path().filename().string();
    if (entry.is_regular_file() && entry.path().extension() == ".bin" && name.find(split) != std::string::npos)
      paths.push_back(entry.path());
  }
  std::sort(paths.begin(), paths.end());
  std::vector<ShardReader> shards;
  for (auto& path : paths) shards.emplace_back(path, vocab_size);
  return {split, std::move(shards), text};
}

Dataset Dataset::open(const fs::path& folder, uint32_t vocab_size) {
  std::error_code error;
  std::string name = folder.string();
  if (!fs::exists(folder, error)) {
    std::string replaced = put_back_replaced(folder);
    if (!fs::exists(folder, error)) fail("no such data folder", name, replaced.empty() ? prepare_hint : replaced);
  }
  if (!fs::is_directory(folder, error)) fail("not a folder of prepared data", name, prepare_hint);
  Dataset d;
  bool has_meta = fs::exists(folder / "meta.json");
  if (has_meta) d.info_ = read_meta(folder / "meta.json");
  DatasetInfo stated = d.info_;
  d.info_.folder = name;
  if (fs::exists(folder / "tokenizer.json")) {
    d.tokenizer_ = std::make_shared<Tokenizer>(Tokenizer::load(folder / "tokenizer.json"));
    d.info_.tokenizer = d.tokenizer_->kind_name();
    if (has_meta && d.tokenizer_->vocab_size() != stated.vocab_size)
      fail(fmt::format("tokenizer.json has {}, but meta.json says {}",
                       format_number_of(d.tokenizer_->vocab_size(), "token"), stated.vocab_size),
           name, "The files do not belong together; prepare the data again.");
    d.info_.vocab_size = d.tokenizer_->vocab_size();
  } else if (has_meta) {
    fail("tokenizer.json is missing", name, "Prepare the data again.");
  }
  if (d.info_.vocab_size && vocab_size && vocab_size != d.info_.vocab_size)
    fail(fmt::format("the data has a vocabulary of {} tokens, but {} was requested", d.info_.vocab_size, vocab_size),
         name, "Use a model with the data's vocabulary, or prepare the data with the model's tokenizer.");
  if (!d.info_.vocab_size) d.info_.vocab_size = vocab_size;

  auto train = std::make_shared<TokenStream>(open_split(folder, "train", d.info_.vocab_size, stated.train_text));
  auto val = std::make_shared<TokenStream>(open_split(folder, "val", d.info_.vocab_size, stated.val_text));
  if (train->shards().empty() && val->shards().empty())
    fail("this folder has no shards (*train*.bin, *val*.bin)", name, prepare_hint);
  if (has_meta && (train->total_tokens() != stated.train_tokens || val->total_tokens() != stated.val_tokens))
    fail(fmt::format("the shards hold {} + {} tokens (train + val), but meta.json says {} + {}", train->total_tokens(),
                     val->total_tokens(), stated.train_tokens, stated.val_tokens),
         name, "A shard is missing or was added; prepare the data again.");
  for (auto* split : {train.get(), val.get()})
    if (has_meta && !split->empty() && split->masked() != stated.loss_mask)
      fail(fmt::format("the split '{}' has {} loss masks, meta.json says {}", split->name(),
                       split->masked() ? "" : "no", stated.loss_mask ? "there are" : "there are none"),
           name, "Files are missing or were added; prepare the data again.");
  d.info_.loss_mask = train->masked() || val->masked();
  if (train->empty() && val->empty()) fail("the shards hold no tokens", name, prepare_hint);

  d.info_.train_tokens = train->total_tokens();
  d.info_.val_tokens = val->total_tokens();
  d.info_.train_shards = train->shards().size();
  d.info_.val_shards = val->shards().size();
  for (auto* split : {train.get(), val.get()})
    for (auto& shard : split->shards()) {
      d.info_.shard_bytes += shard.file_bytes();
      ShardFormat f = shard.header().format;
      d.info_.format = f == ShardFormat::nanogpt ? "nanoGPT" : f == ShardFormat::llmc_u32 ? "llm.c (uint32)" : "llm.c";
      d.info_.token_dtype = f == ShardFormat::llmc_u32 ? "u32" : "u16";
    }
  uint64_t tokens = d.info_.train_tokens + d.info_.val_tokens;
  d.info_.bytes_per_token = double(d.info_.text_bytes) / double(tokens);
  d.train_ = std::move(train);
  d.val_ = std::move(val);
  return d;
}

Dataset Dataset::of_stream(std::shared_ptr<const Tokenizer> tokenizer, uint32_t vocab_size) {
  Dataset d;
  d.info_.format = "stream";
  d.info_.vocab_size = tokenizer ? tokenizer->vocab_size() : vocab_size;
  if (tokenizer) d.info_.tokenizer = tokenizer->kind_name();
  d.tokenizer_ = std::move(tokenizer);
  d.train_ = std::make_shared<TokenStream>("train", std::vector<ShardReader>());
  d.val_ = std::make_shared<TokenStream>("val", std::vector<ShardReader>());
  return d;
}

}  // namespace crest
