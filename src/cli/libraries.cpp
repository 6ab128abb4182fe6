#include "cli/libraries.h"

#include <fmt/format.h>
#include <oneapi/dnnl/dnnl.h>
#include <utf8proc.h>

namespace crest {

std::vector<std::pair<std::string, std::string>> library_versions() {
  const dnnl_version_t* d = dnnl_version();
  return {{"oneDNN", fmt::format("{}.{}.{}", d->major, d->minor, d->patch)}, {"utf8proc", utf8proc_version()}};
}

}  // namespace crest
