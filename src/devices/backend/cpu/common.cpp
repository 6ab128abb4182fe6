#include "backend/cpu/common.h"

#include <fmt/format.h>

#include "backend/cpu/simd/cast.h"

namespace crest::cpu {

Isa isa_of(const Device& d) { return isa_named(d.isa).value_or(active_isa()); }

std::string check_float_rows(const Value& v) {
  if (v.dtype != DType::f32 && !is_half(v.dtype))
    return fmt::format("{}: takes f32, bf16 and f16, not {}", v.name, name(v.dtype));
  if (!v.pitch()) return fmt::format("{}: takes dense rows at equal distances, this one is another view", v.name);
  return {};
}

std::string check_float(const Value& v) {
  if (std::string why = check_float_rows(v); !why.empty()) return why;
  if (!v.contiguous()) return fmt::format("{}: takes contiguous values, this one is a strided view", v.name);
  return {};
}

std::string check_same_rows(const Value& v, const Value& like) {
  if (std::string why = check_float_rows(v); !why.empty()) return why;
  if (v.dtype != like.dtype)
    return fmt::format("{}: takes the dtype of {} ({}), not {}", v.name, like.name, name(like.dtype), name(v.dtype));
  return {};
}

std::string check_same(const Value& v, const Value& like) {
  if (std::string why = check_float(v); !why.empty()) return why;
  return check_same_rows(v, like);
}

std::string check_all_float(const KernelQuery& q) {
  for (const std::vector<ValueId>* side : {&q.instr.in, &q.instr.out})
    for (ValueId id : *side)
      if (id != no_value && q.program.at(id).dtype != DType::u8)
        if (std::string why = check_float(q.program.at(id)); !why.empty()) return why;
  return {};
}

const float* floats_of(const void* p, DType t, int64_t n, float* scratch) {
  if (t == DType::f32) return static_cast<const float*>(p);
  CREST_SIMD_PICK(cast_functions).convert(scratch, DType::f32, p, t, n);
  return scratch;
}

const float* factors_of(const KernelCall& c, size_t i, int64_t n, float* scratch) {
  if (c.has(i)) return floats_of(c.in[i], c.in_value(i).dtype, n, scratch);
  std::fill_n(scratch, n, 1.f);
  return scratch;
}

void store_floats(void* p, DType t, int64_t begin, int64_t end, const float* from, const void* acc) {
  for (int64_t i = begin; i < end; ++i) {
    double x = from[i];
    if (acc) x += load_element(acc, t, i);
    store_element(p, t, i, x);
  }
}

}  // namespace crest::cpu
