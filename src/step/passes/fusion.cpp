// Setting --fusion on: first named patterns with hand-written kernels, then chains of pointwise
// instructions (passes/fuse_chains.cpp), then the flat optimizer (passes/flat_update.cpp). A fused
// instruction stays within one phase. The loss is the exception: its gradient is written while the
// row of logits is in cache.
#include <algorithm>

#include "ops/index.h"
#include "passes/fuse.h"
#include "passes/pass.h"
#include "passes/rewrite.h"

namespace crest {

namespace {

// Marks instructions as absorbed. The absorbing instruction is rewritten in place with the old
// output values, so names, storage and consumers stay.
class Patterns {
 public:
  explicit Patterns(Program& program)
      : p_(program),
        producer_(program.producers()),
        consumers_(program.consumers()),
        gone_(program.code.size(), false) {
    is_output_.assign(p_.values.size(), false);
    for (ValueId v : p_.outputs) is_output_[size_t(v)] = true;
  }

  void run() {
    for (size_t i = 0; i < p_.code.size(); ++i) {
      if (gone_[i]) continue;
      Instr& instr = p_.code[i];
      if (is(instr, "add")) residual_norm(i);
      if (is(instr, "linear")) linear_gelu(i, "linear_gelu", true);
      if (is(instr, "linear_int8")) linear_gelu(i, "linear_gelu_int8", false);
      if (is(instr, "softmax")) scores_softmax(i);
      if (is(instr, "softmax_grad")) softmax_grad_scale(i);
      if (is(instr, "cross_entropy")) loss_and_gradient(i);
      if (is(instr, "norm_grad")) norm_grad_residual(i);
    }
    std::vector<Instr> kept;
    for (size_t i = 0; i < p_.code.size(); ++i)
      if (!gone_[i]) kept.push_back(std::move(p_.code[i]));
    p_.code = std::move(kept);
    drop_unused_values(p_);
  }

 private:
  Instr* only_consumer(ValueId v, std::string_view op_name, size_t* index) {
    if (consumers_[size_t(v)].size() != 1 || is_output_[size_t(v)]) return nullptr;
    *index = size_t(consumers_[size_t(v)][0]);
    Instr& c = p_.code[*index];
    return !gone_[*index] && is(c, op_name) ? &c : nullptr;
  }
  // The producer of a value with one reader, if it has the phase and stream of `like`; else null.
  const Instr* only_producer(ValueId v, const Instr& like, size_t* index) const {
    int made = producer_[size_t(v)];
    if (made < 0 || gone_[size_t(made)] || consumers_[size_t(v)].size() != 1 || is_output_[size_t(v)]) return nullptr;
    const Instr& instr = p_.code[*index = size_t(made)];
    return instr.phase == like.phase && instr.stream == like.stream ? &instr : nullptr;
  }
  // Lets `reader` read the unary instruction's input.
  void absorb(size_t unary, size_t reader) {
    ValueId x = p_.code[unary].in[0];
    p_.code[reader].in[0] = x;
    std::replace(consumers_[size_t(x)].begin(), consumers_[size_t(x)].end(), int(unary), int(reader));
    gone_[unary] = true;
  }
  bool defined_before(ValueId v, size_t i) const { return v == no_value || producer_[size_t(v)] < int(i); }

  // s = add(a, b); y = norm(s)  ->  s, y, .. = add_norm(a, b)
  void residual_norm(size_t i) {
    Instr& add = p_.code[i];
    for (int c : consumers_[size_t(add.out[out::add::y])]) {
      Instr& norm = p_.code[size_t(c)];
      if (gone_[size_t(c)] || !is(norm, "norm") || norm.phase != add.phase ||
          norm.in[in::norm::x] != add.out[out::add::y])
        continue;
      add.op = &op("add_norm");
      add.in = {add.in[in::add::a], add.in[in::add::b], norm.in[in::norm::gamma],
                norm.in.size() > in::norm::beta ? norm.in[in::norm::beta] : no_value};
      add.out.insert(add.out.end(), norm.out.begin(), norm.out.end());
      add.attrs = norm.attrs;
      add.origin = add.origin | norm.origin;
      gone_[size_t(c)] = true;
      return;
    }
  }

  // h = linear(x); a = gelu(h)  ->  a, [h] = linear_gelu(x). h stays if the backward half reads it
  // and the operation can keep it.
  void linear_gelu(size_t i, const char* joined, bool can_keep) {
    Instr& linear = p_.code[i];
    ValueId h = linear.out[out::linear::y];
    for (int c : consumers_[size_t(h)]) {
      Instr& gelu = p_.code[size_t(c)];
      if (gone_[size_t(c)] || !is(gelu, "gelu") || gelu.phase != linear.phase) continue;
      bool keep = consumers_[size_t(h)].size() > 1 || is_output_[size_t(h)];
      if (keep && !can_keep) return;
      linear.op = &op(joined);
      linear.out = {gelu.out[out::gelu::y]};
      if (keep) linear.out.push_back(h);
      if (can_keep) linear.attrs.set("keep", keep);
      linear.origin = linear.origin | gelu.origin;
      gone_[size_t(c)] = true;
      return;
    }
  }

