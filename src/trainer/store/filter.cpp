#include "store/filter.h"

#include <fmt/format.h>

#include <algorithm>

#include "core/error.h"
#include "core/text.h"
#include "store/record_json.h"

namespace crest {

static void check_known(const char* flag, const std::string& value, const std::vector<std::string>& known) {
  if (!value.empty() && std::find(known.begin(), known.end(), value) == known.end())
    fail_usage(fmt::format("'{}' is not one of {}", printable(value), join(known, ", ")), flag,
               did_you_mean(value, known));
}

static void check_time(const char* flag, const std::string& value) {
  static const std::string form = "0000-00-00T00:00:00.000Z";
  bool good = value.size() <= form.size();
  for (size_t i = 0; good && i < value.size(); ++i)
    good = form[i] == '0' ? value[i] >= '0' && value[i] <= '9' : value[i] == form[i];
  if (!good || (!value.empty() && value.size() < 4))
    fail_usage(fmt::format("'{}' is not a UTC time", printable(value)), flag,
               "Write a date or the start of a time: 2026-01, 2026-01-31, 2026-01-31T12:00.");
}

void check_filter(const RunFilter& filter) {
  check_known("--kind", filter.kind, run_kinds);
  check_known("--status", filter.status, run_states);
  check_known("--phase", filter.phase, {"forward", "forward-saved", "backward", "step", "decode"});
  check_time("--since", filter.since);
  check_time("--until", filter.until);
}

bool is_filtered(const RunFilter& f) {
  if (!f.settings.empty()) return true;
  for (auto* text : {&f.kind, &f.status, &f.model, &f.device, &f.phase, &f.grid, &f.key, &f.since, &f.until, &f.text})
    if (!text->empty()) return true;
  return false;
}

}  // namespace crest
