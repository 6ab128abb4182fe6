// Cases of quantization to 8-bit floats and of their matmul.
#include <limits>

#include "ops/case.h"

namespace crest::test {

namespace {

constexpr int64_t slots = 6;

Arg counters(const Shape& s) { return {Arg::Fill::ids, DType::i64, s, 1, 1000}; }

void quantize_cases(std::vector<Case>& list, DType t, const std::string& dtype) {
  const DType f = DType::f32;
  for (const Shape& s : {Shape{3, 65, 96}, Shape{128, 64}, Shape{7, 33}, Shape{1, 16}, Shape{200, 200}})
    for (const char* format : {"e4m3", "e5m2"})
      for (bool columns : {false, true}) {
        if (columns != (std::string(format) == "e5m2") && s[0] != 7) continue;
        Attrs a = Attrs().set("format", format).set("slot", 2).set("margin", 1);
        if (columns) a.set("columns", 1);
        std::string name = s.text() + "_" + format + (columns ? "_columns_" : "_") + dtype;
        std::vector<Arg> in = {tensor(t, s, 0.01), positive(f, {slots}), positive(f, {slots, 2}), counters({slots, 2})};
        // Of the tensor itself: nothing is known of the step before.
        list.push_back({"quantize", "first_" + name, in, a, nullptr, {}, [](Values& v) { v[1][2] = 0; }});
        if (s[0] == 7 || s[0] == 200) {
          // The values have grown by far: many saturate. They have shrunk: many vanish.
          in[0] = tensor(t, s, 3);
          list.push_back({"quantize", "grown_" + name, in, a});
          in[0] = tensor(t, s, 1e-4);
          list.push_back({"quantize", "shrunk_" + name, in, a, nullptr, {}, [](Values& v) { v[1][2] = 40000; }});
        }
        if (s[0] != 7) continue;
        // NaN has no magnitude, infinity saturates and is recorded; with all zeros no scale is
        // known.
        in[0] = tensor(t, s, 0.01);
        list.push_back({"quantize", "infinite_" + name, in, a, nullptr, {}, [](Values& v) {
                          v[0][5] = std::numeric_limits<double>::infinity(), v[1][2] = 0;
                        }});
        list.push_back({"quantize", "zero_" + name, in, a, nullptr, {}, [](Values& v) {
                          for (double& x : v[0]) x = 0;
                          v[1][2] = 0;
                        }});
      }
  for (const Shape& s : {Shape{3, 65, 96}, Shape{16, 16}, Shape{130, 70}})
    list.push_back({"quantize_columns",
                    s.text() + "_" + dtype,
                    {tensor(t, s), positive(f, {1})},
                    Attrs().set("format", "e4m3"),
                    nullptr,
                    {},
                    [](Values& v) { v[1][0] = 0.0078125; }});
}

void product_cases(std::vector<Case>& list, DType t, const std::string& dtype) {
  struct Size {
    Shape x;
    int64_t n;
  };
  for (auto& [x, n] : {Size{{3, 65, 96}, 48}, Size{{48, 208}, 32}, Size{{7, 33}, 9}})
    for (DType of : {DType::e4m3, DType::e5m2}) {
      Attrs a = Attrs().set("dtype", name(t));
      std::string called = x.text() + "_" + std::to_string(n) + "_" + std::string(name(of)) + "_" + dtype;
      Arg scale = positive(DType::f32, {1});
      std::vector<Arg> in = {tensor(of, x, 20), tensor(DType::e4m3, {n, x.back()}), scale, scale};
      auto scales = [](Values& v) { v[2][0] = 0.0625, v[3][0] = 0.5; };
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
  for (int64_t ranks : {1, 3})
    for (int64_t n : {6, 700}) {
      std::vector<Arg> in = {positive(t, {n}), positive(t, {n, ranks}), counters({n, 2}), counters({2})};
      std::string called = std::to_string(n) + "_of_" + std::to_string(ranks);
      list.push_back({"amax_history", called, in, {}, nullptr, {}, [](Values& v) {
                        v[1][0] = std::numeric_limits<double>::infinity();  // is not taken
                        for (size_t i = v[1].size() / 2; i < v[1].size(); ++i) v[1][i] = 0;
                      }});
    }
}

const CaseFile file = {cases, nullptr};

}  // namespace

}  // namespace crest::test
