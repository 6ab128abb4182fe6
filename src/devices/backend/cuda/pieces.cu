// Pieces of rows: exchanges between pairs of ranks on the stream of their instruction, and what
// joins and sums pieces.
#include "backend/cuda/device/any_float.h"
#include "backend/cuda/kernel.h"
#include "backend/cuda/rank_sum.h"
#include "comm/comm.h"
#include "ops/collectives.h"
#include "ops/index.h"
#include "program/barriers.h"

namespace crest::cuda {

namespace {

constexpr int threads = 256, quad = 4;

#if CREST_HAS_DEVICE_CODE
template <class T, int N>
__global__ void __launch_bounds__(threads) copy_elements(const T* from, T* to, int64_t vectors) {
  wait_for_predecessors();
  const int64_t i = int64_t(blockIdx.x) * threads + threadIdx.x;
  if (i >= vectors) return;
  if constexpr (N == 1)
    to[i] = from[i];
  else
    store_vec(to + i * N, load_vec<N>(from + i * N));
}

// Added in fp32, in the order of the list; rounded, and once more after the bias.
template <int V>
__global__ void __launch_bounds__(threads)
    sum_of_pieces(RankPointers in, const void* bias, void* y, DType dtype, int64_t n, int64_t columns) {
  wait_for_predecessors();
  const int64_t i = (int64_t(blockIdx.x) * threads + threadIdx.x) * V;
  if (i >= n) return;
  float sum[V];
  sum_any(in.of, in.count, dtype, i, sum);
  store_any(y, dtype, i, sum);
  if (!bias) return;
  float b[V];
  load_any(y, dtype, i, sum);
  load_any(bias, dtype, i % columns, b);
#pragma unroll
  for (int e = 0; e < V; ++e) sum[e] += b[e];
  store_any(y, dtype, i, sum);
}
void launch_exchange(const KernelCall& c) {
  const PieceExchange e = piece_exchange(c.instr, c.index());
  c.group().set_stream(c.stream);
  c.group().send_receive(c.in[0], e.to, c.out[0], e.from, c.in_value(0).bytes());
}

// Every rank has its x at the same place, or with its own rows among those of all ranks.
void launch_copies(const KernelCall& c) {
  const PieceExchange e = piece_exchange(c.instr, c.index());
  const Value& x = c.in_value(0);
  const int64_t further = x.offset_on(e.from) - x.offset_on(c.index());
  const char* place = c.input<char>(0) + further * int64_t(size_of(x.dtype));
  Communicator& group = c.group();
  group.set_stream(c.stream);
  group.arrive_at(barrier_before(c.instr)), group.wait_at(barrier_before(c.instr));
  if (!group.pull(place, c.out[0], e.from, x.bytes())) group.send_receive(c.in[0], e.to, c.out[0], e.from, x.bytes());
  group.arrive_at(barrier_after(c.instr)), group.wait_at(barrier_after(c.instr));
}

void launch_join(const KernelCall& c) {
  const int64_t n = c.in_value(in::join_pieces::pieces).numel(), pieces = int64_t(c.instr.in.size());
  with_type(c.out_value(out::join_pieces::x).dtype, [&](auto t) {
    using T = decltype(t);
    constexpr int N = Vec<T>::size;
    for (int64_t k = 0; k < pieces; ++k) {
      const T* from = c.input<T>(size_t(k));
      T* to = c.output<T>(out::join_pieces::x) + (k + c.index()) % pieces * n;
      if (from != to && n % N == 0 && aligned({from, to}))
        launch(c, copy_elements<T, N>, blocks_for(n / N, threads), threads, 0, from, to, n / N);
      else if (from != to)
        launch(c, copy_elements<T, 1>, blocks_for(n, threads), threads, 0, from, to, n);
    }
  });
}

// Piece k came from the rank k places before.
void launch_sum(const KernelCall& c) {
  namespace at = in::sum_pieces;
  const Value& y = c.out_value(out::sum_pieces::y);
  const int n = int(c.instr.in.size() - at::pieces);
  RankPointers addends;
  for (int r = 0; r < n; ++r) addends.of[addends.count++] = c.in[at::pieces + size_t((c.index() - r + n) % n)];
  const void* bias = c.has(at::b) ? c.in[at::b] : nullptr;
  void* to = c.out[out::sum_pieces::y];
  bool quads = y.shape.back() % quad == 0 && aligned({to, bias}, quad * size_of(y.dtype));
  for (int r = 0; r < n; ++r) quads &= aligned({addends.of[r]}, quad * size_of(y.dtype));
  auto* kernel = quads ? sum_of_pieces<quad> : sum_of_pieces<1>;
  launch(c, kernel, blocks_for(y.numel(), threads * (quads ? quad : 1)), threads, 0, addends, bias, to, y.dtype,
         y.numel(), y.shape.back());
}
#endif

std::string accept(const KernelQuery&) { return ""; }
std::string reject_sum(const KernelQuery& q) {
  if (q.instr.in.size() - in::sum_pieces::pieces > most_ranks) return "takes at most 64 pieces";
  return reject_unless_float(q);
}
void nothing(const KernelCall&) {}

}  // namespace

Kernel own_piece_kernel() { return {"own_piece", "cuda.own_piece.view", accept, nullptr, nullptr, nothing}; }
Kernel split_pieces_kernel() { return {"split_pieces", "cuda.split_pieces.view", accept, nullptr, nullptr, nothing}; }
Kernel gather_piece_kernel() {
  return {"gather_piece", "cuda.gather_piece.communicator",  reject_unless_float, nullptr,
          nullptr,        CREST_DEVICE_CODE(launch_exchange)};
}
Kernel gather_piece_copies_kernel() {
  return {"gather_piece", "cuda.gather_piece.copy_engine", reject_unless_float, nullptr,
          nullptr,        CREST_DEVICE_CODE(launch_copies)};
}
Kernel scatter_piece_copies_kernel() {
  return {"scatter_piece", "cuda.scatter_piece.copy_engine", reject_unless_float, nullptr,
          nullptr,         CREST_DEVICE_CODE(launch_copies)};
}
Kernel scatter_piece_kernel() {
  return {"scatter_piece", "cuda.scatter_piece.communicator", reject_unless_float, nullptr,
          nullptr,         CREST_DEVICE_CODE(launch_exchange)};
}
Kernel join_pieces_kernel() {
  return {"join_pieces", "cuda.join_pieces.copy",       reject_unless_float, nullptr,
          nullptr,       CREST_DEVICE_CODE(launch_join)};
}
Kernel sum_pieces_kernel() {
  return {"sum_pieces", "cuda.sum_pieces", reject_sum, nullptr, nullptr, CREST_DEVICE_CODE(launch_sum)};
}

}  // namespace crest::cuda