  // softmax(causal_mask(scale(x)))  ->  softmax(x) {scale, causal}, for any order and subset, and
  // after a cast to more precision, if the mask is only the diagonal. The mask's gradient is the
  // identity and scale's gradient needs no value, so usually nothing else reads the intermediates.
  // The softmax gradient gets the mask too and can skip hidden probabilities.
  void scores_softmax(size_t i) {
    Instr& softmax = p_.code[i];
    double scale = softmax.attrs.number("scale", 1);
    bool causal = softmax.attrs.integer("causal", 0) != 0, changed = false;
    for (size_t reader = i, at = 0;;) {
      ValueId x = p_.code[reader].in[0];
      const Instr* made = only_producer(x, softmax, &at);
      if (!made) break;
      if (is(*made, "cast") && size_of(p_.at(made->in[in::cast::x]).dtype) <= size_of(p_.at(x).dtype)) {
        reader = at;
        continue;
      }
      if (is(*made, "causal_mask") && made->in.size() <= in::causal_mask::positions && !made->attrs.has("window") &&
          scale > 0)  // after a mask, a scale must not change its sign
        causal = true;
      else if (is(*made, "scale"))
        scale *= made->attrs.number("value");
      else
        break;
      absorb(at, reader);
      softmax.origin = made->origin | softmax.origin;
      changed = true;
    }
    if (!changed) return;
    if (scale != 1 || softmax.attrs.has("scale")) softmax.attrs.set("scale", scale);
    if (!causal) return;
    softmax.attrs.set("causal", 1);
    for (int c : consumers_[size_t(softmax.out[out::softmax::y])])
      if (Instr& grad = p_.code[size_t(c)];
          is(grad, "softmax_grad") && grad.in[in::softmax_grad::y] == softmax.out[out::softmax::y])
        grad.attrs.set("causal", 1);
  }

  // dx = softmax_grad(..); ds = scale(dx)  ->  ds = softmax_grad(..) {scale}
  void softmax_grad_scale(size_t i) {
    Instr& grad = p_.code[i];
    size_t at = 0;
    ValueId& dx = grad.out[out::softmax_grad::dx];
    Instr* scale = only_consumer(dx, "scale", &at);
    if (!scale || scale->phase != grad.phase) return;
    grad.attrs.set("scale", grad.attrs.number("scale", 1) * scale->attrs.number("value"));
    dx = scale->out[out::scale::y];
    producer_[size_t(dx)] = int(i);
    grad.origin = grad.origin | scale->origin;
    gone_[at] = true;
  }

  // One pass over the logits for cross_entropy and its gradient. The gradient may overwrite the
  // logits. If ranks share a row, its gradient needs their combined sums first.
  void loss_and_gradient(size_t i) {
    Instr& loss = p_.code[i];
    if (loss.in.size() > in::cross_entropy::stats) return;
    for (int c : consumers_[size_t(loss.in[in::cross_entropy::logits])]) {
      Instr& grad = p_.code[size_t(c)];
      if (gone_[size_t(c)] || !is(grad, "cross_entropy_grad") ||
          consumers_[size_t(loss.out[out::cross_entropy::lse])].size() != 1)
        continue;
      loss.op = &op("cross_entropy_fused");
      loss.in = {grad.in[in::cross_entropy_grad::logits], grad.in[in::cross_entropy_grad::targets],
                 grad.in[in::cross_entropy_grad::scalars]};
      loss.out = {loss.out[out::cross_entropy::loss], grad.out[out::cross_entropy_grad::dlogits]};
      loss.attrs = grad.attrs;
      gone_[size_t(c)] = true;
      return;
    }
  }

  // dx = norm_grad(..); sum = add(dres, dx)  ->  sum = norm_grad(.., dres)
  void norm_grad_residual(size_t i) {
    Instr& norm = p_.code[i];
    size_t at = 0;
    ValueId& dx = norm.out[out::norm_grad::dx];
    Instr* add = only_consumer(dx, "add", &at);
    constexpr size_t dres = in::norm_grad::dres;
    if (!add || add->phase != norm.phase || (norm.in.size() > dres && norm.in[dres] != no_value)) return;
    if (norm.attrs.integer("bias", 0)) return;  // it sums dx
    ValueId other = add->in[in::add::a] == dx ? add->in[in::add::b] : add->in[in::add::a];
    if (other == dx || !defined_before(other, i)) return;
    norm.in.resize(std::max<size_t>(norm.in.size(), dres + 1), no_value);
    norm.in[dres] = other;
    dx = add->out[out::add::y];
    producer_[size_t(dx)] = int(i);
    norm.origin = norm.origin | add->origin;
    gone_[at] = true;
  }

  Program& p_;
  std::vector<int> producer_;
  std::vector<std::vector<int>> consumers_;
  std::vector<bool> gone_, is_output_;
};

}  // namespace

void fuse(Program& program, const PassContext& context) {
  if (context.recipe.fusion != "on") return;
  Patterns(program).run();
  fuse_chains(program);
  if (context.kind == ProgramKind::update) {
    flatten_update(program);
    drop_unused_values(program);
  }
}

const std::vector<Setting>& fusion_settings() {
  static const std::vector<Setting> rows = {setting<&Recipe::fusion>({.name = "fusion",
                                                                      .group = "Precision and memory",
                                                                      .help = "fuse instructions into one kernel",
                                                                      .choices = {"on", "off"},
                                                                      .effects = {{Effect::work, Effect::instructions}},
                                                                      .smaller = {"on"}})};
  return rows;
}

}  // namespace crest
