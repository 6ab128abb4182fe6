// cuda.flash.mma: the fastest tiles of backend/cuda/flash_forward.h at a head dimension.
#include "backend/cuda/flash_forward.h"

#include "ops/index.h"

namespace crest::cuda {

namespace {

// Large: 32 rows a warp halve the reads of keys and values from shared memory. Small: more blocks
// for short batches, less shared memory, registers for dropout (its random numbers cost more than
// the reads), and fewer tiles with documents or a window.
template <int D>
struct ForwardTiles {
  using Large = ForwardTile<D, 2, 4, 64, D <= 64, 2>;
  using Small = ForwardTile<D, 1, 4, 64, true, 2>;
};

void launch_forward(const KernelCall& c) {
  const AttentionOperands at = attention_operands(c);
  AttentionSizes s = attention_sizes(c, at);
  with_half_type(c.in_value(at.q).dtype, [&](auto type) {
    using T = decltype(type);
    with_head_dim(s.head_dim, [&](auto d) {
      using Tiles = ForwardTiles<d()>;
      using Large = typename Tiles::Large;
      using Small = typename Tiles::Small;
      if (s.has_first() && s.dropout.scalars)
        start_forward<T, Small, true, true>(c, s);
      else if (s.has_first())
        start_forward<T, Small, false, true>(c, s);
      else if (s.dropout.scalars)
        start_forward<T, Small, true>(c, s);
      else if (prefer_small_tiles(c, s, s.heads, Large::rows, Large::shared_bytes))
        start_forward<T, Small, false>(c, s);
      else
        start_forward<T, Large, false>(c, s);
    });
  });
}

std::string reject(const KernelQuery& q) {
  return reject_flash(q, attention_operands(q.instr).q, {FlashHeads::half, 1, max_flash_head_dim}, [](int head_dim) {
    return with_head_dim(head_dim, [](auto d) { return size_t(ForwardTiles<d()>::Small::shared_bytes); });
  });
}

}  // namespace

Kernel flash_mma_kernel() {
  return {"attention", "cuda.flash.mma", reject, nullptr, nullptr, CREST_DEVICE_CODE(launch_forward)};
}
Kernel flash_mma_rows_kernel() {
  return {"attention_rows", "cuda.flash.mma", reject, nullptr, nullptr, CREST_DEVICE_CODE(launch_forward)};
}

}  // namespace crest::cuda
