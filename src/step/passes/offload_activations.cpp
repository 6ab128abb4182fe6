// Setting --offload activations: activations kept for the backward pass are in host memory in
// between. A copy leaves after the last use in the forward half, on one stream, and returns before
// the first use in the backward half, on another. Which activations travel, and where their copies
// start, follows from predicted times.
#include <algorithm>
#include <limits>
#include <map>
#include <numeric>
#include <optional>
#include <set>

#include "core/error.h"
#include "passes/offload.h"
#include "passes/offload_activations.h"
#include "passes/rewrite.h"
#include "program/op.h"

namespace crest {

namespace {

// Smaller tensors stay, relative to the largest: starting a copy would take longer than the copy.
constexpr int64_t least_share = 64;
// A kept activation, and its way to host memory and back.
struct Travel {
  ValueId storage;
  int64_t bytes;
  int layer;
  size_t made, last, first;  // instructions: its producer, the last use before the backward half, the first use in it
  size_t out = 0, in = 0;    // its copies start before these instructions
  double gone = 0;           // when it is in host memory
  bool taken = false;
};

class ActivationOffload {
 public:
  ActivationOffload(Program& program, const PassContext& context, const OffloadChoice& choice)
      : p_(program), context_(context), choice_(choice) {}

  void run() {
    find_times();
    find_candidates();
    if (choice_.activations == OffloadChoice::Activations::layers)
      take_layers(choice_.layers);
    else if (context_.seconds_for)
      take_hidden();
    else
      take_layers(OffloadChoice::all_layers);
    if (!taken_.empty()) rewrite();
  }

 private:
  // The time at which an instruction starts, by prediction and without transfers.
  void find_times() {
    start_.assign(p_.code.size() + 1, 0);
    turn_ = p_.code.size();
    for (size_t i = 0; i < p_.code.size(); ++i) {
      const Instr& instr = p_.code[i];
      if (instr.phase != Phase::forward) turn_ = std::min(turn_, i);
      const bool computes = context_.seconds_for && instr.op->op_class != OpClass::communication;
      start_[i + 1] = start_[i] + (computes ? context_.seconds_for(p_, instr) : 0);
    }
  }

  bool is_view(const Instr& instr) const {
    Infer infer(p_, instr);
    instr.op->infer(infer);
    return !infer.outs.empty() &&
           std::all_of(infer.outs.begin(), infer.outs.end(), [](auto& o) { return o.alias >= 0 && !o.consumes; });
  }

  // Activations of layers with one version, read in both halves or only in the second.
  void find_candidates() {
    const std::vector<int> producers = p_.producers();
    std::vector<bool> fixed(p_.values.size(), false);  // by storage
    std::vector<std::optional<size_t>> last(p_.values.size()), first(p_.values.size());
    for (auto* list : {&p_.inputs, &p_.outputs})
      for (ValueId v : *list) fixed[size_t(storage(v))] = true;
    for (size_t v = 0; v < p_.values.size(); ++v) {
      const auto s = size_t(p_.values[v].layout.storage);
      if (s != v && (producers[v] < 0 || !is_view(p_.code[size_t(producers[v])]))) fixed[s] = true;
    }
    for (size_t i = 0; i < p_.code.size(); ++i) {
      const Instr& instr = p_.code[i];
      for (auto* list : {&instr.in, &instr.out})
        for (ValueId v : *list) {
          if (v == no_value) continue;
          const auto s = size_t(storage(v));
          if (instr.phase == Phase::forward)
            last[s] = i;
          else if (list == &instr.in && !first[s])
            first[s] = i;
        }
    }
    int64_t largest = 0;
    for (size_t v = 0; v < p_.values.size(); ++v) {
      const Value& value = p_.values[v];
      if (value.layout.storage != ValueId(v) || fixed[v] || producers[v] < 0 || !first[v] || !last[v]) continue;
      if (value.role != Role::activation || value.lifetime != Lifetime::micro_step || !value.contiguous()) continue;
      const auto made = size_t(producers[v]);
      const int layer = p_.code[made].origin.layer();
      if (p_.code[made].phase != Phase::forward || layer < 0 || *last[v] >= *first[v]) continue;
      candidates_.push_back({ValueId(v), value.bytes(), layer, made, *last[v], *first[v]});
      largest = std::max(largest, value.bytes());
    }
    std::erase_if(candidates_, [&](const Travel& t) { return t.bytes < largest / least_share; });
    sort();
  }

