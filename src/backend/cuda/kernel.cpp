#include "backend/cuda/kernel.h"

#include <fmt/format.h>

#include "core/error.h"

namespace crest::cuda {

#if !CREST_HAVE_CUDA
void check(int code, const char* what) {
  if (code) fail_internal(fmt::format("{} failed in the emulation: {}", what, code));
}
#endif

std::string reject_value(const Value& v) {
  if (v.dtype != DType::f32 && !is_half(v.dtype)) return fmt::format("takes f32, bf16 or f16, not {}", name(v.dtype));
  if (!v.contiguous()) return fmt::format("%{} is a view that is not contiguous", v.name);
  return "";
}

std::string reject_unless_float(const KernelQuery& q) {
  for (auto* list : {&q.instr.in, &q.instr.out})
    for (ValueId id : *list) {
      if (id == no_value) continue;
      const Value& v = q.program.at(id);
      if (!is_float(v.dtype)) continue;  // ids, scalars
      if (std::string why = reject_value(v); !why.empty()) return why;
    }
  return "";
}

}  // namespace crest::cuda
