// Sums over the ranks, on the stream of their instruction: handed to the communicator.
#include "backend/cuda/device/any_float.h"
#include "backend/cuda/kernel.h"
#include "comm/comm.h"
#include "ops/collectives.h"

namespace crest::cuda {

namespace {

constexpr int threads = 256, quad = 4;

// Source and destination of the transfer. V elements a thread.
template <int V>
__global__ void __launch_bounds__(threads)
    convert(const void* from, DType from_type, void* to, DType to_type, int64_t n) {
  wait_for_predecessors();
  int64_t i = (int64_t(blockIdx.x) * threads + threadIdx.x) * V;
  if (i >= n) return;
  float x[V];
  load_any(from, from_type, i, x);
  store_any(to, to_type, i, x);
}

void convert_all(const KernelCall& c, const void* from, DType from_type, void* to, DType to_type, int64_t n) {
  bool quads = n % quad == 0 && aligned({from}, quad * size_of(from_type)) && aligned({to}, quad * size_of(to_type));
  launch(c, quads ? convert<quad> : convert<1>, blocks_for(n, threads * (quads ? quad : 1)), threads, 0, from,
         from_type, to, to_type, n);
}

std::string reject(const KernelQuery& q) {
  // Norms are summed in f64.
  if (q.in(0).dtype == DType::f64) return q.instr.in.size() == 1 && q.in(0).contiguous() ? "" : "takes one f64 tensor";
  return reject_unless_float(q);
}

size_t workspace(const KernelQuery& q) { return wire_bytes(q.program, q.instr); }

void reduce(const KernelCall& c, void* data, DType dtype, int64_t n) {
  if (n == 0) return;
  bool mean = c.instr.attrs.integer("mean", 0) != 0;
  if (!c.instr.attrs.has("wire")) return c.group().all_reduce(data, dtype, n, mean);
  KernelCall own = c;
  convert_all(own, data, dtype, c.workspace, DType::bf16, n);
  c.group().all_reduce(c.workspace, DType::bf16, n, mean);
  own.overlap = false;  // the kernel before it is not Crest's
  convert_all(own, c.workspace, DType::bf16, data, dtype, n);
}

void launch_all_reduce(const KernelCall& call) {
  KernelCall c = call;
  c.group().set_stream(c.stream);
  if (is_flat(c.instr)) return reduce(c, c.out[0], c.out_value(0).dtype, flat_elements(c.program, c.instr));
  for (size_t i = 0; i < c.instr.in.size(); ++i) {
    reduce(c, c.out[i], c.out_value(i).dtype, c.out_value(i).numel());
    c.overlap = false;
  }
}

}  // namespace

Kernel all_reduce_kernel() {
  return {"all_reduce", "cuda.all_reduce.communicator",      reject, workspace,
          nullptr,      CREST_DEVICE_CODE(launch_all_reduce)};
}

}  // namespace crest::cuda
