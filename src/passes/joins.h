// For passes that join instructions into one that a kernel of the device does at once.
#pragma once
#include <algorithm>
#include <vector>

#include "passes/pass.h"
#include "passes/rewrite.h"

namespace crest {

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
  // Puts the new code together.
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
  // Instructions that stay and read a value.
  std::vector<size_t> readers(ValueId v) const {
    std::vector<size_t> list;
    for (int c : consumers_[size_t(v)])
      if (!gone_[size_t(c)]) list.push_back(size_t(c));
    return list;
  }
  // Whether these run together: alike in phase and stream.
  static bool alike(const Instr& a, const Instr& b) { return a.phase == b.phase && a.stream == b.stream; }
  bool has_kernel(const Instr& joined) const { return !context_.kernel_for(p_, joined).empty(); }

  Program& p_;
  const PassContext& context_;
  std::vector<int> producer_;
  std::vector<std::vector<int>> consumers_;
  std::vector<std::vector<Instr>> instead_;  // by the instruction before whose place they run
  std::vector<bool> gone_, is_output_;
};

}  // namespace crest
