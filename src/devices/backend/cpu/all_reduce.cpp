// Collectives on host memory: handed to the communicator.
#include "backend/backend.h"
#include "backend/cpu/cast.h"
#include "comm/comm.h"
#include "core/error.h"
#include "ops/collectives.h"

namespace crest::cpu {

namespace {

std::string reject(const KernelQuery&) { return ""; }

size_t workspace(const KernelQuery& q) { return wire_bytes(q.program, q.instr); }

void reduce(const KernelCall& c, void* data, DType dtype, int64_t n) {
  bool mean = c.instr.attrs.integer("mean", 0) != 0;
  if (!c.instr.attrs.has("wire")) return c.group().all_reduce(data, dtype, n, mean);
  int threads = c.instr.stream == Stream::compute ? c.threads : 1;  // the others compute meanwhile
  convert_rows(c.workspace, DType::bf16, n, data, dtype, n, 1, n, threads);
  c.group().all_reduce(c.workspace, DType::bf16, n, mean);
  convert_rows(data, dtype, n, c.workspace, DType::bf16, n, 1, n, threads);
}

void launch(const KernelCall& c) {
  size_t i = 0;
  try {
    if (is_flat(c.instr)) return reduce(c, c.out[0], c.out_value(0).dtype, flat_elements(c.program, c.instr));
    for (; i < c.instr.in.size(); ++i) reduce(c, c.out[i], c.out_value(i).dtype, c.out_value(i).numel());
  } catch (const PeerLost& e) {
    throw PeerLost(e.rank(), e.problem(), "all_reduce of " + c.out_value(i).name, e.advice());
  }
}

}  // namespace

Kernel all_reduce_kernel() { return {"all_reduce", "cpu.all_reduce.communicator", reject, workspace, nullptr, launch}; }

}  // namespace crest::cpu
