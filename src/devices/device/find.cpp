#include "device/find.h"

#include <fmt/format.h>

#include <charconv>

#include "backend/cuda/discover.h"
#include "core/error.h"
#include "core/text.h"
#include "device/data_sheet.h"
#include "device/gpu_spec.h"
#include "host/environment.h"
#include "host/memory.h"

namespace crest {

namespace {

DataSheet sheet_for(const std::string& spec) {
  std::vector<std::string> names = {"auto", "cpu", "cuda"};
  for (auto& sheet : data_sheets()) names.push_back(sheet.name);
  if (!is_data_sheet(spec))
    fail_usage(fmt::format("'{}' is not a device", printable(spec)), "--device",
               did_you_mean(spec, names) +
                   " Use auto, cpu or cuda[:N]; plan, program, advise and tune also accept the devices that " +
                   "crest devices --sheets lists.");
  return find_data_sheet(spec);
}

}  // namespace

std::optional<size_t> gpu_of(const std::string& spec) {
  if (spec == "cuda") return 0;
  if (!spec.starts_with("cuda:")) return {};
  size_t index = 0;
  const char* last = spec.data() + spec.size();
  auto [end, error] = std::from_chars(spec.data() + 5, last, index);
  if (error != std::errc() || end != last) return {};
  return index;
}

void check_here(const Device& device) {
  if (device.described)
    throw Error(Exit::no_device,
                fmt::format("{} is not in this machine: you can plan for it, but not run on it", device.name),
                "--device", "Use a device of this machine (crest devices).");
}

std::string slow_kernels_note(Isa best) {
#if defined(__x86_64__)
  if (best == Isa::generic)
    return "this processor has no AVX2, or the system hides it: Crest uses its portable kernels, which are slower";
#endif
  (void)best;
  return "";
}

Device cpu_device(Isa isa, int threads) {
  Device d;
  d.threads = threads > 0 ? threads : usable_threads();
  d.isa = std::string(crest::name(isa));
  d.native_bf16 = isa >= Isa::avx512_bf16;
  d.amx = isa == Isa::amx;
  d.memory = available_memory_bytes();
  bool here = isa <= best_isa();
  d.note = slow_kernels_note(best_isa());
  d.name = fmt::format("{} ({} thread{}, {})", here ? cpu_name() : "a processor that is not here", d.threads,
                       d.threads == 1 ? "" : "s", d.isa);
  return d;
}

Device find_device(const std::string& spec, int threads) {
  if (threads < 0 || threads > 4096)
    fail_usage(fmt::format("'{}' is out of range", threads), "--threads",
               "It must be at least 0 (0: all usable threads).");
  if (spec == "cpu") return cpu_device(active_isa(), threads);
  Device d;
  std::optional<size_t> gpu = gpu_of(spec);
  if (spec == "auto" || gpu) {
    size_t index = gpu.value_or(0);
    cuda::Found found = cuda::find_devices();
    if (spec == "auto") {
      std::string why = found.outdated ? found.problem : "";
      if (!found.devices.empty()) why = cuda::reject_device(found.devices[0]);
      if (found.devices.empty() || !why.empty()) {
        Device cpu = cpu_device(active_isa(), threads);
        if (!why.empty()) cpu.note = "the GPU is not used: " + why + (cpu.note.empty() ? "" : "\n" + cpu.note);
        return cpu;
      }
    }
    if (found.devices.empty())
      throw Error(Exit::no_device, "no CUDA device can be used: " + found.problem, "--device " + spec, found.advice);
    if (index >= found.devices.size())
      throw Error(Exit::no_device, fmt::format("no GPU {}", index), "--device " + spec,
                  fmt::format("This machine has {} GPU{}, counted from 0.", found.devices.size(),
                              found.devices.size() == 1 ? "" : "s"));
    d = found.devices[index];
    if (std::string why = cuda::reject_device(d); !why.empty())
      throw Error(Exit::no_device, fmt::format("{} cannot be used: {}", d.name, why), "--device " + spec,
                  "Build Crest for this GPU (CUDA_ARCHS, docs/how-to/gpu.md), or use --device cpu.");
    d.memory = cuda::usable_memory(d.index);
  } else {
    d = described_device(sheet_for(spec));
  }
  d.threads = threads > 0 ? threads : usable_threads();
  return d;
}

Device with_threads(const Device& device, int threads) {
  return device.kind == "cpu" && !device.described ? find_device("cpu", threads) : device;
}

}  // namespace crest
