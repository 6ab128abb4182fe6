// Setting --loss-chunk: the head projection, the loss and their gradients run for some tokens at a
// time, so memory has only their logits ("chunked cross-entropy": torchtune, Liger kernel). A chunk
// of an input is a view. A chunk of an output is written into the whole tensor, so join_rows copies
// nothing. The weight gradient adds up over the chunks through its accumulator for micro steps.
#include "passes/loss_chunk.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstdlib>
#include <unordered_map>

#include "core/error.h"
#include "core/text.h"
#include "ops/index.h"
#include "passes/pass.h"
#include "passes/rewrite.h"

namespace crest {

namespace {

// Operations that can run for some tokens at a time, and their inputs with one row per token.
// Operations with an accumulator sum over rows. Others have one output row per token.
struct ByRows {
  const char* op;
  std::vector<size_t> in;
};

const ByRows* by_rows(const Instr& instr) {
  static const std::vector<ByRows> table = {
      {"linear", {in::linear::x}},
      {"cast", {in::cast::x}},
      {"loss_stats", {in::loss_stats::logits, in::loss_stats::targets}},
      {"gather_parts", {in::gather_parts::x}},
      {"cross_entropy", {in::cross_entropy::logits, in::cross_entropy::targets}},
      {"cross_entropy", {in::cross_entropy::logits, in::cross_entropy::targets, in::cross_entropy::stats}},
      {"cross_entropy_grad",
       {in::cross_entropy_grad::logits, in::cross_entropy_grad::targets, in::cross_entropy_grad::lse}},
      {"linear_dx", {in::linear_dx::dy}},
      {"linear_dw", {in::linear_dw::dy, in::linear_dw::x}},
      {"bias_grad", {in::bias_grad::dy}},
  };
  const ByRows* best = nullptr;  // the last candidate with all inputs
  for (auto& rule : table)
    if (is(instr, rule.op) && instr.in.size() > rule.in.back() && instr.in[rule.in.back()] != no_value) best = &rule;
  return best;
}

bool sums(const Instr& instr) { return !instr.op->accumulators.empty(); }

// The projection to a loss's logits, and all users of the logits or their gradient (the members).
struct Head {
  size_t projection = 0;
  std::vector<bool> member;      // by instruction
  std::vector<bool> rows;        // by value: made by a member, one row per token
  std::vector<ValueId> leaving;  // values read by non-members, sorted
  size_t place = 0;              // all members can run before this instruction; 0: nothing to split
  int64_t tokens = 0;
};

class FindHead {
 public:
  FindHead(const Program& program, size_t loss) : p_(program), producer_(program.producers()) {
    head_.member.assign(p_.code.size(), false);
    head_.rows.assign(p_.values.size(), false);
    logits_.assign(p_.values.size(), false);
    if (projection(loss)) members(), place();
  }
  const Head& head() const { return head_; }

 private:
  bool projection(size_t loss) {
    ValueId logits = p_.code[loss].in[in::cross_entropy::logits];
    for (ValueId v = logits;;) {
      int made = producer_[size_t(v)];
      if (made < 0) return false;
      const Instr& instr = p_.code[head_.projection = size_t(made)];
      if (is(instr, "linear")) return true;
      if (!is(instr, "cast")) return false;
      v = instr.in[in::cast::x];
    }
  }

  void members() {
    add(head_.projection);
    head_.tokens = p_.at(p_.code[head_.projection].out[out::linear::y]).shape.rows();
    for (size_t i = head_.projection + 1; i < p_.code.size(); ++i) {
      const Instr& instr = p_.code[i];
      if (by_rows(instr) && logits_[size_t(instr.in[0])])
        add(i);
      else
        for (ValueId v : instr.in)
          if (v != no_value && head_.rows[size_t(v)]) head_.leaving.push_back(v);
    }
    for (ValueId v : p_.outputs)
      if (head_.rows[size_t(v)]) head_.leaving.push_back(v);
    std::sort(head_.leaving.begin(), head_.leaving.end());
    head_.leaving.erase(std::unique(head_.leaving.begin(), head_.leaving.end()), head_.leaving.end());
  }

