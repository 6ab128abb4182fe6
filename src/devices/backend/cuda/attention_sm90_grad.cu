// attention_grad for compute capability 9.0: backend/cuda/attention_sm90_grad.h.
#include "backend/cuda/attention_sm90_entry.h"
#include "backend/cuda/attention_sm90_grad_start.h"
#include "ops/index.h"

namespace crest::cuda {

namespace {

template <int D>
size_t workspace(const KernelQuery& q) {
  const GradOperands at = grad_operands(q.instr);
  sm90::Sizes s = sm90::sizes_of(q, at);
  size_t bytes = 0;
  sm90::with_kind(q.in(at.q).dtype, s.window || q.has(at.scalars + 1), false, [&](auto type, auto first, auto p) {
    bytes = size_t(sm90::GradPlan<sm90::GradTile<decltype(type), D, first(), p()>>(s).workspace());
  });
  return bytes;
}

template <int D>
void launch_grad(const KernelCall& c) {
  const GradOperands at = grad_operands(c);
  sm90::Sizes s = sm90::sizes_of(c, at);
  sm90::with_kind(c.in_value(at.q).dtype, s.has_first(), s.dropout.scalars, [&](auto type, auto first, auto p) {
    using Tile = sm90::GradTile<decltype(type), D, first(), p()>;
    const sm90::GradTensors x = {c.in[at.d_o],           c.in[at.q],   c.in[at.kv],  c.in[at.o],
                                 c.input<float>(at.lse), c.out[at.dq], c.out[at.dkv]};
    check(sm90::start_grad<Tile>(sm90::GradPlan<Tile>(s), sm90::encode_tiled(), x, c.workspace,
                                 c.device->multiprocessors, launch_on(c)),
          c.instr_name());
  });
}

template <int D>
std::string reject(const KernelQuery& q) {
  return sm90::reject<D>(q, grad_operands(q.instr).q, sm90::GradTile<bfloat16, D, false>::queries);
}

template <int D>
Kernel kernel(const char* op, const char* name) {
  return {op, name, reject<D>, workspace<D>, nullptr, CREST_DEVICE_CODE(launch_grad<D>)};
}

}  // namespace

Kernel attention_sm90_d64_grad_kernel() { return kernel<64>("attention_grad", "cuda.attention_grad.sm90.d64"); }
Kernel attention_sm90_d128_grad_kernel() { return kernel<128>("attention_grad", "cuda.attention_grad.sm90.d128"); }
Kernel rows_sm90_d64_grad_kernel() { return kernel<64>("attention_rows_grad", "cuda.attention_rows_grad.sm90.d64"); }
Kernel rows_sm90_d128_grad_kernel() { return kernel<128>("attention_rows_grad", "cuda.attention_rows_grad.sm90.d128"); }

}  // namespace crest::cuda
