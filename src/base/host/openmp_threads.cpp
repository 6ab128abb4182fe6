#include "host/openmp_threads.h"

#include <fmt/format.h>

#include <algorithm>
#include <charconv>

#include "core/text.h"

namespace crest {

// 0: not a number of threads.
static uint64_t threads_of(std::string_view text) {
  auto is_space = [](char c) { return c == ' ' || c == '\t'; };
  while (!text.empty() && is_space(text.front())) text.remove_prefix(1);
  while (!text.empty() && is_space(text.back())) text.remove_suffix(1);
  uint64_t threads = 0;
  auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), threads);
  if (end != text.data() + text.size()) return 0;
  return error == std::errc::result_out_of_range ? UINT64_MAX : threads;
}

OpenmpThreads checked_openmp_threads(std::string_view text, int usable) {
  const auto most = uint64_t(std::max(64, 4 * usable));
  bool beyond = false;
  for (auto& level : split(text, ',')) {  // for nested regions; Crest has none
    uint64_t threads = threads_of(level);
    if (threads == 0)
      return {"", fmt::format("OMP_NUM_THREADS is '{}', not a number of threads: ignoring it", printable(text, 40))};
    beyond |= threads > most;
  }
  if (!beyond) return {std::string(text), ""};
  return {std::to_string(usable),
          fmt::format("OMP_NUM_THREADS is {}, more threads than this machine can run: {} {} used, one per core",
                      printable(text, 40), usable, usable == 1 ? "is" : "are")};
}

}  // namespace crest
