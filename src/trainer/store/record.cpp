#include "store/record.h"

#include <fmt/format.h>
#include <sys/random.h>
#include <time.h>

#include <cmath>

#include "core/error.h"
#include "core/sha256.h"

namespace crest {

LogRow::LogRow() {
  for (auto& column : log_columns) this->*column.field = NAN;
}

std::string new_uid() {
  uint64_t bits = 0;
  if (::getrandom(&bits, sizeof bits, 0) != ssize_t(sizeof bits))
    fail("the system provides no random numbers", "getrandom");
  return fmt::format("{:016x}", bits);
}

std::string text_at(const Json& object, const char* key) {
  if (!object.is_object() || !object.contains(key) || object[key].is_null()) return "";
  return object[key].is_string() ? object[key].get<std::string>() : dump_json(object[key]);
}

std::string dump_json(const Json& json) { return json.dump(-1, ' ', false, Json::error_handler_t::replace); }

std::string recipe_name(const RunRecord& record) {
  std::string name = record.kind;
  auto add = [&](const std::string& part) {
    if (!part.empty()) name += "-" + part;
  };
  const Json& r = record.recipe;
  add(text_at(r, "model"));
  if (record.phase != "step") add(record.phase);
  add(text_at(r, "precision"));
  if (text_at(r, "attention") == "naive") add("naive");
  if (text_at(r, "fusion") == "off") add("unfused");
  if (std::string recompute = text_at(r, "recompute"); recompute != "none") add(recompute);
  for (auto [key, letter] : {std::pair{"batch", 'b'}, {"seq", 't'}})
    if (std::string value = text_at(r, key); !value.empty()) add(letter + value);
  return name;
}

std::string measurement_key(const Json& recipe, const Json& device, const std::string& phase) {
  if (!recipe.is_object()) return "";
  Json what = {{"recipe", recipe}, {"phase", phase}};
  // Not the memory: free memory varies from run to run.
  for (const char* key : {"kind", "name", "threads", "isa"}) what[key] = text_at(device, key);
  std::string text = nlohmann::json(what).dump(
      -1, ' ', false,
      nlohmann::json::error_handler_t::replace);  // sorted keys: their order in the recipe does not matter
  return sha256_hex(text.data(), text.size()).substr(0, 16);
}

}  // namespace crest
