// Collectives on host memory: handed to the communicator, tensors that lie next to each other in
// one call.
#include "backend/backend.h"
#include "comm/comm.h"
#include "core/error.h"

namespace crest::cpu {

static std::string reject(const KernelQuery&) { return ""; }

static void launch(const KernelCall& call) {
  if (!call.communicator) fail_internal("all_reduce without a communicator");
  bool mean = call.instr.attrs.integer("mean", 0) != 0;
  for (size_t i = 0; i < call.instr.in.size(); ++i) try {
      call.communicator->all_reduce(call.out[i], call.out_value(i).dtype, call.out_value(i).numel(), mean);
    } catch (const PeerLost& e) {
      throw PeerLost(e.rank(), e.problem(), "all_reduce of " + call.out_value(i).name, e.advice());
    }
}

Kernel all_reduce_kernel() { return {"all_reduce", "cpu.all_reduce.communicator", reject, nullptr, nullptr, launch}; }

}  // namespace crest::cpu
