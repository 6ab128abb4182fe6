#include "program/verify.h"

#include <fmt/format.h>

#include <algorithm>
#include <bit>
#include <functional>
#include <map>

#include "core/error.h"
#include "program/builder.h"

namespace crest {

namespace {

struct Range {
  int64_t first, last;  // elements, inclusive
};

Range range_of(const Value& v) {
  int64_t last = v.layout.offset;
  for (int d = 0; d < v.shape.rank(); ++d) last += std::max<int64_t>(v.shape[d] - 1, 0) * v.layout.strides[d];
  return {v.layout.offset, last};
}

// The values of one storage, by element range: a group has a value for each tensor of a model.
class Alive {
 public:
  void add(Range r, ValueId v) {
    std::vector<ValueId> values = {v};
    for (auto it = first_reaching(r.first); it != runs_.end() && it->second.first <= r.last;) {
      r = {std::min(r.first, it->second.first), std::max(r.last, it->first)};
      values.insert(values.end(), it->second.values.begin(), it->second.values.end());
      it = runs_.erase(it);
    }
    runs_.emplace(r.last, Run{r.first, std::move(values)});
  }

  // Removes the values that overlap a range, and reports each.
  template <class Overlaps, class Removed>
  void remove(Range r, Overlaps overlaps, Removed removed) {
    for (auto it = first_reaching(r.first); it != runs_.end() && it->second.first <= r.last;) {
      std::erase_if(it->second.values, [&](ValueId v) { return overlaps(v) && (removed(v), true); });
      it = it->second.values.empty() ? runs_.erase(it) : std::next(it);
    }
  }

 private:
  // A run of overlapping values, and the elements they cover, from the first to the last (the key).
  struct Run {
    int64_t first;
    std::vector<ValueId> values;
  };
  std::map<int64_t, Run>::iterator first_reaching(int64_t element) { return runs_.lower_bound(element); }
  std::map<int64_t, Run> runs_;
};

// A buffer filled by `copy_in` and changed on the device is copied back to its source before the
// buffer is reused and before the Program ends.
class Copies {
 public:
  explicit Copies(const Program& p) : p_(p) {}

  // The error at an instruction; "": none.
  std::string after(const Instr& instr) {
    std::string_view op = instr.op->name;
    if (op == "copy_in") {
      if (!has_buffer(instr)) return "";
      Buffer& b = of_[storage(instr.out[0])];
      if (b.changed) return lost(b);
      b = {instr.in[0], false};
    } else if (op == "copy_out") {
      if (!has_buffer(instr)) return "";
      auto it = of_.find(storage(instr.in[0]));
      if (it == of_.end() || !same_place(it->second.from, instr.in[1]))
        return fmt::format("%{} is no copy of %{}", p_.at(instr.in[0]).name, p_.at(instr.in[1]).name);
      it->second.changed = false;
    } else {
      for (ValueId v : instr.out)
        if (auto it = of_.find(storage(v)); it != of_.end()) it->second.changed = true;
    }
    return "";
  }
  std::string at_end() const {
    for (auto& [storage, b] : of_)
      if (b.changed) return lost(b);
    return "";
  }

 private:
  struct Buffer {
    ValueId from = no_value;  // in host memory
    bool changed = false;     // since it was copied
  };
  ValueId storage(ValueId v) const { return p_.at(v).layout.storage; }
  // Otherwise the copy is a value of its own: the rules for values are enough.
  static bool has_buffer(const Instr& instr) { return instr.in.size() > 1 && instr.in[1] != no_value; }
  bool same_place(ValueId a, ValueId b) const {
    Range x = range_of(p_.at(a)), y = range_of(p_.at(b));
    return storage(a) == storage(b) && x.first == y.first && x.last == y.last;
  }
  std::string lost(const Buffer& b) const {
    return fmt::format("what was changed in the copy of %{} is not copied back", p_.at(b.from).name);
  }

  const Program& p_;
  std::map<ValueId, Buffer> of_;  // by storage
};

class Verifier {
 public:
  Verifier(const Program& p, std::string_view after) : p_(p), after_(after), copies_(p) {}

