// Lever --fusion on. Named patterns first (they have hand-written kernels), then chains of pointwise instructions
// (passes/fuse_chains.cpp), then the flat optimizer (passes/fuse_update.cpp). Fused instructions never span phases, but
// for the loss: its gradient is written while the row of logits is in cache.
#include <algorithm>

#include "passes/fuse.h"
#include "passes/pass.h"
#include "passes/rewrite.h"

namespace crest {

namespace {

// Marks instructions as absorbed into an earlier or later one, which is rewritten in place with the old values as its
// outputs; so names, storage and consumers stay as they are.
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
      if (is(instr, "linear")) linear_gelu(i);
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
  // What makes a value that one instruction of `like`'s phase and lane reads, and nobody else.
  const Instr* only_producer(ValueId v, const Instr& like, size_t* index) const {
    int made = producer_[size_t(v)];
    if (made < 0 || gone_[size_t(made)] || consumers_[size_t(v)].size() != 1 || is_output_[size_t(v)]) return nullptr;
    const Instr& instr = p_.code[*index = size_t(made)];
    return instr.phase == like.phase && instr.lane == like.lane ? &instr : nullptr;
  }
  // The reader of what a unary instruction makes reads that one's input instead.
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
    for (int c : consumers_[size_t(add.out[0])]) {
      Instr& norm = p_.code[size_t(c)];
      if (gone_[size_t(c)] || !is(norm, "norm") || norm.phase != add.phase || norm.in[0] != add.out[0]) continue;
      add.op = &op("add_norm");
      add.in = {add.in[0], add.in[1], norm.in[1], norm.in.size() > 2 ? norm.in[2] : no_value};
      add.out.insert(add.out.end(), norm.out.begin(), norm.out.end());
      add.attrs = norm.attrs;
      add.origin = add.origin | norm.origin;
      gone_[size_t(c)] = true;
      return;
    }
  }

  // h = linear(x); a = gelu(h)  ->  a, [h] = linear_gelu(x); h stays when the backward half reads it.
  void linear_gelu(size_t i) {
    Instr& linear = p_.code[i];
    ValueId h = linear.out[0];
    for (int c : consumers_[size_t(h)]) {
      Instr& gelu = p_.code[size_t(c)];
      if (gone_[size_t(c)] || !is(gelu, "gelu") || gelu.phase != linear.phase) continue;
      bool keep = consumers_[size_t(h)].size() > 1 || is_output_[size_t(h)];
      linear.op = &op("linear_gelu");
      linear.out = {gelu.out[0]};
      if (keep) linear.out.push_back(h);
      linear.attrs.set("keep", keep);
      linear.origin = linear.origin | gelu.origin;
      gone_[size_t(c)] = true;
      return;
    }
  }

  // softmax(causal_mask(scale(x))), in any order and part, also behind a cast to more precision  ->
  // softmax(x) {scale, causal}. The mask's gradient is the identity and that of scale needs no value, so mostly nobody
  // else reads the intermediates; the probabilities' gradient learns of the mask, too: hidden ones need no reading.
  void scores_softmax(size_t i) {
    Instr& softmax = p_.code[i];
    double scale = softmax.attrs.number("scale", 1);
    bool causal = softmax.attrs.integer("causal", 0) != 0, changed = false;
    for (size_t reader = i, at = 0;;) {
      ValueId x = p_.code[reader].in[0];
      const Instr* made = only_producer(x, softmax, &at);
      if (!made) break;
      if (is(*made, "cast") && size_of(p_.at(made->in[0]).dtype) <= size_of(p_.at(x).dtype)) {
        reader = at;
        continue;
      }
      if (is(*made, "causal_mask") && made->in.size() == 1 &&
          scale > 0)  // a scale after a mask must not change its sign
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
    for (int c : consumers_[size_t(softmax.out[0])])
      if (Instr& grad = p_.code[size_t(c)]; is(grad, "softmax_grad") && grad.in[1] == softmax.out[0])
        grad.attrs.set("causal", 1);
  }

  // dx = softmax_grad(..); ds = scale(dx)  ->  ds = softmax_grad(..) {scale}
  void softmax_grad_scale(size_t i) {
    Instr& grad = p_.code[i];
    size_t at = 0;
    Instr* scale = only_consumer(grad.out[0], "scale", &at);
    if (!scale || scale->phase != grad.phase) return;
    grad.attrs.set("scale", grad.attrs.number("scale", 1) * scale->attrs.number("value"));
    grad.out[0] = scale->out[0];
    producer_[size_t(grad.out[0])] = int(i);
    grad.origin = grad.origin | scale->origin;
    gone_[at] = true;
  }

  // cross_entropy and its gradient in one pass over the logits, whose memory the gradient may take.
  void loss_and_gradient(size_t i) {
    Instr& loss = p_.code[i];
    for (int c : consumers_[size_t(loss.in[0])]) {
      Instr& grad = p_.code[size_t(c)];
      if (gone_[size_t(c)] || !is(grad, "cross_entropy_grad") || consumers_[size_t(loss.out[1])].size() != 1) continue;
      loss.op = &op("cross_entropy_fused");
      loss.in = {grad.in[0], grad.in[1], grad.in[3]};
      loss.out = {loss.out[0], grad.out[0]};
      loss.attrs = grad.attrs;
      gone_[size_t(c)] = true;
      return;
    }
  }

  // dx = norm_grad(..); sum = add(dres, dx)  ->  sum = norm_grad(.., dres)
  void norm_grad_residual(size_t i) {
    Instr& norm = p_.code[i];
    size_t at = 0;
    Instr* add = only_consumer(norm.out[0], "add", &at);
    if (!add || add->phase != norm.phase || (norm.in.size() > 5 && norm.in[5] != no_value)) return;
    ValueId other = add->in[0] == norm.out[0] ? add->in[1] : add->in[0];
    if (other == norm.out[0] || !defined_before(other, i)) return;
    norm.in.resize(std::max<size_t>(norm.in.size(), 6), no_value);
    norm.in[5] = other;
    norm.out[0] = add->out[0];
    producer_[size_t(norm.out[0])] = int(i);
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

}  // namespace crest
