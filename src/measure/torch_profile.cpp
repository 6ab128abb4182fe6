// A PyTorch trace as a Profile: what can be compared with a profiled step of Crest.
#include <algorithm>
#include <map>
#include <set>

#include "measure/torch_trace.h"

namespace crest {

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
          i.lane = w.op_class == "communication" ? "comm" : "compute";
          p_.instrs.push_back(std::move(i));
        }
        auto [k, new_kernel] = kernels_.try_emplace({w.name, at->second}, int(p_.kernels.size()));
        if (new_kernel) p_.kernels.push_back({.name = trace_.names[size_t(w.name)], .instr = at->second});
      }
    row_sums_.resize(p_.instrs.size());
    kernel_sums_.resize(p_.kernels.size());
  }

  void add(const TorchStep& s) {
    std::map<std::pair<int, int64_t>, double> launches;  // stretches of one call add up
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

  // A step in which a row did nothing counts as zero.
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
