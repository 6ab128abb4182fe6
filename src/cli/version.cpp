#include "cli/version.h"

#include <fmt/format.h>
#include <oneapi/dnnl/dnnl.h>
#include <sqlite3.h>
#include <utf8proc.h>

#include "backend/cpu/isa.h"

namespace crest {

void print_versions() {
  const dnnl_version_t* d = dnnl_version();
  fmt::print("crest {}\n  oneDNN {}.{}.{}\n  SQLite {}\n  utf8proc {} (Unicode {})\n  compiler {}\n  kernels {}\n",
             CREST_VERSION, d->major, d->minor, d->patch, sqlite3_libversion(), utf8proc_version(),
             utf8proc_unicode_version(), __VERSION__, name(active_isa()));
}

}  // namespace crest
