// Cases of quantization to 8-bit floats with a scale for each block, and of the matmul of such
// operands.
#include <cmath>
#include <limits>

#include "ops/case.h"
#include "ops/fp8.h"
#include "ops/index.h"

namespace crest::test {

namespace {

constexpr int64_t slots = 6;

// Magnitudes that differ from block to block, and within some blocks by more than a format has;
// f16, whose range is small, has no smaller ones.
void spread(std::vector<double>& x, const Shape& s, DType t) {
  const int64_t width = s.back();
  const int down = t == DType::f16 ? 0 : 12;
  for (int64_t i = 0; i < int64_t(x.size()); ++i) {
    const int64_t r = i / width, c = i % width, block = r / fp8_block * 3 + c / fp8_block;
    x[size_t(i)] *= std::ldexp(1.0, int(block % 5 * 2) - (r % 7 == 3 ? down : 0) + (c % 11 == 5 ? 5 : 0));
  }
}

void quantize_cases(std::vector<Case>& list, DType t, const std::string& dtype) {
  Arg counts = {Arg::Fill::ids, DType::i64, {slots, 2}, 1, 1000};
  for (const Shape& s : {Shape{3, 65, 96}, Shape{128, 128}, Shape{7, 33}, Shape{1, 16}, Shape{390, 264}})
    for (const char* format : {"e4m3", "e5m2"})
      for (Fp8Blocks blocks : {Fp8Blocks::rows, Fp8Blocks::squares})
        for (bool columns : {false, true}) {
          if (columns != (std::string(format) == "e5m2") && s[0] != 7 && blocks == Fp8Blocks::rows) continue;
          Attrs a = Attrs().set("format", format).set("slot", 2).set("blocks", name_of(blocks));
          if (columns) a.set("columns", 1);
          std::string name = s.text() + "_" + format + "_" + name_of(blocks) + (columns ? "_columns_" : "_") + dtype;
          list.push_back({"quantize_blocks", name, {tensor(t, s), counts}, a, nullptr, {}, [s, t](Values& v) {
                            spread(v[0], s, t);
                          }});
          if (s[0] != 7 && s[0] != 390) continue;
          // Infinity is no magnitude and saturates; a block of zeros has scale 1.
          list.push_back({"quantize_blocks", "infinite_" + name, {tensor(t, s), counts}, a, nullptr, {}, [](Values& v) {
                            v[0][5] = std::numeric_limits<double>::infinity();
                          }});
          list.push_back({"quantize_blocks", "zero_" + name, {tensor(t, s), counts}, a, nullptr, {}, [s](Values& v) {
                            for (size_t i = 0; i < v[0].size(); ++i)
                              if (int64_t(i) / s.back() < fp8_block) v[0][i] = 0;
                          }});
        }
  for (const Shape& s : {Shape{3, 65, 96}, Shape{16, 16}, Shape{130, 270}})
    for (auto& [format, blocks] :
         {std::pair{"e4m3", Fp8Blocks::rows}, {"e5m2", Fp8Blocks::rows}, {"e4m3", Fp8Blocks::squares}})
      list.push_back({"quantize_blocks_columns",
                      s.text() + "_" + format + "_" + name_of(blocks) + "_" + dtype,
                      {tensor(t, s)},
                      Attrs().set("format", format).set("blocks", name_of(blocks)),
                      nullptr,
                      {},
                      [s, t](Values& v) { spread(v[0], s, t); }});
}

void product_cases(std::vector<Case>& list, DType t, const std::string& dtype) {
  struct Size {
    Shape x;
    int64_t n;
  };
  for (auto& [x, n] : {Size{{3, 65, 96}, 48}, Size{{132, 272}, 144}, Size{{7, 33}, 9}, Size{{64, 384}, 256}})
    for (DType of : {DType::e4m3, DType::e5m2})
      for (Fp8Blocks blocks : {Fp8Blocks::rows, Fp8Blocks::squares}) {
        Attrs a = Attrs().set("dtype", name(t)).set("blocks", name_of(blocks));
        std::string called =
            x.text() + "_" + std::to_string(n) + "_" + std::string(name(of)) + "_" + name_of(blocks) + "_";
        called += dtype;
        std::vector<Arg> in = {tensor(of, x, 20), tensor(DType::e4m3, {n, x.back()}),
                               positive(DType::f32, fp8_scales(Fp8Blocks::rows, x.rows(), x.back())),
                               positive(DType::f32, fp8_scales(blocks, n, x.back()))};
        auto scales = [](Values& v) {  // powers of two, each other than those beside it
          for (size_t k : {2, 3})
            for (size_t i = 0; i < v[k].size(); ++i) v[k][i] = std::ldexp(1.0, int(i * 5 % 7) - 5);
        };
        list.push_back({"linear_fp8", called, in, a, nullptr, {}, scales});
        in.push_back(tensor(t, {n}));
        list.push_back({"linear_fp8", "bias_" + called, in, a, nullptr, {}, scales});
        in.back() = absent();
        in.push_back(tensor(t, x.with_back(n), 10));
        list.push_back({"linear_fp8", "acc_" + called, in, a, nullptr, {}, scales});
      }
}

void cases(std::vector<Case>& list, DType t) {
  std::string dtype(name(t));
  quantize_cases(list, t, dtype);
  product_cases(list, t, dtype);
  if (t != DType::f32) return;
  for (int64_t n : {6, 700}) {
    Arg counts = {Arg::Fill::ids, DType::i64, {n, 2}, 1, 1000};
    list.push_back({"take_counts", std::to_string(n), {counts, counts}});
  }
}

const CaseFile file = {cases, nullptr};

}  // namespace

}  // namespace crest::test