  void run() {
    defined_.assign(p_.values.size(), false);
    dead_.assign(p_.values.size(), false);
    whole_.resize(p_.values.size());
    for (size_t v = 0; v < p_.values.size(); ++v) whole_[v] = p_.values[v].layout.storage == ValueId(v);
    alive_in_.resize(p_.values.size());
    check_values();
    for (size_t i = 0; i < p_.code.size(); ++i) check_instr(int(i));
    if (std::string wrong = copies_.at_end(); !wrong.empty()) broken(wrong);
    for (ValueId v : p_.outputs) {
      check_id(v, "output list");
      if (!defined_[size_t(v)] || dead_[size_t(v)])
        broken(fmt::format("output %{} is {}", p_.at(v).name, dead_[size_t(v)] ? "consumed" : "never written"));
    }
  }

 private:
  [[noreturn]] void broken(const std::string& what, int instr = -1) {
    std::string where = fmt::format("program {} after pass {}", p_.name, after_);
    if (instr >= 0)
      where += fmt::format(", instruction {} ({} at {})", instr, p_.code[size_t(instr)].op->name,
                           p_.code[size_t(instr)].origin.text());
    fail_internal(what, where);
  }

  void check_id(ValueId v, const char* what, int instr = -1) {
    if (v < 0 || size_t(v) >= p_.values.size())
      broken(fmt::format("{} refers to value {}, which does not exist", what, v), instr);
  }

  void define(ValueId v) {
    defined_[size_t(v)] = true;
    if (p_.at(v).layout.storage != v) alive_in_[size_t(p_.at(v).layout.storage)].add(range_of(p_.at(v)), v);
  }

  // A table of open addressing: verification after every pass must not dominate compilation.
  void check_names() {
    const size_t mask = std::bit_ceil(2 * p_.values.size() + 1) - 1;
    std::vector<int> slots(mask + 1, -1);  // indices of values
    for (size_t v = 0; v < p_.values.size(); ++v) {
      const std::string& name = p_.values[v].name;
      size_t at = std::hash<std::string>()(name) & mask;
      for (; slots[at] >= 0; at = (at + 1) & mask)
        if (p_.values[size_t(slots[at])].name == name) broken(fmt::format("two values are named %{}", name));
      slots[at] = int(v);
    }
  }

  void check_values() {
    check_names();
    std::vector<bool> produced(p_.values.size(), false);
    for (size_t i = 0; i < p_.code.size(); ++i)
      for (ValueId v : p_.code[i].out) {
        check_id(v, "output", int(i));
        if (produced[size_t(v)]) broken(fmt::format("%{} is written twice", p_.at(v).name), int(i));
        produced[size_t(v)] = true;
      }
    for (size_t v = 0; v < p_.values.size(); ++v) {
      const Value& value = p_.values[v];
      check_id(value.layout.storage, "layout");
      const Value& root = p_.at(value.layout.storage);
      if (root.layout.storage != value.layout.storage)
        broken(fmt::format("%{} is in %{}, which is not a storage", value.name, root.name));
      Range r = range_of(value);
      int64_t unit = int64_t(size_of(value.dtype)), room = root.storage_bytes();
      if (value.numel() > 0 && (r.first < 0 || (r.last + 1) * unit > room))
        broken(fmt::format("%{} reaches beyond its storage %{}", value.name, root.name));
      if (const int n = value.layout.pieces, k = value.layout.piece;
          n && (k < 0 || k >= n || !value.contiguous() || value.layout.offset < k * value.numel() ||
                (value.layout.offset + (n - k) * value.numel()) * unit > room))
        broken(fmt::format("%{} reaches beyond its storage %{} on another rank", value.name, root.name));
      if (value.space != root.space)
        broken(fmt::format("%{} is in {} memory, its storage %{} in {} memory", value.name, name(value.space),
                           root.name, name(root.space)));
      const bool copied = produced[size_t(value.layout.storage)] && root.lifetime == Lifetime::micro_step;
      if (value.space == MemorySpace::host && root.lifetime != Lifetime::persistent && !copied)
        broken(fmt::format("%{} is in host memory, but it is neither persistent nor a copy", value.name));
      // The host or another Program writes values without a producer, but never an activation.
      const bool lost = value.role == Role::activation && value.layout.storage == ValueId(v) &&
                        value.lifetime != Lifetime::slot &&
                        std::find(p_.inputs.begin(), p_.inputs.end(), ValueId(v)) == p_.inputs.end();
      if (!produced[v] && !lost) define(ValueId(v));
    }
  }

