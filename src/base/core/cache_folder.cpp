#include "core/cache_folder.h"

#include <cstdlib>

#include "core/io.h"

namespace crest {

std::string cache_folder() {
  auto variable = [](const char* name) -> std::string {
    const char* value = std::getenv(name);
    return value ? value : "";
  };
  if (std::string set = variable("CREST_CACHE"); !set.empty()) return set;
  if (std::string caches = variable("XDG_CACHE_HOME"); !caches.empty() && caches[0] == '/')
    return join_path(caches, "crest");
  if (std::string home = variable("HOME"); !home.empty()) return join_path(home, ".cache/crest");
  return "";
}

}  // namespace crest
