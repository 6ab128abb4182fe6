// Row-wise operations at sizes where kernels change: rows in the registers of a warp or of a block,
// longer rows, widths other than whole vectors; and more rows than all blocks of a GPU take at
// once.
#include <cmath>
#include <limits>

#include "ops/case.h"
#include "ops/harness.h"

namespace crest::test {
namespace {

Case& add(std::vector<Case>& list, DType t, const std::string& op, const std::string& name, std::vector<Arg> in,
          Attrs attrs = {}) {
  list.push_back({op, "rows_" + name + "_" + std::string(crest::name(t)), std::move(in), std::move(attrs), nullptr,
                  some_scalars(), nullptr});
  return list.back();
}

Values forward(const std::string& op, std::vector<Arg> in, const Attrs& attrs, const Values& values) {
  return reference_outputs(in_double({op, "", std::move(in), attrs, nullptr, some_scalars(), nullptr}), values);
}

// With all optional parts when `full`, else an rms norm without.
void add_norms(std::vector<Case>& list, DType t, const Shape& s, bool full) {
  Shape c = {s.back()}, rows = {s.rows()};
  std::string n = std::to_string(s.rows()) + "x" + std::to_string(s.back()) + (full ? "_layer" : "_rms");
  Attrs attrs = Attrs().set("kind", full ? "layer" : "rms").set("eps", 1e-5);
  Arg x = tensor(t, s, 3), gamma = positive(t, c), beta = full ? tensor(t, c) : absent();
  add(list, t, "norm", n, {x, gamma, beta}, attrs);
  add(list, t, "add_norm", n, {x, x, gamma, beta}, attrs).complete = [](Values& v) {
    for (size_t i : {0, 1})
      for (double& e : v[i]) e = std::round(e * 4) / 4;  // sums are exact in every dtype
  };
  DType f = DType::f32;
  Arg rstd = tensor(f, rows), mean = full ? tensor(f, rows) : absent(), acc = full ? tensor(f, c, 10) : absent();
  Attrs a = Attrs().set("kind", full ? "layer" : "rms").set("beta", full).set("dtype", "f32");
  Arg dy = tensor(t, s), dres = full ? dy : absent();
  auto statistics = [=](Values& v) {
    Values out = forward("norm", {x, gamma}, attrs, {v[1], v[2]});
    v[3] = out[1];
    if (full) v[4] = out[2];
  };
  add(list, t, "norm_grad", n, {dy, x, gamma, rstd, mean, dres, acc, acc}, a).complete = statistics;
  if (full)
    add(list, t, "norm_grad", n + "_bias", {dy, x, gamma, rstd, mean, dres, acc, acc, acc}, a.set("bias", 1)).complete =
        statistics;
  add(list, t, "norm_grad", n + "_keep", {dy, x, gamma, rstd, mean, dres, acc, acc, full ? acc : absent(), beta},
      a.set("keep", 1))
      .complete = statistics;
}

void add_cases(std::vector<Case>& list, DType t) {
  for (bool full : {true, false}) {
    for (int64_t cols : {256, 512, 768, 1024, 1280, 1536, 1600, 2048}) add_norms(list, t, {13, cols}, full);
    for (int64_t cols : {3000, 4096, 8192, 10000}) add_norms(list, t, {5, cols}, full);
    add_norms(list, t, {61, 768}, full);
    add_norms(list, t, {4300, 8}, full);
    add_norms(list, t, {61, 77}, full);
  }
  add_norms(list, t, {2, 17000}, true);
  for (int64_t cols : {256, 512, 768, 1000, 1032, 1600, 2048, 4096, 5000, 10001, 20000}) {
    Shape s = {3, cols};
    std::string n = std::to_string(cols);
    add(list, t, "softmax", n, {tensor(t, s)});
    add(list, t, "softmax_grad", n, {tensor(t, s), positive(t, s)}).complete = [s](Values& v) {
      v[1] = forward("softmax", {tensor(DType::f64, s)}, {}, {v[1]})[0];
    };
  }
  // The first probabilities of a causal row are near 1. In long half-precision rows their rounding
  // error alone exceeds the bound on single elements, because the bound follows the mean square of
  // the whole row.
  for (int64_t cols :
       t == DType::f32 ? std::vector<int64_t>{256, 511, 520, 1032} : std::vector<int64_t>{256, 511, 520}) {
    Shape s = {1, 1, cols, cols};
    Attrs a = Attrs().set("scale", 0.125).set("causal", 1);
    std::string n = "causal_" + std::to_string(cols);
    add(list, t, "softmax", n, {tensor(t, s, 8)}, a);
    add(list, t, "softmax_grad", n, {tensor(t, s), positive(t, s)}, a).complete = [s](Values& v) {
      v[1] = forward("softmax", {tensor(DType::f64, s)}, Attrs().set("causal", 1), {v[1]})[0];
    };
  }
  add(list, t, "softmax", "masked_512", {tensor(t, {6, 512})}).complete = [](Values& v) {
    for (size_t e = 0; e < v[0].size(); ++e)
      if (e % 512 > e / 512 * 100) v[0][e] = -std::numeric_limits<double>::infinity();
  };
  add(list, t, "causal_mask", "72", {tensor(t, {2, 1, 72, 72})});
}

const CaseFile file = {add_cases};

}  // namespace
}  // namespace crest::test
