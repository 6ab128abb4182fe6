#include "measure/instruction_peaks.h"

#include <fmt/format.h>
#include <omp.h>

#include <atomic>
#include <cmath>
#include <cstring>

#include "core/dtype.h"
#include "core/error.h"

#if defined(__x86_64__)
#include <immintrin.h>
#endif

namespace crest {

namespace {

// Enough to hide the latency of 4 to 5 cycles on two units; AVX2 has only 16 registers.
constexpr int accumulators = 12;
constexpr int64_t rounds = 2000000;

// One kind of instruction: acc = acc op (a, b). All lanes of all accumulators start equal.
struct Unit {
  const char* precision;
  const char* instruction;
  const char* missing;  // the missing feature if `there` is false
  bool there;
  double operations;                   // per instruction
  double (*run)(int64_t rounds);       // value of one accumulator lane
  double (*expected)(int64_t rounds);  // the same in scalar code
  double tolerance;                    // relative
};

#if defined(__x86_64__)

// x = x * a + b converges to b / (1 - a) = 2: no overflow, no denormals.
constexpr double factor = 0.75, summand = 0.5;

template <class T>
double scalar_fma(int64_t n) {
  T x = 1;
  for (int64_t i = 0; i < n; ++i) x = std::fma(x, T(factor), T(summand));
  return double(x);
}

template <class Lane>
double first_lane(const void* vector) {
  Lane lane;
  std::memcpy(&lane, vector, sizeof(lane));
  return double(lane);
}

// The loop of every unit. Its accumulators are named variables, since an array would stay in
// memory. The empty assembly keeps the compiler from precomputing the values.
#define CREST_PEAK_EACH(DO, ...) \
  DO(x0, __VA_ARGS__)            \
  DO(x1, __VA_ARGS__)            \
  DO(x2, __VA_ARGS__)            \
  DO(x3, __VA_ARGS__)            \
  DO(x4, __VA_ARGS__)            \
  DO(x5, __VA_ARGS__)            \
  DO(x6, __VA_ARGS__)            \
  DO(x7, __VA_ARGS__) DO(x8, __VA_ARGS__) DO(x9, __VA_ARGS__) DO(x10, __VA_ARGS__) DO(x11, __VA_ARGS__)
#define CREST_PEAK_DECLARE(X, START) auto X = START;
#define CREST_PEAK_STEP(X, STEP) \
  X = STEP(X, a, b);             \
  asm volatile("" : "+v"(X));
#define CREST_PEAK_SAME(X, LANE) same &= first_lane<LANE>(&X) == first;
#define CREST_PEAK_LOOP(LANE, START, STEP)   \
  CREST_PEAK_EACH(CREST_PEAK_DECLARE, START) \
  for (int64_t i = 0; i < n; ++i) {          \
    CREST_PEAK_EACH(CREST_PEAK_STEP, STEP)   \
  }                                          \
  double first = first_lane<LANE>(&x0);      \
  bool same = true;                          \
  CREST_PEAK_EACH(CREST_PEAK_SAME, LANE)     \
  return same ? first : NAN;

__attribute__((target("avx512f"))) double fma512_ps(int64_t n) {
  __m512 a = _mm512_set1_ps(factor), b = _mm512_set1_ps(summand);
  CREST_PEAK_LOOP(float, _mm512_set1_ps(1), _mm512_fmadd_ps)
}
__attribute__((target("avx512f"))) double fma512_pd(int64_t n) {
  __m512d a = _mm512_set1_pd(factor), b = _mm512_set1_pd(summand);
  CREST_PEAK_LOOP(double, _mm512_set1_pd(1), _mm512_fmadd_pd)
}
__attribute__((target("avx2,fma"))) double fma256_ps(int64_t n) {
  __m256 a = _mm256_set1_ps(factor), b = _mm256_set1_ps(summand);
  CREST_PEAK_LOOP(float, _mm256_set1_ps(1), _mm256_fmadd_ps)
}
__attribute__((target("avx2,fma"))) double fma256_pd(int64_t n) {
  __m256d a = _mm256_set1_pd(factor), b = _mm256_set1_pd(summand);
  CREST_PEAK_LOOP(double, _mm256_set1_pd(1), _mm256_fmadd_pd)
}

// Dot products add to the accumulator, and small operands keep the sum exact.
constexpr float dot_value = 0.0078125f;  // 2^-7 twice: 2^-14 per product
__attribute__((target("avx512f,avx512bw,avx512bf16"))) double dot512_bf16(int64_t n) {
  __m512bh a = _mm512_cvtne2ps_pbh(_mm512_set1_ps(dot_value), _mm512_set1_ps(dot_value)), b = a;
  CREST_PEAK_LOOP(float, _mm512_set1_ps(1), _mm512_dpbf16_ps)
}
double scalar_dot_bf16(int64_t n) {
  float x = 1;
  for (int64_t i = 0; i < n; ++i) x += 2 * dot_value * dot_value;
  return x;
}

__attribute__((target("avx512f,avx512vnni"))) double dot512_int8(int64_t n) {
  __m512i a = _mm512_set1_epi8(3), b = _mm512_set1_epi8(-5);
  CREST_PEAK_LOOP(int32_t, _mm512_set1_epi32(7), _mm512_dpbusd_epi32)
}
double scalar_dot_int8(int64_t n) { return 7.0 - 60.0 * double(n); }

std::vector<Unit> units() {
  bool avx512 = __builtin_cpu_supports("avx512f"), fma = __builtin_cpu_supports("fma");
  bool bf16 = __builtin_cpu_supports("avx512bf16"), vnni = __builtin_cpu_supports("avx512vnni");
  std::vector<Unit> all;
  if (avx512) {
    all.push_back({"fp64", "vfmadd231pd, 512 bit", "", true, 16, fma512_pd, scalar_fma<double>, 1e-14});
    all.push_back({"fp32", "vfmadd231ps, 512 bit", "", true, 32, fma512_ps, scalar_fma<float>, 1e-6});
  } else {
    all.push_back({"fp64", "vfmadd231pd, 256 bit", "fma", fma, 8, fma256_pd, scalar_fma<double>, 1e-14});
    all.push_back({"fp32", "vfmadd231ps, 256 bit", "fma", fma, 16, fma256_ps, scalar_fma<float>, 1e-6});
  }
  all.push_back({"bf16", "vdpbf16ps, 512 bit", "avx512_bf16", bf16, 64, dot512_bf16, scalar_dot_bf16, 1e-6});
  all.push_back({"int8", "vpdpbusd, 512 bit", "avx512_vnni", vnni, 128, dot512_int8, scalar_dot_int8, 0});
  return all;
}

#else

// Only x86-64 instructions are measured.
std::vector<Unit> units() { return {}; }

#endif

double run_on_all(const Unit& unit, int threads, double expected) {
  std::atomic<bool> wrong = false;
  double start = omp_get_wtime();
#pragma omp parallel num_threads(threads)
  {
    double value = unit.run(rounds);
    if (!(std::abs(value - expected) <= unit.tolerance * std::abs(expected))) wrong = true;
  }
  double seconds = omp_get_wtime() - start;
  if (wrong) fail(fmt::format("{} gives a different result than scalar code", unit.instruction), "instruction peak");
  return seconds;
}

}  // namespace

std::vector<InstructionPeak> measure_instruction_peaks(int threads, const StoppingRule& rule) {
  std::vector<InstructionPeak> peaks;
  for (auto& unit : units()) {
    InstructionPeak p;
    p.precision = unit.precision, p.threads = threads;
    p.instruction = unit.there ? unit.instruction : fmt::format("none: this CPU has no {}", unit.missing);
    if (unit.there) {
      double expected = unit.expected(rounds);
      p.seconds = measure([&] { return run_on_all(unit, threads, expected); }, rule);
      p.operations_per_second = unit.operations * accumulators * double(rounds) * threads / p.seconds.median();
    }
    peaks.push_back(std::move(p));
  }
  return peaks;
}

}  // namespace crest
