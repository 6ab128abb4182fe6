// Shards of tensors and of rows, on host memory: handed to the communicator.
#include <cstring>

#include "backend/cpu/common.h"
#include "backend/cpu/simd/embedding.h"
#include "comm/comm.h"
#include "comm/reduce.h"
#include "core/error.h"
#include "ops/attention.h"
#include "ops/collectives.h"
#include "ops/index.h"

namespace crest::cpu {

namespace {

std::string reject(const KernelQuery&) { return ""; }

template <class F>
void with(const KernelCall& c, F work) {
  Communicator& group = c.group();
  if (group.size() != int(c.instr.attrs.integer("ranks")))
    fail_internal(std::string(c.instr_name()) + " for another number of ranks");
  try {
    work(group);
  } catch (const PeerLost& e) {
    throw PeerLost(e.rank(), e.problem(), c.instr_name() + (" of " + c.out_value(0).name), e.advice());
  }
}

void launch_reduce_scatter(const KernelCall& c) {
  with(c, [&](Communicator& comm) {
    void* shard = c.out[out::reduce_scatter::shard];
    DType dtype = c.out_value(0).dtype;
    int64_t n = c.out_value(0).numel();
    bool adds = adds_up(c.instr);
    auto* x = static_cast<char*>(c.in[in::reduce_scatter::x]);
    auto size = int64_t(size_of(dtype));
    for (auto& padding : padding_of(c.instr))
      std::memset(x + padding.begin * size, 0, size_t((padding.end - padding.begin) * size));
    comm.reduce_scatter(x, adds ? c.workspace : shard, dtype, n);
    if (adds) sum_in_order(shard, {c.in[in::reduce_scatter::acc], c.workspace}, dtype, n, false);
  });
}

size_t sum_workspace(const KernelQuery& q) {
  return q.has(in::reduce_scatter::acc) ? size_t(q.out(out::reduce_scatter::shard).bytes()) : 0;
}

// Of the first input, in the order of the ranks. The operation decides the shapes.
void launch_gather(const KernelCall& c) {
  const Value& part = c.in_value(0);
  with(c, [&](Communicator& comm) { comm.all_gather(c.in[0], c.out[0], part.dtype, part.numel()); });
}

void launch_own_share(const KernelCall& c) {
  int64_t bytes = c.out_value(out::own_share::shard).bytes();
  std::memcpy(c.out[out::own_share::shard], c.input<char>(in::own_share::x) + c.index() * bytes, size_t(bytes));
}

// To every row of the output.
void add_bias(const KernelCall& c, const void* bias) {
  if (!bias) return;
  const Value& y = c.out_value(0);
  const int64_t columns = y.shape.back(), bytes = columns * int64_t(size_of(y.dtype));
  const auto& f = CREST_SIMD_PICK(embedding_functions);
  int threads = threads_for(c.threads, y.numel(), 1 << 15);
#pragma omp parallel for num_threads(threads) schedule(static) if (threads > 1)
  for (int64_t r = 0; r < y.shape.rows(); ++r) {
    char* row = c.output<char>(0) + r * bytes;
    f.add_row(row, row, y.dtype, bias, y.dtype, columns);
  }
}

const void* bias_of(const KernelCall& c, size_t b) { return c.has(b) ? c.in[b] : nullptr; }

void launch_scatter_rows(const KernelCall& c) {
  namespace at = in::scatter_rows;
  const Value& y = c.out_value(out::scatter_rows::y);
  with(c,
       [&](Communicator& comm) { comm.reduce_scatter(c.in[at::x], c.out[out::scatter_rows::y], y.dtype, y.numel()); });
  add_bias(c, bias_of(c, at::b));
}

void launch_sum_rows(const KernelCall& c) {
  const Value& y = c.out_value(out::sum_rows::y);
  with(c, [&](Communicator& comm) { comm.all_reduce(c.out[out::sum_rows::y], y.dtype, y.numel(), false); });
  add_bias(c, bias_of(c, in::sum_rows::b));
}

void launch_own_rows(const KernelCall& c) {
  int64_t rows = c.out_value(out::own_rows::y).numel();
  std::memcpy(c.out[out::own_rows::y], c.input<int32_t>(in::own_rows::ids) + c.index() * rows, size_t(rows) * 4);
}

void launch_own_positions(const KernelCall& c) {
  const int64_t rows = c.out_value(out::own_positions::y).numel(), seq = c.in_value(in::own_positions::ids).shape[1];
  for (int64_t r = 0; r < rows; ++r)
    c.output<int32_t>(out::own_positions::y)[r] = int32_t((c.index() * rows + r) % seq);
}

// Between tokens in the order of the sequence, x[B,T,..], and by rank: [rank][B,T / ranks,..], each
// with its two chunks. bytes: of a token.
void copy_chunks(char* x, char* by_rank, const Shape& part, int64_t ranks, int64_t bytes, bool to_sequence) {
  const int64_t samples = part[0], chunk = part[1] / 2;
  for (int64_t r = 0; r < ranks; ++r)
    for (int64_t b = 0; b < samples; ++b) {
      const OwnChunks own(2 * chunk * ranks, ranks, r);
      for (int64_t half : {0, 1}) {
        char* at = x + (b * 2 * chunk * ranks + own.first[half]) * bytes;
        char* of_rank = by_rank + ((r * samples + b) * 2 + half) * chunk * bytes;
        std::memcpy(to_sequence ? at : of_rank, to_sequence ? of_rank : at, size_t(chunk * bytes));
      }
    }
}

int64_t token_bytes(const Value& x) { return x.bytes() / (x.shape[0] * x.shape[1]); }

size_t gather_workspace(const KernelQuery& q) { return size_t(q.out(out::gather_tokens::y).bytes()); }
size_t scatter_workspace(const KernelQuery& q) { return size_t(q.in(in::scatter_tokens::x).bytes()); }

void launch_gather_tokens(const KernelCall& c) {
  const Value& part = c.in_value(in::gather_tokens::x);
  with(c, [&](Communicator& comm) {
    comm.all_gather(c.in[in::gather_tokens::x], c.workspace, part.dtype, part.numel());
    copy_chunks(c.output<char>(out::gather_tokens::y), static_cast<char*>(c.workspace), part.shape, comm.size(),
                token_bytes(part), true);
  });
}

void launch_scatter_tokens(const KernelCall& c) {
  const Value& part = c.out_value(out::scatter_tokens::y);
  with(c, [&](Communicator& comm) {
    copy_chunks(static_cast<char*>(c.in[in::scatter_tokens::x]), static_cast<char*>(c.workspace), part.shape,
                comm.size(), token_bytes(part), false);
    comm.reduce_scatter(c.workspace, c.out[out::scatter_tokens::y], part.dtype, part.numel());
  });
}

void launch_token_positions(const KernelCall& c) {
  const Value& y = c.out_value(out::token_positions::y);
  const int64_t tokens = y.shape[1], ranks = c.instr.attrs.integer("ranks"), last = c.instr.attrs.integer("tokens") - 1;
  const OwnChunks own(tokens * ranks, ranks, c.chunk_place());
  for (int64_t i = 0; i < y.numel(); ++i)
    c.output<int32_t>(out::token_positions::y)[i] = int32_t(std::min(own.token(i % tokens), last));
}

template <class F>
void between_stages(const KernelCall& c, F work) {
  try {
    work(c.group());
  } catch (const PeerLost& e) {
    throw PeerLost(e.rank(), e.problem(), c.instr_name() + (" of " + c.out_value(0).name), e.advice());
  }
}

void launch_send(const KernelCall& c) {
  between_stages(c, [&](Communicator& comm) {
    comm.send(c.in[in::send::x], c.in_value(in::send::x).bytes(), int(c.instr.attrs.integer("to")));
  });
}

size_t receive_workspace(const KernelQuery& q) { return received_bytes(q.program, q.instr); }

void launch_receive(const KernelCall& c) {
  const Value& y = c.out_value(out::receive::y);
  void* to = c.out[out::receive::y];
  const bool adds = adds_received(c.instr);
  between_stages(c, [&](Communicator& comm) {
    comm.receive(adds ? c.workspace : to, y.bytes(), int(c.instr.attrs.integer("from")));
  });
  if (adds) sum_in_order(to, {to, c.workspace}, y.dtype, y.numel(), false);
}

std::string reject_scatter_rows(const KernelQuery& q) { return check_float(q.in(in::scatter_rows::x)); }

}  // namespace

Kernel gather_rows_kernel() {
  return {"gather_rows", "cpu.gather_rows.communicator", reject, nullptr, nullptr, launch_gather};
}
Kernel gather_parts_kernel() {
  return {"gather_parts", "cpu.gather_parts.communicator", reject, nullptr, nullptr, launch_gather};
}
Kernel gather_columns_kernel() {
  return {"gather_columns", "cpu.gather_columns.communicator", reject, nullptr, nullptr, launch_gather};
}
Kernel sum_rows_kernel() {
  return {"sum_rows", "cpu.sum_rows.communicator", reject_scatter_rows, nullptr, nullptr, launch_sum_rows};
}
Kernel scatter_rows_kernel() {
  return {"scatter_rows", "cpu.scatter_rows.communicator", reject_scatter_rows, nullptr, nullptr, launch_scatter_rows};
}
Kernel own_rows_kernel() { return {"own_rows", "cpu.own_rows.copy", reject, nullptr, nullptr, launch_own_rows}; }
Kernel own_positions_kernel() {
  return {"own_positions", "cpu.own_positions.count", reject, nullptr, nullptr, launch_own_positions};
}

Kernel gather_tokens_kernel() {
  return {"gather_tokens", "cpu.gather_tokens.communicator", reject, gather_workspace, nullptr, launch_gather_tokens};
}
Kernel scatter_tokens_kernel() {
  return {"scatter_tokens",
          "cpu.scatter_tokens.communicator",
          [](const KernelQuery& q) { return check_float(q.in(in::scatter_tokens::x)); },
          scatter_workspace,
          nullptr,
          launch_scatter_tokens};
}
Kernel token_positions_kernel() {
  return {"token_positions", "cpu.token_positions.count", reject, nullptr, nullptr, launch_token_positions};
}

Kernel send_kernel() { return {"send", "cpu.send.communicator", reject, nullptr, nullptr, launch_send}; }
Kernel receive_kernel() {
  return {"receive", "cpu.receive.communicator", reject, receive_workspace, nullptr, launch_receive};
}

Kernel reduce_scatter_kernel() {
  return {"reduce_scatter", "cpu.reduce_scatter.communicator", reject, sum_workspace, nullptr, launch_reduce_scatter};
}
Kernel all_gather_kernel() {
  return {"all_gather", "cpu.all_gather.communicator", reject, nullptr, nullptr, launch_gather};
}
Kernel own_share_kernel() { return {"own_share", "cpu.own_share.copy", reject, nullptr, nullptr, launch_own_share}; }

}  // namespace crest::cpu
