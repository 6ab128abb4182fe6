// The tokens before every text: what a post-processor of tokenizer.json puts there.
#include "core/json.h"
#include "data/tokenizer.h"

namespace crest {

namespace {

using Processor = nlohmann::json;  // or a part of one

const Processor& member(const Processor& object, const char* key) {
  static const Processor none;
  return object.is_object() && object.contains(key) ? object[key] : none;
}

// "TemplateProcessing", or a "Sequence" with one.
void add_prefix(const Processor& processor, size_t vocab, std::vector<uint32_t>& out) {
  for (const Processor& inner : member(processor, "processors")) add_prefix(inner, vocab, out);
  const Processor& special = member(processor, "special_tokens");
  for (const Processor& piece : member(processor, "single")) {
    const Processor& name = member(member(piece, "SpecialToken"), "id");
    if (!name.is_string()) return;  // the text
    for (const Processor& id : member(member(special, name.get<std::string>().c_str()), "ids"))
      if (id.is_number_unsigned() && id.get<uint64_t>() < vocab) out.push_back(id.get<uint32_t>());
  }
}

}  // namespace

std::vector<uint32_t> Tokenizer::text_prefix() const {
  std::vector<uint32_t> out;
  const Processor processor = parse_json_guarded(post_processor_, {}, "post_processor");
  if (member(processor, "type").is_string()) add_prefix(processor, tokens_.size(), out);
  return out;
}

}  // namespace crest
