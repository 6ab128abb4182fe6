#include <fmt/format.h>

#include <algorithm>

#include "cli/runs_options.h"
#include "core/error.h"
#include "core/text.h"
#include "train/training_settings.h"

namespace crest {

void read_where(RunsOptions& o) {
  for (auto& text : o.where) {
    size_t equals = text.find('=');
    std::string key = text.substr(0, equals);
    std::replace(key.begin(), key.end(), '-', '_');
    std::vector<std::string> keys;
    for (auto* row : run_settings())
      if (row->type != SettingType::list) keys.push_back(row->key());
    const Setting* found = find_run_setting(key);
    if (equals == std::string::npos)
      fail_usage(fmt::format("'{}' is not SETTING=VALUE", printable(text)), "--where", "For example --where lr=0.001.");
    if (!found || found->type == SettingType::list)
      fail_usage(fmt::format("'{}' is not a setting of a run", printable(key)), "--where",
                 did_you_mean(key, keys) + " Settings: " + join(keys, ", ") + ".");
    o.filter.settings.emplace_back(key, text_of(parse_setting(*found, text.substr(equals + 1), "--where " + key)));
  }
}

}  // namespace crest
