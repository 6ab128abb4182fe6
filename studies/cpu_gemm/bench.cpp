// Which oneDNN formulation of a linear layer is fastest on this CPU? Times the three orientations (forward, gradient of
// the input, gradient of the weight) over the shapes of gpt2-124M with all weights and activations plain row-major.
//
//   g++ -std=c++20 -O2 -fopenmp studies/cpu_gemm/bench.cpp -ldnnl -o /tmp/cpu_gemm && OMP_NUM_THREADS=1 /tmp/cpu_gemm
//
// One thread: the figure is the best of several runs by thread CPU time, so that other processes disturb it little.
// More threads: wall-clock time. Every time includes the reorders (copies) that a formulation needs.
#include <omp.h>
#include <time.h>

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <functional>
#include <oneapi/dnnl/dnnl.hpp>
#include <random>
#include <string>
#include <vector>

using dt = dnnl::memory::data_type;
using tag = dnnl::memory::format_tag;
using md = dnnl::memory::desc;

static dnnl::engine engine(dnnl::engine::kind::cpu, 0);
static dnnl::stream stream(engine);

static double now() {
  timespec t;
  clock_gettime(omp_get_max_threads() == 1 ? CLOCK_THREAD_CPUTIME_ID : CLOCK_MONOTONIC, &t);
  return double(t.tv_sec) + 1e-9 * double(t.tv_nsec);
}

// Random data in [-1, 1): zeros would hide power limits and denormals.
static dnnl::memory make(const md& desc) {
  dnnl::memory m(desc, engine);
  static std::mt19937 rng(1);
  size_t n = desc.get_size();
  if (desc.data.data_type == dnnl_f32) {
    auto* p = static_cast<float*>(m.get_data_handle());
    for (size_t i = 0; i < n / 4; ++i) p[i] = float(int32_t(rng())) * 0x1p-31f;
  } else {
    auto* p = static_cast<uint16_t*>(m.get_data_handle());
    for (size_t i = 0; i < n / 2; ++i) {
      float f = float(int32_t(rng())) * 0x1p-31f;
      uint32_t u;
      std::memcpy(&u, &f, 4);
      p[i] = uint16_t(u >> 16);
    }
  }
  return m;
}

static void report(const char* type, const char* what, long m, long k, long n, const char* how, const char* impl,
                   const std::function<void()>& run) {
  run();
  double best = 1e30, spent = 0;
  for (int i = 0; i < 40 && (i < 3 || spent < 0.6); ++i) {
    double start = now();
    run();
    double t = now() - start;
    best = std::min(best, t), spent += t;
  }
  std::printf("%-5s %-8s %5ld %5ld %6ld  %-34s %9.3f ms %8.1f GFLOP/s  %s\n", type, what, m, k, n, how, best * 1e3,
              2e-9 * double(m) * double(k) * double(n) / best, impl);
  std::fflush(stdout);
}

// c = a b through a matmul primitive; descriptors may be `any`, then reorders run before or after it each time.
static void matmul(const char* type, const char* what, const char* how, long m, long k, long n, md a, md b, md c,
                   md user_a, md user_b, bool sum) try {
  dnnl::primitive_attr attr;
  if (sum) {
    dnnl::post_ops ops;
    ops.append_sum(1.0f);
    attr.set_post_ops(ops);
  }
  dnnl::matmul::primitive_desc pd({a, b, c}, attr, engine);
  dnnl::matmul prim(pd);
  dnnl::memory ma = make(user_a), mb = make(user_b), mc = make(pd.dst_desc());
  bool move_a = pd.src_desc() != user_a, move_b = pd.weights_desc() != user_b;
  dnnl::memory pa = move_a ? dnnl::memory(pd.src_desc(), engine) : ma;
  dnnl::memory pb = move_b ? dnnl::memory(pd.weights_desc(), engine) : mb;
  dnnl::reorder ra, rb;
  if (move_a) ra = dnnl::reorder(ma, pa);
  if (move_b) rb = dnnl::reorder(mb, pb);
  report(type, what, m, k, n, how, pd.impl_info_str(), [&] {
    if (move_a) ra.execute(stream, ma, pa);
    if (move_b) rb.execute(stream, mb, pb);
    prim.execute(stream, {{DNNL_ARG_SRC, pa}, {DNNL_ARG_WEIGHTS, pb}, {DNNL_ARG_DST, mc}});
    stream.wait();
  });
} catch (const dnnl::error& e) {
  std::printf("%-5s %-8s %5ld %5ld %6ld  %-34s unsupported: %s\n", type, what, m, k, n, how, e.what());
}

