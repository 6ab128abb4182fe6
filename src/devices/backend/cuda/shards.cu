// Shards of tensors and of rows: collectives on the stream of their instruction, and copies of a
// shard.
#include "backend/cuda/device/words.h"
#include "backend/cuda/kernel.h"
#include "backend/cuda/rank_sum.h"
#include "comm/comm.h"
#include "core/round_up.h"
#include "ops/attention.h"
#include "ops/collectives.h"
#include "ops/index.h"
#include "program/barriers.h"

namespace crest::cuda {

namespace {

constexpr int threads = 256;

// bytes: a multiple of 4.
__global__ void __launch_bounds__(threads) copy_words(const uint32_t* from, uint32_t* to, int64_t n) {
  wait_for_predecessors();
  int64_t i = (int64_t(blockIdx.x) * threads + threadIdx.x) * 4;
  if (i + 4 <= n) {
    store_vec(to + i, load_vec<4>(from + i));
    return;
  }
  for (; i < n; ++i) to[i] = from[i];
}

Communicator& communicator_of(const KernelCall& c) {
  Communicator& group = c.group();
  if (group.size() != int(c.instr.attrs.integer("ranks")))
    fail_internal(std::string(c.instr_name()) + " for another number of ranks");
  group.set_stream(c.stream);
  return group;
}

template <class T>
__global__ void __launch_bounds__(threads) add_to(T* sum, const T* x, int64_t n) {
  wait_for_predecessors();
  int64_t i = int64_t(blockIdx.x) * threads + threadIdx.x;
  if (i < n) sum[i] = narrow<T>(widen(sum[i]) + widen(x[i]));
}

__global__ void __launch_bounds__(threads) set_zero(uint16_t* to, int64_t n) {
  wait_for_predecessors();
  int64_t i = int64_t(blockIdx.x) * threads + threadIdx.x;
  if (i < n) to[i] = 0;
}

// One shard of each rank: added in fp32, in the order of the list; rounded, and once more after
// acc, which may be the memory of the sum.
template <class T>
__global__ void __launch_bounds__(threads) sum_of_shards(RankPointers in, const T* acc, T* sum, int64_t n) {
  wait_for_predecessors();
  constexpr int N = Vec<T>::size;
  const int64_t i = (int64_t(blockIdx.x) * threads + threadIdx.x) * N;
  if (i >= n) return;
  float x[N], y[N];
  load_floats<N>(static_cast<const T*>(in.of[0]) + i, x);
  for (int r = 1; r < in.count; ++r) {
    load_floats<N>(static_cast<const T*>(in.of[r]) + i, y);
#pragma unroll
    for (int e = 0; e < N; ++e) x[e] += y[e];
  }
  if (acc) {
    load_floats<N>(acc + i, y);
#pragma unroll
    for (int e = 0; e < N; ++e) x[e] = widen(narrow<T>(x[e])) + y[e];
  }
  store_floats<N>(sum + i, x);
}

// Between tensors, the memory may hold anything.
void clear_padding(const KernelCall& c) {
  auto* x = static_cast<uint16_t*>(c.in[in::reduce_scatter::x]);
  const int64_t halves = int64_t(size_of(c.in_value(in::reduce_scatter::x).dtype)) / 2;
  for (auto& padding : padding_of(c.instr)) {
    const int64_t n = (padding.end - padding.begin) * halves;
    launch(c, set_zero, blocks_for(n, threads), threads, 0, x + padding.begin * halves, n);
  }
}

void sum_and_scatter(const KernelCall& c) {
  const Value& shard = c.out_value(out::reduce_scatter::shard);
  void* out = c.out[out::reduce_scatter::shard];
  const bool adds = adds_up(c.instr);
  communicator_of(c).reduce_scatter(c.in[in::reduce_scatter::x], adds ? c.workspace : out, shard.dtype, shard.numel());
  if (!adds) return;
  int64_t n = shard.numel();
  with_type(shard.dtype, [&](auto t) {
    using T = decltype(t);
    launch(c, add_to<T>, blocks_for(n, threads), threads, 0, static_cast<T*>(out), static_cast<const T*>(c.workspace),
           n);
  });
}

void launch_reduce_scatter(const KernelCall& c) {
  clear_padding(c);
  sum_and_scatter(c);
}

size_t sum_workspace(const KernelQuery& q) {
  return q.has(in::reduce_scatter::acc) ? size_t(q.out(out::reduce_scatter::shard).bytes()) : 0;
}

// The addends that arrive at a time; whole gradients would need as much memory again.
constexpr int64_t most_arriving = int64_t(128) << 20, line = 256;
int64_t arriving_of_rank(int64_t shard_bytes, int64_t ranks) {
  return std::min(round_up(shard_bytes, line), most_arriving / (ranks - 1) / line * line);
}

// What follows on the stream of c, with no kernel right before it.
KernelCall after_waits(const KernelCall& c) {
  KernelCall after = c;
  after.overlap = false;
  return after;
}

// Copy engines bring the other ranks' addends of this rank's shard, piece by piece; kernels add.
// Meanwhile the other ranks may still copy.
void launch_reduce_scatter_copies(const KernelCall& c) {
  const Value& shard = c.out_value(out::reduce_scatter::shard);
  clear_padding(c);
  Communicator& group = communicator_of(c);
  group.arrive_at(barrier_before(c.instr)), group.wait_at(barrier_before(c.instr));
  const int ranks = group.size(), own = group.rank();
  const int64_t bytes = shard.bytes(), piece = arriving_of_rank(bytes, ranks);
  char* addend = static_cast<char*>(c.in[in::reduce_scatter::x]) + own * bytes;
  RankPointers addends;
  addends.count = ranks;
  auto pull = [&](int64_t begin, int64_t size) {
    addends.of[own] = addend + begin;
    for (int k = 1; k < ranks; ++k) {
      const int from = (own + k) % ranks;
      addends.of[from] = static_cast<char*>(c.workspace) + (k - 1) * piece;
      if (!group.pull(addend + begin, addends.of[from], from, size)) return false;
    }
    return true;
  };
  for (int64_t begin = 0; begin < bytes; begin += piece) {
    const int64_t size = std::min(piece, bytes - begin);
    const bool pulled = pull(begin, size), last = begin + size == bytes;
    if (!pulled) sum_and_scatter(c);
    if (!pulled || last) group.arrive_at(barrier_after(c.instr));
    if (!pulled) break;
    with_type(shard.dtype, [&](auto t) {
      using T = decltype(t);
      constexpr int64_t of_thread = Vec<T>::size;
      const int64_t n = size / int64_t(sizeof(T)), first = begin / int64_t(sizeof(T));
      const T* acc = adds_up(c.instr) ? c.input<T>(in::reduce_scatter::acc) + first : nullptr;
      launch(after_waits(c), sum_of_shards<T>, blocks_for(n, threads * of_thread), threads, 0, addends, acc,
             c.output<T>(out::reduce_scatter::shard) + first, n);
    });
  }
  group.wait_at(barrier_after(c.instr));
}

size_t arriving_bytes(const KernelQuery& q) {
  const int64_t ranks = q.instr.attrs.integer("ranks");
  const int64_t arriving = arriving_of_rank(q.out(out::reduce_scatter::shard).bytes(), ranks) * (ranks - 1);
  return std::max(size_t(arriving), sum_workspace(q));  // NCCL sums where ranks cannot pull
}

// Each barrier waits for all ranks. No host has more GPUs with peer access.
constexpr int most_pulling = 8;

std::string reject_copies(const KernelQuery& q, const Value& shard) {
  // With nothing to hide behind, NCCL was faster on two H200: a step of 27.89 against 28.02 ms.
  if (q.instr.stream != Stream::comm) return "is for the communication stream";
  if (q.instr.attrs.integer("ranks") > most_pulling) return "takes at most 8 ranks";
  return shard.bytes() % 16 ? "takes shards of a multiple of 16 bytes" : "";
}
std::string reject_gather_copies(const KernelQuery& q) { return reject_copies(q, q.in(in::all_gather::shard)); }
std::string reject_reduce_scatter_copies(const KernelQuery& q) {
  std::string why = reject_copies(q, q.out(out::reduce_scatter::shard));
  return why.empty() ? reject_unless_float(q) : why;
}

// Of the first input, in the order of the ranks. The operation decides the shapes.
void launch_gather(const KernelCall& c) {
  const Value& part = c.in_value(0);
  communicator_of(c).all_gather(c.in[0], c.out[0], part.dtype, part.numel());
}

void copy_shard(const KernelCall& c, const void* from, void* to, int64_t bytes) {
  const int64_t words = bytes / 4;
  launch(c, copy_words, blocks_for(words, threads * 4), threads, 0, static_cast<const uint32_t*>(from),
         static_cast<uint32_t*>(to), words);
}

// Copy engines bring the other ranks' shards. This rank copies its own one while they arrive.
void launch_gather_copies(const KernelCall& c) {
  const int64_t bytes = c.in_value(in::all_gather::shard).bytes();
  Communicator& group = communicator_of(c);
  const int ranks = group.size(), own = group.rank();
  const void* shard = c.in[in::all_gather::shard];
  char* all = c.output<char>(out::all_gather::y);
  group.arrive_at(barrier_before(c.instr));
  copy_shard(after_waits(c), shard, all + own * bytes, bytes);
  group.wait_at(barrier_before(c.instr));
  for (int k = 1; k < ranks; ++k) {
    const int from = (own + k) % ranks;
    if (group.pull(shard, all + from * bytes, from, bytes)) continue;
    launch_gather(c);
    break;
  }
  group.arrive_at(barrier_after(c.instr)), group.wait_at(barrier_after(c.instr));
}

void launch_own_share(const KernelCall& c) {
  const int64_t bytes = c.out_value(out::own_share::shard).bytes();
  copy_shard(c, c.input<char>(in::own_share::x) + c.index() * bytes, c.out[out::own_share::shard], bytes);
}

template <class T>
__global__ void __launch_bounds__(threads) add_to_rows(T* y, const T* b, int64_t n, int64_t columns) {
  wait_for_predecessors();
  int64_t i = int64_t(blockIdx.x) * threads + threadIdx.x;
  if (i < n) y[i] = narrow<T>(widen(y[i]) + widen(b[i % columns]));
}

// To every row of the output, by input b.
void add_bias(const KernelCall& c, size_t b) {
  if (!c.has(b)) return;
  const Value& y = c.out_value(0);
  with_type(y.dtype, [&](auto t) {
    using T = decltype(t);
    launch(c, add_to_rows<T>, blocks_for(y.numel(), threads), threads, 0, c.output<T>(0), c.input<T>(b), y.numel(),
           y.shape.back());
  });
}

void launch_scatter_rows(const KernelCall& c) {
  namespace at = in::scatter_rows;
  const Value& y = c.out_value(out::scatter_rows::y);
  communicator_of(c).reduce_scatter(c.in[at::x], c.out[out::scatter_rows::y], y.dtype, y.numel());
  add_bias(c, at::b);
}

void launch_sum_rows(const KernelCall& c) {
  const Value& y = c.out_value(out::sum_rows::y);
  communicator_of(c).all_reduce(c.out[out::sum_rows::y], y.dtype, y.numel(), false);
  add_bias(c, in::sum_rows::b);
}

__global__ void __launch_bounds__(threads) copy_ids(const int32_t* from, int32_t* to, int64_t n) {
  wait_for_predecessors();
  int64_t i = int64_t(blockIdx.x) * threads + threadIdx.x;
  if (i < n) to[i] = from[i];
}

void launch_own_rows(const KernelCall& c) {
  int64_t rows = c.out_value(out::own_rows::y).numel();
  launch(c, copy_ids, blocks_for(rows, threads), threads, 0, c.input<int32_t>(in::own_rows::ids) + c.index() * rows,
         c.output<int32_t>(out::own_rows::y), rows);
}

__global__ void __launch_bounds__(threads) count_positions(int32_t* to, int64_t first, int64_t n, int64_t seq) {
  wait_for_predecessors();
  int64_t i = int64_t(blockIdx.x) * threads + threadIdx.x;
  if (i < n) to[i] = int32_t((first + i) % seq);
}

void launch_own_positions(const KernelCall& c) {
  int64_t rows = c.out_value(out::own_positions::y).numel();
  launch(c, count_positions, blocks_for(rows, threads), threads, 0, c.output<int32_t>(out::own_positions::y),
         c.index() * rows, rows, c.in_value(in::own_positions::ids).shape[1]);
}

// Between tokens in the order of the sequence, x[B,T,..], and by rank: [rank][B,T / ranks,..], each
// with its two chunks. words: of a token; chunk: tokens.
template <class Word, bool to_sequence>
__global__ void __launch_bounds__(threads)
    copy_chunks(const Word* from, Word* to, int64_t n, int words, int chunk, int ranks, int samples) {
  wait_for_predecessors();
  const int64_t i = int64_t(blockIdx.x) * threads + threadIdx.x;
  if (i >= n) return;
  const int tokens = 2 * chunk * ranks;
  const int64_t row = i / words, word = i - row * words;
  const int sample = int(row / tokens), token = int(row % tokens), number = token / chunk;
  const bool upper = number >= ranks;
  const int rank = upper ? 2 * ranks - 1 - number : number;
  const int64_t by_rank = (((int64_t(rank) * samples + sample) * 2 + upper) * chunk + token % chunk) * words + word;
  if constexpr (to_sequence)
    to[i] = from[by_rank];
  else
    to[by_rank] = from[i];
}

template <bool to_sequence>
void launch_copy_chunks(const KernelCall& c, const void* from, void* to, const Value& part, int ranks) {
  const int64_t bytes = part.bytes() / (part.shape[0] * part.shape[1]), all = part.bytes() * ranks;
  const int chunk = int(part.shape[1] / 2), samples = int(part.shape[0]);
  auto start = [&](auto word) {
    using Word = decltype(word);
    const int64_t n = all / int64_t(sizeof(Word));
    launch(c, copy_chunks<Word, to_sequence>, blocks_for(n, threads), threads, 0, static_cast<const Word*>(from),
           static_cast<Word*>(to), n, int(bytes / int64_t(sizeof(Word))), chunk, ranks, samples);
  };
  if (bytes % 16 == 0 && aligned({from, to}))
    start(Vec<uint32_t, 4>());
  else
    start(uint16_t());
}

size_t gather_workspace(const KernelQuery& q) { return size_t(q.out(out::gather_tokens::y).bytes()); }
size_t scatter_workspace(const KernelQuery& q) { return size_t(q.in(in::scatter_tokens::x).bytes()); }

void launch_gather_tokens(const KernelCall& c) {
  const Value& part = c.in_value(in::gather_tokens::x);
  Communicator& group = communicator_of(c);
  group.all_gather(c.in[in::gather_tokens::x], c.workspace, part.dtype, part.numel());
  launch_copy_chunks<true>(c, c.workspace, c.out[out::gather_tokens::y], part, group.size());
}

void launch_scatter_tokens(const KernelCall& c) {
  const Value& part = c.out_value(out::scatter_tokens::y);
  Communicator& group = communicator_of(c);
  launch_copy_chunks<false>(c, c.in[in::scatter_tokens::x], c.workspace, part, group.size());
  group.reduce_scatter(c.workspace, c.out[out::scatter_tokens::y], part.dtype, part.numel());
}

__global__ void __launch_bounds__(threads)
    count_tokens(int32_t* to, int64_t n, int chunk, int first, int second, int last) {
  wait_for_predecessors();
  const int64_t i = int64_t(blockIdx.x) * threads + threadIdx.x;
  if (i >= n) return;
  const int t = int(i % (2 * chunk));
  to[i] = min(t < chunk ? first + t : second + t - chunk, last);
}

void launch_token_positions(const KernelCall& c) {
  const Value& y = c.out_value(out::token_positions::y);
  const int64_t ranks = c.instr.attrs.integer("ranks");
  const OwnChunks own(y.shape[1] * ranks, ranks, c.chunk_place());
  launch(c, count_tokens, blocks_for(y.numel(), threads), threads, 0, c.output<int32_t>(out::token_positions::y),
         y.numel(), int(own.tokens), int(own.first[0]), int(own.first[1]), int(c.instr.attrs.integer("tokens") - 1));
}

void launch_send(const KernelCall& c) {
  c.group().set_stream(c.stream);
  c.group().send(c.in[in::send::x], c.in_value(in::send::x).bytes(), int(c.instr.attrs.integer("to")));
}

size_t receive_workspace(const KernelQuery& q) { return received_bytes(q.program, q.instr); }

void launch_receive(const KernelCall& c) {
  const Value& y = c.out_value(out::receive::y);
  void* to = c.out[out::receive::y];
  const bool adds = adds_received(c.instr);
  c.group().set_stream(c.stream);
  c.group().receive(adds ? c.workspace : to, y.bytes(), int(c.instr.attrs.integer("from")));
  if (!adds) return;
  with_type(y.dtype, [&](auto t) {
    using T = decltype(t);
    launch(c, add_to<T>, blocks_for(y.numel(), threads), threads, 0, static_cast<T*>(to),
           static_cast<const T*>(c.workspace), y.numel());
  });
}

std::string reject_shard(const KernelQuery& q) {
  return q.out(out::own_share::shard).bytes() % 16 ? "takes shards of a multiple of 16 bytes" : "";
}

std::string reject_received(const KernelQuery& q) { return reject_value(q.out(out::receive::y)); }

std::string reject_none(const KernelQuery&) { return ""; }

}  // namespace

Kernel gather_rows_kernel() {
  return {"gather_rows", "cuda.gather_rows.communicator", reject_unless_float, nullptr,
          nullptr,       CREST_DEVICE_CODE(launch_gather)};
}
Kernel gather_parts_kernel() {
  return {"gather_parts", "cuda.gather_parts.communicator", reject_unless_float, nullptr,
          nullptr,        CREST_DEVICE_CODE(launch_gather)};
}
Kernel gather_columns_kernel() {
  return {"gather_columns", "cuda.gather_columns.communicator", reject_unless_float, nullptr,
          nullptr,          CREST_DEVICE_CODE(launch_gather)};
}
Kernel sum_rows_kernel() {
  return {"sum_rows", "cuda.sum_rows.communicator",      reject_unless_float, nullptr,
          nullptr,    CREST_DEVICE_CODE(launch_sum_rows)};
}
Kernel scatter_rows_kernel() {
  return {"scatter_rows", "cuda.scatter_rows.communicator",      reject_unless_float, nullptr,
          nullptr,        CREST_DEVICE_CODE(launch_scatter_rows)};
}
Kernel own_rows_kernel() {
  return {"own_rows", "cuda.own_rows.copy", reject_none, nullptr, nullptr, CREST_DEVICE_CODE(launch_own_rows)};
}
Kernel own_positions_kernel() {
  return {"own_positions", "cuda.own_positions.count",
          reject_none,     nullptr,
          nullptr,         CREST_DEVICE_CODE(launch_own_positions)};
}

Kernel gather_tokens_kernel() {
  return {"gather_tokens", "cuda.gather_tokens.communicator",      reject_unless_float, gather_workspace,
          nullptr,         CREST_DEVICE_CODE(launch_gather_tokens)};
}
Kernel scatter_tokens_kernel() {
  return {"scatter_tokens", "cuda.scatter_tokens.communicator",      reject_unless_float, scatter_workspace,
          nullptr,          CREST_DEVICE_CODE(launch_scatter_tokens)};
}
Kernel token_positions_kernel() {
  return {"token_positions", "cuda.token_positions.count",
          reject_none,       nullptr,
          nullptr,           CREST_DEVICE_CODE(launch_token_positions)};
}

Kernel send_kernel() {
  return {"send", "cuda.send.communicator", reject_none, nullptr, nullptr, CREST_DEVICE_CODE(launch_send)};
}
Kernel receive_kernel() {
  return {"receive", "cuda.receive.communicator",      reject_received, receive_workspace,
          nullptr,   CREST_DEVICE_CODE(launch_receive)};
}

Kernel reduce_scatter_copies_kernel() {
  return {"reduce_scatter",
          "cuda.reduce_scatter.copy_engine",
          reject_reduce_scatter_copies,
          arriving_bytes,
          nullptr,
          CREST_DEVICE_CODE(launch_reduce_scatter_copies)};
}
Kernel reduce_scatter_kernel() {
  return {"reduce_scatter", "cuda.reduce_scatter.communicator",      reject_unless_float, sum_workspace,
          nullptr,          CREST_DEVICE_CODE(launch_reduce_scatter)};
}
// Weights, or the low halves of their masters.
Kernel all_gather_kernel() {
  return {"all_gather", "cuda.all_gather.communicator",  reject_none, nullptr,
          nullptr,      CREST_DEVICE_CODE(launch_gather)};
}
Kernel all_gather_copies_kernel() {
  return {"all_gather", "cuda.all_gather.copy_engine",          reject_gather_copies, nullptr,
          nullptr,      CREST_DEVICE_CODE(launch_gather_copies)};
}
Kernel own_share_kernel() {
  return {"own_share", "cuda.own_share.copy", reject_shard, nullptr, nullptr, CREST_DEVICE_CODE(launch_own_share)};
}

}  // namespace crest::cuda
