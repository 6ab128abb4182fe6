#include "backend/cuda/kernel.h"

#include <fmt/format.h>

#include <map>
#include <mutex>
#include <utility>

#include "core/error.h"

namespace crest::cuda {

#if CREST_HAVE_CUDA
bool waits_for_predecessors(const void* kernel) {
  static std::mutex mutex;
  static std::map<std::pair<const void*, int>, bool> known;  // by kernel and device
  int device = 0;
  check(cudaGetDevice(&device), "the device");
  std::lock_guard lock(mutex);
  auto [it, added] = known.try_emplace({kernel, device}, false);
  if (!added) return it->second;
  cudaFuncAttributes attributes;
  if (cudaError_t code = cudaFuncGetAttributes(&attributes, kernel); code != cudaSuccess) {
    known.erase(it);
    check(code, "a kernel's attributes");
  }
  return it->second = attributes.ptxVersion >= 90;
}
#else
void check(int code, const char* what) {
  if (code) fail_internal(fmt::format("{} failed in the emulation: {}", what, code));
}
#endif

std::string reject_rows(const Value& v) {
  if (v.dtype != DType::f32 && !is_half(v.dtype)) return fmt::format("takes f32, bf16 or f16, not {}", name(v.dtype));
  if (!v.pitch()) return fmt::format("%{} is a view without dense rows at equal distances", v.name);
  return "";
}

std::string reject_value(const Value& v) {
  if (std::string why = reject_rows(v); !why.empty()) return why;
  return v.contiguous() ? "" : fmt::format("%{} is a view that is not contiguous", v.name);
}

static std::string reject_any(const KernelQuery& q, std::string (*reject)(const Value&)) {
  for (auto* list : {&q.instr.in, &q.instr.out})
    for (ValueId id : *list) {
      if (id == no_value) continue;
      const Value& v = q.program.at(id);
      if (!is_float(v.dtype)) continue;  // ids, scalars
      if (std::string why = reject(v); !why.empty()) return why;
    }
  return "";
}

std::string reject_unless_float(const KernelQuery& q) { return reject_any(q, reject_value); }
std::string reject_unless_float_rows(const KernelQuery& q) { return reject_any(q, reject_rows); }

}  // namespace crest::cuda
