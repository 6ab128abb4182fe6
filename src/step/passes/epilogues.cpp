// Setting --fusion on, if the device has the kernels: the kernel continues with its result in
// registers. Matmuls absorb pointwise work and column sums. A norm's gradient absorbs its result's
// bias gradient. It also absorbs a repeated norm needed by a weight gradient, because both read the
// same rows. Runs before the fusion pass: that one would put the same work into passes over memory.
#include "ops/index.h"
#include "passes/joins.h"

namespace crest {

namespace {

class Epilogues : Joins {
 public:
  using Joins::Joins;

  void run() {
    for (size_t i = 0; i < p_.code.size(); ++i) {
      if (gone_[i]) continue;
      if (is(p_.code[i], "linear_dx")) gelu_gradient(i);
      if (is(p_.code[i], "norm_grad")) norm_gradient(i);
    }
    finish();
  }

 private:
  // da = linear_dx(dy, w); dx = gelu_grad(da, x); db = bias_grad(dx); [a = gelu(x), repeated]
  //   ->  dx, db, [a] = linear_dx_gelu_grad(dy, w, x)
  void gelu_gradient(size_t i) {
    const Instr& product = p_.code[i];
    const ValueId da = product.out[out::linear_dx::dx];
    if (product.attrs.has("tf32")) return;
    if (consumers_[size_t(da)].size() != 1 || is_output_[size_t(da)]) return;
    const int g = reader(da, "gelu_grad", in::gelu_grad::dy, product.phase, product.stream);
    if (g < 0) return;
    const Instr& grad = p_.code[size_t(g)];
    const ValueId x = grad.in[in::gelu_grad::x], dx = grad.out[out::gelu_grad::dx];
    const size_t place = made_before(x, i) ? i : size_t(g);
    const int s = column_sums(dx, product, place);
    if (s < 0) return;
    const Instr& sum = p_.code[size_t(s)];

    Instr joined = product;
    joined.op = &op("linear_dx_gelu_grad");
    joined.in = {product.in[in::linear_dx::dy], product.in[in::linear_dx::w], x, accumulator(sum)};
    joined.out = {dx, sum.out[out::bias_grad::db]};
    joined.origin = product.origin | grad.origin;
    joined.attrs = sum.attrs;
    const int a = reader(x, "gelu", in::gelu::x, Phase::recompute, product.stream);
    const bool keep = a >= 0 && !read_before(p_.code[size_t(a)].out[out::gelu::y], place);
    joined.attrs.set("keep", keep);
    if (keep) joined.out.push_back(p_.code[size_t(a)].out[out::gelu::y]);
    if (!has_kernel(joined)) return;
    gone_[i] = gone_[size_t(g)] = gone_[size_t(s)] = true;
    if (keep) gone_[size_t(a)] = true;
    instead_[place] = {std::move(joined)};
  }

  // Adds results to a norm_grad.
  void norm_gradient(size_t i) {
    Instr joined = p_.code[i];
    joined.in.resize(in::norm_grad::beta + 1, no_value);
    norm_bias(i, joined);
    norm_output(i, joined);
  }

  // dx = norm_grad(..); s = add(dx, dres)  ->  s = norm_grad(.., dres). Returns the index of `add`,
  // or -1.
  int take_residual(size_t i, Instr& norm) const {
    namespace at = in::norm_grad;
    const ValueId dx = norm.out[out::norm_grad::dx];
    if (norm.in[at::dres] != no_value || consumers_[size_t(dx)].size() != 1 || is_output_[size_t(dx)]) return -1;
    const int a = consumers_[size_t(dx)][0];
    const Instr& add = p_.code[size_t(a)];
    if (!is(add, "add") || !alike(add, norm)) return -1;
    const ValueId other = add.in[add.in[in::add::a] == dx ? in::add::b : in::add::a];
    if (other == dx || !made_before(other, i)) return -1;
    norm.in[at::dres] = other, norm.out[out::norm_grad::dx] = add.out[out::add::y];
    norm.origin = norm.origin | add.origin;
    return a;
  }

  // dx = norm_grad(..); [s = add(dx, dres);] db = bias_grad(s)
  //   ->  s, dgamma, dbeta, db = norm_grad(.., dres)
  void norm_bias(size_t i, Instr& norm) {
    Instr joined = norm;
    const int a = take_residual(i, joined);
    if (!join_bias(i, joined.out[out::norm_grad::dx], joined)) return;
    if (a >= 0) gone_[size_t(a)] = true;
    put(i, norm = std::move(joined));
  }

  // y, rstd, mean = norm(x), repeated; dw = linear_dw(.., y);
  // dx, .. = norm_grad(.., x, gamma, rstd, mean)
  //   ->  dx, .., y = norm_grad(.., x, gamma, rstd and mean of the forward half, beta); dw = linear_dw(.., y)
  void norm_output(size_t i, Instr& norm) {
    namespace at = in::norm_grad;
    Instr joined = norm;
    const int n = producer_[size_t(joined.in[at::rstd])];
    if (n < 0 || gone_[size_t(n)]) return;
    const Instr& repeated = p_.code[size_t(n)];
    if (!is(repeated, "norm") || repeated.phase != Phase::recompute || repeated.stream != joined.stream) return;
    const Instr* first = nullptr;
    for (int c : consumers_[size_t(repeated.in[in::norm::x])])
      if (const Instr& other = p_.code[size_t(c)]; is(other, "norm") && other.phase == Phase::forward &&
                                                   other.in == repeated.in && other.attrs == repeated.attrs)
        first = &other;
    if (!first) return;
    for (size_t o = out::norm::rstd; o < repeated.out.size(); ++o)  // nothing else reads the statistics
      if (consumers_[size_t(repeated.out[o])].size() != 1) return;
    const ValueId y = repeated.out[out::norm::y];
    const int d = reader(y, "linear_dw", in::linear_dw::x, joined.phase, joined.stream);
    if (d < 0 || consumers_[size_t(y)].size() != 1 || is_output_[size_t(y)] || size_t(d) > i) return;
    if (read_before(p_.code[size_t(d)].out[out::linear_dw::dw], i)) return;
    joined.in[at::rstd] = first->out[out::norm::rstd];
    if (joined.in[at::mean] != no_value) joined.in[at::mean] = first->out[out::norm::mean];
    if (repeated.in.size() > in::norm::beta) joined.in[at::beta] = repeated.in[in::norm::beta];
    joined.out.push_back(y);
    joined.attrs.set("keep", 1);
    Instr later = joined;  // the fusion pass adds the residual; it needs shared memory, too
    take_residual(i, later);
    if (!has_the_same_kernel(i, later)) return;
    gone_[size_t(n)] = gone_[size_t(d)] = true;
    put(i, norm = std::move(joined));
    instead_[i].push_back(p_.code[size_t(d)]);
  }
};

}  // namespace

void join_epilogues(Program& program, const PassContext& context) {
  if (context.kernel_for && context.recipe.fusion == "on") Epilogues(program, context).run();
}

}  // namespace crest
