#include "plan/device.h"

#include <fmt/format.h>

#include "backend/cpu/isa.h"
#include "core/error.h"
#include "core/text.h"
#include "measure/environment.h"
#include "measure/memory.h"

namespace crest {

Device find_device(const std::string& spec, int threads) {
  if (spec.rfind("cuda", 0) == 0)
    throw Error(Exit::no_device, "no CUDA device can be used: this build of Crest has no CUDA backend",
                "--device " + spec, "Use --device cpu (or leave --device out).");
  if (spec != "auto" && spec != "cpu")
    fail_usage(fmt::format("'{}' is no device", printable(spec)), "--device", "Use auto, cpu or cuda[:N].");
  if (threads < 0 || threads > 4096)
    fail_usage(fmt::format("--threads {}", threads), "--threads", "0 means all usable ones.");
  Device d;
  d.threads = threads > 0 ? threads : usable_threads();
  d.isa = std::string(crest::name(active_isa()));
  d.native_bf16 = has_native_bf16();
  d.memory = available_memory_bytes();
  d.name = fmt::format("{} ({} thread{}, {})", cpu_name(), d.threads, d.threads == 1 ? "" : "s", d.isa);
  return d;
}

}  // namespace crest
