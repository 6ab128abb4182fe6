#include "traces/torch_trace.h"

#include <fmt/format.h>

#include <algorithm>
#include <limits>
#include <map>
#include <optional>
#include <set>
#include <tuple>
#include <unordered_map>

#include "core/error.h"
#include "core/text.h"
#include "traces/torch_events.h"

namespace crest {

namespace {

// The context at a point of a host thread, from the enclosing ranges.
struct Context {
  int operation = -1;  // row of TorchEvents::host: the innermost operation
  std::optional<OpClass> op_class;
  enum Phase : uint8_t { forward, backward, update } phase = forward;
};

// A piece of work not yet assigned to a step, in microseconds.
struct KernelPiece {
  TorchWork work;
  double start = 0, end = 0;
  double issued = 0;  // by the host, on the host's clock
};

struct Window {
  std::string name;
  double start, end;
};

class Reader {
 public:
  Reader(const std::string& path, TorchTrace& out) : events_(read_torch_events(path)), out_(out) {
    out_.file = path;
    out_.device = events_.device;
    out_.events = events_.events;
    out_.gpu = !events_.work.empty();
    out_.names = events_.names.texts();
    for (auto& name : out_.names) marked_ |= name.starts_with("autograd::engine::evaluate_function");
  }

  void run() {
    find_windows();
    walk_threads();
    if (out_.gpu) device_pieces();
    if (pieces_.empty()) {
      fail("no kernels and no operations in the trace", printable(out_.file),
           "Record with activities=[ProfilerActivity.CPU, ProfilerActivity.CUDA].");
    }
    fill_steps();
    time_steps();
  }

 private:
  const std::string& name(const TorchHostRange& r) const { return out_.names[size_t(r.name)]; }

  void find_windows() {
    for (auto& r : events_.host)
      if (!r.operation && name(r).starts_with("ProfilerStep#")) windows_.push_back({name(r), r.start, r.end});
    std::sort(windows_.begin(), windows_.end(), [](auto& a, auto& b) { return a.start < b.start; });
    double all = std::numeric_limits<double>::infinity();
    if (windows_.empty()) windows_.push_back({"whole trace", -all, all});
  }

  std::optional<OpClass> operation_class(const TorchHostRange& r) {
    auto [at, is_new] = operation_classes_.try_emplace(r.name);
    // Only the optimizer's annotation comes from PyTorch. Others have arbitrary names.
    if (is_new && (r.operation || name(r).starts_with("Optimizer."))) at->second = class_of_operation(name(r));
    return at->second;
  }

  Context inside(const TorchHostRange& r, int row, Context context) {
    if (r.operation) context.operation = row;
    if (auto own = operation_class(r)) context.op_class = own;
    if (name(r).starts_with("autograd::engine::evaluate_function")) context.phase = Context::backward;
    if (context.op_class == OpClass::optimizer) context.phase = Context::update;
    return context;
  }

  // Ranges of a thread nest. Launches are resolved along the way. Without a GPU, an operation's own
  // work is the time between its inner ranges.
  void walk_threads() {
    std::map<int, std::pair<std::vector<int>, std::vector<int>>> threads;  // rows of ranges; of launches
    for (int i = 0; i < int(events_.host.size()); ++i) threads[events_.host[size_t(i)].thread].first.push_back(i);
    for (int i = 0; i < int(events_.launches.size()); ++i)
      threads[events_.launches[size_t(i)].thread].second.push_back(i);
    for (auto& [thread, rows] : threads) {
      std::sort(rows.first.begin(), rows.first.end(), [&](int a, int b) {
        auto& x = events_.host[size_t(a)];
        auto& y = events_.host[size_t(b)];
        return std::tuple(x.start, -x.end, a) < std::tuple(y.start, -y.end, b);
      });
      std::sort(rows.second.begin(), rows.second.end(),
                [&](int a, int b) { return events_.launches[size_t(a)].start < events_.launches[size_t(b)].start; });
      walk(rows.first, rows.second);
    }
  }

  struct Open {
    double end;
    Context context;
  };

