// Collectives between GPUs, on the stream of their instruction: handed to the communicator.
#include "backend/backend.h"
#include "backend/cuda/kernel.h"
#include "comm/comm.h"
#include "ops/collectives.h"

namespace crest::cuda {

static std::string reject(const KernelQuery& q) {
  if (q.instr.attrs.has("wire")) return "sends gradients in their own dtype only";
  return reject_unless_float(q);
}

static void launch(const KernelCall& call) {
  if (!call.communicator) fail_internal("all_reduce without a communicator");
  bool mean = call.instr.attrs.integer("mean", 0) != 0;
  call.communicator->set_stream(call.stream);
  if (call.instr.attrs.integer("flat", 0))
    return call.communicator->all_reduce(call.out[0], call.out_value(0).dtype, flat_elements(call.program, call.instr),
                                         mean);
  for (size_t i = 0; i < call.instr.in.size(); ++i)
    call.communicator->all_reduce(call.out[i], call.out_value(i).dtype, call.out_value(i).numel(), mean);
}

Kernel all_reduce_kernel() { return {"all_reduce", "cuda.all_reduce.communicator", reject, nullptr, nullptr, launch}; }

}  // namespace crest::cuda
