// For passes that replace several instructions by one with a kernel on the device.
#pragma once
#include <algorithm>
#include <string>
#include <utility>
#include <vector>

#include "ops/index.h"
#include "passes/pass.h"
#include "passes/rewrite.h"

namespace crest {

// Copies dropout's attributes.
inline void take_dropout(Attrs& to, const Attrs& from) {
  to.set("p", from.number("p")).set("rng_id", from.integer("rng_id"));
  if (from.has("axes")) to.set("axes", from.text("axes"));
  if (from.has("seq")) to.set("seq", from.integer("seq"));
}

class Joins {
 public:
  Joins(Program& program, const PassContext& context)
      : p_(program),
        context_(context),
        producer_(program.producers()),
        consumers_(program.consumers()),
        instead_(program.code.size()),
        gone_(program.code.size(), false),
        is_output_(program.values.size(), false) {
    for (ValueId v : p_.outputs) is_output_[size_t(v)] = true;
  }

 protected:
  // Builds the new code.
  void finish() {
    std::vector<Instr> code;
    for (size_t i = 0; i < p_.code.size(); ++i) {
      for (Instr& instr : instead_[i]) code.push_back(std::move(instr));
      if (!gone_[i]) code.push_back(std::move(p_.code[i]));
    }
    p_.code = std::move(code);
    drop_unused_values(p_);
  }

  bool made_before(ValueId v, size_t i) const { return v == no_value || producer_[size_t(v)] < int(i); }
  bool read_before(ValueId v, size_t i) const {
    auto& readers = consumers_[size_t(v)];
    return std::any_of(readers.begin(), readers.end(), [&](int c) { return c < int(i); });
  }
  // The remaining readers of a value.
  std::vector<size_t> readers(ValueId v) const {
    std::vector<size_t> list;
    for (int c : consumers_[size_t(v)])
      if (!gone_[size_t(c)]) list.push_back(size_t(c));
    return list;
  }
  // Whether two instructions run together: same phase and stream.
  static bool alike(const Instr& a, const Instr& b) { return a.phase == b.phase && a.stream == b.stream; }
  bool has_kernel(const Instr& joined) const { return !context_.kernel_for(p_, joined).empty(); }
  // Whether instruction i's kernel also supports `joined`, and would be chosen for it.
  bool has_the_same_kernel(size_t i, const Instr& joined) const {
    const std::string kernel = context_.kernel_for(p_, joined);
    return !kernel.empty() && kernel == context_.kernel_for(p_, p_.code[i]);
  }
  // Replaces the instruction at `place`.
  void put(size_t place, Instr instr) {
    gone_[place] = true;
    instead_[place] = {std::move(instr)};
  }

  // The value's only reader, if it has this operation and phase and reads it as input `in`; else
  // -1.
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
  // The value's bias gradient, if it can run at `place`; else -1.
  int column_sums(ValueId v, const Instr& like, size_t place) const {
    const int s = reader(v, "bias_grad", in::bias_grad::dy, like.phase, like.stream);
    if (s < 0) return -1;
    const Instr& sum = p_.code[size_t(s)];
    return made_before(accumulator(sum), place) && !read_before(sum.out[out::bias_grad::db], place) ? s : -1;
  }
  static ValueId accumulator(const Instr& bias_grad) {
    return bias_grad.in.size() > in::bias_grad::acc ? bias_grad.in[in::bias_grad::acc] : no_value;
  }
  // Joins the bias gradient of v into `norm`, if the kernel supports this. `norm` is a norm_grad
  // with dbeta, to replace instruction i.
  bool join_bias(size_t i, ValueId v, Instr& norm) {
    namespace to = out::norm_grad;
    const int s = norm.attrs.integer("beta", 0) ? column_sums(v, norm, i) : -1;
    if (s < 0) return false;
    const Instr& sum = p_.code[size_t(s)];
    if (p_.at(sum.out[out::bias_grad::db]).dtype != p_.at(norm.out[to::dgamma]).dtype) return false;
    Instr joined = norm;
    joined.in[in::norm_grad::acc_bias] = accumulator(sum);
    joined.out.insert(joined.out.begin() + ptrdiff_t(to::dbias), sum.out[out::bias_grad::db]);
    joined.attrs.set("bias", 1);
    if (!has_the_same_kernel(i, joined)) return false;
    gone_[size_t(s)] = true;
    norm = std::move(joined);
    return true;
  }

  Program& p_;
  const PassContext& context_;
  std::vector<int> producer_;
  std::vector<std::vector<int>> consumers_;
  std::vector<std::vector<Instr>> instead_;  // replacements of each instruction
  std::vector<bool> gone_, is_output_;
};

}  // namespace crest
