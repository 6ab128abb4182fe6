// Setting --fusion on with --precision fp8: the kernel making a tensor also quantizes it, if the
// device has such a kernel. A norm writes 8-bit floats (norm_quantize). The transpose for the
// backward half comes from the norm's input and statistics (norm_quantize_columns), so the norm's
// output is never written. Pointwise work and bias gradients include quantization in their bodies.
// Scales stay the same, per tensor or per block. Runs after the fusion pass and extends its
// instructions. Results with and without it are bitwise identical.
#include <algorithm>

#include "ops/fused.h"
#include "ops/index.h"
#include "ops/quantized_norms.h"
#include "passes/joins.h"
#include "passes/pass.h"
#include "passes/rewrite.h"

namespace crest {

namespace {

class JoinQuantization {
 public:
  JoinQuantization(Program& program, const PassContext& context)
      : p_(program),
        context_(context),
        producer_(program.producers()),
        consumers_(program.consumers()),
        now_(program.code.size()),
        gone_(program.code.size(), false),
        instead_(program.values.size()) {
    for (size_t i = 0; i < now_.size(); ++i) now_[i] = int(i);
    for (size_t v = 0; v < instead_.size(); ++v) instead_[v] = ValueId(v);
    is_output_.assign(p_.values.size(), false);
    for (ValueId v : p_.outputs) is_output_[size_t(v)] = true;
  }

  void run() {
    for (size_t i = 0; i < p_.code.size(); ++i)
      if (is(p_.code[i], "norm") && p_.code[i].phase == Phase::recompute) repeated_norm(i);
    for (size_t i = 0; i < p_.code.size(); ++i)
      if (makes_rows_only(p_.code[i])) norm(i);
    for (size_t i = 0; i < p_.code.size(); ++i)
      if (!gone_[i] && quantizes(p_.code[i])) body(i);
    std::vector<Instr> kept;
    for (size_t i = 0; i < p_.code.size(); ++i)
      if (!gone_[i]) kept.push_back(std::move(p_.code[i]));
    for (Instr& instr : kept)
      for (ValueId& v : instr.in)
        if (v != no_value) v = instead_[size_t(v)];
    p_.code = std::move(kept);
    drop_unused_values(p_);
  }

 private:
  bool has_kernel(const Instr& instr) const { return !context_.kernel_for(p_, instr).empty(); }
  static ValueId input(const Instr& instr, size_t i) { return i < instr.in.size() ? instr.in[i] : no_value; }
  // The current index of an old instruction; it may be part of another one.
  int now(int i) const { return now_[size_t(i)]; }

  // A norm or add_norm.
  struct Norm {
    ValueId x = no_value, b = no_value, gamma = no_value, beta = no_value;  // the input is x, or x + b
    ValueId scalars = no_value;                                             // of b's dropout
    ValueId y = no_value, rstd = no_value, mean = no_value, s = no_value;   // s: x + b
    std::string kind;
    double eps = 0;
    ValueId normalized() const { return s == no_value ? x : s; }
    bool same_as(const Norm& o) const {
      return normalized() == o.normalized() && gamma == o.gamma && beta == o.beta && kind == o.kind && eps == o.eps;
    }
  };
  static Norm norm_of(const Instr& i) {
    Norm n;
    n.kind = i.attrs.text("kind"), n.eps = i.attrs.number("eps");
    const bool layer = n.kind == "layer", sum = is(i, "add_norm");
    if (sum) n.b = i.in[in::add_norm::b], n.s = i.out[out::add_norm::s], n.scalars = input(i, in::add_norm::scalars);
    n.x = i.in[0];
    n.gamma = i.in[sum ? size_t(in::add_norm::gamma) : size_t(in::norm::gamma)];
    n.beta = input(i, sum ? size_t(in::add_norm::beta) : size_t(in::norm::beta));
    n.y = i.out[sum ? size_t(out::add_norm::y) : size_t(out::norm::y)];
    n.rstd = i.out[sum ? size_t(out::add_norm::rstd) : size_t(out::norm::rstd)];
    if (layer) n.mean = i.out[sum ? size_t(out::add_norm::mean) : size_t(out::norm::mean)];
    return n;
  }

  static bool makes_rows_only(const Instr& i) { return quantizes_rows(i) && !i.attrs.integer("columns", 0); }

