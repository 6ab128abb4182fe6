// Cases of weights of 8 bits. Special cases of kernels: 1, 2, up to 4 and up to 8 rows; columns of
// whole vectors of 16 and 8, and odd ones; one and two outputs a warp.
#include <cmath>

#include "ops/case.h"

namespace crest::test {

namespace {

// Codes of both signs up to the largest, scaled to the size of weights.
Arg codes(const Shape& s) { return tensor(DType::i8, s, 45); }

std::function<void(Values&)> scaled(size_t scale, int64_t columns) {
  return [=](Values& v) {
    for (double& s : v[scale]) s /= 45 * std::sqrt(double(columns));
  };
}

void cases(std::vector<Case>& list, DType t) {
  const std::string dtype(name(t));
  const DType f = DType::f32;
  struct Size {
    Shape x;
    int64_t n;
  };
  std::vector<Size> sizes = {{{3, 1, 65}, 257}, {{1, 1, 768}, 97}, {{8, 512}, 130}, {{2, 2, 1024}, 33},
                             {{5, 40}, 128},    {{1, 2, 64}, 600}, {{7, 33}, 1},    {{1, 1}, 5}};
  if (t == DType::bf16) sizes.push_back({{2, 1, 33}, 50257});
  for (auto& [x, n] : sizes)
    for (bool bias : {true, false})
      for (const char* op : {"linear_int8", "linear_gelu_int8"}) {
        if (n > 10000 && !bias) continue;
        std::string called = x.text() + "_" + std::to_string(n) + (bias ? "_bias_" : "_") + dtype;
        list.push_back({op,
                        called,
                        {tensor(t, x), codes({n, x.back()}), positive(f, {n}), bias ? tensor(t, {n}) : absent()},
                        {},
                        nullptr,
                        {},
                        scaled(2, x.back())});
      }
  for (const Shape& s : {Shape{257, 65}, Shape{9, 512}, Shape{130, 40}, Shape{1, 1}}) {
    const Attrs to = Attrs().set("dtype", name(t));
    const std::string called = s.text() + "_" + dtype;
    list.push_back({"dequantize", called, {codes(s), positive(f, {s[0]})}, to, nullptr, {}, scaled(1, s[1])});
    Arg tokens = ids({3, 5}, s[0]);
    list.push_back(
        {"embedding_int8", called, {tokens, codes(s), positive(f, {s[0]})}, to, nullptr, {}, scaled(2, s[1])});
    list.push_back({"embedding_int8",
                    "unknown_ids_" + called,
                    {tokens, codes(s), positive(f, {s[0]})},
                    to,
                    nullptr,
                    {},
                    [=](Values& v) { v[0][0] = -1, v[0][7] = double(s[0]); }});
  }
}

const CaseFile file = {cases, nullptr};

}  // namespace

}  // namespace crest::test
