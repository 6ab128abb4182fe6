// fused_update: AdamW over a group of parameters, including the 8-bit rows and transposes of its
// matrices of linear layers. It writes them while it has the new weights. Requested by pass
// fused_update.
#include <algorithm>
#include <limits>

#include "backend/body.h"
#include "backend/cuda/device/quantize_tiles.h"
#include "backend/cuda/device/update.h"
#include "backend/cuda/quantize.h"
#include "core/float8.h"
#include "ops/index.h"
#include "ops/quantized_norms.h"

namespace crest::cuda {

namespace {

using AdamW = update_rules::adamw<ScalarMath<float>>;

// A matrix of the group.
struct Matrix {
  int64_t first;            // element of the group
  uint8_t *rows, *columns;  // columns: null where no transpose is wanted
  float* scale;
  int height, width, slot, first_tile;
};

// In one launch: the room in a kernel's parameters (4 KiB).
constexpr int matrices_at_once = 64;
constexpr int update_tiles_resident = 3;  // blocks of a multiprocessor
// The threads of a row read vectors of four masters next to each other.
using Shape = TileShape<ShapeOf<Quantizer>::columns, 4>;
constexpr int half_vector = Shape::vector;
static_assert(2 * half_vector == tile_vector);

template <class P, class G>
struct Matrices {
  explicit Matrices(const UpdateRates& rates) : factors(rates) {}
  UpdateTensors<AdamW::states, P, G, bfloat16> tensors = {};
  UpdateFactors factors;
  const Scalars* scalars = nullptr;
  const float* history = nullptr;  // [slots]
  float* record = nullptr;         // of this rank
  unsigned long long* counts = nullptr;
  int ranks = 1, margin = 0;
  int count = 0, tiles = 0;
  Matrix matrices[matrices_at_once] = {};

