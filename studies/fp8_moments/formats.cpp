// How far steps of AdamW with 8-bit moments are from exact ones, by the format of the moments: a
// simulation in double on synthetic gradients. Why adamw-fp8 stores what it stores.
//   g++ -O2 -std=c++20 -Isrc/base -Isrc/step -Isrc/devices studies/fp8_moments/formats.cpp -o /tmp/formats && /tmp/formats
// 4,096 parameters in blocks of 256, 600 steps; the sizes of their gradients are log-normal.
#include <algorithm>
#include <cmath>
#include <cstdio>
#include <random>
#include <vector>

#include "core/dynamic_code.h"
#include "core/float8.h"

using namespace crest;

namespace {

// What a format makes of a number in [-1, 1], as a part of the block's largest.
using Stored = double (*)(double);

template <class F>
double nearest(double x) {
  double largest = largest_of<F>();
  return double(to_float(to_float8<F>(float(largest * x)))) / largest;
}
// The same, but what is not zero does not become zero.
template <class F>
double kept(double x) {
  double least = double(to_float(F{1})) / double(largest_of<F>());
  return x > 0 ? std::max(nearest<F>(x), least) : 0;
}
template <Stored format>
double root(double x) {
  double y = format(std::sqrt(x));
  return y * y;
}
template <bool is_signed>
double dynamic(double x) {
  double best = 0;
  for (int c = 1; c < 256; ++c)
    if (double y = dynamic_value(uint8_t(c), is_signed); std::fabs(x - y) < std::fabs(x - best)) best = y;
  return best;
}

struct Format {
  const char* name;
  Stored m, v;
};
constexpr Format formats[] = {
    {"dynamic codes (adamw-8bit)", dynamic<true>, dynamic<false>},
    {"m e4m3, v e5m2, to nearest", nearest<float8_e4m3>, nearest<float8_e5m2>},
    {"m e4m3, v e5m2, never zero", nearest<float8_e4m3>, kept<float8_e5m2>},
    {"m e4m3, v e4m3, never zero", nearest<float8_e4m3>, kept<float8_e4m3>},
    {"m e4m3, root of v e4m3, to nearest", nearest<float8_e4m3>, root<nearest<float8_e4m3>>},
    {"m e4m3, root of v e4m3, never zero", nearest<float8_e4m3>, root<kept<float8_e4m3>>},
};

void store(std::vector<double>& x, size_t begin, size_t end, Stored format) {
  double most = 0;
  for (size_t i = begin; i < end; ++i) most = std::max(most, std::fabs(x[i]));
  for (size_t i = begin; i < end && most > 0; ++i) x[i] = most * format(x[i] / most);
}

// The root mean square of what a step is off by, relative to the exact step.
double error(const Format& f, double beta2, double spread) {
  constexpr size_t block = 256, n = 16 * block;
  constexpr int steps = 600, first = 50;
  constexpr double beta1 = 0.9, eps = 1e-8;
  std::mt19937_64 random(7);
  std::normal_distribution<double> normal;
  std::vector<double> size(n), m(n), v(n), exact_m(n), exact_v(n);
  for (double& s : size) s = 1e-3 * std::exp(spread * normal(random));
  double squares = 0, exact_squares = 0;
  for (int t = 1; t <= steps; ++t) {
    double level = std::exp(0.3 * normal(random)) * (t < 100 ? 1 : 0.3);  // of all gradients of a step
    double c1 = 1 - std::pow(beta1, t), c2 = 1 - std::pow(beta2, t);
    for (size_t i = 0; i < n; ++i) {
      double g = level * size[i] * normal(random) * (normal(random) > 1.5 ? 2.5 : 1);
      auto step = [&](double& mi, double& vi) {
        mi = beta1 * mi + (1 - beta1) * g, vi = beta2 * vi + (1 - beta2) * g * g;
        return mi / c1 / (std::sqrt(vi / c2) + eps);
      };
      double got = step(m[i], v[i]), exact = step(exact_m[i], exact_v[i]);
      if (t > first) squares += (got - exact) * (got - exact), exact_squares += exact * exact;
    }
    for (size_t i = 0; i < n; i += block) store(m, i, i + block, f.m), store(v, i, i + block, f.v);
  }
  return std::sqrt(squares / exact_squares);
}

}  // namespace

int main() {
  for (double beta2 : {0.95, 0.999}) {
    std::printf("beta2 %g; standard deviation of the logarithm of sizes: 0.5, 1.5, 3\n", beta2);
    for (const Format& f : formats)
      std::printf("%-36s %8.3f %8.3f %8.3f\n", f.name, error(f, beta2, 0.5), error(f, beta2, 1.5), error(f, beta2, 3));
  }
}
