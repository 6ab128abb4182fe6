// Shards of tensors, on host memory: handed to the communicator.
#include <cstring>

#include "backend/backend.h"
#include "comm/comm.h"
#include "comm/reduce.h"
#include "core/error.h"
#include "ops/collectives.h"
#include "ops/index.h"

namespace crest::cpu {

namespace {

std::string reject(const KernelQuery&) { return ""; }

template <class F>
void with(const KernelCall& c, F work) {
  Communicator& group = c.group();
  if (group.size() != int(c.instr.attrs.integer("ranks")))
    fail_internal(std::string(c.instr_name()) + " for another number of ranks");
  try {
    work(group);
  } catch (const PeerLost& e) {
    throw PeerLost(e.rank(), e.problem(), c.instr_name() + (" of " + c.out_value(0).name), e.advice());
  }
}

void launch_reduce_scatter(const KernelCall& c) {
  with(c, [&](Communicator& comm) {
    void* shard = c.out[out::reduce_scatter::shard];
    DType dtype = c.out_value(0).dtype;
    int64_t n = c.out_value(0).numel();
    bool adds = adds_up(c.instr);
    auto* x = static_cast<char*>(c.in[in::reduce_scatter::x]);
    auto size = int64_t(size_of(dtype));
    for (auto& padding : padding_of(c.instr))
      std::memset(x + padding.begin * size, 0, size_t((padding.end - padding.begin) * size));
    comm.reduce_scatter(x, adds ? c.workspace : shard, dtype, n);
    if (adds) sum_in_order(shard, {c.in[in::reduce_scatter::acc], c.workspace}, dtype, n, false);
  });
}

size_t sum_workspace(const KernelQuery& q) {
  return q.has(in::reduce_scatter::acc) ? size_t(q.out(out::reduce_scatter::shard).bytes()) : 0;
}

void launch_all_gather(const KernelCall& c) {
  const Value& shard = c.in_value(in::all_gather::shard);
  with(c, [&](Communicator& comm) {
    comm.all_gather(c.in[in::all_gather::shard], c.out[out::all_gather::y], shard.dtype, shard.numel());
  });
}

void launch_own_share(const KernelCall& c) {
  int64_t bytes = c.out_value(out::own_share::shard).bytes();
  std::memcpy(c.out[out::own_share::shard], c.input<char>(in::own_share::x) + c.index() * bytes, size_t(bytes));
}

}  // namespace

Kernel reduce_scatter_kernel() {
  return {"reduce_scatter", "cpu.reduce_scatter.communicator", reject, sum_workspace, nullptr, launch_reduce_scatter};
}
Kernel all_gather_kernel() {
  return {"all_gather", "cpu.all_gather.communicator", reject, nullptr, nullptr, launch_all_gather};
}
Kernel own_share_kernel() { return {"own_share", "cpu.own_share.copy", reject, nullptr, nullptr, launch_own_share}; }

}  // namespace crest::cpu
