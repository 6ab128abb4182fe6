// cached_attention: queries of a few new tokens over cache[B,2,kv_heads,C,D].
//
// Flash decoding (Dao et al. 2023): blocks split the positions of the cache, so a single sequence
// fills the device too. Each block leaves its part of the softmax in the workspace, and a second
// kernel joins the parts in order. Split and tiles depend on shapes and device only, so results do
// not depend on timing or on how full the cache is elsewhere. A block serves all query heads of a
// key head, and several tokens, with one read of keys and values. With a window, it counts its
// splits from the first one seen by one of its rows.
#include "backend/cuda/device/numeric.h"
#include "backend/cuda/kernel.h"
#include "core/scalars.h"
#include "ops/attention.h"
#include "ops/index.h"

namespace crest::cuda {

namespace {

constexpr int threads = 128;

struct DecodeArgs {
  int batch, tokens, heads, kv_heads, dim, context;
  int window;         // keys seen by a token, its own included; 0: all
  int group;          // query heads of a key head
  int rows;           // of a block
  int row_tiles;      // of tokens * group rows
  int tile_keys;      // keys of a block in shared memory: a power of two up to 64
  int split_keys;     // keys of a split: a multiple of tile_keys
  int splits;         // of a block at most
  int padded_dim;     // of queries in shared memory: whole vectors
  int pitch;          // of keys and values in shared memory, in elements: an odd number of 16 bytes
  int column_groups;  // groups of threads sharing the columns of the output
  int sums_size;      // column_groups * rows * dim, rounded up to 16 bytes
  float scale;        // times log2(e)
};

// Workspace: for every (row of the output's [B,T,heads], split) the largest score and the sum of
// weights, then the weighted values [rows][splits][dim].
struct Parts {
  float2* statistics;
  float* values;
};

// Tokens, without padding, within the cache.
__device__ inline int valid_tokens(const DecodeArgs& a, const Scalars* s) {
  return max(0, min(min(int(s->length), a.context - int(s->position)), a.tokens));
}

// The first key seen by a token.
__device__ inline int first_key(const DecodeArgs& a, int position, int token) {
  return a.window ? max(position + token - a.window + 1, 0) : 0;
}

// Copies `rows` keys and values of dim elements, contiguous in the cache, to rows of `pitch`
// elements; the loads of both are under way together.
template <class T, int N>
__device__ inline void load_tile(const T* __restrict__ from_keys, const T* __restrict__ from_values,
                                 T* __restrict__ keys, T* __restrict__ values, int rows, int dim, int pitch) {
  constexpr int batch = 4;
  int per_row = dim / N, n = rows * per_row, i = int(threadIdx.x);
  int row = i / per_row, column = i - row * per_row, row_step = threads / per_row;
  int column_step = threads - row_step * per_row;
  while (i < n) {
    Vec<T, N> k[batch], v[batch];
#pragma unroll
    for (int u = 0; u < batch; ++u) {
      int e = i + u * threads;
      if (e < n) k[u] = load_vec<N>(from_keys + int64_t(e) * N), v[u] = load_vec<N>(from_values + int64_t(e) * N);
    }
#pragma unroll
    for (int u = 0; u < batch; ++u, i += threads) {
      if (i < n) store_vec(keys + row * pitch + column * N, k[u]), store_vec(values + row * pitch + column * N, v[u]);
      row += row_step, column += column_step;
      if (column >= per_row) column -= per_row, ++row;
    }
  }
}

// Block ((sample, key head, row tile), split). Rows of a key head: token * group + query head
// within the group. Vectors of N elements are read from the cache; from shared memory always 16
// bytes.
template <class T, int N, int Rows>
__global__ void __launch_bounds__(threads)
    decode(const T* qkv, const T* cache, T* out, DecodeArgs a, const Scalars* scalars, Parts parts) {
  wait_for_predecessors();
  constexpr int W = Vec<T>::size;
  CREST_DYNAMIC_SHARED(float, shared);
  float* query = shared;                         // [Rows][padded_dim]
  float* weight = query + Rows * a.padded_dim;   // [tile_keys][Rows]: scores, then exp2(score - largest)
  float* state = weight + a.tile_keys * Rows;    // [3][Rows]: largest score, sum of weights, rescaling
  float* sums = state + (3 * Rows + 3) / 4 * 4;  // [column_groups][Rows][dim]: weighted values
  T* keys = reinterpret_cast<T*>(sums + a.sums_size);
  T* values = keys + a.tile_keys * a.pitch;

  int tid = int(threadIdx.x);
  int row_tile = int(blockIdx.x) % a.row_tiles, kv = int(blockIdx.x) / a.row_tiles % a.kv_heads;
  int64_t sample = int(blockIdx.x) / a.row_tiles / a.kv_heads;
  int position = scalars->position, valid = valid_tokens(a, scalars), first_row = row_tile * Rows;
  int last_row = min(first_row + Rows, a.tokens * a.group) - 1;
  int last_token = min(last_row / a.group, valid - 1);  // the last one with a visible key
  int first = first_key(a, position, first_row / a.group), split = first / a.split_keys + int(blockIdx.y);
  int end = min((split + 1) * a.split_keys, position + last_token + 1);  // keys seen by some row
  if (valid == 0) end = 0;
  bool whole = a.splits == 1;
  if (!whole && (split * a.split_keys >= end || first_row / a.group >= valid)) return;  // the join does not look

  // Queries, padded with zeros to whole vectors; the padding of keys is zero too.
  int64_t width = int64_t(a.heads + 2 * a.kv_heads) * a.dim;
  for (int i = tid; i < Rows * a.padded_dim; i += threads) {
    int r = i / a.padded_dim, d = i - r * a.padded_dim, row = first_row + r, token = row / a.group;
    bool real = row <= last_row && d < a.dim;
    int64_t head = kv * a.group + row - token * a.group;
    query[i] = real ? widen(qkv[(sample * a.tokens + token) * width + head * a.dim + d]) * a.scale : 0.f;
  }
  int padding = a.padded_dim - a.dim;
  for (int i = tid; i < a.tile_keys * padding; i += threads)
    keys[i / padding * a.pitch + a.dim + i % padding] = narrow<T>(0.f);
  for (int i = tid; i < a.column_groups * Rows * a.dim; i += threads) sums[i] = 0;
  if (tid < Rows) state[tid] = -INFINITY, state[Rows + tid] = 0;

  const T* key_base = cache + (sample * 2 * a.kv_heads + kv) * a.context * a.dim;
  const T* value_base = key_base + int64_t(a.kv_heads) * a.context * a.dim;
  int column_threads = threads / a.column_groups, column_group = tid / column_threads;
  for (int k0 = max(split * a.split_keys, first / a.tile_keys * a.tile_keys); k0 < end; k0 += a.tile_keys) {
    int count = min(a.tile_keys, end - k0);
    int64_t tile = int64_t(k0) * a.dim;
    load_tile<T, N>(key_base + tile, value_base + tile, keys, values, count, a.dim, a.pitch);
    __syncthreads();

    // Scores: a thread takes one key and every (threads / tile_keys)-th row.
    int key = tid & (a.tile_keys - 1), row_step = threads / a.tile_keys;
    for (int r0 = tid / a.tile_keys; r0 < Rows; r0 += 2 * row_step) {
      float dot[2] = {0, 0};
      int r1 = min(r0 + row_step, Rows - 1);  // two rows at a time; the last may be computed twice
      for (int d = 0; d < a.padded_dim; d += W) {
        Vec<T, W> x = load_vec<W>(keys + key * a.pitch + d);
#pragma unroll
        for (int e = 0; e < W; e += 4) {
          Vec<float, 4> q0 = load_vec<4>(query + r0 * a.padded_dim + d + e);
          Vec<float, 4> q1 = load_vec<4>(query + r1 * a.padded_dim + d + e);
#pragma unroll
          for (int f = 0; f < 4; ++f) {
            float v = widen(x.x[e + f]);
            dot[0] = fmaf(q0.x[f], v, dot[0]);
            if constexpr (Rows > 1) dot[1] = fmaf(q1.x[f], v, dot[1]);
          }
        }
      }
      auto score = [&](int r, float value) {
        int token = (first_row + r) / a.group;
        bool sees =
            key < count && token < valid && k0 + key <= position + token && k0 + key >= first_key(a, position, token);
        weight[key * Rows + r] = sees ? value : -INFINITY;
      };
      score(r0, dot[0]);
      if (r0 + row_step < Rows) score(r0 + row_step, dot[1]);
    }
    __syncthreads();

    // Softmax so far: a warp takes a row.
    for (int r = tid / 32; r < Rows; r += threads / 32) {
      float largest = -INFINITY, total = 0;
      for (int j = tid % 32; j < a.tile_keys; j += 32) largest = fmaxf(largest, weight[j * Rows + r]);
      float before = state[r];
      largest = fmaxf(before, warp_max(largest));
      bool none = largest == -INFINITY;  // this row sees nothing yet
      for (int j = tid % 32; j < a.tile_keys; j += 32) {
        float w = none ? 0.f : exp2f(weight[j * Rows + r] - largest);
        weight[j * Rows + r] = w;
        total += w;
      }
      total = warp_sum(total);
      __syncwarp();  // every lane has read state[r]
      if (tid % 32 == 0) {
        float factor = none ? 1.f : exp2f(before - largest);
        state[r] = largest;
        state[Rows + r] = state[Rows + r] * factor + total;
        state[2 * Rows + r] = factor;
      }
    }
    __syncthreads();

    // Weighted values: a thread takes columns, and the keys of its group of threads.
    for (int d = tid % column_threads; d < a.dim; d += column_threads) {
      float* sum = sums + column_group * Rows * a.dim + d;
      float total[Rows];
#pragma unroll
      for (int r = 0; r < Rows; ++r) total[r] = sum[r * a.dim] * state[2 * Rows + r];
#pragma unroll 4
      for (int j = column_group; j < count; j += a.column_groups) {
        float v = widen(values[j * a.pitch + d]);
        constexpr int Q = Rows < 4 ? Rows : 4;
#pragma unroll
        for (int r = 0; r < Rows; r += Q) {
          Vec<float, Q> w = load_vec<Q>(weight + j * Rows + r);
#pragma unroll
          for (int e = 0; e < Q; ++e) total[r + e] = fmaf(w.x[e], v, total[r + e]);
        }
      }
#pragma unroll
      for (int r = 0; r < Rows; ++r) sum[r * a.dim] = total[r];
    }
    __syncthreads();
  }
  __syncthreads();  // the initial values, if there was no tile

  for (int i = tid; i < Rows * a.dim; i += threads) {
    int r = i / a.dim, d = i - r * a.dim, row = first_row + r, token = row / a.group;
    if (row > last_row) break;
    float total = 0;
    for (int g = 0; g < a.column_groups; ++g) total += sums[(g * Rows + r) * a.dim + d];
    int64_t head = kv * a.group + row - token * a.group, o = (sample * a.tokens + token) * a.heads + head;
    if (whole) {
      out[o * a.dim + d] = narrow<T>(token < valid ? total / state[Rows + r] : 0.f);
    } else {
      parts.values[(o * a.splits + blockIdx.y) * a.dim + d] = total;
      if (d == 0) parts.statistics[o * a.splits + blockIdx.y] = {state[r], state[Rows + r]};
    }
  }
}

// Block: one row of [B,T,heads]. Joins the parts of its visible splits, in order.
template <class T>
__global__ void __launch_bounds__(threads) join_splits(T* out, DecodeArgs a, const Scalars* scalars, Parts parts) {
  wait_for_predecessors();
  int64_t o = blockIdx.x;
  int token = int(o / a.heads % a.tokens), valid = valid_tokens(a, scalars);
  // Of the splits computed by its block, the splits with a visible key for this row: [begin, end).
  int position = scalars->position, row = token * a.group + int(o % a.heads) % a.group;
  int first_of_block = first_key(a, position, row / a.rows * a.rows / a.group) / a.split_keys;
  int begin = first_key(a, position, token) / a.split_keys - first_of_block;
  int end = token < valid ? (position + token) / a.split_keys - first_of_block + 1 : 0;
  const float2* statistics = parts.statistics + o * a.splits;
  float largest = -INFINITY, weights = 0;
  for (int s = begin; s < end; ++s) largest = fmaxf(largest, statistics[s].x);
  for (int s = begin; s < end; ++s) weights += exp2f(statistics[s].x - largest) * statistics[s].y;
  for (int d = int(threadIdx.x); d < a.dim; d += threads) {
    float total = 0;
#pragma unroll 4
    for (int s = begin; s < end; ++s)
      total = fmaf(exp2f(statistics[s].x - largest), parts.values[(o * a.splits + s) * a.dim + d], total);
    out[o * a.dim + d] = narrow<T>(token < valid ? total / weights : 0.f);
  }
}

DecodeArgs arguments(const Program& p, const Instr& instr, const Device& device) {
  const Value& qkv = p.at(instr.in[in::cached_attention::qkv]);
  const Value& cache = p.at(instr.in[in::cached_attention::cache]);
  DecodeArgs a = {};
  a.batch = int(qkv.shape[0]), a.tokens = int(qkv.shape[1]);
  a.heads = int(instr.attrs.integer("heads")), a.kv_heads = int(cache.shape[2]);
  a.context = int(cache.shape[3]), a.dim = int(cache.shape[4]), a.group = a.heads / a.kv_heads;
  a.window = int(window_of(instr.attrs, a.context));
  a.scale = float(instr.attrs.number("scale") * 1.44269504088896340736);
  int size = int(size_of(qkv.dtype)), vector = 16 / size, vectors = (a.dim + vector - 1) / vector;
  a.padded_dim = vectors * vector, a.pitch = (vectors | 1) * vector;
  a.tile_keys = 64;
  while (a.tile_keys > 8 && 2 * a.tile_keys * a.pitch * size > 40 * 1024) a.tile_keys /= 2;
  a.column_groups = std::max(1, threads / a.dim);
  while (threads % a.column_groups) --a.column_groups;
  int rows = a.tokens * a.group;
  a.rows = rows == 1 || a.dim > 256 ? 1 : rows <= 4 ? 4 : 8;
  a.sums_size = (a.column_groups * a.rows * a.dim + 3) / 4 * 4;
  a.row_tiles = (rows + a.rows - 1) / a.rows;
  // Keys seen by the rows of a block together, at most.
  int row_tokens = std::min((a.rows + a.group - 2) / a.group + 1, a.tokens);
  int64_t seen = a.window ? std::min(a.window + row_tokens - 1, a.context) : a.context;
  // A split has at least one tile; four blocks a multiprocessor hide each other's waits.
  int64_t blocks = int64_t(a.batch) * a.kv_heads * a.row_tiles, tiles = (seen + a.tile_keys - 1) / a.tile_keys;
  int64_t wanted = (4 * std::max(1, device.multiprocessors) + blocks - 1) / blocks;
  int64_t split_tiles = (tiles + std::min(wanted, tiles) - 1) / std::min(wanted, tiles);
  a.split_keys = int(split_tiles) * a.tile_keys;
  a.splits = (a.context + a.split_keys - 1) / a.split_keys;
  if (a.window) a.splits = std::min(a.splits, int((seen + a.split_keys - 2) / a.split_keys + 1));
  return a;
}

size_t shared_bytes(const DecodeArgs& a, DType t) {
  int floats = a.rows * a.padded_dim + a.tile_keys * a.rows + (3 * a.rows + 3) / 4 * 4 + a.sums_size;
  return size_t(floats) * 4 + 2 * size_t(a.tile_keys * a.pitch) * size_of(t);
}

size_t statistics_bytes(const DecodeArgs& a) {
  return (size_t(a.batch) * size_t(a.tokens) * size_t(a.heads) * size_t(a.splits) * sizeof(float2) + 255) / 256 * 256;
}

std::string reject_cached(const KernelQuery& q) {
  if (std::string why = reject_unless_float(q); !why.empty()) return why;
  if (q.in(in::cached_attention::qkv).dtype != q.in(in::cached_attention::cache).dtype ||
      q.in(in::cached_attention::qkv).dtype != q.out(out::cached_attention::o).dtype)
    return "tokens, cache and output differ in dtype";
  DecodeArgs a = arguments(q.program, q.instr, q.device);
  size_t bytes = shared_bytes(a, q.in(in::cached_attention::qkv).dtype);
  return bytes <= 96 * 1024 ? "" : "head_dim " + std::to_string(a.dim) + " needs too much shared memory";
}

size_t workspace_cached(const KernelQuery& q) {
  DecodeArgs a = arguments(q.program, q.instr, q.device);
  if (a.splits == 1) return 0;
  return statistics_bytes(a) + size_t(q.out(out::cached_attention::o).numel()) * size_t(a.splits) * 4;
}

void launch_cached(const KernelCall& c) {
  DecodeArgs a = arguments(c.program, c.instr, *c.device);
  DType dtype = c.in_value(in::cached_attention::qkv).dtype;
  auto* base = static_cast<char*>(c.workspace);
  Parts parts = {};
  if (a.splits > 1) parts = {reinterpret_cast<float2*>(base), reinterpret_cast<float*>(base + statistics_bytes(a))};
  dim3 grid(unsigned(a.batch * a.kv_heads * a.row_tiles), unsigned(a.splits));
  with_type(dtype, [&](auto t) {
    using T = decltype(t);
    constexpr int N = Vec<T>::size;
    auto start = [&](auto kernel) {
      launch(c, kernel, grid, threads, shared_bytes(a, dtype), c.input<T>(in::cached_attention::qkv),
             c.input<T>(in::cached_attention::cache), c.output<T>(out::cached_attention::o), a,
             c.input<Scalars>(in::cached_attention::scalars), parts);
    };
    bool vectors = a.dim % N == 0 && aligned({c.in[in::cached_attention::cache]});
    switch (a.rows) {
      case 1: vectors ? start(decode<T, N, 1>) : start(decode<T, 1, 1>); break;
      case 4: vectors ? start(decode<T, N, 4>) : start(decode<T, 1, 4>); break;
      default: vectors ? start(decode<T, N, 8>) : start(decode<T, 1, 8>); break;
    }
    if (a.splits > 1)
      launch(c, join_splits<T>, unsigned(int64_t(a.batch) * a.tokens * a.heads), threads, 0,
             c.output<T>(out::cached_attention::o), a, c.input<Scalars>(in::cached_attention::scalars), parts);
  });
}

}  // namespace

Kernel cached_attention_kernel() {
  return {"cached_attention",
          "cuda.cached_attention.split",
          reject_cached,
          workspace_cached,
          nullptr,
          CREST_DEVICE_CODE(launch_cached)};
}

}  // namespace crest::cuda
