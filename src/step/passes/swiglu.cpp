// Setting --fusion on, if the device has the kernels: SwiGLU is part of its matmuls. Gate and up
// are one matmul that ends with silu(g) u. The gradient of the projection's input ends with both
// their gradients. The two gradients of the layer's input are one sum.
#include <optional>
#include <set>

#include "ops/index.h"
#include "passes/joins.h"

namespace crest {

namespace {

class Swiglu : Joins {
 public:
  using Joins::Joins;

  void run() {
    for (size_t i = 0; i < p_.code.size(); ++i)  // first, so the gradient can skip unread results
      if (!gone_[i] && is(p_.code[i], "linear_dx")) gradient(i);
    for (size_t i = 0; i < p_.code.size(); ++i) {
      if (gone_[i]) continue;
      if (is(p_.code[i], "silu")) activation(i);
      if (is(p_.code[i], "add")) sum(i);
    }
    finish();
  }

 private:
  const Instr* producer(ValueId v) const {
    return v == no_value || producer_[size_t(v)] < 0 ? nullptr : &p_.code[size_t(producer_[size_t(v)])];
  }
  // x in v = silu(x); no_value: not a silu.
  ValueId gate_of(ValueId v) const {
    const Instr* made = producer(v);
    return made && is(*made, "silu") ? made->in[in::silu::x] : no_value;
  }
  static ValueId other(const Instr& mul, ValueId v) {
    return mul.in[mul.in[in::mul::a] == v ? in::mul::b : in::mul::a];
  }

  struct Gradient {
    size_t ds, du, dg;  // the three gradients
    ValueId g, u, s;
  };
  // ds = mul(da, u); du = mul(da, s); dg = silu_grad(ds, g), with s = silu(g). Nothing else may
  // read da and ds.
  std::optional<Gradient> gradient_of(ValueId da, const Instr& like) const {
    const std::vector<size_t> muls = readers(da);
    if (muls.size() != 2 || is_output_[size_t(da)]) return {};
    for (size_t first : {0, 1}) {
      Gradient r = {muls[first], muls[1 - first], 0, no_value, no_value, no_value};
      const Instr &ds = p_.code[r.ds], &du = p_.code[r.du];
      if (!is(ds, "mul") || !is(du, "mul") || !alike(ds, like) || !alike(du, like)) return {};
      r.u = other(ds, da), r.s = other(du, da), r.g = gate_of(r.s);
      const std::vector<size_t> next = readers(ds.out[out::mul::y]);
      if (r.g == no_value || next.size() != 1 || is_output_[size_t(ds.out[out::mul::y])]) continue;
      const Instr& dg = p_.code[r.dg = next[0]];
      if (is(dg, "silu_grad") && alike(dg, like) && dg.in[in::silu_grad::dy] == ds.out[out::mul::y] &&
          dg.in[in::silu_grad::x] == r.g)
        return r;
    }
    return {};
  }
  // The repeated silu(g) u; -1: none.
  int repeated(const Gradient& of, const Instr& like) const {
    for (size_t i : readers(of.u)) {
      const Instr& mul = p_.code[i];
      if (is(mul, "mul") && mul.phase == Phase::recompute && mul.stream == like.stream &&
          gate_of(other(mul, of.u)) == of.g)
        return int(i);
    }
    return -1;
  }

  // da = linear_dx(dy, w) and a gradient of SwiGLU; [a = silu(g) u, repeated]
  //   ->  dg, du, [a] = linear_dx_swiglu_grad(dy, w, g, u)
  void gradient(size_t i) {
    const Instr& product = p_.code[i];
    const ValueId da = product.out[out::linear_dx::dx];
    if (product.attrs.has("tf32")) return;
    const std::optional<Gradient> found = gradient_of(da, product);
    if (!found) return;
    const ValueId dg = p_.code[found->dg].out[out::silu_grad::dx], du = p_.code[found->du].out[out::mul::y];
    size_t place = i;
    for (ValueId v : {found->g, found->u}) place = std::max(place, size_t(producer_[size_t(v)] + 1));
    if (read_before(dg, place) || read_before(du, place)) return;
    const int a = repeated(*found, product);
    const bool keep = a >= 0 && !read_before(p_.code[size_t(a)].out[out::mul::y], place);

    Instr joined = product;
    joined.op = &op("linear_dx_swiglu_grad");
    joined.in = {product.in[in::linear_dx::dy], product.in[in::linear_dx::w], found->g, found->u};
    joined.out = {dg, du};
    joined.origin = product.origin | p_.code[found->dg].origin;
    joined.attrs.set("keep", keep);
    if (keep) joined.out.push_back(p_.code[size_t(a)].out[out::mul::y]);
    if (!has_kernel(joined)) return;
    gone_[i] = gone_[found->ds] = gone_[found->du] = gone_[found->dg] = true;
    saved_.insert({found->g, found->u});
    std::vector<ValueId> gates = {found->s};
    if (keep) {
      gone_[size_t(a)] = true;
      gates.push_back(other(p_.code[size_t(a)], found->u));
    }
    for (ValueId s : gates) {  // repeated only for these
      const auto made = size_t(producer_[size_t(s)]);
      if (p_.code[made].phase == Phase::recompute && readers(s).empty()) gone_[made] = true;
    }
    instead_[place].push_back(std::move(joined));
  }

