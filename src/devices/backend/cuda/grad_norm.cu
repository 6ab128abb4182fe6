// Global norm of the gradients in one pass: every block adds up the squares of its tiles of all
// tensors, then one block joins the sums of the blocks and writes the scalars. Sums are in double:
// squares in f32 overflow long before the norm.
#include <cfloat>
#include <vector>

#include "backend/cuda/device/words.h"
#include "backend/cuda/kernel.h"
#include "core/scalars.h"
#include "ops/index.h"

namespace crest::cuda {

namespace {

constexpr int threads = 256, blocks_per_multiprocessor = 6;
constexpr int vectors = 4;             // of 16 bytes: loads in flight a thread
constexpr int tensors_a_launch = 128;  // kernel parameters end at 4 KiB
constexpr int sums_of_a_norm = 8;      // one for each set of axes

constexpr int64_t tile_elements(size_t element) { return int64_t(threads * vectors * 16 / element); }

// The tiles of all tensors are numbered consecutively: tensor i has tiles from first_tile[i] to
// before first_tile[i + 1].
struct Tensors {
  const void* data[tensors_a_launch];
  int64_t size[tensors_a_launch];
  int64_t first_tile[tensors_a_launch + 1];
};

// Sum over the block as a fixed tree, in thread 0; the others get 0. The block meets before the
// next call.
__device__ inline double block_sum_double(double x) {
  __shared__ double part[threads];
  part[threadIdx.x] = x;
  for (unsigned half = threads / 2; half > 0; half /= 2) {
    __syncthreads();
    if (threadIdx.x < half) part[threadIdx.x] += part[threadIdx.x + half];
  }
  return threadIdx.x == 0 ? part[0] : 0;
}

// partial[block] = sum of the squares in tiles block, block + gridDim, ..; V elements are read at
// once.
template <class T, int V>
__global__ void __launch_bounds__(threads, blocks_per_multiprocessor)
    sum_squares(const Tensors tensors, int64_t tiles, double* partial) {
  wait_for_predecessors();
  constexpr int64_t tile_size = tile_elements(sizeof(T));
  constexpr int loads = int(tile_size) / (threads * V);
  double sum = 0;
  int tensor = 0;
  for (int64_t tile = blockIdx.x; tile < tiles; tile += gridDim.x) {
    while (tile >= tensors.first_tile[tensor + 1]) ++tensor;
    auto* x = static_cast<const T*>(tensors.data[tensor]);
    int64_t n = tensors.size[tensor], begin = (tile - tensors.first_tile[tensor]) * tile_size;
    Words<T, V> v[loads];
#pragma unroll
    for (int l = 0; l < loads; ++l) {
      int64_t i = begin + (l * threads + int(threadIdx.x)) * V;
      v[l] = i + V <= n ? load_words<V>(x + i) : Words<T, V>();
    }
#pragma unroll
    for (int l = 0; l < loads; ++l)
#pragma unroll
      for (int e = 0; e < V; ++e) sum += double(v[l][e]) * double(v[l][e]);
    int64_t left = n % V;  // elements after the last vector belong to the last tile
    if (begin + tile_size >= n && threadIdx.x < left) {
      double last = widen(x[n - left + threadIdx.x]);
      sum += last * last;
    }
  }
  sum = block_sum_double(sum);
  if (threadIdx.x == 0) partial[blockIdx.x] = sum;
}

// The partial sums of each part, in thread 0: by part, so every rank's part has the bits of its own
// sum.
__device__ inline double join_parts(const double* partial, int count, int parts) {
  double all = 0;
  for (int part = 0; part < parts; ++part) {
    double sum = 0;
    for (int i = int(threadIdx.x); i < count; i += threads) sum += partial[part * count + i];
    sum = block_sum_double(sum);
    all = part == 0 ? sum : all + sum;
    __syncthreads();
  }
  return all;
}

// One block.
__global__ void __launch_bounds__(threads) finish_squares(const double* partial, int count, double* sum) {
  wait_for_predecessors();
  double all = join_parts(partial, count, 1);
  if (threadIdx.x == 0) *sum = all;
}

// Sums of squares by square_sum. None: the norm is the partial sums' norm.
struct Sums {
  const double* of[sums_of_a_norm];
  int count;
};

// One block. scalars is read and written in place.
__global__ void __launch_bounds__(threads)
    finish_norm(const double* partial, int count, int parts, const Sums sums, double clip, Scalars* scalars) {
  wait_for_predecessors();
  double sum = sums.count > 0 ? 0 : join_parts(partial, count, parts);
  if (threadIdx.x > 0) return;
  for (int i = 0; i < sums.count; ++i) sum += *sums.of[i];
  double scale = scalars->loss_scale;
  float norm = float(sqrt(sum) / scale);
  bool finite = fabsf(norm) <= FLT_MAX;
  double factor = clip > 0 ? fmin(1.0, clip / (norm + 1e-6)) : 1.0;
  scalars->grad_norm = norm;
  scalars->found_inf = !finite;
  scalars->grad_factor = finite ? float(factor / scale) : 0.f;
}

// The input of one launch of sum_squares: inputs of one dtype, or a part of each.
struct Share {
  DType dtype;
  std::vector<size_t> inputs;
  int64_t tiles = 0;
  int blocks = 0;
};

// first: the first gradient among the inputs.
std::vector<Share> shares(const Program& p, const Instr& instr, size_t first, const Device& device) {
  int64_t parts = instr.attrs.integer("parts", 1);
  std::vector<Share> all;
  for (DType t : {DType::f32, DType::bf16, DType::f16}) {
    size_t taken = tensors_a_launch;
    for (size_t i = first; i < instr.in.size(); ++i) {
      const Value& g = p.at(instr.in[i]);
      if (g.dtype != t) continue;
      if (taken == tensors_a_launch) all.push_back({t, {}}), taken = 0;
      Share& s = all.back();
      s.inputs.push_back(i), ++taken;
      s.tiles += (g.numel() / parts + tile_elements(size_of(t)) - 1) / tile_elements(size_of(t));
    }
  }
  for (Share& s : all)
    s.blocks = int(std::clamp<int64_t>(s.tiles, 1, int64_t(device.multiprocessors) * blocks_per_multiprocessor));
  return all;
}

bool from_squares(const Instr& instr) { return instr.attrs.integer("squares", 0) != 0; }

size_t workspace_of(const KernelQuery& q, size_t first) {
  size_t blocks = 0;
  for (const Share& s : shares(q.program, q.instr, first, q.device)) blocks += size_t(s.blocks);
  return blocks * size_t(q.instr.attrs.integer("parts", 1)) * sizeof(double);
}
size_t norm_workspace(const KernelQuery& q) {
  return from_squares(q.instr) ? 0 : workspace_of(q, in::grad_norm::gradients);
}
size_t squares_workspace(const KernelQuery& q) { return workspace_of(q, 0); }

// Part `part` of `parts` equal ones of every input.
void launch_share(const KernelCall& c, const Share& s, int64_t part, int64_t parts, double* partial) {
  Tensors t = {};
  bool vectors_fit = true;
  for (size_t i = 0; i < s.inputs.size(); ++i) {
    int64_t n = c.in_value(s.inputs[i]).numel() / parts, tile = tile_elements(size_of(s.dtype));
    t.data[i] = c.input<char>(s.inputs[i]) + part * n * int64_t(size_of(s.dtype)), t.size[i] = n;
    t.first_tile[i + 1] = t.first_tile[i] + (n + tile - 1) / tile;
    vectors_fit &= aligned({t.data[i]});
  }
  with_type(s.dtype, [&](auto type) {
    using T = decltype(type);
    auto kernel = vectors_fit ? sum_squares<T, Vec<T>::size> : sum_squares<T, 1>;
    launch(c, kernel, unsigned(s.blocks), threads, 0, t, s.tiles, partial);
  });
}

// The partial sums of every part; returns how many a part has.
int launch_shares(const KernelCall& c, size_t first) {
  int64_t parts = c.instr.attrs.integer("parts", 1);
  std::vector<Share> all = shares(c.program, c.instr, first, *c.device);
  int count = 0;
  for (const Share& s : all) count += s.blocks;
  auto* partial = static_cast<double*>(c.workspace);
  for (int64_t part = 0; part < parts; ++part)
    for (const Share& s : all) {
      launch_share(c, s, part, parts, partial);
      partial += s.blocks;
    }
  return count;
}

void launch_grad_norm(const KernelCall& c) {
  constexpr size_t first = in::grad_norm::gradients;
  Sums sums = {};  // made by square_sum and over the ranks
  for (size_t i = first; i < c.instr.in.size() && from_squares(c.instr); ++i)
    sums.of[sums.count++] = c.input<double>(i);
  int count = from_squares(c.instr) ? 0 : launch_shares(c, first);
  launch(c, finish_norm, 1, threads, 0, static_cast<const double*>(c.workspace), count,
         int(c.instr.attrs.integer("parts", 1)), sums, c.instr.attrs.number("clip"),
         c.output<Scalars>(out::grad_norm::scalars));
}

void launch_square_sum(const KernelCall& c) {
  int count = launch_shares(c, 0);
  launch(c, finish_squares, 1, threads, 0, static_cast<const double*>(c.workspace), count,
         c.output<double>(out::square_sum::sum));
}

std::string reject_norm(const KernelQuery& q) {
  if (!from_squares(q.instr)) return reject_unless_float(q);
  return q.instr.in.size() > in::grad_norm::gradients + sums_of_a_norm ? "takes at most 8 sums of squares" : "";
}
std::string reject_squares(const KernelQuery& q) {
  for (size_t i = 0; i < q.instr.in.size(); ++i)
    if (std::string why = reject_value(q.in(i)); !why.empty()) return why;
  return "";
}

}  // namespace

Kernel grad_norm_kernel() {
  return {"grad_norm", "cuda.grad_norm", reject_norm, norm_workspace, nullptr, CREST_DEVICE_CODE(launch_grad_norm)};
}

Kernel square_sum_kernel() {
  return {"square_sum",      "cuda.square_sum", reject_squares,
          squares_workspace, nullptr,           CREST_DEVICE_CODE(launch_square_sum)};
}

}  // namespace crest::cuda
