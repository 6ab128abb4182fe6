// Where the device has kernels for it: pointwise work behind a product in the product's own kernel, which has its
// operands in registers. With --fusion off there is none: pass decompose took GELU apart. Before the fusion pass, which
// would join the same work into passes over memory.
#include <algorithm>

#include "ops/index.h"
#include "passes/pass.h"
#include "passes/rewrite.h"

namespace crest {

namespace {

class Epilogues {
 public:
  Epilogues(Program& program, const PassContext& context)
      : p_(program),
        context_(context),
        producer_(program.producers()),
        consumers_(program.consumers()),
        instead_(program.code.size()),
        gone_(program.code.size(), false) {
    is_output_.assign(p_.values.size(), false);
    for (ValueId v : p_.outputs) is_output_[size_t(v)] = true;
  }

  void run() {
    for (size_t i = 0; i < p_.code.size(); ++i)
      if (is(p_.code[i], "linear_dx")) gelu_gradient(i);
    std::vector<Instr> code;
    for (size_t i = 0; i < p_.code.size(); ++i) {
      if (instead_[i].op) code.push_back(std::move(instead_[i]));
      if (!gone_[i]) code.push_back(std::move(p_.code[i]));
    }
    p_.code = std::move(code);
    drop_unused_values(p_);
  }

 private:
  // The only instruction of this operation and phase that reads a value as input `in`, -1 for none.
  int reader(ValueId v, std::string_view op_name, size_t in, Phase phase, Stream stream) const {
    int found = -1;
    for (int c : consumers_[size_t(v)]) {
      const Instr& instr = p_.code[size_t(c)];
      if (gone_[size_t(c)] || !is(instr, op_name) || instr.in[in] != v || instr.phase != phase ||
          instr.stream != stream)
        continue;
      if (found >= 0) return -1;
      found = c;
    }
    return found;
  }
  bool made_before(ValueId v, size_t i) const { return v == no_value || producer_[size_t(v)] < int(i); }
  bool read_before(ValueId v, size_t i) const {
    auto& readers = consumers_[size_t(v)];
    return std::any_of(readers.begin(), readers.end(), [&](int c) { return c < int(i); });
  }

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
    const int s = reader(dx, "bias_grad", in::bias_grad::dy, product.phase, product.stream);
    if (s < 0) return;
    const Instr& sum = p_.code[size_t(s)];
    const ValueId acc = sum.in.size() > in::bias_grad::acc ? sum.in[in::bias_grad::acc] : no_value;
    const size_t place = made_before(x, i) ? i : size_t(g);
    if (!made_before(acc, place) || read_before(sum.out[out::bias_grad::db], place)) return;

    Instr joined = product;
    joined.op = &op("linear_dx_gelu_grad");
    joined.in = {product.in[in::linear_dx::dy], product.in[in::linear_dx::w], x, acc};
    joined.out = {dx, sum.out[out::bias_grad::db]};
    joined.origin = product.origin | grad.origin;
    joined.attrs = sum.attrs;
    const int a = reader(x, "gelu", in::gelu::x, Phase::recompute, product.stream);
    const bool keep = a >= 0 && !read_before(p_.code[size_t(a)].out[out::gelu::y], place);
    joined.attrs.set("keep", keep);
    if (keep) joined.out.push_back(p_.code[size_t(a)].out[out::gelu::y]);
    if (!context_.has_kernel(p_, joined)) return;
    gone_[i] = gone_[size_t(g)] = gone_[size_t(s)] = true;
    if (keep) gone_[size_t(a)] = true;
    instead_[place] = std::move(joined);
  }

  Program& p_;
  const PassContext& context_;
  std::vector<int> producer_;
  std::vector<std::vector<int>> consumers_;
  std::vector<Instr> instead_;  // by the instruction whose place it takes; without an operation: nothing
  std::vector<bool> gone_, is_output_;
};

}  // namespace

void join_epilogues(Program& program, const PassContext& context) {
  if (context.has_kernel) Epilogues(program, context).run();
}

}  // namespace crest