  // g = linear(x, w); u = linear(x, w_up); s = silu(g); a = mul(s, u)
  //   ->  a, [g, u] = linear_swiglu(x, w, w_up)
  void activation(size_t i) {
    const Instr& silu = p_.code[i];
    const ValueId g = silu.in[in::silu::x], s = silu.out[out::silu::y];
    const std::vector<size_t> next = readers(s);
    if (next.size() != 1 || is_output_[size_t(s)]) return;
    const Instr& mul = p_.code[next[0]];
    if (!is(mul, "mul") || !alike(mul, silu)) return;
    const ValueId u = other(mul, s);
    const Instr *gate = producer(g), *up = producer(u);
    auto plain = [&](const Instr* linear) {
      return linear && is(*linear, "linear") && alike(*linear, silu) && !linear->attrs.has("tf32") &&
             !gone_[size_t(producer_[size_t(linear->out[0])])] &&
             (linear->in.size() <= in::linear::b || linear->in[in::linear::b] == no_value);
    };
    if (!plain(gate) || !plain(up) || gate == up || gate->in[in::linear::x] != up->in[in::linear::x]) return;
    const auto first = size_t(std::min(producer_[size_t(g)], producer_[size_t(u)]));
    const auto place = size_t(std::max(producer_[size_t(g)], producer_[size_t(u)]));
    if (read_before(g, place) || read_before(u, place)) return;
    auto kept = [&](ValueId v) { return saved_.count(v) || readers(v).size() > 1 || is_output_[size_t(v)]; };
    const bool keep = kept(g) || kept(u);

    Instr joined = *gate;
    joined.op = &op("linear_swiglu");
    joined.in = {gate->in[in::linear::x], gate->in[in::linear::w], up->in[in::linear::w]};
    joined.out = {mul.out[out::mul::y]};
    if (keep) joined.out.insert(joined.out.end(), {g, u});
    joined.origin = gate->origin | up->origin | silu.origin;
    joined.attrs.set("keep", keep);
    if (!has_kernel(joined)) return;
    gone_[first] = gone_[place] = gone_[i] = gone_[next[0]] = true;
    instead_[place].push_back(std::move(joined));
  }

  // a = linear_dx(dy, w); b = linear_dx(dy_2, w_2); dx = add(a, b)
  //   ->  dx = linear_dx_sum(dy, w, dy_2, w_2)
  void sum(size_t i) {
    const Instr& add = p_.code[i];
    const Instr *first = producer(add.in[in::add::a]), *second = producer(add.in[in::add::b]);
    auto plain = [&](const Instr* product) {
      if (!product || !is(*product, "linear_dx") || !alike(*product, add) || product->attrs.has("tf32")) return false;
      const ValueId dx = product->out[out::linear_dx::dx];
      return !gone_[size_t(producer_[size_t(dx)])] && readers(dx).size() == 1 && !is_output_[size_t(dx)];
    };
    if (first == second || !plain(first) || !plain(second)) return;
    if (producer_[size_t(add.in[in::add::a])] > producer_[size_t(add.in[in::add::b])]) std::swap(first, second);
    const ValueId dy = first->in[in::linear_dx::dy], dy_2 = second->in[in::linear_dx::dy];
    if (p_.at(dy).shape != p_.at(dy_2).shape) return;
    Instr joined = *second;
    joined.op = &op("linear_dx_sum");
    joined.in = {dy, first->in[in::linear_dx::w], dy_2, second->in[in::linear_dx::w]};
    joined.out = {add.out[out::add::y]};
    joined.origin = first->origin | second->origin | add.origin;
    if (!has_kernel(joined)) return;
    const auto place = size_t(producer_[size_t(second->out[0])]);
    gone_[i] = gone_[place] = gone_[size_t(producer_[size_t(first->out[0])])] = true;
    instead_[place].push_back(std::move(joined));
  }

  std::set<ValueId> saved_;  // values read by joined gradients
};

}  // namespace

void join_swiglu(Program& program, const PassContext& context) {
  // Generation has one row at a time. Libraries use other kernels for it.
  if (context.kind == ProgramKind::prefill || context.kind == ProgramKind::decode) return;
  if (context.kernel_for && context.recipe.fusion == "on") Swiglu(program, context).run();
}

}  // namespace crest