  // t = quantize_columns(y, scale)  ->  t = norm_quantize_columns(x, .., scale)
  static Instr columns_of(const Norm& n, const Instr& columns) {
    Instr joined = columns;
    joined.op = &op("norm_quantize_columns");
    joined.in = {n.normalized(), n.gamma, n.rstd, input(columns, in::quantize_columns::scale), n.mean, n.beta};
    joined.attrs.set("kind", n.kind);
    return joined;
  }
  // Whether all readers of y except instruction `except` transpose it and have such a kernel.
  bool only_columns(const Norm& n, int except) const {
    if (is_output_[size_t(n.y)]) return false;
    for (int c : consumers_[size_t(n.y)]) {
      const Instr& reader = p_.code[size_t(c)];
      if (c != except && (!quantizes_columns(reader) || !has_kernel(columns_of(n, reader)))) return false;
    }
    return true;
  }
  void replace_columns(const Norm& n, int except) {
    for (int c : consumers_[size_t(n.y)])
      if (c != except) p_.code[size_t(c)] = columns_of(n, p_.code[size_t(c)]);
  }

  // y, rstd, mean = norm(x), repeated only for transposes of y. Makes them from x and the forward
  // half's statistics.
  void repeated_norm(size_t i) {
    Norm again = norm_of(p_.code[i]);
    const Instr* first = nullptr;
    auto consider = [&](int c) {
      if (c < 0 || first) return;
      const Instr& other = p_.code[size_t(c)];
      if (other.phase == Phase::forward && (is(other, "norm") || is(other, "add_norm")) &&
          norm_of(other).same_as(again))
        first = &other;
    };
    consider(producer_[size_t(again.x)]);
    for (int c : consumers_[size_t(again.x)]) consider(c);
    if (!first || consumers_[size_t(again.y)].empty()) return;
    const Norm forward = norm_of(*first);
    const ValueId rstd = again.rstd, mean = again.mean;
    again.rstd = forward.rstd, again.mean = forward.mean;
    if (!only_columns(again, -1)) return;
    replace_columns(again, -1);
    instead_[size_t(rstd)] = forward.rstd;
    if (mean != no_value) instead_[size_t(mean)] = forward.mean;
    gone_[i] = true;
  }

  // [s,] y, rstd, [mean] = norm(..); q, .. = quantize(y)  ->  q, .., rstd, [mean], [s] =
  // norm_quantize(..)
  void norm(size_t i) {
    const Instr& quantize = p_.code[i];
    const int made = producer_[size_t(quantize.in[in::quantize::x])];
    if (made < 0 || gone_[size_t(made)]) return;
    const Instr& old = p_.code[size_t(made)];
    if ((!is(old, "norm") && !is(old, "add_norm")) || old.phase != quantize.phase || old.stream != quantize.stream)
      return;
    const Norm n = norm_of(old);
    if (n.y != quantize.in[in::quantize::x] || !only_columns(n, int(i))) return;
    for (ValueId v : old.out)
      for (int c : consumers_[size_t(v)])
        if (c < int(i)) return;
    Instr joined = quantize;
    joined.op = &op("norm_quantize");
    joined.origin = old.origin | quantize.origin;
    const bool blocks = quantize.op == &op_quantize_blocks;
    joined.in = {n.x,
                 n.gamma,
                 blocks ? no_value : quantize.in[in::quantize::amax],
                 blocks ? no_value : quantize.in[in::quantize::record],
                 quantize.in[blocks ? size_t(in::quantize_blocks::counts) : size_t(in::quantize::counts)],
                 n.b,
                 n.beta};
    joined.out.push_back(n.rstd);
    if (n.mean != no_value) joined.out.push_back(n.mean);
    if (n.s != no_value) joined.out.push_back(n.s);
    joined.attrs.set("kind", n.kind).set("eps", n.eps);
    if (n.scalars != no_value) {
      joined.in.push_back(n.scalars);
      take_dropout(joined.attrs, old.attrs);
    }
    if (!has_kernel(joined)) return;
    replace_columns(n, int(i));
    gone_[size_t(made)] = true;
    now_[size_t(made)] = int(i);
    p_.code[i] = std::move(joined);
  }

  // The pointwise producer or column sum of x; -1: none.
  int host_of(const Instr& quantizer) const {
    const ValueId x = quantizer.in[0];
    const int made = producer_[size_t(x)];
    auto alike = [&](const Instr& host) {
      return host.stream == quantizer.stream &&
             (host.phase == quantizer.phase || (host.phase == Phase::recompute && quantizer.phase == Phase::backward));
    };
    if (made >= 0) {
      const Instr& host = p_.code[size_t(now(made))];
      if ((host.op->pointwise || is(host, "fused")) && alike(host)) return now(made);
    }
    for (int c : consumers_[size_t(x)]) {
      const Instr& host = p_.code[size_t(now(c))];
      if (is(host, "bias_grad") && alike(host) && !gone_[size_t(now(c))]) return now(c);
    }
    return -1;
  }

