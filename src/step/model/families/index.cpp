// The table of families.
#include <algorithm>

#include "core/text.h"
#include "model/family.h"

namespace crest {

extern const Family gpt2_family, llama_family, mistral_family, qwen2_family, smollm3_family, granite_family,
    starcoder2_family, phi3_family, gpt_neox_family, stablelm_family, qwen3_family, olmo2_family, olmo3_family,
    gemma3_family, nanochat_family;

const std::vector<Family>& families() {
  static const std::vector<Family> all = {gpt2_family,     llama_family,    mistral_family,    qwen2_family,
                                          smollm3_family,  granite_family,  starcoder2_family, phi3_family,
                                          gpt_neox_family, stablelm_family, qwen3_family,      olmo2_family,
                                          olmo3_family,    gemma3_family,   nanochat_family};
  return all;
}

const Family* find_family(const std::string& type) {
  auto& all = families();
  auto it = std::find_if(all.begin(), all.end(), [&](auto& f) { return type == f.type; });
  return it == all.end() ? nullptr : &*it;
}

std::string family_types() {
  std::vector<std::string> types;
  for (auto& f : families()) types.push_back(f.type);
  return join(types, ", ");
}

}  // namespace crest
