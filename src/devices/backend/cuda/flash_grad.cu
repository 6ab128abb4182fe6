// cuda.flash.mma of attention_grad: the fastest tiles of backend/cuda/flash_grad.h at a head
// dimension.
#include "backend/cuda/flash_grad.h"

#include "ops/index.h"

namespace crest::cuda {

namespace {

// Large: 32 rows a warp (MT = 2) halve the reads of streamed tiles, if the accumulators leave room.
// Small: more blocks for short batches, less shared memory, registers for dropout (its random
// numbers cost more than the reads), and fewer tiles with documents or a window.
template <int D>
struct GradTiles {
  static constexpr int MT = D <= 64 ? 2 : 1, warps = D <= 64 ? 4 : 8, min_blocks = D <= 64 ? 2 : 1;
  using LargeQueries = GradTile<D, MT, warps, 64, 32, true, min_blocks>;
  using LargeKeys = GradTile<D, MT, warps, 64, 32, D <= 32, min_blocks>;
  using SmallQueries = GradTile<D, 1, 4, 64, 32, true, 2>;
  using SmallKeys = GradTile<D, 1, 4, 64, 32, D <= 64, 2>;
};

void launch_grad(const KernelCall& c) {
  const GradOperands at = grad_operands(c);
  AttentionSizes s = attention_sizes(c, at);
  with_half_type(c.in_value(at.q).dtype, [&](auto type) {
    using T = decltype(type);
    with_head_dim(s.head_dim, [&](auto d) {
      using Tiles = GradTiles<d()>;
      using Keys = typename Tiles::LargeKeys;
      using SmallQueries = typename Tiles::SmallQueries;
      using SmallKeys = typename Tiles::SmallKeys;
      if (s.has_first() && s.dropout.scalars)
        start_grads<T, SmallQueries, SmallKeys, true, true>(c, s);
      else if (s.has_first())
        start_grads<T, SmallQueries, SmallKeys, false, true>(c, s);
      else if (s.dropout.scalars)
        start_grads<T, SmallQueries, SmallKeys, true>(c, s);
      else if (prefer_small_tiles(c, s, s.kv_heads, Keys::rows, Keys::shared_bytes))
        start_grads<T, SmallQueries, SmallKeys, false>(c, s);
      else
        start_grads<T, typename Tiles::LargeQueries, Keys, false>(c, s);
    });
  });
}

std::string reject(const KernelQuery& q) {
  return reject_flash(q, grad_operands(q.instr).q, {FlashHeads::half, 1, max_flash_head_dim}, [](int head_dim) {
    return with_head_dim(head_dim, [](auto d) { return size_t(GradTiles<d()>::SmallKeys::shared_bytes); });
  });
}

}  // namespace

Kernel flash_mma_grad_kernel() {
  return {"attention_grad", "cuda.flash.mma", reject, flash_grad_workspace, nullptr, CREST_DEVICE_CODE(launch_grad)};
}
Kernel flash_mma_rows_grad_kernel() {
  return {"attention_rows_grad", "cuda.flash.mma", reject,
          flash_grad_workspace,  nullptr,          CREST_DEVICE_CODE(launch_grad)};
}

}  // namespace crest::cuda