  void add(size_t i) {
    const Instr& instr = p_.code[i];
    head_.member[i] = true;
    if (sums(instr)) return;
    for (ValueId v : instr.out) head_.rows[size_t(v)] = true;
    for (const char* op : {"linear", "cast", "loss_stats", "gather_parts", "cross_entropy_grad"})
      if (is(instr, op)) logits_[size_t(instr.out[0])] = true;
  }

  // Between all inputs of the members and the first reader of a result.
  void place() {
    // If something else reads the logits, they exist as a whole anyway.
    for (ValueId v : head_.leaving)
      if (logits_[size_t(v)]) return;
    size_t before = p_.code.size(), behind = 0;
    for (size_t i = 0; i < p_.code.size(); ++i)
      for (ValueId v : p_.code[i].in) {
        int made = v == no_value ? -1 : producer_[size_t(v)];
        if (made < 0 || head_.member[size_t(made)] == head_.member[i]) continue;
        if (head_.member[i])
          behind = std::max(behind, size_t(made + 1));
        else
          before = std::min(before, i);
      }
    if (behind <= before) head_.place = before;
  }

  const Program& p_;
  std::vector<int> producer_;
  std::vector<bool> logits_;  // by value: a member's output as wide as the vocabulary, or the ranks' sums of such rows
  Head head_;
};

class CutHead {
 public:
  CutHead(Program& program, Head head, int64_t rows) : p_(program), head_(std::move(head)), rows_(rows) {}

  void run() {
    Rewriter w(p_);
    for (size_t i = 0; i <= w.old.size(); ++i) {
      if (i == head_.place) emit(w);
      if (i < w.old.size() && !head_.member[i]) w.keep(w.old[i]);
    }
    w.finish();
  }

 private:
  void emit(Rewriter& w) {
    std::vector<const Instr*> members;
    for (size_t i = 0; i < w.old.size(); ++i)
      if (head_.member[i]) members.push_back(&w.old[i]);
    for (auto* instr : members)
      for (size_t k : by_rows(*instr)->in)
        if (ValueId v = instr->in[k]; !head_.rows[size_t(v)] && !pieces_.count(v)) pieces_[v] = cut(w, *instr, v);
    for (int64_t first = 0; first < head_.tokens; first += rows_)
      for (auto* instr : members) sums(*instr) ? sum(w, *instr, first) : piece(w, *instr, first);
    for (auto* instr : members)
      if (!sums(*instr))
        for (ValueId v : instr->out)
          if (leaves(v)) join(*instr, v);
  }

  bool leaves(ValueId v) const { return std::binary_search(head_.leaving.begin(), head_.leaving.end(), v); }

  std::vector<ValueId> cut(Rewriter& w, const Instr& reader, ValueId v) {
    Builder& b = w.build(reader);
    b.phase = Phase::forward;
    return b.emit("split_rows", {w.now(v)}, Attrs().set("of", head_.tokens).set("rows", rows_));
  }

  // A member's instruction for the tokens from `first` on.
  Instr of_tokens(Rewriter& w, const Instr& whole, int64_t first) {
    Instr instr = whole;
    instr.in = w.now(whole.in);
    for (size_t k : by_rows(whole)->in) instr.in[k] = pieces_.at(whole.in[k])[size_t(first / rows_)];
    return instr;
  }

  void piece(Rewriter& w, const Instr& whole, int64_t first) {
    std::vector<ValueId> out = w.build(whole).append(of_tokens(w, whole, first));
    for (size_t o = 0; o < out.size(); ++o) {
      ValueId all = whole.out[o];
      pieces_[all].push_back(out[o]);
      if (leaves(all)) p_.at(out[o]).layout.storage = all;
      if (leaves(all)) p_.at(out[o]).layout.offset = first * (p_.at(all).numel() / head_.tokens);
    }
  }