  void sort() {
    by_departure_.resize(candidates_.size());
    std::iota(by_departure_.begin(), by_departure_.end(), size_t(0));
    by_return_ = by_departure_;
    std::stable_sort(by_departure_.begin(), by_departure_.end(),
                     [&](size_t a, size_t b) { return candidates_[a].last < candidates_[b].last; });
    std::stable_sort(by_return_.begin(), by_return_.end(),
                     [&](size_t a, size_t b) { return candidates_[a].first < candidates_[b].first; });
  }

  ValueId storage(ValueId v) const { return p_.at(v).layout.storage; }
  double seconds(const Travel& t) const { return double(t.bytes) / context_.host_link; }
  // The last instruction to start at this time or before; the first one for earlier times.
  size_t at(double time) const {
    const auto after = std::upper_bound(start_.begin(), start_.end() - 1, time) - start_.begin();
    return size_t(std::max<ptrdiff_t>(after - 1, 0));
  }

  // The copies of each direction follow one another. What is ready first leaves first; what is
  // needed last returns last, as late as possible. Returns whether all transfers hide behind
  // computation.
  bool schedule() {
    bool hidden = true;
    double free = 0;
    for (size_t k : by_departure_) {
      Travel& t = candidates_[k];
      if (!t.taken) continue;
      const double begin = std::max(free, start_[t.last + 1]);
      t.out = std::max(t.last + 1, at(begin));
      t.gone = free = begin + seconds(t);
    }
    double needed = std::numeric_limits<double>::infinity();
    for (auto k = by_return_.rbegin(); k != by_return_.rend(); ++k) {
      Travel& t = candidates_[*k];
      if (!t.taken) continue;
      needed = std::min(needed, start_[t.first]) - seconds(t);
      hidden &= needed >= start_[turn_] && needed >= t.gone;
      t.in = std::clamp(at(needed), turn_, t.first);
    }
    return hidden;
  }

  // The largest first, since a copy of many bytes takes fewer calls. Of one size, the first layers
  // come first: their values are away the longest.
  void take_hidden() {
    std::vector<size_t> order = by_departure_;
    std::stable_sort(order.begin(), order.end(),
                     [&](size_t a, size_t b) { return candidates_[a].bytes > candidates_[b].bytes; });
    for (size_t k : order) {
      candidates_[k].taken = true;
      if (!schedule()) candidates_[k].taken = false;
    }
    schedule();
    keep_taken();
    // A return begins at the latest when the one before it is needed.
    for (size_t k = 1; k < taken_.size(); ++k)
      taken_[k].in = std::max(taken_[k].out, std::min(taken_[k].in, taken_[k - 1].first));
  }

  // Copies leave when they are ready. Those of a layer return at the earliest while the layer above
  // runs backward: the device has room for two layers. The last layer's would return at once, so
  // they stay.
  void take_layers(int64_t layers) {
    std::map<int, size_t> backward;  // by layer: its first use in the backward half
    for (const Travel& t : candidates_) {
      auto [it, added] = backward.emplace(t.layer, t.first);
      it->second = std::min(it->second, t.first);
    }
    for (Travel& t : candidates_) t.taken = t.layer < layers && t.layer != backward.rbegin()->first;
    if (context_.seconds_for) schedule();
    for (Travel& t : candidates_) {
      t.out = t.last + 1;
      const auto above = backward.upper_bound(t.layer);
      t.in = std::min(t.first, std::max(t.in, above == backward.end() ? turn_ : above->second));
      t.taken &= t.in > t.out;
    }
    keep_taken();
  }

  void keep_taken() {
    for (size_t k : by_return_)
      if (candidates_[k].taken) taken_.push_back(candidates_[k]);
  }