  void check_instr(int i) {
    const Instr& instr = p_.code[size_t(i)];
    if (instr.origin.empty()) broken("no origin", i);
    if (instr.body) verify(*instr.body, fmt::format("{}, body of instruction {}", after_, i));
    for (ValueId v : instr.in) {
      if (v == no_value) continue;
      check_id(v, "input", i);
      if (!defined_[size_t(v)]) broken(fmt::format("reads %{} before it is written", p_.at(v).name), i);
      if (dead_[size_t(v)]) broken(fmt::format("reads %{}, which an earlier instruction consumed", p_.at(v).name), i);
    }
    Infer infer(p_, instr);
    instr.op->infer(infer);
    check_spaces(instr, infer, i);
    if (infer.outs.size() != instr.out.size())
      broken(fmt::format("has {} outputs, but inference gives {}", instr.out.size(), infer.outs.size()), i);
    for (size_t o = 0; o < instr.out.size(); ++o) {
      const Value& v = p_.at(instr.out[o]);
      auto& expected = infer.outs[o];
      if (v.dtype != expected.dtype || !(v.shape == expected.shape))
        broken(fmt::format("%{} is {}[{}], but inference gives {}[{}]", v.name, name(v.dtype), v.shape.text(),
                           name(expected.dtype), expected.shape.text()),
               i);
      if (expected.alias >= 0) {
        Layout l = layout_of(p_, instr, expected, instr.out[o]);
        if (!(l == v.layout)) broken(fmt::format("%{} must share the memory of input {}", v.name, expected.alias), i);
        ValueId from = instr.in[size_t(expected.alias)];
        whole_[size_t(instr.out[o])] = whole_[size_t(from)] && v.shape == p_.at(from).shape;
        if (expected.consumes) consume(from);
      } else {
        check_rows(instr, int(o), i);
        if (v.layout.storage != instr.out[o])
          consume_range(instr.out[o]);  // placed into a group: the previous contents are gone
      }
    }
    for (ValueId v : instr.out) define(v);
    if (std::string wrong = copies_.after(instr); !wrong.empty()) broken(wrong, i);
  }

  // A view may be in either memory. An instruction that reads or writes elements states the memory
  // it needs.
  void check_spaces(const Instr& instr, const Infer& infer, int i) {
    bool views = std::all_of(infer.outs.begin(), infer.outs.end(), [](auto& o) { return o.alias >= 0 && !o.consumes; });
    if (views && !infer.outs.empty()) return;
    auto check = [&](const std::vector<ValueId>& values, const std::vector<int>& host) {
      for (size_t k = 0; k < values.size(); ++k) {
        if (values[k] == no_value) continue;
        bool wanted = std::find(host.begin(), host.end(), int(k)) != host.end();
        if (wanted != (p_.at(values[k]).space == MemorySpace::host))
          broken(fmt::format("%{} is in {} memory, and {} needs it in {} memory", p_.at(values[k]).name,
                             name(p_.at(values[k]).space), instr.op->name,
                             name(wanted ? MemorySpace::host : MemorySpace::device)),
                 i);
      }
    };
    check(instr.in, instr.op->host_in);
    check(instr.out, instr.op->host_out);
  }

  void check_rows(const Instr& instr, int output, int i) {
    const Value& v = p_.at(instr.out[size_t(output)]);
    auto& pitched = instr.op->pitched_out;
    bool may = std::find(pitched.begin(), pitched.end(), output) != pitched.end();
    if (!v.contiguous() && !(may && v.pitch() > 0))
      broken(fmt::format("%{} has strides [{}], but {} writes {} there", v.name, v.layout.strides.text(),
                         instr.op->name, may ? "dense rows at equal distances" : "a contiguous value"),
             i);
  }

  void consume(ValueId v) { consume_range(v); }

  void consume_range(ValueId by) {
    ValueId root = p_.at(by).layout.storage;
    Range r = range_of(p_.at(by));
    auto overlaps = [&](ValueId other) {
      Range o = range_of(p_.at(other));
      return o.first <= r.last && r.first <= o.last;
    };
    alive_in_[size_t(root)].remove(r, overlaps, [&](ValueId other) { dead_[size_t(other)] = true; });
    // The root of a group stays readable as a container: a member may be as large.
    if (defined_[size_t(root)] && whole_[size_t(by)]) dead_[size_t(root)] = true;
  }

  const Program& p_;
  std::string_view after_;
  std::vector<bool> defined_, dead_;
  std::vector<bool> whole_;      // a storage, or a version of one
  std::vector<Alive> alive_in_;  // by storage: all except the root
  Copies copies_;
};

}  // namespace

void verify(const Program& program, std::string_view after) { Verifier(program, after).run(); }

}  // namespace crest
