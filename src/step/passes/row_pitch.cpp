// If kernels are fast on aligned rows only, values of an awkward width (logits with 50257 columns)
// get a pitch, a larger distance between rows. Shapes, weights and results do not change.
#include <algorithm>

#include "core/round_up.h"
#include "passes/pass.h"
#include "program/op.h"

namespace crest {

namespace {

constexpr int64_t row_bytes = 128;  // pitches are multiples of this: a cache line of a GPU

class RowPitch {
 public:
  RowPitch(Program& program, const PassContext& context) : p_(program), context_(context) {}

  void run() {
    find_users();
    for (size_t v = 0; v < p_.values.size(); ++v)
      if (!fixed_[v] && awkward(p_.values[v])) set_pitch(ValueId(v));
  }

 private:
  // Finds each value's readers and writers. A value is fixed if it is a view or has views, if
  // another Program or the host uses it, or if one of its instructions needs contiguous rows.
  void find_users() {
    users_.resize(p_.values.size());
    fixed_.assign(p_.values.size(), false);
    std::vector<int> producers = p_.producers();
    for (size_t v = 0; v < p_.values.size(); ++v) {
      const Value& value = p_.values[v];
      if (value.layout.storage != ValueId(v)) fixed_[v] = fixed_[size_t(value.layout.storage)] = true;
      if (value.lifetime != Lifetime::micro_step || producers[v] < 0) fixed_[v] = true;
    }
    for (ValueId v : p_.outputs) fixed_[size_t(v)] = true;
    for (size_t i = 0; i < p_.code.size(); ++i) {
      const Instr& instr = p_.code[i];
      add_users(int(i), instr.in, instr.op->pitched_in);
      add_users(int(i), instr.out, instr.op->pitched_out);
    }
  }

  void add_users(int i, const std::vector<ValueId>& operands, const std::vector<int>& pitched) {
    for (size_t k = 0; k < operands.size(); ++k) {
      if (operands[k] == no_value) continue;
      users_[size_t(operands[k])].push_back(i);
      if (std::find(pitched.begin(), pitched.end(), int(k)) == pitched.end()) fixed_[size_t(operands[k])] = true;
    }
  }

  bool awkward(const Value& v) const {
    return v.shape.rank() > 1 && v.numel() > v.shape.back() && v.contiguous() &&
           v.shape.back() * int64_t(size_of(v.dtype)) % context_.row_alignment != 0;
  }

  // Skips a value if its instructions would fall back to the reference.
  void set_pitch(ValueId id) {
    Value& v = p_.at(id);
    const int64_t unit = std::max<int64_t>(1, row_bytes / int64_t(size_of(v.dtype)));
    const Shape before = v.layout.strides;
    v.layout.strides = v.shape.with_back(round_up(v.shape.back(), unit)).contiguous_strides();
    for (int i : users_[size_t(id)])
      if (context_.kernel_for && context_.kernel_for(p_, p_.code[size_t(i)]).empty()) {
        v.layout.strides = before;
        return;
      }
  }

  Program& p_;
  const PassContext& context_;
  std::vector<std::vector<int>> users_;  // by value
  std::vector<bool> fixed_;              // by value
};

}  // namespace

void pitch_rows(Program& program, const PassContext& context) {
  if (context.row_alignment > 1) RowPitch(program, context).run();
}

}  // namespace crest
