// Cases of matmuls of 8-bit floats, of the tables of their scales, and of rows kept in 8 bits.
#include <algorithm>
#include <cmath>
#include <limits>

#include "ops/case.h"
#include "ops/fp8.h"

namespace crest::test {

namespace {

// Whole vectors and odd rows; rows of all sizes, of zeros, with infinity and NaN.
void row_cases(std::vector<Case>& list, DType t, const std::string& dtype) {
  for (const Shape& s : {Shape{3, 65, 96}, Shape{7, 33}, Shape{5, 4104}, Shape{1, 1}}) {
    const std::string called = s.text() + "_" + dtype;
    const auto width = size_t(s.back());
    list.push_back({"quantize_rows", called, {tensor(t, s)}, {}, nullptr, {}, [=](Values& v) {
                      for (size_t i = 0; i < v[0].size(); ++i) v[0][i] *= std::ldexp(1, int(i / width % 12) - 6);
                      std::fill_n(v[0].begin(), s[0] > 3 ? width : 0, 0.0);
                    }});
    if (s[0] == 7)
      list.push_back({"quantize_rows", "infinite_" + called, {tensor(t, s)}, {}, nullptr, {}, [=](Values& v) {
                        v[0][2 * width + 3] = std::numeric_limits<double>::infinity();
                        v[0][3 * width + 5] = -std::numeric_limits<double>::infinity();
                      }});
    list.push_back({"dequantize",
                    "e4m3_" + called,
                    {tensor(DType::e4m3, s, 50), positive(DType::f32, {s.rows()})},
                    Attrs().set("dtype", name(t))});
  }
}

// blocks: of w.
void product_cases(std::vector<Case>& list, DType t, const std::string& dtype, Fp8Blocks blocks, bool fast = false) {
  struct Size {
    Shape x;
    int64_t n;
  };
  for (auto& [x, n] : {Size{{3, 65, 96}, 48}, Size{{132, 272}, 144}, Size{{7, 33}, 9}, Size{{64, 384}, 256}})
    for (DType of : {DType::e4m3, DType::e5m2}) {
      Attrs a = Attrs().set("dtype", name(t));
      if (fast) a.set("fast_accumulation", 1);
      if (blocks != Fp8Blocks::none) a.set("blocks", name_of(blocks));
      std::string called = x.text() + "_" + std::to_string(n) + "_" + std::string(name(of)) + (fast ? "_fast_" : "_");
      if (blocks != Fp8Blocks::none) called += std::string(name_of(blocks)) + "_";
      called += dtype;
      std::vector<Arg> in = {tensor(of, x, 20), tensor(DType::e4m3, {n, x.back()}),
                             positive(DType::f32, fp8_scales(fp8_blocks_of_x(blocks), x.rows(), x.back())),
                             positive(DType::f32, fp8_scales(blocks, n, x.back()))};
      auto scales = [](Values& v) {  // powers of two, different from their neighbors
        for (size_t k : {2, 3})
          for (size_t i = 0; i < v[k].size(); ++i) v[k][i] = std::ldexp(1.0, int((i * 5 + k) % 7) - 5);
      };
      list.push_back({"linear_fp8", called, in, a, nullptr, {}, scales});
      in.push_back(tensor(t, {n}));
      list.push_back({"linear_fp8", "bias_" + called, in, a, nullptr, {}, scales});
      in.back() = absent();
      in.push_back(tensor(t, x.with_back(n), 10));
      list.push_back({"linear_fp8", "acc_" + called, in, a, nullptr, {}, scales});
    }
}

void history_cases(std::vector<Case>& list) {
  for (int64_t n : {6, 700}) {
    for (int64_t ranks : {1, 3}) {
      const int64_t steps = n == 6 ? 1 : 3;
      std::vector<Arg> in = {positive(DType::f32, {steps, n}), positive(DType::f32, {n, ranks}), counters(n),
                             counters(n)};
      std::string called = std::to_string(n) + "_of_" + std::to_string(ranks);
      list.push_back({"amax_history", called, in, {}, nullptr, {}, [](Values& v) {
                        v[1][0] = std::numeric_limits<double>::infinity();  // is not taken
                        for (size_t i = v[1].size() / 2; i < v[1].size(); ++i) v[1][i] = 0;
                      }});
    }
    list.push_back({"take_counts", std::to_string(n), {counters(n), counters(n)}});
  }
}

void cases(std::vector<Case>& list, DType t) {
  std::string dtype(name(t));
  row_cases(list, t, dtype);
  for (Fp8Blocks blocks : {Fp8Blocks::none, Fp8Blocks::rows, Fp8Blocks::squares}) product_cases(list, t, dtype, blocks);
  product_cases(list, t, dtype, Fp8Blocks::none, true);
  if (t == DType::f32) history_cases(list);
}

const CaseFile file = {cases, nullptr};

}  // namespace

}  // namespace crest::test
