// Epilogues of the GEMMs of a GPT step: how long cuBLASLt and Crest's own (gemm_sm90_*.h) take at real sizes. Build,
// run:
//   nvcc -std=c++20 -gencode=arch=compute_90a,code=sm_90a --expt-relaxed-constexpr -O3 -Isrc/base -Isrc/step -Isrc/devices -DCREST_HAVE_CUDA=1 \
//     -o epilogues scripts/gpu/epilogues.cu -lcublasLt -lcuda
//   epilogues check [quick]      # the own GEMMs against fp64, and bitwise identical every time
//   epilogues abcdefgh [MODEL].. # which tables to print, of which models ("124M-B64"; all)
// Data is random. Alternatives are interleaved on a warm GPU; a time is the median.
#include <cublasLt.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <functional>
#include <map>
#include <string>
#include <vector>

#include "backend/cuda/device/column_sum.h"
#include "backend/cuda/gemm_sm90_gelu_grad.h"
#include "backend/cuda/gemm_sm90_pingpong.h"
#include "backend/cuda/gemm_sm90_weight.h"

using namespace crest;
using namespace crest::cuda;
using namespace crest::cuda::sm90;

bool crest::cuda::waits_for_predecessors(const void*) { return false; }  // nothing overlaps here

namespace {

void ok(int code, const char* what) {
  if (code) std::printf("%s failed with %d\n", what, code), std::exit(1);
}

constexpr size_t workspace_bytes = size_t(32) << 20;
void* workspace;
cublasLtHandle_t handle;
cudaStream_t stream;

// --- kernels of passes of their own ---

constexpr int V = 8;
using Half8 = Vec<bfloat16, V>;

__global__ void fill(bfloat16* x, int64_t n, float deviation, uint32_t seed) {
  for (int64_t i = int64_t(blockIdx.x) * blockDim.x + threadIdx.x; i < n; i += int64_t(gridDim.x) * blockDim.x) {
    auto mixed = [](uint32_t y) {
      y = (y ^ (y >> 16)) * 0x21f0aaadu, y = (y ^ (y >> 15)) * 0x735a2d97u;
      return y ^ (y >> 15);
    };
    uint32_t bits = mixed(uint32_t(i) ^ mixed(seed ^ uint32_t(i >> 32)));
    float radius = sqrtf(-2.f * __logf(float((bits >> 8) + 1) * 0x1p-24f));
    x[i] = narrow<bfloat16>(deviation * radius * __cosf(6.2831853f * float(mixed(bits + 0x9e3779b9u) >> 8) * 0x1p-24f));
  }
}

// As Crest's fused instruction: dx = dy gelu'(x), optionally gelu(x), partial sums over ranges of rows.
template <bool Keep, bool Sums, bool Grad>
__global__ void __launch_bounds__(256, 4) pointwise(const bfloat16* dy, const bfloat16* x, bfloat16* dx, bfloat16* g,
                                                    float* partial, int64_t rows, int64_t n, int64_t each) {
  using S = Strip<8, 32, V>;
  int64_t first = int64_t(blockIdx.x) * S::columns, begin = blockIdx.y * each, end = min(begin + each, rows);
  int64_t column = first + S::column_lane() * V;
  float sum[V] = {};
  if (column < n) {
    for (int64_t r = begin + S::row_lane(); r < end; r += 4 * 32) {
      Half8 a[4], b[4];
#pragma unroll
      for (int i = 0; i < 4; ++i)
        if (r + 32 * i < end) {
          b[i] = load_vec<V>(x + (r + 32 * i) * n + column);
          if (Grad) a[i] = load_vec<V>(dy + (r + 32 * i) * n + column);
        }
#pragma unroll
      for (int i = 0; i < 4; ++i) {
        if (r + 32 * i >= end) continue;
        float u[V], v[V];
#pragma unroll
        for (int e = 0; e < V; ++e) {
          gelu_and_grad(Grad ? widen(a[i].x[e]) : 0.f, widen(b[i].x[e]), u[e], v[e]);
          sum[e] += v[e];
        }
        if (Keep) store_floats<V>(g + (r + 32 * i) * n + column, u);
        if (Grad) store_floats<V>(dx + (r + 32 * i) * n + column, v);
      }
    }
  }
  if constexpr (Sums) {
    float total = S::reduce(sum);
    int64_t mine = first + threadIdx.x;
    if (threadIdx.x < S::columns && mine < n) partial[blockIdx.y * n + mine] = total;
  }
}

template <class T>
__global__ void __launch_bounds__(256, 4) column_sums(const T* x, int64_t rows, int64_t n, int64_t each, float* out) {
  constexpr int N = 16 / int(sizeof(T));
  using S = Strip<8, 32, N>;
  int64_t first = int64_t(blockIdx.x) * S::columns, begin = blockIdx.y * each;
  int64_t column = first + S::column_lane() * N;
  float sum[N] = {};
  if (column < n) S::add_rows(x, n, begin, min(begin + each, rows), column, sum);
  float total = S::reduce(sum);
  int64_t mine = first + threadIdx.x;
  if (threadIdx.x < S::columns && mine < n) out[blockIdx.y * n + mine] = total;
}

int64_t ranges_of(int64_t rows, int64_t n) {
  int64_t strips = (n + 63) / 64, blocks = 132 * 4;
  return std::min(std::max<int64_t>(1, blocks / strips), (rows + 255) / 256);
}

template <bool Keep, bool Sums, bool Grad>
void run_pointwise(const bfloat16* dy, const bfloat16* x, bfloat16* dx, bfloat16* g, float* partial, float* out,
                   int64_t rows, int64_t n) {
  int64_t ranges = ranges_of(rows, n), each = (rows + ranges - 1) / ranges;
  pointwise<Keep, Sums, Grad>
      <<<dim3(unsigned((n + 63) / 64), unsigned(ranges)), 256, 0, stream>>>(dy, x, dx, g, partial, rows, n, each);
  if (Sums) column_sums<float><<<unsigned((n + 31) / 32), 256, 0, stream>>>(partial, ranges, n, ranges, out);
}
void run_bias_grad(const bfloat16* dy, float* partial, float* out, int64_t rows, int64_t n) {
  int64_t ranges = ranges_of(rows, n), each = (rows + ranges - 1) / ranges;
  column_sums<bfloat16>
      <<<dim3(unsigned((n + 63) / 64), unsigned(ranges)), 256, 0, stream>>>(dy, rows, n, each, partial);
  column_sums<float><<<unsigned((n + 31) / 32), 256, 0, stream>>>(partial, ranges, n, ranges, out);
}

// --- cuBLASLt; matrices are rows of memory, so operands are exchanged ---

// With names: nvcc 13.0 fails on vectors of the library's types, which have none.
struct Algorithm : cublasLtMatmulAlgo_t {};
struct Heuristic : cublasLtMatmulHeuristicResult_t {};

class Lt {
 public:
  Lt(int64_t m, int64_t n, int64_t k, bool at, bool bt, cudaDataType_t result, cublasLtEpilogue_t epilogue, void* bias,
     void* aux, bool residual, int wanted, int64_t a_pitch = 0)
      : residual_(residual) {
    cublasLtMatmulDescCreate(&desc_, CUBLAS_COMPUTE_32F, CUDA_R_32F);
    auto set = [&](cublasLtMatmulDescAttributes_t what, auto value) {
      ok(cublasLtMatmulDescSetAttribute(desc_, what, &value, sizeof value), "an attribute");
    };
    // b lies as [k, n] or, transposed, [n, k].
    set(CUBLASLT_MATMUL_DESC_TRANSA, int32_t(bt ? CUBLAS_OP_T : CUBLAS_OP_N));
    set(CUBLASLT_MATMUL_DESC_TRANSB, int32_t(at ? CUBLAS_OP_T : CUBLAS_OP_N));
    set(CUBLASLT_MATMUL_DESC_EPILOGUE, int32_t(epilogue));
    if (bias) set(CUBLASLT_MATMUL_DESC_BIAS_POINTER, bias);
    if (aux) {
      set(CUBLASLT_MATMUL_DESC_EPILOGUE_AUX_POINTER, aux);
      set(CUBLASLT_MATMUL_DESC_EPILOGUE_AUX_LD, int64_t(n));
    }
    auto layout = [](cublasLtMatrixLayout_t& l, cudaDataType_t t, int64_t rows, int64_t columns, int64_t pitch = 0) {
      ok(cublasLtMatrixLayoutCreate(&l, t, uint64_t(columns), uint64_t(rows), pitch ? pitch : columns), "a layout");
    };
    layout(b_, CUDA_R_16BF, bt ? n : k, bt ? k : n);
    layout(a_, CUDA_R_16BF, at ? k : m, at ? m : k, a_pitch);
    layout(c_, result, m, n);
    cublasLtMatmulPreference_t preference;
    cublasLtMatmulPreferenceCreate(&preference);
    uint64_t bytes = workspace_bytes;
    cublasLtMatmulPreferenceSetAttribute(preference, CUBLASLT_MATMUL_PREF_MAX_WORKSPACE_BYTES, &bytes, sizeof bytes);
    uint32_t schemes = CUBLASLT_REDUCTION_SCHEME_COMPUTE_TYPE;
    if (result == CUDA_R_32F) schemes |= CUBLASLT_REDUCTION_SCHEME_OUTPUT_TYPE;
    cublasLtMatmulPreferenceSetAttribute(preference, CUBLASLT_MATMUL_PREF_REDUCTION_SCHEME_MASK, &schemes,
                                         sizeof schemes);
    std::vector<Heuristic> found(static_cast<size_t>(wanted));
    int count = 0;
    if (!cublasLtMatmulAlgoGetHeuristic(handle, desc_, b_, a_, c_, c_, preference, wanted, found.data(), &count))
      for (int i = 0; i < count; ++i)
        if (found[size_t(i)].state == CUBLAS_STATUS_SUCCESS) algorithms.push_back({found[size_t(i)].algo});
    cublasLtMatmulPreferenceDestroy(preference);
  }
  bool run(const Algorithm& algorithm, const void* a, const void* b, const void* c, void* d) const {
    float one = 1, beta = residual_ ? 1.f : 0.f;
    return !cublasLtMatmul(handle, desc_, &one, b, b_, a, a_, &beta, residual_ ? c : d, c_, d, c_, &algorithm,
                           workspace, workspace_bytes, stream);
  }
  bool accepts(const Algorithm& algorithm) const {
    cublasLtMatmulHeuristicResult_t r = {};
    return !cublasLtMatmulAlgoCheck(handle, desc_, b_, a_, c_, c_, &algorithm, &r) &&
           r.workspaceSize <= workspace_bytes;
  }
  std::vector<Algorithm> algorithms;

