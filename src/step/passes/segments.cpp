#include "passes/segments.h"

#include <fmt/format.h>

#include <algorithm>
#include <functional>
#include <iterator>
#include <map>
#include <set>

#include "core/error.h"
#include "ops/collectives.h"
#include "passes/rewrite.h"
#include "program/verify.h"

namespace crest {

namespace {

bool is_transfer(const Instr& instr) { return is(instr, "send") || is(instr, "receive"); }

class CutSegments {
 public:
  CutSegments(const Program& p, bool splits_weights) : p_(p), splits_(splits_weights) {}

  std::vector<Segment> run() {
    classify();
    if (splits_) split_weights();
    verify_order();
    gather_where_read();
    find_kept();
    std::vector<Segment> segments;
    for (auto& part : parts_) segments.push_back({part.kind, program_of(part)});
    return segments;
  }

 private:
  struct CodePart {
    SegmentKind kind;
    std::vector<Instr> code;
  };

  const Value& passed(const Instr& instr) const {
    const Value& v = p_.at(is(instr, "send") ? instr.in[0] : instr.out[0]);
    return v;
  }
  SegmentKind kind_of(const Instr& transfer) const {
    const Value& v = passed(transfer);
    const bool sends = is(transfer, "send"), forward = transfer.phase == Phase::forward;
    if (v.role == Role::weight) return SegmentKind::share;
    if (v.role != Role::activation || p_.at(v.layout.storage).role == Role::gradient ||
        (!sends && adds_received(transfer)))
      return SegmentKind::after;
    if (forward) return sends ? SegmentKind::send_forward : SegmentKind::receive_forward;
    return sends ? SegmentKind::send_backward : SegmentKind::receive_backward;
  }

  void classify() {
    const bool last = std::none_of(p_.code.begin(), p_.code.end(), [&](const Instr& i) {
      return is_transfer(i) && kind_of(i) == SegmentKind::send_forward;
    });
    SegmentKind now = last ? SegmentKind::backward : SegmentKind::forward;
    for (const Instr& instr : p_.code) {
      if (is_transfer(instr)) {
        const SegmentKind kind = kind_of(instr);
        parts_.push_back({kind, {instr}});
        if (kind == SegmentKind::receive_backward) now = SegmentKind::backward;
        if (kind == SegmentKind::send_backward || kind == SegmentKind::after) now = SegmentKind::after;
        continue;
      }
      // Rows of ids and similar inputs may come before the receive.
      auto same = std::find_if(parts_.rbegin(), parts_.rend(), [&](auto& part) { return part.kind == now; });
      const bool behind_transfer = now == SegmentKind::after && !parts_.empty() && is_transfer(parts_.back().code[0]);
      if (same == parts_.rend() || behind_transfer)
        parts_.push_back({now, {instr}});
      else
        same->code.push_back(instr);
    }
    std::stable_sort(parts_.begin(), parts_.end(), [](auto& a, auto& b) { return a.kind < b.kind; });
  }

  // Splits off backward instructions without a waiting stage.
  void split_weights() {
    auto find = [&](SegmentKind kind) {
      return std::find_if(parts_.begin(), parts_.end(), [&](auto& part) { return part.kind == kind; });
    };
    auto backward = find(SegmentKind::backward), sent = find(SegmentKind::send_backward);
    if (backward == parts_.end() || sent == parts_.end()) return;
    std::set<ValueId> needed = {sent->code[0].in[0]};
    std::vector<bool> waits(backward->code.size(), false);
    for (size_t i = backward->code.size(); i-- > 0;) {
      const Instr& instr = backward->code[i];
      const bool forward = instr.phase == Phase::forward;
      if (!forward && std::none_of(instr.out.begin(), instr.out.end(), [&](ValueId v) { return needed.count(v); }))
        continue;
      waits[i] = true;
      for (ValueId v : instr.in)
        if (v != no_value) needed.insert(v);
    }
    CodePart weights{SegmentKind::weights, {}};
    std::vector<Instr> code;
    for (size_t i = 0; i < waits.size(); ++i) (waits[i] ? code : weights.code).push_back(backward->code[i]);
    if (weights.code.empty()) return;
    backward->code = std::move(code);
    parts_.insert(sent + 1, std::move(weights));
  }

  // The segments in order must be a valid Program.
  void verify_order() const {
    Program whole = p_;
    whole.code.clear();
    for (auto& part : parts_) whole.code.insert(whole.code.end(), part.code.begin(), part.code.end());
    if (whole.code.size() != p_.code.size()) fail_internal("an instruction is in no segment", p_.name);
    verify(whole, "segments");
  }

  static bool gathers_weights(const Instr& instr) { return is(instr, "all_gather") && instr.in.size() == 1; }

  // Each segment gathers its own weights. Keeping them would take memory in every slot (--shard
  // weights).
  void gather_where_read() {
    std::vector<std::pair<const CodePart*, Instr>> gathers;
    for (auto& part : parts_)
      for (auto& instr : part.code)
        if (gathers_weights(instr)) gathers.emplace_back(&part, instr);
    for (auto& part : parts_) {
      std::vector<Instr> rest;
      std::copy_if(part.code.begin(), part.code.end(), std::back_inserter(rest), std::not_fn(gathers_weights));
      const std::set<ValueId> read = touched(rest);
      std::erase_if(part.code, [&](const Instr& i) { return gathers_weights(i) && !read.count(storage(i.out[0])); });
      auto first = part.code.begin();
      for (auto& [from, gather] : gathers)
        if (from != &part && read.count(storage(gather.out[0]))) first = part.code.insert(first, gather) + 1;
    }
  }

  ValueId storage(ValueId v) const { return p_.at(v).layout.storage; }

  std::set<ValueId> touched(const std::vector<Instr>& code) const {
    std::set<ValueId> storages;
    for (const Instr& instr : code)
      for (auto* list : {&instr.in, &instr.out})
        for (ValueId v : *list)
          if (v != no_value) storages.insert(storage(v));
    return storages;
  }

  void find_kept() {
    std::map<ValueId, int> users;
    for (auto& part : parts_)
      for (ValueId s : touched(part.code)) ++users[s];
    for (auto& part : parts_)
      for (auto& instr : part.code)
        if (gathers_weights(instr)) users[storage(instr.out[0])] = 1;
    for (auto [s, count] : users)
      if (count > 1 && p_.at(s).lifetime == Lifetime::micro_step) kept_.insert(s);
  }

  Program program_of(const CodePart& part) const {
    Program p = p_;
    p.code = part.code;
    const std::set<ValueId> used = touched(part.code);
    std::vector<int> producers = p.producers();
    std::erase_if(p.outputs, [&](ValueId v) { return producers[size_t(v)] < 0; });
    std::erase_if(p.inputs, [&](ValueId v) { return !used.count(v); });
    for (size_t v = 0; v < p.values.size(); ++v)
      if (kept_.count(storage(ValueId(v))) && used.count(storage(ValueId(v)))) p.values[v].lifetime = Lifetime::slot;
    drop_unused_values(p);
    return p;
  }

  const Program& p_;
  const bool splits_;
  std::vector<CodePart> parts_;
  std::set<ValueId> kept_;  // storages used by several segments
};

}  // namespace

std::string_view name(SegmentKind kind) {
  static constexpr std::string_view names[] = {"share",         "receive-forward",  "forward",
                                               "send-forward",  "receive-backward", "backward",
                                               "send-backward", "weights",          "after"};
  return names[size_t(kind)];
}

std::vector<Segment> cut_segments(const Program& program, bool splits_weights) {
  return CutSegments(program, splits_weights).run();
}

}  // namespace crest
