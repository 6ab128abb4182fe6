// OLMo 3: OLMo 2 with windows in three of four layers and one rotation for each layer type.
#include "model/families/olmo.h"

namespace crest {

namespace {

ModelConfig read_olmo3(const Keys& k) {
  ModelConfig c = read_olmo(k);
  read_layer_types(k, {.theta = 500000, .theta_key = nullptr}, {.theta = 500000}, 4, c);
  return c;
}

bool write_olmo3(const ModelConfig& c, nlohmann::ordered_json& j) {
  write_layer_types(c, j);
  return write_olmo(c, j);
}

}  // namespace

extern const Family olmo3_family = {"olmo3", "Olmo3ForCausalLM", "olmo2", olmo_names, read_olmo3, write_olmo3};

}  // namespace crest