 private:
  bool residual_;
  cublasLtMatmulDesc_t desc_;
  cublasLtMatrixLayout_t a_, b_, c_;
};

std::string describe(const Algorithm& a) {
  auto get = [&](cublasLtMatmulAlgoConfigAttributes_t what) {
    int64_t value = 0;
    size_t written;
    cublasLtMatmulAlgoConfigGetAttribute(&a, what, &value, sizeof(int32_t), &written);
    return int(int32_t(value));
  };
  int16_t cluster = 0;
  size_t written;
  cublasLtMatmulAlgoConfigGetAttribute(&a, CUBLASLT_ALGO_CONFIG_CLUSTER_SHAPE_ID, &cluster, sizeof cluster, &written);
  char text[120];
  std::snprintf(text, sizeof text, "id %d tile %d stages %d split %d swizzle %d custom %d cluster %d",
                get(CUBLASLT_ALGO_CONFIG_ID), get(CUBLASLT_ALGO_CONFIG_TILE_ID), get(CUBLASLT_ALGO_CONFIG_STAGES_ID),
                get(CUBLASLT_ALGO_CONFIG_SPLITK_NUM), get(CUBLASLT_ALGO_CONFIG_CTA_SWIZZLING),
                get(CUBLASLT_ALGO_CONFIG_CUSTOM_OPTION), int(cluster));
  return text;
}

// --- timing ---

using Work = std::function<bool()>;

double now_s() { return std::chrono::duration<double>(std::chrono::steady_clock::now().time_since_epoch()).count(); }
double median(std::vector<double> x) {
  std::sort(x.begin(), x.end());
  return x.empty() ? INFINITY : x[x.size() / 2];
}
// Microseconds of `runs` runs, each.
double time_us(const Work& work, int runs) {
  static cudaEvent_t start = nullptr, stop = nullptr;
  if (!start) cudaEventCreate(&start), cudaEventCreate(&stop);
  cudaEventRecord(start, stream);
  for (int i = 0; i < runs; ++i)
    if (!work()) return INFINITY;
  cudaEventRecord(stop, stream);
  if (cudaError_t e = cudaEventSynchronize(stop)) ok(e, "timing");
  float ms;
  cudaEventElapsedTime(&ms, start, stop);
  return double(ms) * 1e3 / runs;
}

constexpr int rounds = 9;
constexpr double sample_us = 1500;

// Medians of what is left in turns.
std::vector<double> in_turns(const std::vector<Work>& works, const std::vector<size_t>& which, int times = rounds) {
  std::vector<std::vector<double>> samples(works.size());
  std::vector<int> runs(works.size(), 1);
  for (size_t i : which) runs[i] = std::clamp(int(sample_us / time_us(works[i], 1)), 1, 20);
  for (int r = 0; r < times; ++r)
    for (size_t i : which) samples[i].push_back(time_us(works[i], runs[i]));
  std::vector<double> result(works.size(), INFINITY);
  for (size_t i : which) result[i] = median(samples[i]);
  return result;
}
std::vector<double> in_turns(const std::vector<Work>& works) {
  std::vector<size_t> all(works.size());
  for (size_t i = 0; i < all.size(); ++i) all[i] = i;
  return in_turns(works, all);
}
std::vector<size_t> finalists(const std::vector<double>& us, size_t count) {
  std::vector<size_t> order;
  for (size_t i = 0; i < us.size(); ++i)
    if (std::isfinite(us[i])) order.push_back(i);
  std::sort(order.begin(), order.end(), [&](size_t x, size_t y) { return us[x] < us[y]; });
  if (order.size() > count) order.resize(count);
  return order;
}
std::vector<double> screen(const std::vector<Work>& works) {
  std::vector<double> us;
  for (auto& w : works) {
    double first = time_us(w, 1);
    us.push_back(std::isfinite(first) ? time_us(w, 2) : INFINITY);
  }
  return us;
}

struct Best {
  double us = INFINITY;
  size_t index = 0, tried = 0;
};
Best best_of(const std::vector<Work>& works) {
  Best b;
  b.tried = works.size();
  std::vector<double> us = in_turns(works, finalists(screen(works), 5), 5);
  for (size_t i = 0; i < us.size(); ++i)
    if (us[i] < b.us) b.us = us[i], b.index = i;
  return b;
}

// --- models ---

struct Model {
  const char* name;
  int64_t rows, width;
  int layers;
};
constexpr Model models[] = {{"124M-B64", 65536, 768, 12},  {"124M-B16", 16384, 768, 12},
                            {"124M-B4", 4096, 768, 12},    {"355M-B32", 32768, 1024, 24},
                            {"774M-B16", 16384, 1280, 36}, {"1558M-B16", 16384, 1600, 48}};

bfloat16* halves(int64_t n, float deviation, uint32_t seed) {
  void* p;
  ok(cudaMalloc(&p, size_t(n) * 2), "memory");
  fill<<<1024, 256, 0, stream>>>(static_cast<bfloat16*>(p), n, deviation, seed);
  return static_cast<bfloat16*>(p);
}
float* floats(int64_t n) {
  void* p;
  ok(cudaMalloc(&p, size_t(n) * 4), "memory");
  ok(cudaMemset(p, 0, size_t(n) * 4), "memory");
  return static_cast<float*>(p);
}

EncodeTiled encode() {
  void* f = nullptr;
  cudaDriverEntryPointQueryResult found;
  cudaGetDriverEntryPointByVersion("cuTensorMapEncodeTiled", &f, 12000, cudaEnableDefault, &found);
  return reinterpret_cast<EncodeTiled>(f);
}

template <After after, bool AT, bool BT>
bool own(const GemmCall& call, int64_t m, int64_t n, int64_t k, int group) {
  static const EncodeTiled f = encode();
  return !start_pingpong<PingPongTile<bfloat16, after, AT, BT>>(call, int(m), int(n), int(k), group, f, 132, {stream});
}

// The kernels for the gradient of GELU; k: what Crest chooses.
enum class Grad { k, shallow, deep };
template <Grad way = Grad::k>
bool own_grad(const GemmCall& call, int64_t m, int64_t n, int64_t k, int group, float* out) {
  static const EncodeTiled f = encode();
  using S = ShallowTile<bfloat16>;
  using D = DeepTile<bfloat16>;
  int code;
  if constexpr (way == Grad::k)
    code = start_gelu_grad<bfloat16>(call, int(m), int(n), int(k), group, f, 132, {stream});
  else if constexpr (way == Grad::shallow)
    code = start_gemm<S>(shallow_kernel<S>, call, int(m), int(n), int(k), group, f, 132, {stream});
  else
    code = start_gemm<D>(deep_kernel<D>, call, int(m), int(n), int(k), group, f, 132, {stream});
  if (code) return false;
  int64_t rows = gelu_grad_row_tiles(m);
  column_sums<float><<<unsigned((n + 31) / 32), 256, 0, stream>>>(call.partial, rows, n, rows, out);
  return true;
}

bool own_weight(const WeightCall& call, int64_t m, int64_t n, int64_t k) {
  static const EncodeTiled f = encode();
  return !start_weight<bfloat16, float>(call, int(m), int(n), int(k), f, 132, {stream});
}

struct Memory {  // of a model
  bfloat16 *x, *y, *wide, *wide2, *wide3, *w, *w2, *bias;
  float *partial, *sums, *dw;
  explicit Memory(const Model& m) {
    int64_t narrow = m.rows * m.width;
    x = halves(narrow, 1, 1), y = halves(narrow, 1, 2);
    wide = halves(4 * narrow, 1.2f, 3), wide2 = halves(4 * narrow, 1, 4), wide3 = halves(4 * narrow, 1, 5);
    w = halves(4 * m.width * m.width, 0.02f, 6), w2 = halves(4 * m.width * m.width, 0.02f, 7);
    bias = halves(4 * m.width, 0.1f, 8);
    partial = floats(1024 * 4 * m.width), sums = floats(4 * m.width), dw = floats(4 * m.width * m.width);
    ok(cudaDeviceSynchronize(), "filling");
  }
  Memory(const Memory&) = delete;
  Memory& operator=(const Memory&) = delete;
  ~Memory() {
    for (void* p : {(void*)x, (void*)y, (void*)wide, (void*)wide2, (void*)wide3, (void*)w, (void*)w2, (void*)bias,
                    (void*)partial, (void*)sums, (void*)dw})
      cudaFree(p);
  }
};

void warm(const Work& work, double seconds) {
  for (double start = now_s(); now_s() - start < seconds;) time_us(work, 20);
}

using Rows = std::vector<std::pair<std::string, Work>>;
void print_rows(const Model& m, const char* title, Rows rows, double flops) {
  if (std::getenv("LIBRARY_ONLY"))
    std::erase_if(rows, [](auto& r) { return r.first.find("own") != std::string::npos; });
  std::vector<Work> works;
  for (auto& r : rows) works.push_back(r.second);
  std::vector<double> us = in_turns(works);
  for (size_t i = 0; i < rows.size(); ++i)
    std::printf("%-10s %-4s %-60s %8.1f us  %5.2f ms a step  %5.0f TFLOP/s\n", m.name, title, rows[i].first.c_str(),
                us[i], us[i] * m.layers / 1e3, flops / us[i] / 1e6);
  std::fflush(stdout);
}

// The best of a product's candidates as work.
Work best_work(const char* name, const Lt& lt, const void* a, const void* b, const void* c, void* d) {
  std::vector<Work> works;
  for (auto& algorithm : lt.algorithms)
    works.push_back([&lt, &algorithm, a, b, c, d] { return lt.run(algorithm, a, b, c, d); });
  if (works.empty()) {
    std::printf("  %s: cuBLASLt has no algorithm\n", name);
    return [] { return false; };
  }
  Best b0 = best_of(works);
  std::printf("  %s: %zu candidates, best %zu: %.1f us (%s)\n", name, works.size(), b0.index, b0.us,
              std::isfinite(b0.us) ? describe(lt.algorithms[b0.index]).c_str() : "none runs");
  return works[b0.index];
}

void table_a(const Model& m, Memory& s) {
  int64_t M = m.rows, N = 4 * m.width, K = m.width;
  Lt plain(M, N, K, false, false, CUDA_R_16BF, CUBLASLT_EPILOGUE_DEFAULT, nullptr, nullptr, false, 200);
  Lt dgelu(M, N, K, false, false, CUDA_R_16BF, CUBLASLT_EPILOGUE_DGELU, nullptr, s.wide, false, 200);
  Lt dgelu_bgrad(M, N, K, false, false, CUDA_R_16BF, CUBLASLT_EPILOGUE_DGELU_BGRAD, s.sums, s.wide, false, 200);
  Work p = best_work("dX", plain, s.x, s.w, nullptr, s.wide2),
       d = best_work("dX DGELU", dgelu, s.x, s.w, nullptr, s.wide2);
  Work db = best_work("dX DGELU_BGRAD", dgelu_bgrad, s.x, s.w, nullptr, s.wide2);
  Rows rows;
  rows.emplace_back("dX alone", p);
  rows.emplace_back("dX, dGELU + sums + GELU again in one pass (today)", [&] {
    run_pointwise<true, true, true>(s.wide2, s.wide, s.wide2, s.wide3, s.partial, s.sums, M, N);
    return p();
  });
  rows.emplace_back("dX DGELU, bias sums, GELU again", [&] {
    run_pointwise<true, false, false>(nullptr, s.wide, nullptr, s.wide3, nullptr, nullptr, M, N);
    run_bias_grad(s.wide2, s.partial, s.sums, M, N);
    return d();
  });
  rows.emplace_back("dX DGELU_BGRAD, GELU again", [&] {
    run_pointwise<true, false, false>(nullptr, s.wide, nullptr, s.wide3, nullptr, nullptr, M, N);
    return db();
  });
  rows.emplace_back("without GELU again: dX, dGELU + sums in one pass", [&] {
    run_pointwise<false, true, true>(s.wide2, s.wide, s.wide2, nullptr, s.partial, s.sums, M, N);
    return p();
  });
  rows.emplace_back("without GELU again: dX DGELU_BGRAD", db);
  float* sums = s.sums;
  GemmCall keep = {s.x, s.w, s.wide, nullptr, s.wide2, s.wide3, s.partial}, drop = keep, plain_call = keep;
  drop.second = nullptr;
  for (int group : {4, 16, 64}) {
    std::string name = "own, groups of " + std::to_string(group) + " row tiles";
    rows.emplace_back(name, [=] { return own_grad(keep, M, N, K, group, sums); });
  }
  rows.emplace_back("own, without GELU again", [=] { return own_grad(drop, M, N, K, 16, sums); });
  rows.emplace_back("own, plain", [=] { return own<After::plain, false, true>(plain_call, M, N, K, 16); });
  print_rows(m, "a", rows, 2.0 * double(M) * double(N) * double(K));
}

void table_b(const Model& m, Memory& s) {
  for (int wide : {1, 3, 4}) {  // qkv, out, fc, proj: columns of dy times width
    for (bool in_wide : {false, true}) {
      if (in_wide && wide != 1) continue;
      int64_t M = wide * m.width, N = in_wide ? 4 * m.width : m.width, K = m.rows;
      const bfloat16 *dy = wide == 1 ? s.x : s.wide, *x = in_wide ? s.wide2 : s.y;
      Lt plain(M, N, K, true, false, CUDA_R_32F, CUBLASLT_EPILOGUE_DEFAULT, nullptr, nullptr, false, 200);
      Lt bgrad(M, N, K, true, false, CUDA_R_32F, CUBLASLT_EPILOGUE_BGRADB, s.sums, nullptr, false, 200);
      Work p = best_work("dW", plain, dy, x, nullptr, s.dw), b = best_work("dW BGRADB", bgrad, dy, x, nullptr, s.dw);
      std::string name = "dW [" + std::to_string(wide) + "C, " + (in_wide ? "4C]" : "C]");
      Rows rows = {{name + " alone", p},
                   {name + ", bias sums",
                    [&] {
                      run_bias_grad(dy, s.partial, s.sums, K, M);
                      return p();
                    }},
                   {name + " BGRADB", b}};
      print_rows(m, "b", rows, 2.0 * double(M) * double(N) * double(K));
    }
  }
}

void table_c(const Model& m, Memory& s) {
  int64_t M = m.rows, N = 4 * m.width, K = m.width;
  Lt plain(M, N, K, false, true, CUDA_R_16BF, CUBLASLT_EPILOGUE_BIAS, s.bias, nullptr, false, 200);
  Lt gelu(M, N, K, false, true, CUDA_R_16BF, CUBLASLT_EPILOGUE_GELU_AUX_BIAS, s.bias, s.wide, false, 200);
  Work p = best_work("linear BIAS", plain, s.x, s.w, nullptr, s.wide);
  Work g = best_work("linear GELU_AUX_BIAS", gelu, s.x, s.w, nullptr, s.wide2);
  GemmCall call = {s.x, s.w, nullptr, s.bias, s.wide2, s.wide, nullptr};
  Rows rows = {{"linear alone", p},
               {"linear, GELU",
                [&] {
                  bool good = p();
                  run_pointwise<true, false, false>(nullptr, s.wide, nullptr, s.wide2, nullptr, nullptr, M, N);
                  return good;
                }},
               {"linear GELU_AUX_BIAS", g}};
  for (int group : {4, 16, 64}) {
    std::string name = "own, groups of " + std::to_string(group) + " row tiles";
    rows.emplace_back(name, [=] { return own<After::bias_gelu, false, false>(call, M, N, K, group); });
  }
  print_rows(m, "c", rows, 2.0 * double(M) * double(N) * double(K));
}

void table_d(const Model& m, Memory& s) {
  for (int wide : {1, 4}) {
    int64_t M = m.rows, N = m.width, K = wide * m.width;
    const bfloat16* x = wide == 1 ? s.x : s.wide;
    bfloat16* to = s.wide2;
    Lt plain(M, N, K, false, true, CUDA_R_16BF, CUBLASLT_EPILOGUE_BIAS, s.bias, nullptr, false, 200);
    Lt added(M, N, K, false, true, CUDA_R_16BF, CUBLASLT_EPILOGUE_BIAS, s.bias, nullptr, true, 200);
    Work p = best_work("linear", plain, x, s.w, nullptr, to),
         r = best_work("linear + residual", added, x, s.w, s.y, to);
    std::string name = wide == 1 ? "out" : "proj";
    Rows rows = {{name + " alone", p}, {name + " with residual as C", r}};
    print_rows(m, "d", rows, 2.0 * double(M) * double(N) * double(K));
  }
}

struct ProductShape {
  const char* name;
  int64_t m, n, k;
  bool at, bt;  // b lies as [n, k]
  bool f32, bias;
};
std::vector<ProductShape> products_of(const Model& m) {
  int64_t R = m.rows, C = m.width, chunk = 8192, vocabulary = 50304;
  return {{"qkv", R, 3 * C, C, false, true, false, true},
          {"out", R, C, C, false, true, false, true},
          {"proj", R, C, 4 * C, false, true, false, true},
          {"qkv dX", R, C, 3 * C, false, false, false, false},
          {"out dX", R, C, C, false, false, false, false},
          {"fc dX", R, C, 4 * C, false, false, false, false},
          {"proj dX", R, 4 * C, C, false, false, false, false},
          {"qkv dW", 3 * C, C, R, true, false, true, false},
          {"out dW", C, C, R, true, false, true, false},
          {"fc dW", 4 * C, C, R, true, false, true, false},
          {"proj dW", C, 4 * C, R, true, false, true, false},
          {"head", chunk, vocabulary, C, false, true, false, false},
          {"head dX", chunk, C, vocabulary, false, false, false, false},
          {"head dW", vocabulary, C, chunk, true, false, true, false}};
}

void table_e(const Model& m, Memory& s, bool cold_too) {
  bfloat16 *logits = halves(8192 * 50304, 1, 9), *big_w = halves(50304 * m.width, 0.02f, 10);
  float* big_dw = floats(50304 * m.width);
  for (const ProductShape& p : products_of(m)) {
    bool head = !std::strncmp(p.name, "head", 4);
    const void *a = s.x, *b = s.w;
    void* d = s.wide2;
    if (p.k == 4 * m.width || p.k == 3 * m.width) a = s.wide;
    if (p.at) b = p.n == m.width ? s.y : s.wide2, d = s.dw, a = p.m == m.width ? s.x : s.wide;
    if (head && p.f32) a = logits, b = s.x, d = big_dw;
    if (head && !p.f32) a = p.k == m.width ? s.x : logits, b = big_w, d = p.k == m.width ? (void*)logits : s.wide2;
    Lt lt(p.m, p.n, p.k, p.at, p.bt, p.f32 ? CUDA_R_32F : CUDA_R_16BF,
          p.bias ? CUBLASLT_EPILOGUE_BIAS : CUBLASLT_EPILOGUE_DEFAULT, p.bias ? s.bias : nullptr, nullptr, false, 200);
    std::vector<Work> works;
    for (auto& algorithm : lt.algorithms)
      works.push_back([&lt, &algorithm, a, b, d] { return lt.run(algorithm, a, b, nullptr, d); });
    if (works.empty()) continue;
    size_t cold = 0;
    if (cold_too) {  // what Crest's tuning does: 40 ms of warm-up, then a median of few
      usleep(400000);
      warm(works[0], 0.04);
      std::vector<Work> first(
          works.begin(),
          works.begin() +
              long(std::min<size_t>(works.size(), 2.0 * double(p.m) * double(p.n) * double(p.k) > 1e12 ? 16 : 24)));
      std::vector<double> us = in_turns(first, finalists(screen(first), 4), 5);
      cold = size_t(std::min_element(us.begin(), us.end()) - us.begin());
      warm(works[0], 0.5);
    }
    std::vector<double> us = screen(works);
    std::vector<size_t> which;
    for (size_t prefix : {8u, 16u, 24u, 64u, 200u})
      for (size_t i : finalists({us.begin(), us.begin() + long(std::min<size_t>(prefix, us.size()))}, 4))
        if (std::find(which.begin(), which.end(), i) == which.end()) which.push_back(i);
    if (std::find(which.begin(), which.end(), cold) == which.end()) which.push_back(cold);
    if (std::find(which.begin(), which.end(), 0u) == which.end()) which.push_back(0);

    size_t library = works.size();
    if (!p.f32) {  // ours
      GemmCall call = {a, b, nullptr, s.bias, d, nullptr, nullptr};
      for (int group : {4, 16, 64})
        works.push_back([=] {
          if (p.bias) return own<After::bias, false, false>(call, p.m, p.n, p.k, group);
          return p.bt ? own<After::plain, false, false>(call, p.m, p.n, p.k, group)
                      : own<After::plain, false, true>(call, p.m, p.n, p.k, group);
        });
      for (size_t i = library; i < works.size(); ++i) which.push_back(i);
    }
    us = in_turns(works, which, 7);
    double ours = p.f32 ? INFINITY : *std::min_element(us.begin() + long(library), us.end());
    us.resize(library);
    std::printf("%-10s e    %-8s %3zu candidates, us: own %.1f, first %.1f", m.name, p.name, library, ours, us[0]);
    size_t best = 0;
    for (size_t prefix : {8u, 16u, 24u, 64u, 200u}) {
      best = size_t(std::min_element(us.begin(), us.begin() + long(std::min<size_t>(prefix, us.size()))) - us.begin());
      std::printf(", %zu: %.1f", prefix, us[best]);
    }
    if (cold_too) std::printf(", chosen cold: %.1f", us[cold]);
    double flops = 2.0 * double(p.m) * double(p.n) * double(p.k);
    std::printf(" = %.0f TFLOP/s (%zu: %s)\n", flops / us[best] / 1e6, best, describe(lt.algorithms[best]).c_str());
    std::fflush(stdout);
  }
  cudaFree(logits), cudaFree(big_w), cudaFree(big_dw);
}

void table_f(const Model& m, Memory& s) {
  for (const ProductShape& p : products_of(m)) {
    if (!p.at || !std::strncmp(p.name, "head", 4)) continue;
    const void *a = p.m == m.width ? s.x : s.wide, *b = p.n == m.width ? s.y : s.wide2;
    Lt lt(p.m, p.n, p.k, true, false, CUDA_R_32F, CUBLASLT_EPILOGUE_DEFAULT, nullptr, nullptr, false, 200);
    std::vector<Algorithm> all = lt.algorithms;
    std::vector<Work> works;
    for (auto& x : all) works.push_back([&lt, &x, a, b, &s] { return lt.run(x, a, b, nullptr, s.dw); });
    std::vector<size_t> top = finalists(screen(works), 6);
    std::vector<Algorithm> split;
    for (size_t i : top)
      for (int32_t parts : {1, 2, 3, 4, 5, 6, 8, 11}) {
        Algorithm x = all[i];
        uint32_t scheme = parts > 1 ? CUBLASLT_REDUCTION_SCHEME_COMPUTE_TYPE : CUBLASLT_REDUCTION_SCHEME_NONE;
        cublasLtMatmulAlgoConfigSetAttribute(&x, CUBLASLT_ALGO_CONFIG_SPLITK_NUM, &parts, sizeof parts);
        cublasLtMatmulAlgoConfigSetAttribute(&x, CUBLASLT_ALGO_CONFIG_REDUCTION_SCHEME, &scheme, sizeof scheme);
        if (lt.accepts(x)) split.push_back(x);
      }
    std::vector<Work> variants = {works[top[0]]};
    for (auto& x : split) variants.push_back([&lt, &x, a, b, &s] { return lt.run(x, a, b, nullptr, s.dw); });
    std::vector<size_t> which = finalists(screen(variants), 5);
    if (std::find(which.begin(), which.end(), 0u) == which.end()) which.push_back(0);
    std::vector<double> us = in_turns(variants, which, 7);
    size_t best = size_t(std::min_element(us.begin(), us.end()) - us.begin());
    std::printf("%-10s f    %-8s best of %zu candidates %.1f us, of %zu with splits %.1f us (%s)\n", m.name, p.name,
                all.size(), us[0], split.size(), us[best], best ? describe(split[best - 1]).c_str() : "the same");
    std::fflush(stdout);
  }
}

void table_g(const Model& m, Memory& s) {
  int64_t M = m.rows, N = 4 * m.width, K = m.width;
  Lt plain(M, N, K, false, false, CUDA_R_16BF, CUBLASLT_EPILOGUE_DEFAULT, nullptr, nullptr, false, 24);
  Lt bias(M, N, K, false, true, CUDA_R_16BF, CUBLASLT_EPILOGUE_BIAS, s.bias, nullptr, false, 24);
  Lt gelu(M, N, K, false, true, CUDA_R_16BF, CUBLASLT_EPILOGUE_GELU_AUX_BIAS, s.bias, s.wide, false, 24);
  Work p = best_work("dX", plain, s.x, s.w, nullptr, s.wide2);
  Work b = best_work("linear BIAS", bias, s.x, s.w, nullptr, s.wide);
  Work g = best_work("linear GELU_AUX_BIAS", gelu, s.x, s.w, nullptr, s.wide2);
  GemmCall grad = {s.x, s.w, s.wide, nullptr, s.wide2, s.wide3, s.partial};
  GemmCall linear = {s.x, s.w, nullptr, s.bias, s.wide2, s.wide, nullptr};
  Rows rows;
  rows.emplace_back("dX, cuBLASLt", p);
  rows.emplace_back("dX, own", [=] { return own<After::plain, false, true>(grad, M, N, K, 8); });
  rows.emplace_back("dX, then dGELU + sums + GELU, cuBLASLt", [&] {
    run_pointwise<true, true, true>(s.wide2, s.wide, s.wide2, s.wide3, s.partial, s.sums, M, N);
    return p();
  });
  float* sums = s.sums;
  rows.emplace_back("dX dGELU sums GELU, own for small K",
                    [=] { return own_grad<Grad::shallow>(grad, M, N, K, 8, sums); });
  rows.emplace_back("dX dGELU sums GELU, own for large K",
                    [=] { return own_grad<Grad::deep>(grad, M, N, K, 8, sums); });
  rows.emplace_back("fc BIAS, cuBLASLt", b);
  rows.emplace_back("fc BIAS, own", [=] { return own<After::bias, false, false>(linear, M, N, K, 8); });
  rows.emplace_back("fc GELU_AUX_BIAS, cuBLASLt", g);
  rows.emplace_back("fc bias GELU, own", [=] { return own<After::bias_gelu, false, false>(linear, M, N, K, 8); });
  print_rows(m, "g", rows, 2.0 * double(M) * double(N) * double(K));
}

// Input and weight gradients. The head's vocabulary is a multiple of 8, or odd; then the rows of dy have a pitch.
void table_h(const Model& m, Memory& s) {
  int64_t C = m.width, R = m.rows, pitch = 50304;
  const int64_t head = std::min<int64_t>(R, 16384);  // rows
  bfloat16 *logits = halves(head * pitch, 1, 9), *big_w = halves(pitch * C, 0.02f, 10);
  float *big_dw = floats(pitch * C), *parts = floats(256 * 128 * 256);
  auto print_dw = [&](const std::string& name, const bfloat16* a, const bfloat16* b, float* d, int64_t M, int64_t N,
                      int64_t K, int64_t a_pitch) {
    for (bool add : {false, true}) {
      const std::string what = name + (add ? " +=" : "");
      Lt lt(M, N, K, true, false, CUDA_R_32F, CUBLASLT_EPILOGUE_DEFAULT, nullptr, nullptr, add, 24, a_pitch);
      WeightCall call = {a, b, add ? d : nullptr, d, parts, int(a_pitch)};
      Rows rows;
      rows.emplace_back(what + ", cuBLASLt", best_work(what.c_str(), lt, a, b, d, d));
      rows.emplace_back(what + ", own", [=] { return own_weight(call, M, N, K); });
      print_rows(m, "h", rows, 2.0 * double(M) * double(N) * double(K));
    }
  };
  auto print_dx = [&](const std::string& name, const bfloat16* a, const bfloat16* b, bfloat16* c, int64_t M, int64_t N,
                      int64_t K, int64_t a_pitch) {
    Lt lt(M, N, K, false, false, CUDA_R_16BF, CUBLASLT_EPILOGUE_DEFAULT, nullptr, nullptr, false, 24, a_pitch);
    GemmCall call = {a, b, nullptr, nullptr, c, nullptr, nullptr, 0, int(a_pitch)};
    Rows rows;
    rows.emplace_back(name + ", cuBLASLt", best_work(name.c_str(), lt, a, b, nullptr, c));
    rows.emplace_back(name + ", own", [=] { return own<After::plain, false, true>(call, M, N, K, 8); });
    print_rows(m, "h", rows, 2.0 * double(M) * double(N) * double(K));
  };
  for (int64_t vocabulary : {int64_t(50257), pitch}) {
    const std::string name = "head " + std::to_string(vocabulary);
    print_dx(name + " dX", logits, big_w, s.y, head, C, vocabulary, pitch);
    print_dw(name + " dW", logits, s.x, big_dw, vocabulary, C, head, pitch);
  }
  print_dx("qkv dX", s.wide, s.w, s.wide2, R, C, 3 * C, 0);
  print_dx("out dX", s.x, s.w, s.wide2, R, C, C, 0);
  print_dx("fc dX", s.wide, s.w, s.wide2, R, C, 4 * C, 0);
  print_dw("qkv dW", s.wide, s.y, s.dw, 3 * C, C, R, 0);
  print_dw("out dW", s.x, s.y, s.dw, C, C, R, 0);
  print_dw("fc dW", s.wide, s.y, s.dw, 4 * C, C, R, 0);
  print_dw("proj dW", s.x, s.wide2, s.dw, C, 4 * C, R, 0);
  for (void* p : {(void*)logits, (void*)big_w, (void*)big_dw, (void*)parts}) cudaFree(p);
}

// --- correctness ---

__global__ void reference(const bfloat16* a, const bfloat16* b, double* y, int m, int n, int k, int a_pitch, bool at,
                          bool bt) {
  int64_t i = int64_t(blockIdx.x) * blockDim.x + threadIdx.x;
  if (i >= int64_t(m) * n) return;
  int64_t r = i / n, c = i % n;
  double sum = 0;
  for (int64_t l = 0; l < k; ++l)
    sum += double(widen(a[at ? l * a_pitch + r : r * a_pitch + l])) * double(widen(b[bt ? l * n + c : c * k + l]));
  y[i] = sum;
}

double host_gelu(double x) { return x / 2 * (1 + std::tanh(std::sqrt(2 / M_PI) * (x + 0.044715 * x * x * x))); }
double rounded(double x) { return double(to_float(to_bfloat16(float(x)))); }

// A kernel of the gradient of GELU, or the ping-pong kernel.
template <After after_, bool AT_, bool BT_>
struct Linear {
  static constexpr After after = after_;
  static constexpr bool AT = AT_, BT = BT_, gelu_grad = false;
  static bool run(const GemmCall& call, int m, int n, int k, int group, float*) {
    return own<after, AT, BT>(call, m, n, k, group);
  }
};
template <Grad way>
struct GeluGrad {
  static constexpr After after = After::plain;
  static constexpr bool AT = false, BT = true, gelu_grad = true;
  static bool run(const GemmCall& call, int m, int n, int k, int group, float* sums) {
    return own_grad<way>(call, m, n, k, group, sums);
  }
};

// [rows, width], rows `pitch` apart, NaN between them.
bfloat16* pitched(int64_t rows, int64_t width, int64_t pitch) {
  bfloat16* x = halves(rows * pitch, 1, 1);
  if (pitch > width)
    ok(cudaMemset2DAsync(x + width, size_t(pitch) * 2, 0xff, size_t(pitch - width) * 2, size_t(rows), stream), "NaN");
  return x;
}

template <class Kernel>
int check(const char* name, int m, int n, int k, int repeats, int a_pitch = 0) {
  const int lda = a_pitch ? a_pitch : Kernel::AT ? m : k;
  bfloat16 *a = pitched(Kernel::AT ? k : m, Kernel::AT ? m : k, lda),
           *b = halves(int64_t(n) * k, 1 / std::sqrt(float(k)), 2);
  bfloat16 *x = halves(int64_t(m) * n, 1.5f, 3), *bias = halves(n, 1, 4);
  bfloat16 *c = halves(int64_t(m) * n, 1, 5), *second = halves(int64_t(m) * n, 1, 6);
  float *partial = floats(int64_t(m + 127) / 128 * n), *sums = floats(n);
  void* y;
  ok(cudaMalloc(&y, size_t(m) * size_t(n) * 8), "memory");
  reference<<<unsigned((int64_t(m) * n + 255) / 256), 256, 0, stream>>>(a, b, static_cast<double*>(y), m, n, k, lda,
                                                                        Kernel::AT, Kernel::BT);
  size_t count = size_t(m) * size_t(n);
  std::vector<double> wanted(count), sum(static_cast<size_t>(n), 0.0);
  std::vector<bfloat16> hx(count), hb(static_cast<size_t>(n)), hc(count), hs(count), hc0, hs0;
  std::vector<float> got(static_cast<size_t>(n)), got0;
  auto fetch = [&](auto& to, const void* from) {
    ok(cudaMemcpyAsync(to.data(), from, to.size() * sizeof to[0], cudaMemcpyDeviceToHost, stream), "a copy");
  };
  fetch(wanted, y), fetch(hx, x), fetch(hb, bias);
  int changed = 0;
  for (int r = 0; r < repeats; ++r) {
    cudaMemsetAsync(c, 0xff, count * 2, stream), cudaMemsetAsync(second, 0xff, count * 2, stream);
    GemmCall call = {a, b, x, bias, c, second, partial, 0, a_pitch};
    if (!Kernel::run(call, m, n, k, 1 + r % 5 * 4, sums)) return std::printf("start failed\n"), 1;
    fetch(hc, c), fetch(hs, second), fetch(got, sums);
    ok(cudaStreamSynchronize(stream), "the kernel");
    if (r == 0) hc0 = hc, hs0 = hs, got0 = got;
    changed += std::memcmp(hc.data(), hc0.data(), count * 2) || std::memcmp(hs.data(), hs0.data(), count * 2) ||
               (Kernel::gelu_grad && std::memcmp(got.data(), got0.data(), got.size() * 4));
  }
  double worst = 0, worst_second = 0, worst_sum = 0;
  auto beside = [](double g, double w) { return std::abs(g - w) / (1 + std::abs(w)); };
  for (size_t i = 0; i < count; ++i) {
    double v = wanted[i], z = 0, xi = to_float(hx[i]);
    if (Kernel::after == After::bias) v += to_float(hb[i % size_t(n)]);
    if (Kernel::after == After::bias_gelu) z = v + to_float(hb[i % size_t(n)]), v = host_gelu(rounded(z));
    if (Kernel::gelu_grad) v = rounded(v) * (host_gelu(xi + 1e-4) - host_gelu(xi - 1e-4)) / 2e-4, z = host_gelu(xi);
    worst = std::max(worst, beside(to_float(hc[i]), v));
    if (Kernel::after == After::bias_gelu || Kernel::gelu_grad)
      worst_second = std::max(worst_second, beside(to_float(hs[i]), z));
    sum[i % size_t(n)] += v;
    if (!(beside(to_float(hc[i]), v) < 1)) worst = 99;
  }
  if (Kernel::gelu_grad)
    for (size_t j = 0; j < sum.size(); ++j)
      worst_sum = std::max(worst_sum, std::abs(got[j] - sum[j]) / std::sqrt(double(m)));
  bool good = worst < 1.2e-2 && worst_second < 1.2e-2 && worst_sum < 5e-3 && !changed;
  std::printf("%s %s m %d n %d k %d: c %.1e second %.1e sums %.1e, %d of %d runs differ\n", good ? "ok   " : "WRONG",
              name, m, n, k, worst, worst_second, worst_sum, changed, repeats);
  std::fflush(stdout);
  for (void* p : {(void*)a, (void*)b, (void*)x, (void*)bias, (void*)c, (void*)second, (void*)partial, (void*)sums, y})
    cudaFree(p);
  return !good;
}

int check_weight(int m, int n, int k, int repeats, int a_pitch = 0) {
  const int lda = a_pitch ? a_pitch : m;
  bfloat16 *a = pitched(k, m, lda), *b = halves(int64_t(n) * k, 1 / std::sqrt(float(k)), 2);
  const size_t count = size_t(m) * size_t(n), floats_of_parts = size_t(256) * 128 * 256;
  float *c = floats(int64_t(count)), *parts = floats(int64_t(floats_of_parts));
  void* y;
  ok(cudaMalloc(&y, count * 8), "memory");
  reference<<<unsigned((count + 255) / 256), 256, 0, stream>>>(a, b, static_cast<double*>(y), m, n, k, lda, true, true);
  std::vector<double> wanted(count);
  std::vector<float> got(count), first, ones(count, 1.f);
  ok(cudaMemcpyAsync(wanted.data(), y, count * 8, cudaMemcpyDeviceToHost, stream), "a copy");
  int changed = 0;
  double worst = 0;
  for (bool add : {false, true}) {
    for (int r = 0; r < repeats; ++r) {
      if (add)
        ok(cudaMemcpyAsync(c, ones.data(), count * 4, cudaMemcpyHostToDevice, stream), "a copy");
      else
        cudaMemsetAsync(c, 0xff, count * 4, stream);
      cudaMemsetAsync(parts, 0xff, floats_of_parts * 4, stream);
      if (!own_weight({a, b, add ? c : nullptr, c, parts, a_pitch}, m, n, k)) return std::printf("start failed\n"), 1;
      ok(cudaMemcpyAsync(got.data(), c, count * 4, cudaMemcpyDeviceToHost, stream), "a copy");
      ok(cudaStreamSynchronize(stream), "the kernel");
      if (r == 0) first = got;
      changed += std::memcmp(got.data(), first.data(), count * 4) != 0;
    }
    for (size_t i = 0; i < count; ++i) {
      const double error = std::abs(double(got[i]) - wanted[i] - (add ? 1 : 0));
      worst = error < 99 ? std::max(worst, error) : 99;
    }
  }
  const bool good = worst < 2e-4 && !changed;
  std::printf("%s weight gradient m %d n %d k %d: %.1e, %d of %d runs differ\n", good ? "ok   " : "WRONG", m, n, k,
              worst, changed, 2 * repeats);
  std::fflush(stdout);
  for (void* p : {(void*)a, (void*)b, (void*)c, (void*)parts, y}) cudaFree(p);
  return !good;
}

struct Size {
  int m, n, k, repeats, pitch = 0;
};
// Of dW; dX has m and k exchanged.
constexpr Size gradient_sizes[] = {{8, 8, 8, 3},         {57, 264, 200, 5, 64},       {129, 72, 136, 5, 136},
                                   {136, 264, 72, 5},    {50257, 768, 512, 5, 50304}, {2304, 768, 4096, 20},
                                   {768, 768, 8192, 20}, {15801, 256, 520, 5, 15808}, {4800, 1600, 1024, 10}};
constexpr Size sizes[] = {{8, 8, 8, 5},         {128, 256, 64, 5},     {136, 264, 72, 5},
                          {1000, 776, 328, 20}, {2048, 3072, 768, 60}, {1304, 6400, 1600, 20}};

int check_all(bool quick) {
  int wrong = 0;
  for (const Size& z : sizes) {
    const bool large = int64_t(z.m) * z.n > 1 << 20;
    if (quick && large) continue;
    const int few = (z.repeats + 4) / 5;
    wrong += check<GeluGrad<Grad::shallow>>("GELU gradient, small K", z.m, z.n, z.k, z.repeats);
    wrong += check<GeluGrad<Grad::deep>>("GELU gradient, large K", z.m, z.n, z.k, z.repeats);
    wrong += check<Linear<After::bias_gelu, false, false>>("bias GELU", z.m, z.n, z.k, z.repeats);
    wrong += check<Linear<After::bias, false, false>>("bias", z.m, z.n, z.k, few);
    wrong += check<Linear<After::plain, false, false>>("plain", z.m, z.n, z.k, few);
    wrong += check<Linear<After::plain, false, true>>("plain, b [k, n]", z.m, z.n, z.k, few);
    wrong += check<Linear<After::plain, true, true>>("plain, a [k, m], b [k, n]", z.m, z.n, z.k, few);
  }
  for (const Size& z : gradient_sizes) {
    if (quick && int64_t(z.m) * z.n > 1 << 21) continue;
    wrong += check_weight(z.m, z.n, z.k, z.repeats, z.pitch);
    wrong += check<Linear<After::plain, false, true>>("dX", z.k, z.n, z.m, z.repeats, z.pitch);
  }
  return wrong;
}

}  // namespace