  __device__ Quantizer quantizer(const Matrix& m) const {
    Quantizer q;
    q.rows = m.rows, q.columns = m.columns;
    q.history = history + m.slot, q.margin = margin;
    q.scale = m.scale;
    q.record = record + int64_t(m.slot) * ranks;
    q.counts = counts + 2 * int64_t(m.slot);
    return q;
  }
};

static_assert(sizeof(Matrices<float, float>) <= 4096);

// Updates: the step itself, and the quantization of matrices with a magnitude known from the step
// before. Else: quantization of the others, by the magnitudes recorded by the first kernel; in all
// steps but the first it returns at once.
template <bool Updates, class P, class G>
__global__ void __launch_bounds__(Shape::threads, update_tiles_resident)
    update_matrices(const __grid_constant__ Matrices<P, G> a) {
  wait_for_predecessors();
  if constexpr (!Updates) {
    bool known = true;
    for (int i = int(threadIdx.x); i < a.count; i += Shape::threads)
      known = known && is_magnitude(a.history[a.matrices[i].slot]);
    if (__syncthreads_and(known)) return;
  }
  __shared__ TurnedCodes<Shape> turned;
  // In a skipped step the weights stay, and their scale changes.
  const bool moves = Updates && !a.scalars->found_inf;
  UpdateStep<float> step = {};
  if (moves) step = a.factors.template step<AdamW>(a.scalars);
  int current = -1;
  bool known = false;
  Quantizer q;
  Scaling scaling;
  Seen seen;
  auto leave = [&] {
    if (!Updates || known) return seen.leave(q, scaling);
    seen.most = warp_max(seen.most);
    if (threadIdx.x % 32 == 0) seen.record(q);
  };
  for (int tile = int(blockIdx.x); tile < a.tiles; tile += int(gridDim.x)) {
    int next = current < 0 ? 0 : current;
    while (next + 1 < a.count && tile >= a.matrices[next + 1].first_tile) ++next;
    const Matrix& m = a.matrices[next];
    if (next != current) {
      if (current >= 0) leave();
      current = next;
      q = a.quantizer(m);
      known = q.is_known();
      scaling = Scaling(q, false);
      seen = {};
    }
    if (!Updates && known) continue;
    const bool quantizes = known == Updates;
    if (quantizes && tile == m.first_tile && threadIdx.x == 0) *q.scale = 1.f / scaling.inverse;
    const int width = m.width, across = (width + Shape::columns - 1) / Shape::columns;
    const TilePlace<Shape> at(tile - m.first_tile, across);
    const int64_t columns[2] = {at.column, at.column + Shape::step};
    uint32_t codes[2][tile_pack];  // of four columns and a row
#pragma unroll
    for (int r = 0; r < tile_pack; ++r) {
      const int64_t row = at.row + r;
      float x[2 * half_vector] = {};
      bool there[2];
      UpdateLoaded<AdamW::states, P, G, half_vector> loaded[2] = {};
#pragma unroll
      for (int h = 0; h < 2; ++h) {
        there[h] = row < m.height && columns[h] < width;
        if (moves && there[h]) loaded[h] = load_update<half_vector>(a.tensors, m.first + row * width + columns[h]);
      }
#pragma unroll
      for (int h = 0; h < 2; ++h) {
        if (!there[h]) continue;
        const int64_t i = m.first + row * width + columns[h];
        if (moves) {
          float p[half_vector];
          update_at<AdamW, Rounding::nearest, P, G, bfloat16, half_vector>(a.tensors, i, loaded[h], step, a.scalars, p);
#pragma unroll
          for (int e = 0; e < half_vector; ++e) x[h * half_vector + e] = widen(weight_of_master<bfloat16>(p[e]));
        } else {
          const Words<bfloat16, half_vector> w = load_words<half_vector>(a.tensors.w + i);
#pragma unroll
          for (int e = 0; e < half_vector; ++e) x[h * half_vector + e] = w[e];
        }
      }
      uint32_t both[2] = {0, 0};
      if (quantizes) {
        seen.quantize(x, scaling.inverse, false, both);
      } else {
#pragma unroll
        for (int e = 0; e < 2 * half_vector; ++e) seen.most = fmaxf(seen.most, fabsf(x[e]));
      }
#pragma unroll
      for (int h = 0; h < 2; ++h) {
        codes[h][r] = both[h];
        if (quantizes && there[h]) *reinterpret_cast<uint32_t*>(m.rows + row * width + columns[h]) = both[h];
      }
    }
    // Both sizes are multiples of 16, so the pitch is the height.
    if (quantizes && m.columns) turned.transpose(at, codes, m.columns, width, m.height);
  }
  if (current >= 0 && (Updates || !known)) leave();
}

// A body: the update, and the quantization of its matrices, in the order of the group.
struct Parts {
  const Instr* update = nullptr;
  std::vector<const Instr*> quantizers;
};

int64_t first_element(const Program& body, const Instr& quantizer) {
  return body.at(quantizer.in[in::quantize::x]).layout.offset;
}

Parts parts_of(const Program& body) {
  Parts parts;
  for (const Instr& i : body.code) {
    if (i.op->flat) parts.update = &i;
    if (i.op == &op_quantize) parts.quantizers.push_back(&i);
  }
  std::stable_sort(parts.quantizers.begin(), parts.quantizers.end(),
                   [&](const Instr* a, const Instr* b) { return first_element(body, *a) < first_element(body, *b); });
  return parts;
}

int64_t tiles_of(const Value& x) {
  return (x.shape[0] + tile_rows - 1) / tile_rows * ((x.shape[1] + Shape::columns - 1) / Shape::columns);
}

std::string reject_fused_update(const KernelQuery& q) {
  namespace at = in::adamw;
  const Program& body = *q.instr.body;
  const Parts parts = parts_of(body);
  const Instr& u = *parts.update;
  if (u.op != &op_adamw) return "takes adamw";
  if (u.in.size() <= at::w || u.in[at::w] == no_value || body.at(u.in[at::w]).dtype != DType::bf16)
    return "takes fp32 masters of bf16 weights";
  if (DType t = body.at(u.in[at::master]).dtype; t != DType::u16 && t != DType::f32) return "takes fp32 masters";
  if (body.at(u.in[at::m]).dtype != DType::f32) return "takes moments of f32";
  if (DType t = body.at(u.in[at::g]).dtype; t != DType::f32 && t != DType::bf16)
    return "takes gradients of f32 or bf16";
  for (size_t i = 0; i < q.instr.in.size(); ++i)
    if (q.in(i).layout.offset % tile_vector) return "takes operands that begin at multiples of 8 elements";
  if (parts.quantizers.empty()) return "the body quantizes nothing";
  int64_t end = 0, tiles = 0;
  const Instr& first = *parts.quantizers[0];
  for (const Instr* i : parts.quantizers) {
    const Value& x = body.at(i->in[in::quantize::x]);
    if (i->attrs.text("format") != "e4m3") return "makes e4m3";
    if (x.dtype != DType::bf16 || x.shape.rank() != 2 || x.numel() == 0) return "quantizes matrices of bf16";
    if (x.shape[0] % fp8_multiple || x.shape[1] % fp8_multiple || x.layout.offset % tile_vector)
      return "quantizes matrices of multiples of 16";
    if (x.layout.offset < end) return "a matrix is quantized twice";
    end = x.layout.offset + x.numel();
    tiles += tiles_of(x);
    if (i->attrs.integer("margin") != first.attrs.integer("margin")) return "takes one margin";
    for (size_t k : {size_t(in::quantize::amax), size_t(in::quantize::record), size_t(in::quantize::counts)})
      if (body.at(i->in[k]).layout.storage != body.at(first.in[k]).layout.storage) return "takes the same tables";
    if (body.at(i->in[in::quantize::amax]).dtype != DType::f32 ||
        body.at(i->in[in::quantize::record]).dtype != DType::f32)
      return "takes scales of f32";
    for (size_t o : {size_t(out::quantize::q), size_t(out::quantize::scale)})
      if (std::find(body.outputs.begin(), body.outputs.end(), i->out[o]) == body.outputs.end())
        return "what is quantized is no output of the body";
  }
  return tiles > std::numeric_limits<int>::max() / 2 ? "too many tiles" : "";
}

#if CREST_HAS_DEVICE_CODE
template <class P, class G>
UpdateTensors<AdamW::states, P, G, bfloat16> from_element(UpdateTensors<AdamW::states, P, G, bfloat16> t, int64_t n) {
  t.p += n, t.g += n, t.w += n;
  for (auto& state : t.state) state += n;
  return t;
}

template <class P, class G>
void launch_adamw(const KernelCall& c) {
  namespace at = in::adamw;
  const Program& body = *c.instr.body;
  const Parts parts = parts_of(body);
  const Instr& u = *parts.update;
  const Instr& first = *parts.quantizers[0];
  auto address = [&](ValueId v) { return address_in_body(c, v); };
  Matrices<P, G> a(UpdateRates(u.attrs));
  a.tensors.p = static_cast<P*>(address(u.in[at::master]));
  a.tensors.state[0] = static_cast<float*>(address(u.in[at::m]));
  a.tensors.state[1] = static_cast<float*>(address(u.in[at::v]));
  a.tensors.g = static_cast<const G*>(address(u.in[at::g]));
  a.tensors.w = static_cast<bfloat16*>(address(u.in[at::w]));
  a.scalars = static_cast<const Scalars*>(address(u.in[at::scalars]));
  a.history = static_cast<const float*>(address(first.in[in::quantize::amax]));
  a.record = static_cast<float*>(address(first.in[in::quantize::record])) + c.index();
  a.counts = static_cast<unsigned long long*>(address(first.in[in::quantize::counts]));
  a.ranks = int(body.at(first.in[in::quantize::record]).shape[1]);
  a.margin = int(first.attrs.integer("margin"));

  // Values between the matrices are updated as usual.
  int64_t end = 0;
  auto rest = [&](int64_t until) {
    if (until > end)
      launch_update_of<AdamW, Rounding::nearest, P, G, bfloat16>(c, from_element(a.tensors, end), until - end,
                                                                 UpdateRates(u.attrs), a.scalars);
  };
  auto run = [&] {
    const int resident = std::max(c.device->multiprocessors, 1) * update_tiles_resident;
    const int rounds = (a.tiles + resident - 1) / resident;
    const auto blocks = unsigned((a.tiles + rounds - 1) / rounds);
    launch(c, update_matrices<true, P, G>, blocks, Shape::threads, 0, a);
    launch(c, update_matrices<false, P, G>, blocks, Shape::threads, 0, a);
    a.count = a.tiles = 0;
  };
  for (const Instr* i : parts.quantizers) {
    namespace to = out::quantize;
    const Value& x = body.at(i->in[in::quantize::x]);
    rest(x.layout.offset);
    end = x.layout.offset + x.numel();
    Matrix& m = a.matrices[a.count++];
    m.first = x.layout.offset;
    m.rows = static_cast<uint8_t*>(address(i->out[to::q]));
    m.columns = i->out.size() > to::t ? static_cast<uint8_t*>(address(i->out[to::t])) : nullptr;
    m.scale = static_cast<float*>(address(i->out[to::scale]));
    m.height = int(x.shape[0]), m.width = int(x.shape[1]), m.slot = int(i->attrs.integer("slot"));
    m.first_tile = a.tiles;
    a.tiles += int(tiles_of(x));
    if (a.count == matrices_at_once) run();
  }
  if (a.count) run();
  rest(body.at(u.in[at::master]).numel());
}

void launch_fused_update(const KernelCall& c) {
  namespace at = in::adamw;
  const Program& body = *c.instr.body;
  const Instr& u = *parts_of(body).update;
  const bool halves = body.at(u.in[at::master]).dtype == DType::u16;
  if (body.at(u.in[at::g]).dtype == DType::f32)
    return halves ? launch_adamw<LowHalf, float>(c) : launch_adamw<float, float>(c);
  halves ? launch_adamw<LowHalf, bfloat16>(c) : launch_adamw<float, bfloat16>(c);
}
#endif

}  // namespace

Kernel fused_update_kernel() {
  return {"fused_update",
          "cuda.fused_update.adamw",
          reject_fused_update,
          nullptr,
          nullptr,
          CREST_DEVICE_CODE(launch_fused_update)};
}

}  // namespace crest::cuda
