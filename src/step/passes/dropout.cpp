// Setting --fusion on, if the device has the kernels. A dropout mask is a function of coordinates
// and is never stored, so the kernel making the values can also drop them. In the residual stream
// these are the embedding, the residual sum and, backward, the gradient of the sum's norm (as an
// additional output). Elsewhere dropout absorbs a neighboring cast. Runs after the fusion pass, the
// maker of these sums and norms.
#include "ops/index.h"
#include "ops/norm.h"
#include "passes/joins.h"

namespace crest {

namespace {

class JoinDropout : Joins {
 public:
  using Joins::Joins;

  void run() {
    for (size_t i = 0; i < p_.code.size(); ++i) {
      if (!is(p_.code[i], "dropout")) continue;
      const int made = maker(i);
      if (made >= 0 && is(p_.code[size_t(made)], "norm_grad"))
        gradient(i, size_t(made));
      else if (made >= 0 && is(p_.code[size_t(made)], "embedding"))
        embedding(i, size_t(made), in::embedding::scalars);
      else if (made >= 0 && is(p_.code[size_t(made)], "add_position"))
        embedding(i, size_t(made), in::add_position::scalars);
      if (!gone_[i]) residual(i);
      if (!gone_[i]) casts(i);
    }
    finish();
  }

 private:
  // The producer of the dropout's input, if one instruction can do both; else -1.
  int maker(size_t dropout) const {
    const Instr& instr = p_.code[dropout];
    const int made = producer_[size_t(instr.in[in::dropout::x])];
    if (made < 0 || gone_[size_t(made)] || !alike(p_.code[size_t(made)], instr)) return -1;
    return made_before(instr.in[in::dropout::scalars], size_t(made)) ? made : -1;
  }
  // Adds a dropout's other inputs and attributes.
  static void take(Instr& joined, const Instr& dropout, size_t scalars) {
    joined.in.resize(std::max(joined.in.size(), scalars + 1), no_value);
    joined.in[scalars] = dropout.in[in::dropout::scalars];
    take_dropout(joined.attrs, dropout.attrs);
  }

  // x = embedding(..) or add_position(..); y = dropout(x)  ->  y = embedding(.., scalars)
  void embedding(size_t i, size_t made, size_t scalars) {
    const Instr& dropout = p_.code[i];
    const ValueId x = dropout.in[in::dropout::x];
    if (consumers_[size_t(x)].size() != 1 || is_output_[size_t(x)]) return;
    Instr joined = p_.code[made];
    take(joined, dropout, scalars);
    joined.origin = joined.origin | dropout.origin;
    joined.out[0] = dropout.out[out::dropout::y];
    if (!has_the_same_kernel(made, joined)) return;
    gone_[i] = true;
    put(made, std::move(joined));
  }

  // b = dropout(x); s, y, .. = add_norm(a, b)  ->  s, y, .. = add_norm(a, x, scalars)
  void residual(size_t i) {
    namespace at = in::add_norm;
    const Instr& dropout = p_.code[i];
    const ValueId b = dropout.out[out::dropout::y];
    if (consumers_[size_t(b)].size() != 1 || is_output_[size_t(b)] || p_.at(b).shape.rank() < 2) return;
    const auto reader = size_t(consumers_[size_t(b)][0]);
    Instr joined = p_.code[reader];
    if (gone_[reader] || !is(joined, "add_norm") || !alike(joined, dropout)) return;
    if (joined.in.size() > at::scalars && joined.in[at::scalars] != no_value) return;
    if (joined.in[at::a] == b) std::swap(joined.in[at::a], joined.in[at::b]);
    if (joined.in[at::b] != b) return;
    joined.in[at::b] = dropout.in[in::dropout::x];
    take(joined, dropout, at::scalars);
    joined.origin = dropout.origin | joined.origin;
    if (!has_the_same_kernel(reader, joined)) return;
    gone_[i] = true;
    put(reader, std::move(joined));
  }

  // y = dropout(x); z = cast(y)  ->  z = dropout(x) {dtype}, to a wider dtype
  // x = cast(w); y = dropout(x)  ->  y = dropout(w) {dtype}, from a wider dtype
  void casts(size_t i) {
    Instr joined = p_.code[i];
    ValueId &x = joined.in[in::dropout::x], &y = joined.out[out::dropout::y];
    const size_t bytes = size_of(p_.at(x).dtype);
    auto lone = [&](ValueId v, int cast) {
      return cast >= 0 && !gone_[size_t(cast)] && is(p_.code[size_t(cast)], "cast") &&
             alike(p_.code[size_t(cast)], joined) && consumers_[size_t(v)].size() == 1 && !is_output_[size_t(v)];
    };
    int cast = consumers_[size_t(y)].empty() ? -1 : consumers_[size_t(y)][0];
    size_t place = i;
    if (lone(y, cast) && size_of(p_.at(p_.code[size_t(cast)].out[out::cast::y]).dtype) > bytes) {
      y = p_.code[size_t(cast)].out[out::cast::y];
      place = size_t(cast);
    } else if (cast = producer_[size_t(x)];
               lone(x, cast) && size_of(p_.at(p_.code[size_t(cast)].in[in::cast::x]).dtype) > bytes) {
      x = p_.code[size_t(cast)].in[in::cast::x];
    } else {
      return;
    }
    joined.attrs.set("dtype", name(p_.at(y).dtype));
    joined.origin = joined.origin | p_.code[size_t(cast)].origin;
    if (!has_the_same_kernel(i, joined)) return;
    gone_[i] = gone_[size_t(cast)] = true;
    put(place, std::move(joined));
  }

  // dx, .. = norm_grad(..); d = dropout(dx); [db = bias_grad(d)]
  //   ->  dx, .., [db], d = norm_grad(.., scalars), without dx if nobody else reads it
  void gradient(size_t i, size_t made) {
    namespace at = in::norm_grad;
    namespace to = out::norm_grad;
    const Instr& dropout = p_.code[i];
    const ValueId dx = dropout.in[in::dropout::x], d = dropout.out[out::dropout::y];
    Instr joined = p_.code[made];
    if (joined.out[to::dx] != dx || p_.at(dx).shape.rank() < 2) return;
    if (joined.attrs.integer("bias", 0)) return;  // it sums dx
    take(joined, dropout, at::scalars);
    joined.origin = joined.origin | dropout.origin;
    if (consumers_[size_t(dx)].size() > 1 || is_output_[size_t(dx)]) {
      joined.attrs.set("apart", 1);
      joined.out.insert(joined.out.begin() + ptrdiff_t(place_of_dropped(joined.attrs)), d);
    } else {
      joined.out[to::dx] = d;
    }
    if (!has_the_same_kernel(made, joined)) return;
    gone_[i] = true;
    join_bias(made, d, joined);
    put(made, std::move(joined));
  }
};

}  // namespace

void join_dropout(Program& program, const PassContext& context) {
  if (context.kernel_for && context.recipe.fusion == "on") JoinDropout(program, context).run();
}

}  // namespace crest
