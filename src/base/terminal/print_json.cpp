#include "terminal/print_json.h"

#include <fmt/format.h>

#include <nlohmann/json.hpp>

namespace crest {

void print_json(const nlohmann::ordered_json& document) {
  fmt::print("{}\n", document.dump(2, ' ', false, nlohmann::ordered_json::error_handler_t::replace));
}

}  // namespace crest
