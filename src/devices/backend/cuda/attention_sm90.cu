// attention for compute capability 9.0: backend/cuda/attention_sm90_forward.h.
#include "backend/cuda/attention_sm90_entry.h"
#include "backend/cuda/attention_sm90_forward.h"
#include "ops/index.h"

namespace crest::cuda {

namespace {

template <int D>
void launch_attention(const KernelCall& c) {
  const AttentionOperands at = attention_operands(c);
  sm90::Sizes s = sm90::sizes_of(c, at);
  sm90::with_kind(c.in_value(at.q).dtype, s.has_first(), s.dropout.scalars, [&](auto type, auto first, auto p) {
    using Tile = sm90::ForwardTile<decltype(type), D, first(), p()>;
    check(sm90::start_forward<Tile>(sm90::ForwardPlan<Tile>(s), sm90::encode_tiled(), c.in[at.q], c.in[at.kv],
                                    c.out[out::attention::o], c.output<float>(out::attention::lse),
                                    static_cast<uint32_t*>(c.workspace), c.device->multiprocessors, launch_on(c)),
          c.instr_name());
  });
}

template <int D>
std::string reject(const KernelQuery& q) {
  return sm90::reject<D>(q, attention_operands(q.instr).q, 64);
}

size_t counter_bytes(const KernelQuery&) { return 256; }

template <int D>
Kernel kernel(const char* op, const char* name) {
  return {op, name, reject<D>, counter_bytes, nullptr, CREST_DEVICE_CODE(launch_attention<D>)};
}

}  // namespace

Kernel attention_sm90_d64_kernel() { return kernel<64>("attention", "cuda.attention.sm90.d64"); }
Kernel attention_sm90_d128_kernel() { return kernel<128>("attention", "cuda.attention.sm90.d128"); }
Kernel rows_sm90_d64_kernel() { return kernel<64>("attention_rows", "cuda.attention_rows.sm90.d64"); }
Kernel rows_sm90_d128_kernel() { return kernel<128>("attention_rows", "cuda.attention_rows.sm90.d128"); }

}  // namespace crest::cuda