  void walk(const std::vector<int>& ranges, const std::vector<int>& launches) {
    std::vector<Open> open;
    double now = 0;
    auto own = [&](double until) {  // the innermost range ran until then
      if (!out_.gpu && !open.empty()) host_piece(open.back().context, now, until);
      now = std::max(now, until);
    };
    auto close_until = [&](double time) {
      while (!open.empty() && open.back().end <= time) own(open.back().end), open.pop_back();
    };
    size_t next = 0;
    auto launch_until = [&](double time) {
      for (; next < launches.size() && events_.launches[size_t(launches[next])].start < time; ++next) {
        const TorchLaunch& l = events_.launches[size_t(launches[next])];
        close_until(l.start);
        launched_[l.correlation] = {l.start, open.empty() ? Context() : open.back().context};
      }
    };
    for (int row : ranges) {
      const TorchHostRange& r = events_.host[size_t(row)];
      launch_until(r.start);
      close_until(r.start);
      own(r.start);
      Context context = inside(r, row, open.empty() ? Context() : open.back().context);
      // A range that ends after its parent is damaged, so it is cut.
      open.push_back({open.empty() ? r.end : std::min(r.end, open.back().end), context});
      if (out_.gpu && r.operation && r.external_id >= 0) by_external_id_[r.external_id] = {r.start, context};
    }
    double all = std::numeric_limits<double>::infinity();
    launch_until(all);
    close_until(all);
  }

  void host_piece(const Context& c, double start, double end) {
    if (c.operation < 0 || !(end > start)) return;
    const TorchHostRange& r = events_.host[size_t(c.operation)];
    pieces_.push_back({make(r.name, c.operation, c, c.op_class, r.thread), start, end, start});
  }

  // All small kernels in an optimizer step belong to the optimizer.
  static bool of_optimizer(const Context& c, std::optional<OpClass> k) {
    return c.phase == Context::update &&
           (!k || k == OpClass::elementwise || k == OpClass::reduction || k == OpClass::movement);
  }

  TorchWork make(int name, int64_t launch, const Context& c, std::optional<OpClass> op_class, int stream) const {
    static const char* phases[] = {"forward", "backward", "update"};
    if (of_optimizer(c, op_class)) op_class = OpClass::optimizer;
    bool updates = c.phase == Context::update || op_class == OpClass::optimizer;
    return {.name = name,
            .launch = launch,
            .op_class = op_class ? std::string(crest::name(*op_class)) : "other",
            .phase = updates   ? "update"
                     : marked_ ? phases[c.phase]
                               : "unknown",
            .stream = stream};
  }

  // The time when the device began the first work with a recorded launch.
  double first_launched() const {
    double first = -std::numeric_limits<double>::infinity();
    bool found = false;
    for (auto& w : events_.work)
      if (launched_.count(w.correlation) || by_external_id_.count(w.external_id))
        first = found ? std::min(first, w.start) : w.start, found = true;
    return first;
  }

  void device_pieces() {
    std::unordered_map<int, std::optional<KernelClass>> classes;
    const double first = first_launched();
    for (size_t i = 0; i < events_.work.size(); ++i) {
      const TorchDeviceWork& w = events_.work[i];
      std::pair<double, Context> from{w.start, {}};
      if (auto at = launched_.find(w.correlation); at != launched_.end())
        from = at->second;
      else if (auto other = by_external_id_.find(w.external_id); other != by_external_id_.end())
        from = other->second;
      else if (w.start < first)  // unfinished work of a step before the recording
        from.first = -std::numeric_limits<double>::infinity();
      auto [kernel, is_new] = classes.try_emplace(w.name);
      if (is_new) kernel->second = class_of_kernel(out_.names[size_t(w.name)]);
      std::optional<OpClass> op_class = from.second.op_class;
      // The kernel's name decides, unless it is generic.
      if (kernel->second && (!kernel->second->generic || !op_class || w.copy)) op_class = kernel->second->op_class;
      pieces_.push_back({make(w.name, int64_t(i), from.second, op_class, w.stream), w.start, w.end, from.first});
    }
  }

