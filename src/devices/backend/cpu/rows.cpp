// split_rows and member are views; join_rows
// copies the pieces not already in their place.
#include <cstring>

#include "backend/cpu/common.h"
#include "ops/index.h"

namespace crest::cpu {
namespace {

std::string reject_join(const KernelQuery& q) {
  for (size_t i = 0; i < q.instr.in.size(); ++i)
    if (!q.in(i).contiguous()) return q.in(i).name + " is a strided view";
  return q.out(out::join_rows::x).contiguous() ? "" : "the output is a strided view";
}

void launch_join(const KernelCall& c) {
  char* to = c.output<char>(out::join_rows::x);
  for (size_t i = 0; i < c.instr.in.size(); ++i) {
    int64_t bytes = c.in_value(i).bytes();
    if (c.input<char>(i) != to) std::memcpy(to, c.input<char>(i), size_t(bytes));
    to += bytes;
  }
}

}  // namespace

static Kernel view_kernel(const char* op, const char* name) {
  return {op, name, [](const KernelQuery&) { return std::string(); }, nullptr, nullptr, [](const KernelCall&) {}};
}
Kernel split_rows_kernel() { return view_kernel("split_rows", "cpu.split_rows.view"); }
Kernel member_kernel() { return view_kernel("member", "cpu.member.view"); }
Kernel join_rows_kernel() { return {"join_rows", "cpu.join_rows.copy", reject_join, nullptr, nullptr, launch_join}; }

}  // namespace crest::cpu
