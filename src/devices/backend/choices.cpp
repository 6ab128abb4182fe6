#include "backend/choices.h"

#include <fmt/format.h>

#include <vector>

#include "core/error.h"
#include "core/json.h"
#include "core/text.h"

namespace crest {

namespace {

constexpr int format = 1;
constexpr JsonLimits limits = {.bytes = uint64_t(8) << 20, .depth = 4, .values = 200'000, .string_bytes = 4096};

const std::string* look_up(const Choices::Table& table, const std::string& scope, const std::string& problem) {
  auto in = table.find(scope);
  if (in == table.end()) return nullptr;
  auto at = in->second.find(problem);
  return at == in->second.end() ? nullptr : &at->second;
}

// The scopes of a table missing in another one.
std::string scopes_beyond(const Choices::Table& table, const Choices::Table& other) {
  std::vector<std::string> names;
  for (auto& [scope, choices] : table)
    if (!other.count(scope)) names.push_back(printable(scope, 100));
  return join(names, "; ");
}

}  // namespace

std::optional<std::string> Choices::find(const std::string& scope, const std::string& problem) const {
  for (auto* table : {&used_, &earlier_})
    if (auto* choice = look_up(*table, scope, problem)) return *choice;
  return std::nullopt;
}

void Choices::use(const std::string& scope, const std::string& problem, const std::string& choice) {
  used_[scope][problem] = choice;
}

std::string Choices::difference() const {
  if (used_.empty() && earlier_.empty()) return "";
  if (earlier_.empty()) return "no kernel choices are kept from before, now kernels were chosen by timing";
  if (used_.empty())
    return fmt::format("kernels were chosen by timing on {}, now none are chosen so", scopes_beyond(earlier_, {}));
  size_t all = 0, others = 0;
  for (auto& [scope, choices] : used_)
    for (auto& [problem, choice] : choices) {
      auto* before = look_up(earlier_, scope, problem);
      ++all, others += !before || *before != choice;
    }
  if (others == 0) return "";
  std::string gone = scopes_beyond(earlier_, used_), added = scopes_beyond(used_, earlier_);
  if (!gone.empty() && !added.empty()) return fmt::format("kernels were chosen on {}, now on {}", gone, added);
  return fmt::format("{} of {} kernel choices are not those from before", others, all);
}

std::string to_json(const Choices::Table& table) {
  return nlohmann::json{{"format", format}, {"choices", table}}.dump(1) + "\n";
}

Choices::Table parse_choices(std::string_view text, const std::string& where) {
  nlohmann::json document = parse_json_guarded(text, limits, where);
  try {
    if (document.at("format") != format) fail("kernel choices of another version of Crest", printable(where));
    return document.at("choices").get<Choices::Table>();
  } catch (const nlohmann::json::exception& e) {
    fail("not kernel choices: " + printable(e.what()), printable(where));
  }
}

}  // namespace crest
