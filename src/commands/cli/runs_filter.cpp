#include <fmt/format.h>

#include <algorithm>

#include "cli/runs_options.h"
#include "core/error.h"
#include "core/text.h"
#include "train/training_settings.h"

namespace crest {

// Records have texts to compare with, unless the setting is always a list.
static bool is_text_in_records(const Setting& row) {
  for (auto& table : setting_tables())
    for (auto& own : *table.rows)
      if (&own == &row) return !std::holds_alternative<std::vector<std::string>>(row.get(row, table.defaults));
  return false;
}

void read_where(RunsOptions& o) {
  for (auto& text : o.where) {
    size_t equals = text.find('=');
    std::string key = text.substr(0, equals);
    std::replace(key.begin(), key.end(), '-', '_');
    std::vector<std::string> keys;
    for (auto* row : run_settings())
      if (is_text_in_records(*row)) keys.push_back(row->key());
    const Setting* found = find_run_setting(key);
    if (equals == std::string::npos)
      fail_usage(fmt::format("'{}' is not SETTING=VALUE", printable(text)), "--where", "For example --where lr=0.001.");
    if (!found || !is_text_in_records(*found))
      fail_usage(fmt::format("'{}' is not a setting of a run", printable(key)), "--where",
                 did_you_mean(key, keys) + " Settings: " + join(keys, ", ") + ".");
    const SettingValue value = parse_setting(*found, text.substr(equals + 1), "--where " + key);
    auto* list = std::get_if<std::vector<std::string>>(&value);
    o.filter.settings.emplace_back(key, list ? list->front() : text_of(value));
  }
}

}  // namespace crest
