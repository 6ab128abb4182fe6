// --mesh context=C: the ranks along the axis share the tokens of every sequence. A sequence has 2 C
// equal chunks, and rank r has chunks r and 2 C - 1 - r: together they see as many keys on every
// rank (Dubey et al. 2024, "The Llama 3 Herd of Models", section 3.3.2). Attention needs the keys
// and values of earlier tokens, so each rank gathers those of all tokens; with grouped heads they
// are few. Their gradients are summed over the ranks, and each gets its own tokens' sum. Everything
// else works on single tokens: it needs their places only. A sequence that does not divide is
// padded at its end, where no other token sees it (Recipe::padded_seq). Programs that sample are
// the same on all ranks.
#include <fmt/format.h>

#include <algorithm>

#include "core/error.h"
#include "ops/index.h"
#include "passes/pass.h"
#include "passes/rewrite.h"

namespace crest {

namespace {

class ContextParallel {
 public:
  ContextParallel(Program& program, int ranks, int64_t padded)
      : w_(program), p_(program), ranks_(ranks), tokens_(program.at(program.inputs[0]).shape[1]), seq_(padded) {}

  void run() {
    for (ValueId id : p_.inputs) {
      Value& v = p_.at(id);
      if (v.role != Role::input || v.dtype != DType::i32) continue;
      v.shape[1] = seq_ / ranks_;
      v.layout.strides = v.shape.contiguous_strides();
      v.placement[size_t(Axis::context)] = Placement::chunks(1, v.shape[1] / 2);
    }
    for (const Instr& old : w_.old) {
      Instr instr = old;
      // All ranks drop the same elements as one rank would.
      if (is(instr, "dropout")) instr.attrs.set("axes", name(Axis::context)).set("seq", seq_ / ranks_);
      if (is(instr, "rope")) {
        instr.attrs.set("length", seq_);
        locate(instr, in::rope::positions);
      } else if (is(instr, "add_position")) {
        locate(instr, in::add_position::position);
      } else if (is(instr, "attention")) {
        attend(instr);
      }
      if (!instr.op) continue;
      w_.keep(std::move(instr));
      reinfer(p_, p_.code.back());
    }
    w_.finish();
  }

 private:
  Attrs along() const { return Attrs().set("ranks", ranks_).set("axes", name(Axis::context)); }

  // Gives an instruction the places of its tokens, unless it has their places in documents.
  void locate(Instr& instr, size_t operand) {
    if (instr.in.size() > operand && instr.in[operand] != no_value) return;
    if (positions_ == no_value) {
      Attrs attrs = along();
      attrs.set("tokens", tokens_);
      positions_ = w_.build(instr).emit1("token_positions", {p_.inputs[0]}, attrs);
      p_.at(positions_).name = "token_positions";
    }
    instr.in.resize(operand + 1, no_value);
    instr.in[operand] = positions_;
  }

  void attend(Instr& instr) {
    namespace at = in::attention;
    Builder& b = w_.build(instr);
    const std::string base = instr.origin.text();
    Attrs heads;
    heads.set("heads", instr.attrs.integer("heads")).set("kv_heads", instr.attrs.integer("kv_heads"));
    b.origin = Origin(base + ".keys");
    const std::vector<ValueId> parts = b.emit("split_keys", {w_.now(instr.in[at::qkv])}, heads);
    const ValueId all = b.emit1("gather_tokens", {parts[out::split_keys::kv]}, along());
    b.origin = instr.origin;
    Attrs attrs = instr.attrs;
    attrs.erase("causal");  // always
    attrs.set("ranks", ranks_).set("axes", name(Axis::context));
    std::vector<ValueId> in = {parts[out::split_keys::q], all};
    for (size_t i = at::scalars; i < instr.in.size(); ++i) in.push_back(w_.now(instr.in[i]));
    const ValueId o = b.emit1("attention_rows", in, attrs);
    std::string name = p_.at(instr.out[out::attention::o]).name;
    p_.at(instr.out[out::attention::o]).name += ".old";
    p_.at(o).name = name;
    w_.replace(instr.out[out::attention::o], o);
    instr.op = nullptr;
  }

  Rewriter w_;
  Program& p_;
  int ranks_;
  int64_t tokens_, seq_;  // of a whole sequence, without padding and with it
  ValueId positions_ = no_value;
};

[[noreturn]] void refuse_context(int ranks, const std::string& what, const std::string& advice) {
  fail_usage(fmt::format("context={} {}", ranks, what), "--mesh", advice);
}

void check_sequences(const Recipe& r, int ranks) {
  const int64_t seq = r.seq_length(), padded = r.padded_seq(), unit = 2 * int64_t(ranks);
  // Masks of attention number a query's keys by the length of the sequence.
  if (padded != seq && r.model.dropout > 0)
    refuse_context(
        ranks, fmt::format("pads sequences of {} tokens to {}, which would change the masks of dropout", seq, padded),
        seq > unit ? fmt::format("Use --dropout 0, or --seq {}.", padded - unit) : "Use --dropout 0.");
  if (r.attention == "naive") refuse_context(ranks, "does not work with --attention naive", "Use --attention flash.");
  if (r.precision == "fp8") refuse_context(ranks, "does not work with --precision fp8 yet", "Use bf16.");
}

}  // namespace

void context_parallel(Program& program, const PassContext& context) {
  const int ranks = context.recipe.layout().size(Axis::context);
  if (ranks == 1) return;
  check_sequences(context.recipe, ranks);
  const bool shares = context.kind == ProgramKind::train || context.kind == ProgramKind::validation;
  if (shares) ContextParallel(program, ranks, context.recipe.padded_seq()).run();
}

}  // namespace crest
