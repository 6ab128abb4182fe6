// Pieces of rows: exchanges between pairs of ranks, and what joins and sums pieces.
#include <cstring>

#include "backend/cpu/common.h"
#include "backend/cpu/simd/embedding.h"
#include "comm/comm.h"
#include "comm/reduce.h"
#include "core/error.h"
#include "ops/collectives.h"
#include "ops/index.h"

namespace crest::cpu {

namespace {

std::string accept(const KernelQuery&) { return ""; }
void nothing(const KernelCall&) {}

void launch_exchange(const KernelCall& c) {
  const PieceExchange e = piece_exchange(c.instr, c.index());
  try {
    c.group().send_receive(c.in[0], e.to, c.out[0], e.from, c.in_value(0).bytes());
  } catch (const PeerLost& lost) {
    throw PeerLost(lost.rank(), lost.problem(), c.instr_name() + (" of " + c.out_value(0).name), lost.advice());
  }
}

void launch_join(const KernelCall& c) {
  const int64_t bytes = c.in_value(in::join_pieces::pieces).bytes(), n = int64_t(c.instr.in.size());
  for (int64_t k = 0; k < n; ++k) {
    char* place = c.output<char>(out::join_pieces::x) + (k + c.index()) % n * bytes;
    if (c.in[k] != place) std::memcpy(place, c.in[k], size_t(bytes));
  }
}

// Piece k came from the rank k places before.
void launch_sum(const KernelCall& c) {
  namespace at = in::sum_pieces;
  const Value& y = c.out_value(out::sum_pieces::y);
  const int n = int(c.instr.in.size() - at::pieces);
  std::vector<const void*> addends;
  for (int r = 0; r < n; ++r) addends.push_back(c.in[at::pieces + size_t((c.index() - r + n) % n)]);
  sum_in_order(c.out[out::sum_pieces::y], addends, y.dtype, y.numel(), false);
  if (!c.has(at::b)) return;
  const int64_t columns = y.shape.back(), bytes = columns * int64_t(size_of(y.dtype));
  const auto& f = CREST_SIMD_PICK(embedding_functions);
  const int threads = threads_for(c.threads, y.numel(), 1 << 15);
#pragma omp parallel for num_threads(threads) schedule(static) if (threads > 1)
  for (int64_t r = 0; r < y.shape.rows(); ++r) {
    char* row = c.output<char>(out::sum_pieces::y) + r * bytes;
    f.add_row(row, row, y.dtype, c.in[at::b], y.dtype, columns);
  }
}

std::string reject_sum(const KernelQuery& q) { return check_float(q.out(out::sum_pieces::y)); }

}  // namespace

Kernel own_piece_kernel() { return {"own_piece", "cpu.own_piece.view", accept, nullptr, nullptr, nothing}; }
Kernel split_pieces_kernel() { return {"split_pieces", "cpu.split_pieces.view", accept, nullptr, nullptr, nothing}; }
Kernel gather_piece_kernel() {
  return {"gather_piece", "cpu.gather_piece.communicator", accept, nullptr, nullptr, launch_exchange};
}
Kernel scatter_piece_kernel() {
  return {"scatter_piece", "cpu.scatter_piece.communicator", accept, nullptr, nullptr, launch_exchange};
}
Kernel join_pieces_kernel() { return {"join_pieces", "cpu.join_pieces.copy", accept, nullptr, nullptr, launch_join}; }
Kernel sum_pieces_kernel() { return {"sum_pieces", "cpu.sum_pieces.simd", reject_sum, nullptr, nullptr, launch_sum}; }

}  // namespace crest::cpu
