#include "data/data_json.h"

#include <nlohmann/json.hpp>

namespace crest {

using Json = nlohmann::ordered_json;

Json to_json(const DatasetInfo& i) {
  Json sources = Json::array();
  for (auto& s : i.sources) sources.push_back({{"path", s.path}, {"bytes", s.bytes}, {"hash", s.hash}});
  return {{"folder", i.folder},
          {"format", i.format},
          {"tokenizer", i.tokenizer},
          {"vocab_size", i.vocab_size},
          {"token_dtype", i.token_dtype},
          {"train_tokens", i.train_tokens},
          {"val_tokens", i.val_tokens},
          {"train_shards", i.train_shards},
          {"val_shards", i.val_shards},
          {"shard_bytes", i.shard_bytes},
          {"loss_mask", i.loss_mask},
          {"train_targets", i.train_targets},
          {"val_targets", i.val_targets},
          {"train_text_bytes", i.train_text.bytes.value_or(0)},
          {"val_text_bytes", i.val_text.bytes.value_or(0)},
          {"chat_template", i.chat_template},
          {"add_bos", i.add_bos},
          {"documents", i.documents},
          {"text_bytes", i.text_bytes},
          {"source_files", i.source_files},
          {"bytes_per_token", i.bytes_per_token},
          {"content_hash", i.content_hash},
          {"created_by", i.created_by},
          {"sources", sources}};
}

Json to_json(const PrepareResult& result) {
  Json json = to_json(result.info);
  json["seconds"] = result.seconds;
  json["bad_lines"] = result.bad_lines;
  json["duplicates"] = result.duplicates;
  json["duplicate_bytes"] = result.duplicate_bytes;
  return json;
}

Json to_json(const Gpt2Tokenizer& t) {
  return {{"file", t.file},
          {"vocab_size", t.tokenizer.vocab_size()},
          {"merges", t.tokenizer.merge_count()},
          {"split_rule", t.tokenizer.split_rule().name},
          {"source", t.source},
          {"sha256", t.sha256}};
}

}  // namespace crest
