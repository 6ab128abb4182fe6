// fused_update: the kernels of update and quantization, one after the other. It saves a CPU
// nothing; it lets a CPU run a GPU's Program.
#include <algorithm>
#include <string_view>

#include "backend/body.h"
#include "backend/cpu/common.h"
#include "backend/cpu/index.h"
#include "ops/index.h"
#include "ops/quantized_norms.h"

namespace crest::cpu {
namespace {

// The kernel of an instruction of the body; null: none takes it as it is.
const Kernel* kernel_of_part(const KernelQuery& q) {
  for (const Kernel& k : cpu_kernels())
    if (std::string_view(k.op) == q.instr.op->name && !k.prepare && !std::string_view(k.name).ends_with(".reference") &&
        k.reject(q).empty())
      return &k;
  return nullptr;
}

std::string reject_parts(const KernelQuery& q) {
  for (const Instr& i : q.instr.body->code)
    if (!kernel_of_part({*q.instr.body, i, q.device})) return std::string("no kernel for the body's ") + i.op->name;
  return "";
}

size_t workspace_of_parts(const KernelQuery& q) {
  size_t most = 0;
  for (const Instr& i : q.instr.body->code) {
    const KernelQuery inner = {*q.instr.body, i, q.device};
    if (const Kernel* k = kernel_of_part(inner); k && k->workspace) most = std::max(most, k->workspace(inner));
  }
  return most;
}

std::shared_ptr<void> prepare_parts(const KernelQuery& q) {
  auto kernels = std::make_shared<std::vector<const Kernel*>>();
  for (const Instr& i : q.instr.body->code) kernels->push_back(kernel_of_part({*q.instr.body, i, q.device}));
  return kernels;
}

void launch_fused_update(const KernelCall& c) {
  const Program& body = *c.instr.body;
  const auto& kernels = *static_cast<const std::vector<const Kernel*>*>(c.prepared);
  for (size_t i = 0; i < body.code.size(); ++i) {
    const Instr& instr = body.code[i];
    std::vector<void*> in, out;
    for (ValueId v : instr.in) in.push_back(v == no_value ? nullptr : address_in_body(c, v));
    for (ValueId v : instr.out) out.push_back(address_in_body(c, v));
    kernels[i]->launch(
        {body, instr, in.data(), out.data(), c.workspace, nullptr, c.threads, c.groups, nullptr, c.device});
  }
}

}  // namespace

Kernel fused_update_kernel() {
  return {"fused_update", "cpu.fused_update.apart", reject_parts, workspace_of_parts,
          prepare_parts,  launch_fused_update};
}

}  // namespace crest::cpu
