// Turns traces of profiled runs into rows, kernels and intervals.
#include <algorithm>
#include <cmath>
#include <map>

#include "bench/profiler.h"
#include "bench/ranks_profile.h"
#include "core/error.h"
#include "profile/rank_times.h"

namespace crest {

namespace {

double median(std::vector<double> values) { return Samples(std::move(values)).median(); }

class Summary {
 public:
  Summary(Profile& p, const std::vector<ProfiledRun>& runs) : p_(p), runs_(runs) {
    std::map<std::string, int> first;  // first row of each Program
    for (size_t i = p_.instrs.size(); i-- > 0;) first[p_.instrs[i].program] = int(i);
    for (auto& call : p_.calls) first_row_.push_back(first.at(call));
  }

  void run() {
    for (auto& r : runs_) {
      if (r.traces.size() != p_.calls.size()) fail_internal("a run has different calls from its profile", "profiler");
      p_.profiled_ms.push_back(r.seconds * 1e3);
    }
    find_middle();
    times_of_rows();
    times_of_kernels();
    keep_one();
    span();
  }

 private:
  // The runs in the middle half by time. Times are means over these runs, because means add up and
  // medians do not.
  void find_middle() {
    std::vector<double> seconds;
    for (auto& r : runs_) seconds.push_back(r.seconds);
    middle_ = middle_half(seconds);
  }

  double middle_mean(const std::vector<double>& by_run) const {
    double sum = 0;
    for (size_t r : middle_) sum += by_run[r];
    return sum / double(middle_.size());
  }

  void times_of_rows() {
    std::vector<std::vector<double>> seconds(p_.instrs.size(), std::vector<double>(runs_.size()));
    for (size_t r = 0; r < runs_.size(); ++r)
      for (size_t c = 0; c < p_.calls.size(); ++c) {
        auto& of_call = runs_[r].traces[c].seconds;
        for (size_t i = 0; i < of_call.size(); ++i) seconds.at(size_t(first_row_[c]) + i)[r] += of_call[i];
      }
    for (size_t i = 0; i < seconds.size(); ++i) p_.instrs[i].ms = 1e3 * middle_mean(seconds[i]);
  }

  int row_of(size_t call, const DeviceWork& w) const {
    return w.instruction < 0 ? -1 : first_row_[call] + w.instruction;
  }

  // A row for each kernel of an instruction, or of no instruction.
  void times_of_kernels() {
    struct Launches {
      std::vector<double> ms, count;  // by run
      double min = INFINITY, max = 0;
    };
    std::map<std::pair<int, std::string>, Launches> all;
    for (size_t r = 0; r < runs_.size(); ++r)
      for (size_t c = 0; c < p_.calls.size(); ++c)
        for (auto& w : runs_[r].traces[c].work) {
          Launches& k = all[{row_of(c, w), w.name}];
          k.ms.resize(runs_.size()), k.count.resize(runs_.size());
          k.ms[r] += w.seconds * 1e3, k.count[r] += 1;
          k.min = std::min(k.min, w.seconds * 1e3), k.max = std::max(k.max, w.seconds * 1e3);
        }
    for (auto& [key, k] : all) {
      kernel_row_[key] = int(p_.kernels.size());
      p_.kernels.push_back({.name = key.second,
                            .instr = key.first,
                            .count = std::llround(median(k.count)),
                            .ms = middle_mean(k.ms),
                            .min_ms = k.min,
                            .max_ms = k.max});
    }
  }

  // The run nearest to the median, with its intervals from its first work on.
  void keep_one() {
    double middle = p_.profiled_median_ms();
    size_t best = 0;
    for (size_t r = 0; r < runs_.size(); ++r)
      if (std::abs(p_.profiled_ms[r] - middle) < std::abs(p_.profiled_ms[best] - middle)) best = r;
    p_.kept_ms = p_.profiled_ms[best];
    for (size_t c = 0; c < p_.calls.size(); ++c) add_intervals(c, runs_[best].traces[c]);
    std::stable_sort(p_.intervals.begin(), p_.intervals.end(),
                     [](auto& a, auto& b) { return a.start_ms < b.start_ms; });
    p_.launches = int64_t(p_.intervals.size());
  }

  void add_intervals(size_t c, const StepTrace& t) {
    auto add = [&](int instr, int kernel, int stream, double start, double seconds) {
      p_.intervals.push_back({instr, kernel, int(c), stream, start * 1e3, seconds * 1e3});
    };
    for (auto& w : t.work) {
      int row = row_of(c, w);
      add(row, kernel_row_.at({row, w.name}), w.stream, w.start, w.seconds);
    }
    if (!t.work.empty()) return;
    for (size_t i = 0; i < t.seconds.size(); ++i) {
      int row = first_row_[c] + int(i);
      const std::string& stream = p_.instrs[size_t(row)].stream;
      int number = 0;
      while (number + 1 < stream_count && name(Stream(number)) != stream) ++number;
      add(row, -1, number, t.starts[i], t.seconds[i]);
    }
  }

  // idle is the sum of the gaps, so busy + idle = span is a real check.
  void span() {
    if (p_.intervals.empty()) return;
    double first = p_.intervals.front().start_ms;
    for (auto& i : p_.intervals) i.start_ms -= first;
    double end = 0, begin = 0;
    for (auto& i : p_.intervals) {
      if (i.start_ms > end) {
        p_.busy_ms += end - begin;
        p_.idle_ms += i.start_ms - end;
        begin = i.start_ms;
      }
      end = std::max(end, i.start_ms + i.ms);
    }
    p_.busy_ms += end - begin;
    p_.span_ms = end;
    if (std::abs(p_.busy_ms + p_.idle_ms - p_.span_ms) > 1e-6 * p_.span_ms)
      fail_internal("busy and idle time do not add up to the span", "profiler");
    if (p_.method == "cupti") p_.recording_ms = std::clamp(p_.span_ms - p_.step_median_ms(), 0.0, p_.idle_ms);
    p_.idle_ms -= p_.recording_ms;
  }

  Profile& p_;
  const std::vector<ProfiledRun>& runs_;
  std::vector<size_t> middle_;
  std::vector<int> first_row_;  // of each call
  std::map<std::pair<int, std::string>, int> kernel_row_;
};

}  // namespace

void summarize_runs(Profile& profile, const std::vector<ProfiledRun>& runs) {
  if (runs.empty()) fail_internal("no run was profiled", "profiler");
  Summary(profile, runs).run();
}

}  // namespace crest