  void body(size_t i) {
    const int h = host_of(p_.code[i]);
    if (h < 0) return;
    // At the host's index if all inputs exist there. Else at the quantizer's, if nothing reads the
    // host's results earlier.
    const Instr& quantizer = p_.code[i];
    const bool up = std::all_of(quantizer.in.begin(), quantizer.in.end(), [&](ValueId v) {
      return v == no_value || producer_[size_t(v)] < 0 || now(producer_[size_t(v)]) <= h;
    });
    const int place = up ? h : int(i);
    if (!up && h > int(i)) return;
    for (ValueId v : p_.code[size_t(h)].out)
      for (int c : consumers_[size_t(v)])
        if (now(c) != h && now(c) < place) return;
    if (up && h > int(i))
      for (ValueId v : quantizer.out)
        for (int c : consumers_[size_t(v)])
          if (now(c) < place) return;
    Instr joined = join(p_.code[size_t(h)], quantizer, h, int(i));
    if (!has_kernel(joined)) return;
    gone_[i] = gone_[size_t(h)] = true;
    gone_[size_t(place)] = false;
    p_.code[size_t(place)] = std::move(joined);
    for (int& n : now_)
      if (n == h || n == int(i)) n = place;
  }

  bool is_read(ValueId v, int host, int quantizer) const {
    if (is_output_[size_t(v)]) return true;
    const auto& readers = consumers_[size_t(v)];
    if (readers.empty()) return p_.at(v).lifetime != Lifetime::micro_step;  // the last version of a table
    return std::any_of(readers.begin(), readers.end(),
                       [&](int c) { return now(c) != host && now(c) != quantizer && !gone_[size_t(now(c))]; });
  }

  // One fused instruction for both.
  Instr join(const Instr& host, const Instr& quantizer, int h, int i) const {
    Instr joined = quantizer;
    joined.op = &op("fused");
    joined.attrs = {};
    joined.origin = host.origin | quantizer.origin;
    joined.in = host.in, joined.out.clear();
    auto body = std::make_shared<Program>();
    std::vector<std::pair<ValueId, ValueId>> inside;  // values of the Program and of the body
    auto declare = [&](ValueId v, const Layout* layout) {
      auto id = ValueId(body->values.size());
      Value copy = p_.at(v);
      copy.layout = layout ? *layout : Layout{id, 0, copy.shape.contiguous_strides()};
      copy.role = layout ? Role::activation : Role::input, copy.lifetime = Lifetime::micro_step;
      copy.placement = {};
      body->values.push_back(copy);
      inside.emplace_back(v, id);
      return id;
    };
    auto import = [&](ValueId v) {
      if (v == no_value) return v;
      for (auto& [outer, inner] : inside)
        if (outer == v) return inner;
      body->inputs.push_back(declare(v, nullptr));
      if (std::find(joined.in.begin(), joined.in.end(), v) == joined.in.end()) joined.in.push_back(v);
      return body->inputs.back();
    };
    auto append = [&](const Instr& instr) {
      Instr copy = instr;
      for (ValueId& v : copy.in) v = import(v);
      Infer infer(*body, copy);
      copy.op->infer(infer);
      for (size_t o = 0; o < copy.out.size(); ++o) {
        Layout layout = layout_of(*body, copy, infer.outs[o], ValueId(body->values.size()));
        copy.out[o] = declare(instr.out[o], &layout);
      }
      body->code.push_back(std::move(copy));
    };
    if (host.body) {
      *body = *host.body;
      for (size_t k = 0; k < host.in.size(); ++k) inside.emplace_back(host.in[k], body->inputs[k]);
      for (size_t k = 0; k < host.out.size(); ++k) inside.emplace_back(host.out[k], body->outputs[k]);
    } else {
      body->name = "body";
      joined.in.clear();
      append(host);
    }
    body->outputs.clear();
    append(quantizer);
    for (auto* made : {&host.out, &quantizer.out})
      for (ValueId v : *made)
        if (is_read(v, h, i)) {
          joined.out.push_back(v);
          for (auto& [outer, inner] : inside)
            if (outer == v) body->outputs.push_back(inner);
        }
    joined.body = body;
    return joined;
  }

  Program& p_;
  const PassContext& context_;
  const std::vector<int> producer_;
  const std::vector<std::vector<int>> consumers_;
  std::vector<int> now_;
  std::vector<bool> gone_;
  std::vector<ValueId> instead_;  // replacement by value
  std::vector<bool> is_output_;
};

}  // namespace

void join_quantization(Program& program, const PassContext& context) {
  if (context.kernel_for && context.recipe.fusion == "on" && context.recipe.precision == "fp8" &&
      context.kind == ProgramKind::train)
    JoinQuantization(program, context).run();
}

}  // namespace crest