  // The first chunk writes, or adds to the sum from before the head. Later chunks add. The last
  // makes the whole sum.
  void sum(Rewriter& w, const Instr& whole, int64_t first) {
    size_t acc = size_t(whole.op->accumulators[0].in);
    ValueId all = whole.out[0];
    Instr instr = of_tokens(w, whole, first);
    instr.in.resize(std::max(instr.in.size(), acc + 1), no_value);
    if (first > 0) instr.in[acc] = pieces_.at(all).back();
    if (first + rows_ >= head_.tokens) {
      p_.code.push_back(std::move(instr));
      return;
    }
    ValueId v = w.build(whole).append(std::move(instr))[0];
    p_.at(v).layout = p_.at(all).layout;
    p_.at(v).role = p_.at(all).role, p_.at(v).lifetime = p_.at(all).lifetime;
    pieces_[all].push_back(v);
  }

  void join(const Instr& whole, ValueId all) {
    Instr instr = whole;
    instr.op = &op("join_rows");
    instr.in = pieces_.at(all);
    instr.out = {all};
    instr.attrs = {};
    if (int64_t batch = p_.at(all).shape[0]; batch != head_.tokens) instr.attrs.set("batch", batch);
    p_.code.push_back(std::move(instr));
  }

  Program& p_;
  const Head head_;
  const int64_t rows_;
  std::unordered_map<ValueId, std::vector<ValueId>> pieces_;  // of a value of the unchunked Program
};

// Chunks of nearly equal size, rounded for matrix units and aligned addresses.
int64_t rows(int64_t tokens, int64_t most) {
  int64_t pieces = (tokens + most - 1) / most, even = (tokens + pieces - 1) / pieces;
  return std::min(most, (even + 63) / 64 * 64);
}

}  // namespace

int64_t loss_chunk_of(const Recipe& recipe) {
  auto it = recipe.pass_settings.find("loss-chunk");
  return it == recipe.pass_settings.end() || it->second == "auto" || it->second == "off"
             ? 0
             : int64_t(std::strtod(it->second.c_str(), nullptr));
}

void chunk_loss(Program& program, const PassContext& context) {
  std::string chunk = context.setting("loss-chunk");
  if (chunk == "off" || chunk == "auto") return;  // auto: not resolved, no device
  auto tokens = int64_t(context.number("loss-chunk"));
  for (size_t i = 0; i < program.code.size(); ++i) {
    if (!is(program.code[i], "cross_entropy")) continue;
    const Head head = FindHead(program, i).head();
    // More chunks save almost no memory but take long to plan.
    tokens = std::max(tokens, (head.tokens + most_loss_chunks - 1) / most_loss_chunks);
    if (head.place == 0 || head.tokens <= tokens) return;
    tokens = rows(head.tokens, tokens);
    CutHead(program, head, tokens).run();
    program.properties.set(loss_chunk_property, tokens);
    return;  // a model has one loss
  }
}

const std::vector<Setting>& loss_chunk_settings() {
  static const std::vector<Setting> rows = {
      pass_setting({.name = "loss-chunk",
                    .group = "Precision and memory",
                    .help = "chunked loss: number of tokens with logits in memory at a time. auto: on a CPU 32 MiB "
                            "of logits (at least 256 tokens, 512 in half precision), on a GPU 8192 tokens, or 2048 if "
                            "only that fits. At most 1024 chunks",
                    .unit = "tokens",
                    .default_value = "auto",
                    .min = 1,
                    .max = 1e15,
                    .choices = {"auto", "off"},
                    .also_number = true,
                    .effects = {{Effect::work, Effect::anywhere, {"lm_head", "loss"}}},
                    .smaller = {"2048", "256"}})};
  return rows;
}

}  // namespace crest