  void rewrite() {
    std::multimap<size_t, size_t> out, in;  // indices of taken_ by instruction
    for (size_t k = 0; k < taken_.size(); ++k) out.emplace(taken_[k].out, k), in.emplace(taken_[k].in, k);
    for (size_t k = 0; k < taken_.size(); ++k) travel_of_[taken_[k].storage] = k;
    on_host_.assign(taken_.size(), no_value), back_.assign(taken_.size(), no_value);
    Rewriter w(p_);
    const std::vector<int> producers = producers_of(w.old);
    for (size_t i = 0; i < w.old.size(); ++i) {
      for (auto [it, end] = out.equal_range(i); it != end; ++it) send(w, it->second);
      for (auto [it, end] = in.equal_range(i); it != end; ++it) fetch(w, it->second);
      Instr instr = w.old[i];
      bool moved = false;
      for (ValueId& v : instr.in)
        if (const ValueId now = returned(w, producers, i, v, instr.phase); now != v) v = now, moved = true;
      moved |= follows(instr);
      w.keep(instr);
      if (moved && is_view(instr)) reinfer(p_, instr);
    }
    w.finish();
  }

  std::vector<int> producers_of(const std::vector<Instr>& code) const {
    std::vector<int> producers(p_.values.size(), -1);
    for (size_t i = 0; i < code.size(); ++i)
      for (ValueId v : code[i].out) producers[size_t(v)] = int(i);
    return producers;
  }

  void send(Rewriter& w, size_t k) {
    Builder& b = w.build(w.old[taken_[k].made]);
    b.stream = Stream::copy_back;
    on_host_[k] = b.emit1("copy_out", {taken_[k].storage});
  }
  void fetch(Rewriter& w, size_t k) {
    Builder& b = w.build(w.old[taken_[k].made]);
    b.stream = Stream::copy, b.phase = Phase::backward;
    returned_.insert(back_[k] = b.emit1("copy_in", {on_host_[k]}));
  }

  // What instruction i reads instead of a value: the returned copy, or the same view of it. Views
  // made in the backward half are in the copy already.
  ValueId returned(Rewriter& w, const std::vector<int>& producers, size_t i, ValueId v, Phase phase) {
    if (v == no_value) return v;
    auto it = travel_of_.find(storage(v));
    if (it == travel_of_.end() || i < taken_[it->second].first) return v;
    if (v == taken_[it->second].storage) return back_[it->second];
    const Instr& view = w.old[size_t(producers[size_t(v)])];
    if (auto made = views_.find(v); made != views_.end()) return made->second;
    Instr clone = view;
    clone.phase = phase;
    for (ValueId& in : clone.in) in = returned(w, producers, i, in, phase);
    const std::vector<ValueId> out = w.build(clone).append(clone);
    for (size_t o = 0; o < out.size(); ++o) views_[view.out[o]] = out[o];
    return views_.at(v);
  }
  // Whether an input is a view that moved.
  bool follows(const Instr& instr) const {
    return std::any_of(instr.in.begin(), instr.in.end(),
                       [&](ValueId v) { return v != no_value && returned_.count(storage(v)) > 0; });
  }

  Program& p_;
  const PassContext& context_;
  const OffloadChoice choice_;
  size_t turn_ = 0;                               // the first instruction of the backward half
  std::vector<double> start_;                     // by instruction, and the end
  std::vector<Travel> candidates_, taken_;        // taken_: by first use in the backward half
  std::vector<size_t> by_departure_, by_return_;  // of candidates_
  std::map<ValueId, size_t> travel_of_;           // by storage: index in taken_
  std::vector<ValueId> on_host_, back_;           // by index in taken_
  std::set<ValueId> returned_;                    // all of back_
  std::map<ValueId, ValueId> views_;              // of forward values: the same of their copies
};

}  // namespace

void offload_activations(Program& program, const PassContext& context, const OffloadChoice& choice) {
  if (context.recipe.layout().size(Axis::pipeline) > 1)
    fail_usage("activations do not leave the device in a pipeline", "--offload " + offload_value(choice),
               "Leave out the axis pipeline of --mesh, or use --recompute full.");
  ActivationOffload(program, context, choice).run();
}

}  // namespace crest
