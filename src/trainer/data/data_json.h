// Data folders and tokenizers as JSON: the output of crest data. Keys: docs/reference/contract.md.
#pragma once
#include <nlohmann/json_fwd.hpp>

#include "data/dataset.h"
#include "data/gpt2_tokenizer.h"
#include "data/prepare.h"

namespace crest {

nlohmann::ordered_json to_json(const DatasetInfo& info);
nlohmann::ordered_json to_json(const PrepareResult& result);
nlohmann::ordered_json to_json(const Gpt2Tokenizer& tokenizer);

}  // namespace crest