  // Assigned by issue time, since the device may be a step behind.
  void fill_steps() {
    std::stable_sort(pieces_.begin(), pieces_.end(), [](auto& a, auto& b) { return a.start < b.start; });
    for (auto& w : windows_) {
      out_.steps.emplace_back();
      out_.steps.back().name = w.name;
    }
    origin_ = pieces_.front().start;
    for (auto& p : pieces_) {
      auto after = std::upper_bound(windows_.begin(), windows_.end(), p.issued,
                                    [](double t, const Window& w) { return t < w.start; });
      if (after == windows_.begin() || p.issued > std::prev(after)->end) {
        out_.outside_ms += (p.end - p.start) / 1e3;
        continue;
      }
      p.work.start_ms = (p.start - origin_) / 1e3;
      p.work.ms = (p.end - p.start) / 1e3;
      out_.steps[size_t(after - windows_.begin()) - 1].work.push_back(std::move(p.work));
    }
  }

  void time_steps() {
    std::vector<TorchStep>& steps = out_.steps;
    for (size_t i = 0; i < steps.size(); ++i) {
      TorchStep& s = steps[i];
      if (s.work.empty()) continue;
      double end = s.start_ms = s.work.front().start_ms;
      for (auto& w : s.work) {
        s.busy_ms += std::max(0.0, w.start_ms + w.ms - std::max(end, w.start_ms));
        end = std::max(end, w.start_ms + w.ms);
      }
      if (out_.gpu) {
        if (i + 1 < steps.size() && !steps[i + 1].work.empty()) end = std::max(end, steps[i + 1].work[0].start_ms);
      } else if (windows_[i].end < std::numeric_limits<double>::infinity()) {
        s.start_ms = std::min(s.start_ms, (windows_[i].start - origin_) / 1e3);
        end = std::max(end, (windows_[i].end - origin_) / 1e3);
      }
      s.span_ms = end - s.start_ms;
      s.idle_ms = s.span_ms - s.busy_ms;
    }
    std::erase_if(steps, [](const TorchStep& s) { return s.work.empty(); });
    // On a GPU, the last step has no next step to mark its end.
    if (out_.gpu && steps.size() > 1) steps.pop_back();
    if (steps.empty()) {
      fail("no kernel and no operation is inside a step (ProfilerStep#N)", printable(out_.file),
           "Call prof.step() after every training step.");
    }
  }

  TorchEvents events_;
  TorchTrace& out_;
  bool marked_ = false;  // autograd marks the backward pass
  std::vector<Window> windows_;
  std::unordered_map<int, std::optional<OpClass>> operation_classes_;  // by name
  std::unordered_map<int64_t, std::pair<double, Context>> launched_, by_external_id_;
  std::vector<KernelPiece> pieces_;
  double origin_ = 0;
};

}  // namespace

TorchTrace read_torch_trace(const std::string& path) {
  TorchTrace out;
  Reader(path, out).run();
  return out;
}

namespace {

double median(std::vector<double> values) {
  if (values.empty()) return 0;
  std::sort(values.begin(), values.end());
  size_t half = values.size() / 2;
  return values.size() % 2 ? values[half] : (values[half - 1] + values[half]) / 2;
}

const TorchStep& middle(const std::vector<TorchStep>& steps) {
  std::vector<const TorchStep*> by_span;
  for (auto& s : steps) by_span.push_back(&s);
  std::stable_sort(by_span.begin(), by_span.end(), [](auto* a, auto* b) { return a->span_ms < b->span_ms; });
  return *by_span[(by_span.size() - 1) / 2];
}

class Converter {
 public:
  explicit Converter(const TorchTrace& trace) : trace_(trace), kept_(middle(trace.steps)) {}

