// Versions of oneDNN (and MKL) on the products of linear layers, one thread, interleaved in one
// process: GFLOP/s by the thread's own processor time, fastest of ROUNDS.
//   g++ -std=c++20 -O2 studies/cpu_gemm/libraries.cpp -ldl -o libraries
//   taskset -c 0 ./libraries sgemm|bf16 ROUNDS NAME=FILE..
// sgemm: FILE is libdnnl.so or libmkl_rt.so. bf16: FILE is made from library_products.cpp; of the
// operands as they are and packed in each run, the faster counts.
#include <dlfcn.h>

#include <algorithm>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <ctime>
#include <string>
#include <vector>

namespace {

using Dnnl = int (*)(char, char, int64_t, int64_t, int64_t, float, const float*, int64_t, const float*, int64_t, float,
                     float*, int64_t);
using Cblas = void (*)(int, int, int, int, int, int, float, const float*, int, const float*, int, float, float*, int);
using Make = void* (*)(bool, bool, bool, bool, bool, long, long, long);
using Run = void (*)(void*, const void*, const void*, void*);

struct Library {
  std::string name;
  Dnnl dnnl = nullptr;
  Cblas cblas = nullptr;
  Make make = nullptr;
  Run run = nullptr;
};

struct Case {
  const char* name;
  bool ta, tb;
  int64_t m, n, k;
};

double cpu() {
  timespec t;
  clock_gettime(CLOCK_THREAD_CPUTIME_ID, &t);
  return double(t.tv_sec) + double(t.tv_nsec) * 1e-9;
}

}  // namespace

int main(int argc, char** argv) {
  if (argc < 4) return std::printf("usage: see the first lines of the source\n"), 2;
  bool bf16 = !std::strcmp(argv[1], "bf16");
  int rounds = std::atoi(argv[2]);
  std::vector<Library> all;
  for (int i = 3; i < argc; ++i) {
    std::string text = argv[i];
    size_t at = text.find('=');
    Library l{text.substr(0, at)};
    void* handle = dlopen(text.c_str() + at + 1, RTLD_NOW | RTLD_LOCAL | RTLD_DEEPBIND);
    if (!handle) return std::printf("%s\n", dlerror()), 1;
    l.dnnl = Dnnl(dlsym(handle, "dnnl_sgemm"));
    l.cblas = Cblas(dlsym(handle, "cblas_sgemm"));
    l.make = Make(dlsym(handle, "product_make")), l.run = Run(dlsym(handle, "product_run"));
    all.push_back(l);
  }
  std::vector<Case> cases;
  const int64_t layers[][2] = {{2304, 768}, {768, 768}, {3072, 768}, {768, 3072}, {50304, 768}};
  constexpr int64_t rows = 1024;
  for (auto& [n, k] : layers) {
    cases.push_back({"linear", false, true, rows, n, k});
    cases.push_back({"linear_dx", false, false, rows, k, n});
    cases.push_back({"linear_dw", true, false, n, k, rows});
  }
  std::printf("| product | m n k |");
  for (auto& l : all) std::printf(" %s |", l.name.c_str());
  std::printf("\n|---|---|");
  for (size_t i = 0; i < all.size(); ++i) std::printf("---|");
  std::printf("\n");
  for (auto& c : cases) {
    size_t most = size_t(std::max({c.m * c.k, c.k * c.n, c.m * c.n}));
    std::vector<float> a(most), b(most), r(most);
    if (bf16)
      for (size_t i = 0; i < 2 * most; ++i)
        ((uint16_t*)a.data())[i] = ((uint16_t*)b.data())[i] = uint16_t(0x3c00 + i * 2654435761u % 512);
    else
      for (size_t i = 0; i < most; ++i) a[i] = b[i] = float(i * 2654435761u % 1000) / 1000 - 0.5f;
    std::vector<std::vector<void*>> made(all.size());
    if (bf16)
      for (size_t i = 0; i < all.size(); ++i)
        for (bool pack : {false, true})
          if (void* p = all[i].make(true, c.ta, c.tb, c.ta, pack, c.m, c.n, c.k)) made[i].push_back(p);
    std::vector<double> best(all.size(), 1e9);
    for (int round = 0; round < rounds; ++round)
      for (size_t i = 0; i < all.size(); ++i) {
        const Library& l = all[i];
        int64_t lda = c.ta ? c.m : c.k, ldb = c.tb ? c.k : c.n;
        auto timed = [&](auto work) {
          double start = cpu();
          work();
          best[i] = std::min(best[i], cpu() - start);
        };
        if (bf16)
          for (void* p : made[i]) timed([&] { l.run(p, a.data(), b.data(), r.data()); });
        else if (l.cblas)
          timed([&] {
            l.cblas(101, c.ta ? 112 : 111, c.tb ? 112 : 111, int(c.m), int(c.n), int(c.k), 1, a.data(), int(lda),
                    b.data(), int(ldb), 0, r.data(), int(c.n));
          });
        else
          timed([&] {
            l.dnnl(c.ta ? 'T' : 'N', c.tb ? 'T' : 'N', c.m, c.n, c.k, 1, a.data(), lda, b.data(), ldb, 0, r.data(), c.n);
          });
      }
    std::printf("| %s | %ld %ld %ld |", c.name, long(c.m), long(c.n), long(c.k));
    for (double s : best) std::printf(" %.0f |", 2e-9 * double(c.m * c.n * c.k) / s);
    std::printf("\n");
    std::fflush(stdout);
  }
}