int main(int count, char** arguments) {
  if (count < 2) return std::printf("usage: epilogues check | epilogues TABLES [MODEL]..\n"), 2;
  ok(cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking), "a stream");
  std::string tables = arguments[1];
  if (tables == "check") return check_all(count > 2) ? 1 : 0;
  ok(cublasLtCreate(&handle), "cuBLASLt");
  ok(cudaMalloc(&workspace, workspace_bytes), "memory");
  std::printf("cuBLASLt %zu\n", cublasLtGetVersion());
  for (const Model& m : models) {
    bool wanted = count == 2;
    for (int i = 2; i < count; ++i) wanted |= !std::strcmp(arguments[i], m.name);
    if (!wanted) continue;
    double start = now_s();
    Memory s(m);
    Lt load(m.rows, 4 * m.width, m.width, false, true, CUDA_R_16BF, CUBLASLT_EPILOGUE_DEFAULT, nullptr, nullptr, false,
            1);
    Work first = [&] { return load.run(load.algorithms[0], s.x, s.w, nullptr, s.wide2); };
    warm(first, 0.7);
    auto has = [&](char c) { return tables.find(c) != std::string::npos; };
    if (has('a')) table_a(m, s);
    if (has('b')) table_b(m, s);
    if (has('c')) table_c(m, s);
    if (has('d')) table_d(m, s);
    if (has('e')) table_e(m, s, has('E'));
    if (has('f')) table_f(m, s);
    if (has('g')) table_g(m, s);
    if (has('h')) table_h(m, s);
    std::printf("%s: %.1f s\n", m.name, now_s() - start);
  }
  return 0;
}