  Profile run() {
    p_.recipe = nullptr;
    p_.device = {{"kind", trace_.gpu ? "cuda" : "cpu"}, {"index", 0}, {"name", trace_.device}};
    p_.environment = {{"source", "torch.profiler"}, {"file", trace_.file}};
    p_.method = "torch.profiler";
    p_.calls = {"torch"};
    for (auto& s : trace_.steps) p_.step_ms.push_back(s.span_ms);
    p_.profiled_ms = p_.step_ms;
    p_.kept_ms = p_.span_ms = kept_.span_ms, p_.busy_ms = kept_.busy_ms, p_.idle_ms = kept_.idle_ms;
    make_rows();
    for (auto& s : trace_.steps) add(s);
    finish_rows();
    intervals();
    return std::move(p_);
  }

 private:
  using Row = std::pair<std::string, std::string>;  // class, phase
  struct Sums {
    std::map<const TorchStep*, double> ms;
    std::map<const TorchStep*, std::set<int64_t>> launches;
    double min_ms = 0, max_ms = 0;
  };

  int row(const TorchWork& w) const { return rows_.at({w.op_class, w.phase}); }
  int kernel(const TorchWork& w) const { return kernels_.at({w.name, row(w)}); }

  // In order of first appearance.
  void make_rows() {
    for (auto& s : trace_.steps)
      for (auto& w : s.work) {
        auto [at, new_row] = rows_.try_emplace({w.op_class, w.phase}, int(p_.instrs.size()));
        if (new_row) {
          ProfileInstr i;
          i.program = "torch", i.index = at->second;
          i.op = i.op_class = w.op_class, i.phase = w.phase;
          i.stream = w.op_class == "communication" ? "comm" : "compute";
          p_.instrs.push_back(std::move(i));
        }
        auto [k, new_kernel] = kernels_.try_emplace({w.name, at->second}, int(p_.kernels.size()));
        if (new_kernel) p_.kernels.push_back({.name = trace_.names[size_t(w.name)], .instr = at->second});
      }
    row_sums_.resize(p_.instrs.size());
    kernel_sums_.resize(p_.kernels.size());
  }

  void add(const TorchStep& s) {
    std::map<std::pair<int, int64_t>, double> launches;  // intervals of one call add up
    for (auto& w : s.work) {
      row_sums_[size_t(row(w))].ms[&s] += w.ms;
      Sums& k = kernel_sums_[size_t(kernel(w))];
      k.ms[&s] += w.ms;
      k.launches[&s].insert(w.launch);
      launches[{kernel(w), w.launch}] += w.ms;
    }
    for (auto& [id, ms] : launches) {
      Sums& k = kernel_sums_[size_t(id.first)];
      k.min_ms = k.max_ms == 0 ? ms : std::min(k.min_ms, ms);
      k.max_ms = std::max(k.max_ms, ms);
    }
  }

  // A step without work in a row counts as zero.
  double median_ms(const Sums& sums) const {
    std::vector<double> values(trace_.steps.size());
    size_t i = 0;
    for (auto& [step, ms] : sums.ms) values[i++] = ms;
    return median(values);
  }

  void finish_rows() {
    for (size_t i = 0; i < p_.instrs.size(); ++i) p_.instrs[i].ms = median_ms(row_sums_[i]);
    for (size_t i = 0; i < p_.kernels.size(); ++i) {
      ProfileKernel& k = p_.kernels[i];
      Sums& sums = kernel_sums_[i];
      k.ms = median_ms(sums);
      k.min_ms = sums.min_ms, k.max_ms = sums.max_ms;
      k.count = int64_t(sums.launches[&kept_].size());
      p_.launches += k.count;
    }
  }

  void intervals() {
    for (auto& w : kept_.work)
      p_.intervals.push_back({row(w), kernel(w), 0, w.stream, w.start_ms - kept_.start_ms, w.ms});
  }

  const TorchTrace& trace_;
  const TorchStep& kept_;
  Profile p_;
  std::map<Row, int> rows_;
  std::map<std::pair<int, int>, int> kernels_;  // name and row of instrs
  std::vector<Sums> row_sums_, kernel_sums_;
};

}  // namespace

Profile profile_of(const TorchTrace& trace) { return Converter(trace).run(); }

}  // namespace crest