// The three inner-product primitives on rows x[M,K], w[N,K] (oi), y[M,N], plain or with `any` layouts and reorders.
static void inner(const char* type, dt t, dt dwt, long m, long k, long n, bool any) try {
  md x({m, k}, t, tag::nc), w({n, k}, t, tag::oi), y({m, n}, t, tag::nc), dw({n, k}, dwt, tag::oi);
  md xa({m, k}, t, any ? tag::any : tag::nc), wa({n, k}, t, any ? tag::any : tag::oi);
  md ya({m, n}, t, any ? tag::any : tag::nc), dwa({n, k}, dwt, any ? tag::any : tag::oi);
  auto bring = [](const md& user, const md& wanted, std::vector<std::function<void()>>& before) {
    dnnl::memory from = make(user);
    if (user == wanted) return from;
    dnnl::memory to(wanted, engine);
    dnnl::reorder r(from, to);
    before.push_back([=]() mutable { r.execute(stream, from, to); });
    return to;
  };
  auto give = [](const md& user, const md& made, std::vector<std::function<void()>>& after) {
    dnnl::memory from = make(made);
    if (user == made) return from;
    dnnl::memory to(user, engine);
    dnnl::reorder r(from, to);
    after.push_back([=]() mutable { r.execute(stream, from, to); });
    return from;
  };
  auto time = [&](const char* what, const char* impl, std::vector<std::function<void()>> before, dnnl::primitive p,
                  std::unordered_map<int, dnnl::memory> args, std::vector<std::function<void()>> after) {
    report(type, what, m, k, n, any ? "inner_product any+reorders" : "inner_product plain", impl, [&] {
      for (auto& f : before) f();
      p.execute(stream, args);
      for (auto& f : after) f();
      stream.wait();
    });
  };
  dnnl::inner_product_forward::primitive_desc f({dnnl::prop_kind::forward_training, xa, wa, ya}, engine);
  {
    std::vector<std::function<void()>> before, after;
    auto a = bring(x, f.src_desc(), before), b = bring(w, f.weights_desc(), before);
    auto c = give(y, f.dst_desc(), after);
    time("linear", f.impl_info_str(), before, dnnl::inner_product_forward(f),
         {{DNNL_ARG_SRC, a}, {DNNL_ARG_WEIGHTS, b}, {DNNL_ARG_DST, c}}, after);
  }
  {
    dnnl::inner_product_backward_data::primitive_desc p({xa, wa, ya}, engine, f);
    std::vector<std::function<void()>> before, after;
    auto a = bring(y, p.diff_dst_desc(), before), b = bring(w, p.weights_desc(), before);
    auto c = give(x, p.diff_src_desc(), after);
    time("dx", p.impl_info_str(), before, dnnl::inner_product_backward_data(p),
         {{DNNL_ARG_DIFF_DST, a}, {DNNL_ARG_WEIGHTS, b}, {DNNL_ARG_DIFF_SRC, c}}, after);
  }
  {
    dnnl::inner_product_backward_weights::primitive_desc p({xa, dwa, ya}, engine, f);
    std::vector<std::function<void()>> before, after;
    auto a = bring(y, p.diff_dst_desc(), before), b = bring(x, p.src_desc(), before);
    auto c = give(dw, p.diff_weights_desc(), after);
    time("dw", p.impl_info_str(), before, dnnl::inner_product_backward_weights(p),
         {{DNNL_ARG_DIFF_DST, a}, {DNNL_ARG_SRC, b}, {DNNL_ARG_DIFF_WEIGHTS, c}}, after);
  }
} catch (const dnnl::error& e) {
  std::printf("%-5s inner_product %ld %ld %ld unsupported: %s\n", type, m, k, n, e.what());
}

int main(int argc, char** argv) {
  long rows = 1024;
  std::string only = argc > 1 ? argv[1] : "";
  std::printf("threads %d\n", omp_get_max_threads());
  for (dt t : {dt::f32, dt::bf16}) {
    const char* type = t == dt::f32 ? "f32" : "bf16";
    if (!only.empty() && only != type && only != "ceiling") continue;
    long s = 4096;
    md square({s, s}, t, tag::ab);
    matmul(type, "ceiling", "square matmul ab ab", s, s, s, square, square, square, square, square, false);
    md any({s, s}, t, tag::any);
    matmul(type, "ceiling", "square matmul ab any+reorder", s, s, s, square, any, square, square, square, false);
    if (only == "ceiling") continue;
    const long shapes[][2] = {{768, 2304}, {768, 768}, {768, 3072}, {3072, 768}, {768, 50304}};
    for (auto [k, n] : shapes) {
      md x({rows, k}, t, tag::ab), y({rows, n}, t, tag::ab), w({n, k}, t, tag::ab), wt({k, n}, t, tag::ba);
      md any_w({k, n}, t, tag::any), any_x({rows, k}, t, tag::any);
      matmul(type, "linear", "matmul w=ba", rows, k, n, x, wt, y, x, wt, false);
      matmul(type, "linear", "matmul w=any+reorder", rows, k, n, x, any_w, y, x, wt, false);
      matmul(type, "linear", "matmul w copied to ab", rows, k, n, x, md({k, n}, t, tag::ab), y, x, wt, false);
      matmul(type, "dx", "matmul w=ab", rows, n, k, y, w, x, y, w, false);
      matmul(type, "dx", "matmul w=any+reorder", rows, n, k, y, md({n, k}, t, tag::any), x, y, w, false);
      md dyt({n, rows}, t, tag::ba), dw({n, k}, dt::f32, tag::ab), dyt_copy({n, rows}, t, tag::ab);
      matmul(type, "dw", "matmul dy^T=ba", n, rows, k, dyt, x, dw, dyt, x, false);
      matmul(type, "dw", "matmul dy^T=ba, sum", n, rows, k, dyt, x, dw, dyt, x, true);
      matmul(type, "dw", "matmul dy^T copied to ab", n, rows, k, dyt_copy, x, dw, dyt, x, false);
      matmul(type, "dw", "matmul copied to ab, x any", n, rows, k, dyt_copy, any_x, dw, dyt, x, false);
      matmul(type, "dw", "matmul copied, x any, sum", n, rows, k, dyt_copy, any_x, dw, dyt, x, true);
      inner(type, t, dt::f32, rows, k, n, false);
      inner(type, t, dt::f32, rows, k, n, true);
    }
  }
}
