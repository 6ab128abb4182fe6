// Muon (Jordan et al. 2024) for the matrices of the layers: momentum whose singular values are
// brought close to one by five steps of a quintic Newton-Schulz iteration. Queries, keys and values
// are three matrices, although one parameter holds them. Embeddings, head, norms and biases use
// AdamW. The update is scaled by 0.2 sqrt(max(M, N)), to the root mean square of AdamW's, so it
// shares AdamW's learning rate and weight decay (Liu et al. 2025, "Muon is Scalable for LLM
// Training", section 2.2). The matrix products are matmul instructions in the precision of the
// recipe's others.
#include <algorithm>
#include <cmath>

#include "passes/optimizers.h"

namespace crest {

namespace {

constexpr int iterations = 5;
constexpr double a = 3.4445, b = -4.7750, c = 2.0315;  // of X' = a X + b (X X^T) X + c (X X^T)^2 X
constexpr double momentum = 0.95;

class Muon {
 public:
  explicit Muon(Update& u) : u_(u) {}

  void emit() {
    ValueId master = u_.master(), m = u_.state("m");
    ValueId g = axpby({u_.gradient}, Attrs().set("a", 1.0).set("a_by", "grad_factor"));
    m = axpby({m, g}, Attrs().set("a", momentum).set("b", 1.0));
    g = axpby({g, m}, Attrs().set("a", 1.0).set("b", momentum));  // Nesterov
    const std::vector<ValueId> parts = matrices(g);
    ValueId x = orthogonal(parts[0]);
    const double scale = scale_of(parts[0]);
    if (parts.size() > 1) {
      std::vector<ValueId> rows;
      for (ValueId part : parts) {
        ValueId own = part == parts[0] ? x : orthogonal(part);
        if (const double s = scale_of(part); s != scale) own = axpby({own}, Attrs().set("a", s / scale));
        rows.push_back(split_rows(own, u_.b.at(part).shape[0], u_.b.at(part).shape[0])[0]);  // [1,1,M,N] -> [M,N]
      }
      x = u_.b.emit1("join_rows", rows);
    }
    master = axpby({master, x}, Attrs()
                                    .set("a", 1.0)
                                    .set("decay", u_.decay() * u_.param.lr_factor)
                                    .set("b", -scale * u_.param.lr_factor)
                                    .set("b_by", "lr"));
    if (u_.copy != no_value) axpby({u_.copy, master}, Attrs().set("a", 0.0).set("b", 1.0).set("weights", 1));
  }

 private:
  std::vector<ValueId> split_rows(ValueId x, int64_t of, int64_t rows) {
    return u_.b.emit("split_rows", {x}, Attrs().set("of", of).set("rows", rows));
  }
  // Of a parameter: itself, or queries, keys and values.
  std::vector<ValueId> matrices(ValueId g) {
    if (!u_.param.name.ends_with(".attn.qkv.weight")) return {g};
    const ModelConfig& m = u_.recipe.model;
    const int64_t queries = m.heads * m.head_dim, keys = m.kv_heads * m.head_dim;
    std::vector<ValueId> parts = split_rows(g, queries + 2 * keys, queries);
    if (parts.size() == 3) return parts;
    const std::vector<ValueId> rest = split_rows(parts[1], 2 * keys, keys);
    return {parts[0], rest[0], rest[1]};
  }
  double scale_of(ValueId x) const {
    const Shape& s = u_.b.at(x).shape;
    return 0.2 * std::sqrt(double(std::max(s[0], s[1])));
  }
  ValueId orthogonal(ValueId g) {
    tall_ = u_.b.at(g).shape[0] > u_.b.at(g).shape[1];
    ValueId x = u_.b.emit1("unit_norm", {g}, Attrs().set("eps", 1e-7).set("dtype", name(u_.product_dtype())));
    for (int i = 0; i < iterations; ++i) x = step(x);
    return x;
  }
  ValueId axpby(std::vector<ValueId> in, const Attrs& attrs) {
    in.insert(in.begin(), u_.scalars);
    return u_.b.emit1("axpby", in, attrs);
  }
  ValueId matmul(ValueId left, ValueId right, bool left_transposed, bool right_transposed) {
    Attrs attrs;
    if (left_transposed) attrs.set("transpose_a", 1);
    if (right_transposed) attrs.set("transpose_b", 1);
    if (u_.product_tf32()) attrs.set("tf32", 1);
    return u_.b.emit1("matmul", {left, right}, attrs);
  }
  // Use the Gram matrix of the shorter side.
  ValueId step(ValueId x) {
    ValueId gram = matmul(x, x, tall_, !tall_);
    ValueId polynomial = axpby({matmul(gram, gram, false, false), gram}, Attrs().set("a", c).set("b", b));
    ValueId product = tall_ ? matmul(x, polynomial, false, false) : matmul(polynomial, x, false, false);
    return axpby({product, x}, Attrs().set("a", 1.0).set("b", a));
  }

  Update& u_;
  bool tall_ = false;
};

}  // namespace

static void emit_muon(Update& u) { Muon(u).emit(); }

std::vector<Optimizer> muon_optimizers() {
  // Matrices inside a layer: neither embedding nor head.
  auto hidden = [](const Param& p) { return p.shape.rank() == 2 && p.name.starts_with("h."); };
  return {{"muon", emit_muon, {{"m"}}, Master::whole, hidden, 1, true}};
}

}  // namespace crest
