// norm_grad: dx and the column sums dgamma, dbeta and, with attribute `bias`, dbias (of dx as
// stored and, with dropout, dropped out) in one pass over dy and x. Every group of threads walks
// over many rows and keeps its columns' sums in registers; blocks leave partial sums in the
// workspace, and a second kernel adds them up in a fixed order. With n = (x - mean) rstd and g = dy
// gamma: dx = rstd (g - mean(g) - n mean(g n)); rms: without mean(g). With attribute `keep` y = n
// gamma + beta, too.
#include "backend/cuda/norm_grad_rows.h"
#include "ops/norm.h"

namespace crest::cuda {

namespace {

// Any width and alignment, two kernels. First the column sums of a block's rows (blockIdx.x) for 32
// columns (blockIdx.y), because dx may lie over dy.
template <class T>
__global__ void __launch_bounds__(256) norm_grad_columns_any(NormGrad<T> p) {
  wait_for_predecessors();
  __shared__ float sums[2][8][32];
  int lane = int(threadIdx.x % 32), warp = int(threadIdx.x / 32);
  int c = int(blockIdx.y) * 32 + lane;
  float dgamma = 0, dbeta = 0;
  if (c < p.cols)
    for (int64_t row = int64_t(warp) * gridDim.x + blockIdx.x; row < p.rows; row += int64_t(gridDim.x) * 8) {
      float d = widen(p.dy[row * p.cols + c]), mean = p.mean ? p.mean[row] : 0.f;
      dgamma += d * ((widen(p.x[row * p.cols + c]) - mean) * p.rstd[row]);
      dbeta += d;
    }
  sums[0][warp][lane] = dgamma, sums[1][warp][lane] = dbeta;
  __syncthreads();
  if (warp < 2 && c < p.cols) {
    float sum = 0;
    for (int i = 0; i < 8; ++i) sum += sums[warp][i][lane];
    p.partial[(int64_t(blockIdx.x) * 2 + warp) * p.cols + c] = sum;
  }
}
// Then dx, a block per row.
template <class T>
__global__ void __launch_bounds__(256) norm_grad_dx_any(NormGrad<T> p) {
  wait_for_predecessors();
  int64_t row = blockIdx.x, begin = row * p.cols;
  float mean = p.mean ? p.mean[row] : 0.f, rstd = p.rstd[row], sum_g = 0, sum_gn = 0;
  for (int c = int(threadIdx.x); c < p.cols; c += 256) {
    float g = widen(p.dy[begin + c]) * weight_at(p.gamma, c);
    sum_g += g, sum_gn += g * ((widen(p.x[begin + c]) - mean) * rstd);
  }
  row_sums<256>(sum_g, sum_gn);
  float mean_g = p.mean ? sum_g * p.inverse_cols : 0.f, mean_gn = sum_gn * p.inverse_cols;
  const DropoutSpan span(p.dropout, row, p.cols);
  for (int c = int(threadIdx.x); c < p.cols; c += 256) {
    float g = widen(p.dy[begin + c]) * weight_at(p.gamma, c), n = (widen(p.x[begin + c]) - mean) * rstd;
    float dres = p.dres ? widen(p.dres[begin + c]) : 0.f;
    T dx = narrow<T>(rstd * (g - mean_g - n * mean_gn) + dres);
    if (span && p.dropped) p.dropped[begin + c] = narrow<T>(span.dropped(widen(dx), unsigned(c)));
    if (span && !p.dropped) dx = narrow<T>(span.dropped(widen(dx), unsigned(c)));
    p.dx[begin + c] = dx;
  }
}

// The column sums of an instruction, in the order of their partial sums; null: not wanted. acc: of
// the sum so far.
template <class G>
struct ColumnSums {
  G* out[3];
  const G* acc[3];
};

// Adds up the blocks' partial sums and the accumulators, 32 columns of `kinds` times `cols` a
// block.
template <class G>
__global__ void __launch_bounds__(512)
    norm_grad_finish(const float* partial, int blocks, int cols, int kinds, ColumnSums<G> sums) {
  wait_for_predecessors();
  __shared__ float parts[16][32];
  int lane = int(threadIdx.x % 32), warp = int(threadIdx.x / 32);
  int c = int(blockIdx.x) * 32 + lane, columns = kinds * cols, kind = c / cols;
  float sum = 0;
  if (c < columns) {
#pragma unroll 8
    for (int b = warp; b < blocks; b += 16) sum += partial[int64_t(b) * columns + c];
  }
  parts[warp][lane] = sum;
  __syncthreads();
  if (warp || c >= columns) return;
  sum = 0;
#pragma unroll
  for (int i = 0; i < 16; ++i) sum += parts[i][lane];
  G* out = kind == 0 ? sums.out[0] : kind == 1 ? sums.out[1] : sums.out[2];
  const G* acc = kind == 0 ? sums.acc[0] : kind == 1 ? sums.acc[1] : sums.acc[2];
  c -= kind * cols;
  if (out) out[c] = narrow<G>(sum + (acc ? widen(acc[c]) : 0.f));
}

// As many blocks as multiprocessors; few rows are spread over all of them before a block gets a
// second warp.
NormGradPlan plan_for(const Value& x, const NormGradOptions& options, const Device& device) {
  const int64_t rows = x.shape.rows(), cols = x.shape.back(), size = int64_t(size_of(x.dtype));
  const int64_t processors = std::max(device.multiprocessors, 1);
  const int64_t stages = 2 * options.arrays() * cols * size;  // bytes of shared memory for a row in work
  auto spread = [&](NormGradPlan p, int64_t most_groups, int64_t most_blocks) {
    p.groups = int(std::clamp<int64_t>((rows + processors - 1) / processors, 1, most_groups));
    p.blocks = int(std::min((rows + p.groups - 1) / p.groups, most_blocks));
    return p;
  };
  auto units = [&](int64_t threads) { return int((cols + threads * 8 - 1) / (threads * 8)); };
  const int64_t room = device.shared_per_block - 1024 - options.weights() * cols * size;  // some is static
  if (cols * size % 16 == 0 && stages <= room) {
    if (units(32) <= 8)
      return spread({32, units(32)}, std::min<int64_t>(room / stages, norm_grad_threads(units(32), options.bias) / 32),
                    processors);
    if (units(256) <= 2) return spread({256, units(256)}, 1, 2 * processors);
    if (units(256) <= 4) return spread({256, units(256)}, 1, processors);
    if (units(512) <= 4) return spread({512, units(512)}, 1, processors);
  }
  return spread({}, 8, processors);
}

size_t grad_workspace(const KernelQuery& q) {
  const Value& x = q.in(in::norm_grad::x);
  const NormGradOptions options(q.instr);
  return size_t(plan_for(x, options, q.device).blocks) * size_t(options.kinds()) * size_t(x.shape.back()) *
         sizeof(float);
}

std::string reject(const KernelQuery& q) {
  const NormGradOptions options(q.instr);
  if (std::string why = reject_unless_float(q); !why.empty() || options.any_row()) return why;
  if (!plan_for(q.in(in::norm_grad::x), options, q.device).threads)
    return "with 'bias' or 'keep' takes rows that are whole vectors of 16 bytes and fit into shared memory";
  for (auto* list : {&q.instr.in, &q.instr.out})
    for (ValueId id : *list)
      if (id != no_value && q.program.at(id).layout.offset * int64_t(size_of(q.program.at(id).dtype)) % 16)
        return "%" + q.program.at(id).name + " is a view that does not begin at a multiple of 16 bytes";
  return "";
}

void launch_grad(const KernelCall& c) {
  namespace from = in::norm_grad;
  namespace to = out::norm_grad;
  const Value& x = c.in_value(from::x);
  const NormGradOptions options(c.instr);
  const bool beta = c.instr.attrs.integer("beta") != 0;
  const NormGradPlan plan = plan_for(x, options, *c.device);
  with_type(x.dtype, [&](auto t) {
    using T = decltype(t);
    NormGrad<T> p = {};
    p.dy = c.input<T>(from::dy), p.x = c.input<T>(from::x);
    if (c.has(from::gamma)) p.gamma = c.input<T>(from::gamma);
    p.rstd = c.input<float>(from::rstd);
    if (c.instr.attrs.text("kind") == "layer") p.mean = c.input<float>(from::mean);
    if (c.has(from::dres)) p.dres = c.input<T>(from::dres);
    p.dx = c.output<T>(to::dx);
    if (options.y) p.y = c.output<T>(c.instr.out.size() - 1);
    if (c.has(from::beta)) p.beta = c.input<T>(from::beta);
    if (options.apart) p.dropped = c.output<T>(place_of_dropped(c.instr.attrs));
    p.dropout = dropout_rows(c, from::scalars, x);
    p.partial = static_cast<float*>(c.workspace);
    p.rows = x.shape.rows(), p.cols = int(x.shape.back());
    p.inverse_cols = 1.f / float(p.cols);
    const bool rows = !options.any_row() || (plan.threads && aligned({p.dy, p.x, p.gamma, p.dres, p.dx, p.dropped}));
    if (!rows) {
      launch(c, norm_grad_columns_any<T>, dim3(unsigned(plan.blocks), blocks_for(p.cols, 32)), 256, 0, p);
      launch(c, norm_grad_dx_any<T>, unsigned(p.rows), 256, 0, p);
    } else if (options.drop) {
      launch_norm_grad_dropout(c, p, plan, options);
    } else if (options.bias) {
      launch_norm_grad_rows<true, false>(c, p, plan, options);
    } else {
      launch_norm_grad_rows<false, false>(c, p, plan, options);
    }
    with_type(c.out_value(to::dgamma).dtype, [&](auto g) {
      using G = decltype(g);
      auto acc = [&](size_t i) { return c.has(i) ? c.input<G>(i) : nullptr; };
      ColumnSums<G> sums = {{c.output<G>(to::dgamma), beta ? c.output<G>(to::dbeta) : nullptr,
                             options.bias ? c.output<G>(to::dbias) : nullptr},
                            {acc(from::acc_gamma), acc(from::acc_beta), acc(from::acc_bias)}};
      const int kinds = options.kinds();
      launch(c, norm_grad_finish<G>, blocks_for((beta ? kinds : 1) * p.cols, 32), 512, 0, p.partial, plan.blocks,
             p.cols, kinds, sums);
    });
  });
}

}  // namespace

Kernel norm_grad_kernel() {
  return {"norm_grad", "cuda.norm_grad", reject, grad_workspace, nullptr, CREST_DEVICE_CODE(launch_grad)};
}

}  // namespace crest::cuda
