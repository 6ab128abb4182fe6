// Fused bodies by interpretation, where they cannot be compiled at run time; and the second stage
// of their column sums.
#include "backend/cuda/device/activation.h"
#include "backend/cuda/device/numeric.h"
#include "backend/cuda/fused_body.h"
#include "backend/cuda/kernel.h"

namespace crest::cuda {

namespace {

constexpr int most_loads = 32, most_steps = 32, most_stores = 24, most_sums = 8;

// A body as a kernel parameter (at most 4 KiB).
struct Code {
  struct Step {
    FusedBody::Op op;
    uint8_t a, b;
    float value;
  };
  struct Place {
    void* address;
    DType dtype;
    uint8_t from;  // register; of stores
  };
  int loads, steps, stores, sums;
  Step step[most_steps];
  Place load[most_loads], store[most_stores];
  uint8_t sum[most_sums];
};
static_assert(sizeof(Code) + 64 <= 4096);

__device__ float read(const Code::Place& p, int64_t e) {
  switch (p.dtype) {
    case DType::bf16: return widen(static_cast<const bfloat16*>(p.address)[e]);
    case DType::f16: return widen(static_cast<const float16*>(p.address)[e]);
    default: return static_cast<const float*>(p.address)[e];
  }
}

__device__ void write(const Code::Place& p, int64_t e, float x) {
  switch (p.dtype) {
    case DType::bf16: static_cast<bfloat16*>(p.address)[e] = narrow<bfloat16>(x); break;
    case DType::f16: static_cast<float16*>(p.address)[e] = narrow<float16>(x); break;
    default: static_cast<float*>(p.address)[e] = x;
  }
}

__device__ float compute(FusedBody::Op op, float a, float b, float value) {
#define CREST_COMPUTE(op, inputs, outputs) \
  case FusedBody::Op::op: return pointwise_##op(a, b, value);
  switch (op) { CREST_POINTWISE_OPS(CREST_COMPUTE) }
#undef CREST_COMPUTE
  return 0;
}

// Element e: registers, then stores; sums += its terms.
__device__ void run_element(const Code& code, int64_t e, float* sums) {
  float registers[most_loads + most_steps];
  for (int i = 0; i < code.loads; ++i) registers[i] = read(code.load[i], e);
  for (int i = 0; i < code.steps; ++i) {
    const Code::Step& s = code.step[i];
    registers[code.loads + i] = compute(s.op, registers[s.a], registers[s.b], s.value);
  }
  for (int i = 0; i < code.stores; ++i) write(code.store[i], e, registers[code.store[i].from]);
  for (int i = 0; i < code.sums; ++i) sums[i] += registers[code.sum[i]];
}

__global__ void interpret(const __grid_constant__ Code code, int64_t n) {
  wait_for_predecessors();
  int64_t e = int64_t(blockIdx.x) * blockDim.x + threadIdx.x;
  if (e < n) run_element(code, e, nullptr);
}

// See ColumnGrid.
__global__ void interpret_columns(const __grid_constant__ Code code, float* partials, int64_t rows, int64_t columns,
                                  int64_t slab) {
  wait_for_predecessors();
  int64_t column = int64_t(blockIdx.x) * blockDim.x + threadIdx.x;
  int64_t begin = blockIdx.y * slab, end = begin + slab < rows ? begin + slab : rows;
  float sums[most_sums] = {};
  if (column < columns)
    for (int64_t r = begin + threadIdx.y; r < end; r += blockDim.y) run_element(code, r * columns + column, sums);
  __shared__ float part[fused_threads];
  for (int s = 0; s < code.sums; ++s) {
    if (s > 0) __syncthreads();  // the sum before is read
    part[threadIdx.y * blockDim.x + threadIdx.x] = sums[s];
    __syncthreads();
    if (threadIdx.y == 0 && column < columns) {
      float total = 0;
      for (unsigned y = 0; y < blockDim.y; ++y) total += part[y * blockDim.x + threadIdx.x];
      partials[(int64_t(s) * gridDim.y + blockIdx.y) * columns + column] = total;
    }
  }
}

constexpr int reduce_columns = 32, reduce_rows = 16;

// out[c] = sum over slabs of partials[slab][c] (+ acc[c]).
template <class T>
__global__ void reduce_slabs(const float* partials, int64_t slabs, int64_t columns, const T* acc, T* out) {
  wait_for_predecessors();
  int64_t column = int64_t(blockIdx.x) * reduce_columns + threadIdx.x;
  float sum = 0;
  if (column < columns) {
#pragma unroll 4
    for (int64_t s = threadIdx.y; s < slabs; s += reduce_rows) sum += partials[s * columns + column];
  }
  __shared__ float part[reduce_rows][reduce_columns];
  part[threadIdx.y][threadIdx.x] = sum;
  __syncthreads();
  if (threadIdx.y != 0 || column >= columns) return;
  float total = 0;
  for (int y = 0; y < reduce_rows; ++y) total += part[y][threadIdx.x];
  out[column] = narrow<T>(acc ? total + widen(acc[column]) : total);
}

std::string reject(const KernelQuery& q) {
  if (std::string why = reject_unless_float(q); !why.empty()) return why;
  std::string why;
  FusedBody b = flatten_body(q.instr, why);
  if (!why.empty()) return why;
  if (b.loads.size() > most_loads || b.steps.size() > most_steps || b.stores.size() > most_stores ||
      b.sums.size() > most_sums)
    return "the body is too long for the interpreter: it takes " + std::to_string(most_loads) + " inputs, " +
           std::to_string(most_steps) + " operations, " + std::to_string(most_stores) + " outputs and " +
           std::to_string(most_sums) + " column sums";
  return "";
}

size_t workspace(const KernelQuery& q) {
  std::string why;
  return partial_bytes(flatten_body(q.instr, why), 1, q.device);
}

struct Prepared {
  FusedBody body;
  Code code = {};
  ColumnGrid grid;
};

std::shared_ptr<void> prepare(const KernelQuery& q) {
  auto p = std::make_shared<Prepared>();
  std::string why;
  p->body = flatten_body(q.instr, why);
  const FusedBody& b = p->body;
  Code& code = p->code;
  // reject() has checked the fit.
  code.loads = int(std::min<size_t>(b.loads.size(), most_loads));
  code.steps = int(std::min<size_t>(b.steps.size(), most_steps));
  code.stores = int(std::min<size_t>(b.stores.size(), most_stores));
  code.sums = int(std::min<size_t>(b.sums.size(), most_sums));
  for (int i = 0; i < code.loads; ++i) code.load[i] = {nullptr, b.loads[size_t(i)].dtype, 0};
  for (int i = 0; i < code.steps; ++i) {
    const FusedBody::Step& s = b.steps[size_t(i)];
    code.step[i] = {s.op, uint8_t(s.a), uint8_t(s.b), s.value};
  }
  for (int i = 0; i < code.stores; ++i) {
    const FusedBody::Store& s = b.stores[size_t(i)];
    code.store[i] = {nullptr, s.dtype, uint8_t(s.from)};
  }
  for (int i = 0; i < code.sums; ++i) code.sum[i] = uint8_t(b.sums[size_t(i)].from);
  if (!b.sums.empty()) p->grid = column_grid(b, 1, 1, q.device);
  return p;
}

void launch_interpreter(const KernelCall& c) {
  const Prepared& p = *static_cast<const Prepared*>(c.prepared);
  Code code = p.code;
  for (int i = 0; i < code.loads; ++i) code.load[i].address = c.in[p.body.loads[size_t(i)].input];
  for (int i = 0; i < code.stores; ++i) code.store[i].address = c.out[p.body.stores[size_t(i)].output];
  if (p.body.sums.empty()) {
    launch(c, interpret, blocks_for(p.body.numel, fused_threads), fused_threads, 0, code, p.body.numel);
    return;
  }
  float* partials = static_cast<float*>(c.workspace);
  const ColumnGrid& g = p.grid;
  launch(c, interpret_columns, dim3(unsigned(g.tiles), unsigned(g.slabs)), dim3(unsigned(g.tx), unsigned(g.ty)), 0,
         code, partials, p.body.rows(), p.body.columns, g.slab);
  for (auto& sum : p.body.sums) {
    reduce_partials(c, sum, partials, g.slabs, p.body.columns);
    partials += g.slabs * p.body.columns;
  }
}

}  // namespace

#if CREST_HAS_DEVICE_CODE
void reduce_partials(const KernelCall& call, const FusedBody::ColumnSum& sum, const float* partials, int64_t slabs,
                     int64_t columns) {
  with_type(sum.dtype, [&](auto t) {
    using T = decltype(t);
    const T* acc = sum.acc >= 0 ? call.input<T>(size_t(sum.acc)) : nullptr;
    launch(call, reduce_slabs<T>, blocks_for(columns, reduce_columns), dim3(reduce_columns, reduce_rows), 0, partials,
           slabs, columns, acc, call.output<T>(size_t(sum.output)));
  });
}
#endif

Kernel fused_interpreter_kernel() {
  return {"fused", "cuda.fused.interpreter", reject, workspace, prepare, CREST_DEVICE_CODE(launch_interpreter)};
}

}  // namespace crest::cuda
