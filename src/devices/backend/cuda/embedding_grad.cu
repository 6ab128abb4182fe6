// embedding_grad: tokens are sorted by id (stable), then runs of one id are summed in order of
// position. A long run is cut into chunks, and a second stage adds their sums, so frequent ids do
// not hold up the rest.
#include <bit>

#include "backend/cuda/device/numeric.h"
#include "backend/cuda/device/sort_radix.h"
#include "backend/cuda/kernel.h"
#include "ops/index.h"

namespace crest::cuda {

namespace {

constexpr int chunk = 32;     // sorted tokens of a warp: one a lane
constexpr int warps = 4;      // of a block of sum_runs
constexpr int at_once = 4;    // rows of dy loaded together by a warp
constexpr int zero_rows = 8;  // rows of the table cleared by a warp
constexpr int many = 4096;    // tokens sorted by one block alone

struct SortPlan {
  int tokens, tile, tiles;  // tile: tokens sorted by a block
  int passes, bits;         // of a digit
  SortDigit digit(int pass) const { return {pass * bits, 1 << bits}; }
};

SortPlan sort_plan(int64_t tokens, int64_t vocab) {
  SortPlan p{};
  p.tokens = int(tokens);
  int64_t tile = std::max<int64_t>(2048, (tokens + 127) / 128);
  p.tile = int((tile + sort_threads - 1) / sort_threads * sort_threads);
  p.tiles = int((tokens + p.tile - 1) / p.tile);
  int bits = std::bit_width(uint64_t(vocab));
  p.passes = (bits + 8) / 9;
  p.bits = (bits + p.passes - 1) / p.passes;
  return p;
}

struct GradArgs {
  SortedTokens sorted;
  int tokens, chunks, vocab;
  int64_t cols;
  bool accumulate;
  float* partial;  // [chunks][2][cols]: sums of a chunk's part of a long run begun before it; begun in it
  int sum_blocks;  // of sum_runs; the blocks after them clear rows
  // Beyond the tokens: vocab, as an id outside the table.
  __device__ SortToken token(int i) const { return i >= 0 && i < tokens ? sorted(i) : SortToken{uint32_t(vocab), 0}; }
  __device__ uint32_t key(int i) const { return token(i).key; }
};

// Clears rows of the table without a token.
template <class O, int W>
__device__ void clear_rows(const GradArgs& a, O* out, int first) {
  int lane = int(threadIdx.x % 32), row = first + lane;
  bool named = true;
  if (lane < zero_rows && row < a.vocab) {
    int low = 0, high = a.tokens;  // the first token with a key of at least row
    while (low < high) {
      int middle = low + (high - low) / 2;
      if (a.key(middle) < uint32_t(row))
        low = middle + 1;
      else
        high = middle;
    }
    named = a.key(low) == uint32_t(row);
  }
  unsigned empty = __ballot_sync(0xffffffffu, !named);
  Vec<O, W> zero;
  for (int e = 0; e < W; ++e) zero.x[e] = narrow<O>(0.f);
  for (int r = 0; r < zero_rows; ++r)
    if (empty >> r & 1)
      for (int64_t c = lane * W; c < a.cols; c += 32 * W) store_vec(out + (first + r) * a.cols + c, zero);
}

// row = sum (+ the old value).
template <class O, int W>
__device__ inline void write_sum(const GradArgs& a, O* row, const Vec<O, W>& old, const float (&sum)[W]) {
  Vec<O, W> v;
  for (int e = 0; e < W; ++e) v.x[e] = narrow<O>(a.accumulate ? sum[e] + widen(old.x[e]) : sum[e]);
  store_vec(row, v);
}

// A warp takes the runs of 32 sorted tokens, for 32 W columns. A run across one chunk's end belongs
// to its first chunk; the chunks of a longer one leave partial sums.
template <class T, class O, int W>
__global__ void __launch_bounds__(warps * 32, 4) sum_runs(GradArgs a, const T* dy, O* out, int column_tiles) {
  wait_for_predecessors();
  const int lane = int(threadIdx.x % 32), warp = int(threadIdx.x / 32);
  if (int(blockIdx.x) >= a.sum_blocks)
    return clear_rows<O, W>(a, out, ((int(blockIdx.x) - a.sum_blocks) * warps + warp) * zero_rows);
  const int64_t item = int64_t(blockIdx.x) * warps + warp;
  const int c = int(item / column_tiles), start = c * chunk;
  const int64_t column = (item % column_tiles * 32 + lane) * W;
  if (c >= a.chunks) return;
  const bool active = column < a.cols;

  const SortToken own = a.token(start + lane), after = a.token(start + chunk + lane);
  // Keys around the chunk: before it, before the previous one, first after the next one.
  const uint32_t before = a.key(start - 1), long_before = a.key(start - chunk - 1), beyond = a.key(start + 2 * chunk);
  const uint32_t first_key = __shfl_sync(0xffffffffu, own.key, 0), last_key = __shfl_sync(0xffffffffu, own.key, 31);
  const uint32_t after_key = __shfl_sync(0xffffffffu, after.key, 0), none = uint32_t(a.vocab);
  const bool from_before = first_key == before && first_key < none, goes_on = last_key == after_key && last_key < none;
  // Long: across the start of another chunk too.
  const bool long_head = from_before && (after_key == first_key || long_before == first_key);
  const bool long_tail = goes_on && (beyond == last_key || before == last_key);
  // Tokens begin .. end, counted from `start`, are summed here; bit t of `ends`: token t is the
  // last of its run.
  int begin = from_before && !long_head ? __popc(__ballot_sync(0xffffffffu, own.key == first_key)) : 0;
  int end = __popc(__ballot_sync(0xffffffffu, own.key < none));
  if (goes_on && !long_tail) end += __popc(__ballot_sync(0xffffffffu, after.key == last_key));
  uint32_t next_key = __shfl_down_sync(0xffffffffu, own.key, 1);
  const unsigned ends = __ballot_sync(0xffffffffu, own.key != (lane == 31 ? after_key : next_key));

  float sum[W] = {};
  bool at_head = long_head;
  for (int t0 = begin; t0 < end; t0 += at_once) {
    Vec<T, W> v[at_once];
    Vec<O, W> old[at_once];
    uint32_t key[at_once];
    bool last[at_once];
#pragma unroll
    for (int k = 0; k < at_once; ++k) {
      int t = min(t0 + k, end - 1);
      bool in_own = t < chunk;
      int position = __shfl_sync(0xffffffffu, in_own ? own.position : after.position, t % 32);
      key[k] = __shfl_sync(0xffffffffu, in_own ? own.key : after.key, t % 32);
      last[k] = t == end - 1 || (in_own && (ends >> t & 1));
      v[k] = load_vec<W>(dy + position * a.cols + (active ? column : 0));
      if (last[k] && a.accumulate && active) old[k] = load_vec<W>(out + key[k] * a.cols + column);
    }
#pragma unroll
    for (int k = 0; k < at_once; ++k) {
      int t = t0 + k;
      if (t >= end) break;
      if (active)
        for (int e = 0; e < W; ++e) sum[e] += widen(v[k].x[e]);
      if (!last[k]) continue;
      bool at_tail = long_tail && t == end - 1;
      if (active) {
        if (at_head || at_tail) {
          Vec<float, W> part;
          for (int e = 0; e < W; ++e) part.x[e] = sum[e];
          store_vec(a.partial + (int64_t(c) * 2 + (at_head ? 0 : 1)) * a.cols + column, part);
        } else {
          write_sum(a, out + key[k] * a.cols + column, old[k], sum);
        }
      }
      for (int e = 0; e < W; ++e) sum[e] = 0;
      at_head = false;
    }
  }
}

constexpr int join_warps = 8, join_chunks = 8;

// Adds the partial sums of the long runs beginning in join_chunks chunks, for 32 W columns.
template <class O, int W>
__global__ void __launch_bounds__(join_warps * 32) join_runs(GradArgs a, O* out) {
  wait_for_predecessors();
  __shared__ float part[join_warps][W][32];
  const int lane = int(threadIdx.x % 32), warp = int(threadIdx.x / 32);
  const int64_t column = (int64_t(blockIdx.y) * 32 + lane) * W;
  const bool active = column < a.cols;
  const int first = int(blockIdx.x) * join_chunks;
  bool begins = false;
  if (lane < join_chunks && first + lane < a.chunks) {
    int start = (first + lane) * chunk;
    // Across the start of the next chunk and the one after it, but not of this one.
    uint32_t k = a.key(start + chunk);
    begins = k < uint32_t(a.vocab) && a.key(start + chunk - 1) == k && a.key(start + 2 * chunk) == k &&
             a.key(start - 1) != k;
  }
  unsigned pending = __ballot_sync(0xffffffffu, begins);  // the same in all warps
  for (; pending; pending &= pending - 1) {
    const int c = first + __ffs(int(pending)) - 1;
    const uint32_t key = a.key((c + 1) * chunk);
    int end = c + 2;  // one past the last chunk of the run
    for (unsigned same = 0xffffffffu; same == 0xffffffffu;) {
      same = __ballot_sync(0xffffffffu, end + lane < a.chunks && a.key((end + lane) * chunk) == key);
      end += __popc(same);
    }
    float sum[W] = {};
    if (active)
#pragma unroll 4
      for (int i = c + warp; i < end; i += join_warps) {
        Vec<float, W> v = load_vec<W>(a.partial + (int64_t(i) * 2 + (i == c ? 1 : 0)) * a.cols + column);
        for (int e = 0; e < W; ++e) sum[e] += v.x[e];
      }
    for (int e = 0; e < W; ++e) part[warp][e][lane] = sum[e];
    __syncthreads();
    if (warp == 0 && active) {
      for (int w = 1; w < join_warps; ++w)
        for (int e = 0; e < W; ++e) sum[e] += part[w][e][lane];
      O* row = out + key * a.cols + column;
      Vec<O, W> old;
      if (a.accumulate) old = load_vec<W>(row);
      write_sum(a, row, old, sum);
    }
    __syncthreads();
  }
}

size_t lines(size_t bytes) { return (bytes + 255) / 256 * 256; }

// Scratch: tokens twice, counts, partial sums.
struct Scratch {
  size_t odd, counts, partial, bytes;
};
Scratch scratch(const SortPlan& p, int64_t cols) {
  Scratch s{};
  size_t chunks = size_t(p.tokens + chunk - 1) / chunk;
  s.odd = lines(size_t(p.tokens) * sizeof(SortToken));
  s.counts = 2 * s.odd;
  s.partial = s.counts + lines(size_t(p.passes) * size_t(p.tiles) * sizeof(int) << p.bits);
  s.bytes = s.partial + lines(chunks * 2 * size_t(cols) * sizeof(float));
  return s;
}

size_t workspace(const KernelQuery& q) {
  return scratch(sort_plan(q.in(in::embedding_grad::ids).numel(), q.out(out::embedding_grad::dtable).shape[0]),
                 q.out(out::embedding_grad::dtable).shape[1])
      .bytes;
}

// Returns the sorted tokens.
SortedTokens launch_sort(const KernelCall& c, const SortPlan& p, const Scratch& s) {
  auto* w = static_cast<char*>(c.workspace);
  SortToken* buffers[2] = {reinterpret_cast<SortToken*>(w), reinterpret_cast<SortToken*>(w + s.odd)};
  const int64_t rows = c.out_value(out::embedding_grad::dtable).shape[0];
  SortIds ids{c.input<int32_t>(in::embedding_grad::ids), int(rows), c.part_begin(rows)};
  SortedTokens sorted{buffers[(p.passes - 1) % 2]};
  if (p.tokens <= many) {
    launch(c, sort_alone, 1, sort_threads, 0, ids, p.tokens, p.passes, p.bits, buffers[0], buffers[1]);
    return sorted;
  }
  int* counts = reinterpret_cast<int*>(w + s.counts);
  int of_pass = p.tiles << p.bits;
  auto tiles = unsigned(p.tiles);
  launch(c, sort_count, tiles, sort_threads, 0, ids, p.tokens, p.tile, p.passes, p.digit(0), counts);
  for (int pass = 0; pass < p.passes; ++pass) {
    int *now = counts + pass * of_pass, *next = pass + 1 < p.passes ? now + of_pass : nullptr;
    if (pass == 0)
      launch(c, sort_tile<SortIds>, tiles, sort_threads, 0, ids, p.tokens, p.tile, p.digit(pass), now, buffers[0],
             p.digit(pass + 1), next);
    else
      launch(c, sort_tile<SortedTokens>, tiles, sort_threads, 0, SortedTokens{buffers[(pass - 1) % 2]}, p.tokens,
             p.tile, p.digit(pass), now, buffers[pass % 2], p.digit(pass + 1), next);
  }
  return sorted;
}

template <class T, class O, int W, int J>
void launch_sums(const KernelCall& c, GradArgs a) {
  int64_t column_tiles = (a.cols + 32 * W - 1) / (32 * W);
  a.sum_blocks = int(blocks_for(a.chunks * column_tiles, warps));
  unsigned clear_blocks = a.accumulate ? 0 : blocks_for(a.vocab, warps * zero_rows);
  launch(c, sum_runs<T, O, W>, unsigned(a.sum_blocks) + clear_blocks, warps * 32, 0, a,
         c.input<T>(in::embedding_grad::dy), c.output<O>(out::embedding_grad::dtable), int(column_tiles));
  if (a.chunks < 3) return;  // no run is long
  launch(c, join_runs<O, J>, dim3(blocks_for(a.chunks, join_chunks), blocks_for(a.cols, 32 * J)), join_warps * 32, 0, a,
         c.output<O>(out::embedding_grad::dtable));
}

void launch_grad(const KernelCall& c) {
  const Value &dy = c.in_value(in::embedding_grad::dy), &out = c.out_value(out::embedding_grad::dtable);
  SortPlan plan = sort_plan(c.in_value(in::embedding_grad::ids).numel(), out.shape[0]);
  Scratch s = scratch(plan, out.shape[1]);
  GradArgs a{};
  a.sorted = launch_sort(c, plan, s);
  a.tokens = plan.tokens, a.chunks = int(blocks_for(plan.tokens, chunk)), a.vocab = int(out.shape[0]);
  a.cols = out.shape[1];
  a.accumulate = c.has(in::embedding_grad::acc);
  a.partial = reinterpret_cast<float*>(static_cast<char*>(c.workspace) + s.partial);
  with_type(dy.dtype, [&](auto t) {
    with_type(out.dtype, [&](auto o) {
      using T = decltype(t);
      using O = decltype(o);
      constexpr int W = 16 / int(sizeof(T));
      if (a.cols % W == 0 && aligned({c.in[in::embedding_grad::dy]}) &&
          aligned({c.out[out::embedding_grad::dtable]}, W * sizeof(O)))
        launch_sums<T, O, W, 4>(c, a);
      else
        launch_sums<T, O, 1, 1>(c, a);
    });
  });
}

std::string reject(const KernelQuery& q) {
  int64_t most = int64_t(1) << 30;
  if (q.in(in::embedding_grad::ids).numel() >= most || q.out(out::embedding_grad::dtable).shape[0] >= most)
    return "takes fewer than 2^30 tokens and table rows";
  if (q.has(in::embedding_grad::acc) &&
      q.out(out::embedding_grad::dtable).layout.storage != q.in(in::embedding_grad::acc).layout.storage)
    return "adds to the accumulator in place";
  return reject_unless_float(q);
}

}  // namespace

Kernel embedding_grad_kernel() {
  return {"embedding_grad", "cuda.embedding_grad.sort", reject, workspace, nullptr, CREST_DEVICE_CODE(launch_grad)};
}

}  // namespace crest::cuda
