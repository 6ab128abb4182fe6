// attention_grad for compute capability 9.0: backend/cuda/attention_sm90_grad.h.
#include "backend/cuda/attention_sm90_entry.h"
#include "backend/cuda/attention_sm90_grad_start.h"
#include "ops/index.h"

namespace crest::cuda {

namespace {

namespace at = in::attention_grad;

template <int D>
size_t workspace(const KernelQuery& q) {
  sm90::Sizes s = sm90::sizes_of(q, at::qkv);
  size_t bytes = 0;
  sm90::with_kind(q.in(at::qkv).dtype, s.window || q.has(at::positions), false, [&](auto type, auto first, auto p) {
    bytes = size_t(sm90::GradPlan<sm90::GradTile<decltype(type), D, first(), p()>>(s).workspace());
  });
  return bytes;
}

template <int D>
void launch_grad(const KernelCall& c) {
  sm90::Sizes s = sm90::sizes_of(c, at::qkv, at::scalars);
  sm90::with_kind(c.in_value(at::qkv).dtype, s.has_first(), s.dropout.scalars, [&](auto type, auto first, auto p) {
    using Tile = sm90::GradTile<decltype(type), D, first(), p()>;
    check(sm90::start_grad<Tile>(sm90::GradPlan<Tile>(s), sm90::encode_tiled(), c.in[at::d_o], c.in[at::qkv],
                                 c.in[at::o], c.input<float>(at::lse), c.out[out::attention_grad::dqkv], c.workspace,
                                 c.device->multiprocessors, launch_on(c)),
          c.instr_name());
  });
}

template <int D>
Kernel kernel(const char* name) {
  return {"attention_grad", name,    [](const KernelQuery& q) { return sm90::reject<D>(q, at::qkv); },
          workspace<D>,     nullptr, CREST_DEVICE_CODE(launch_grad<D>)};
}

}  // namespace

Kernel attention_sm90_d64_grad_kernel() { return kernel<64>("cuda.attention_grad.sm90.d64"); }
Kernel attention_sm90_d128_grad_kernel() { return kernel<128>("cuda.attention_grad.sm90.d128"); }

}  // namespace crest::cuda
