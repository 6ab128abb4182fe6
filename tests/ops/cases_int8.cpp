// Cases of layers with weights in 8 bits.
#include "ops/case.h"

namespace crest::test {

namespace {

Arg codes(const Shape& s) { return {Arg::Fill::ids, DType::i8, s, 1, 127}; }

// Half of the codes below zero.
void signs(std::vector<double>& values) {
  for (size_t i = 0; i < values.size(); ++i)
    if (i % 3 != 1) values[i] = -values[i];
}

void cases(std::vector<Case>& list, DType t) {
  std::string dtype(name(t));
  struct Size {
    Shape x;
    int64_t n;
  };
  for (auto& [x, n] : {Size{{1, 1, 96}, 70}, Size{{3, 33}, 9}, Size{{8, 64}, 128}, Size{{2, 11, 48}, 33}})
    for (bool bias : {false, true}) {
      std::vector<Arg> in = {tensor(t, x), codes({n, x.back()}), positive(DType::f32, {n})};
      if (bias) in.push_back(tensor(t, {n}));
      std::string called = x.text() + "_" + std::to_string(n) + (bias ? "_bias_" : "_") + dtype;
      list.push_back({"linear_int8", called, in, {}, nullptr, {}, [](Values& v) { signs(v[1]); }});
    }
  for (int64_t width : {64, 33})
    list.push_back({"embedding_int8",
                    std::to_string(width) + "_" + dtype,
                    {ids({2, 5}, 40), codes({37, width}), positive(DType::f32, {37})},
                    Attrs().set("dtype", name(t)),
                    nullptr,
                    {},
                    [](Values& v) { signs(v[1]); }});
}

const CaseFile file = {cases, nullptr};

}  // namespace

}  // namespace crest::test
