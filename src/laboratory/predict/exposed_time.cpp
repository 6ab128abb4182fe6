#include "predict/exposed_time.h"

#include <algorithm>
#include <array>
#include <limits>
#include <map>

#include "plan/communicators.h"
#include "profile/overlap.h"
#include "profile/profile_rows.h"

namespace crest {

namespace {

// On two H200, next to a product of 16384 x 1600 x 6400 in bf16, a sum of 256 MiB took 1.03 times
// its time and a gather 1.12 times, without the wait for multiprocessors. The product took 1.19 and
// 1.07 times its time. But few products are so large: others have a few waves of blocks, and wait
// for the multiprocessors of NCCL's kernels. `nccl_next_to`: the factor of kernels in 22 steps of
// two H100 and two H200, by least squares of the relative errors (scripts/two_gpus.py).
struct Slowdown {
  double collective, product;
};
constexpr double nccl_next_to = 1.8;
constexpr Slowdown of_sum = {1.03, nccl_next_to}, of_gather = {1.12, nccl_next_to};
// A copy engine needs no multiprocessor, but shares the memory's bandwidth: 235 instead of 307 GB/s
// next to matmuls (gpt2-124M on two H200, docs/results/h200/ranks.md#what-is-left).
constexpr Slowdown of_copy = {307.0 / 235, 1.03};

Slowdown slowdown(const ProfileInstr& row) {
  const std::string& op = row.op;
  if (by_copy_engines(row.kernel)) return of_copy;
  return op == "all_gather" || op.starts_with("gather_") ? of_gather : of_sum;
}

class StreamClock {
 public:
  // rows: of the Program's instructions in the profile, -1 for none.
  StreamClock(const CompiledProgram& program, const Profile& profile, const std::vector<int>& rows, double factor)
      : p_(program), profile_(profile), rows_(rows), factor_(factor), ended_(rows.size(), false) {
    for (size_t i = 0; i < rows.size(); ++i) queues_[queue_of(int(i))].push_back(int(i));
    for (size_t i = 0; i < rows.size(); ++i) left_.push_back(alone(int(i)));
  }

  // Adds the exposed times of one call, times `calls` of each row.
  void run(std::vector<double>& exposed) {
    for (;;) {
      while (drop_empty()) {
      }
      int compute = -1, communication = -1;  // running ones
      for (size_t s = 0; s < queues_.size(); ++s) {
        const int i = head(s);
        if (i < 0 || !ready(i)) continue;
        if (s == size_t(Stream::compute))
          compute = i;
        else if (communication < 0)
          communication = i;
      }
      if (compute < 0 && communication < 0) return;
      const bool both = compute >= 0 && communication >= 0;
      const bool slow = both && !communicates(row(compute));
      const Slowdown by = slow ? slowdown(row(communication)) : Slowdown{1, 1};
      double ms = std::numeric_limits<double>::infinity();
      if (compute >= 0) ms = std::min(ms, left_[size_t(compute)] * by.product);
      if (communication >= 0) ms = std::min(ms, left_[size_t(communication)] * by.collective);
      if (compute >= 0) advance(compute, ms / by.product);
      if (communication >= 0) advance(communication, ms / by.collective);
      const int waits_for = compute < 0 || slow ? communication : compute;
      if (compute >= 0 && !slow && !communicates(row(compute))) continue;
      exposed[size_t(rows_[size_t(waits_for)])] += row(waits_for).calls * (slow ? ms * (1 - 1 / by.product) : ms);
    }
  }

 private:
  const ProfileInstr& row(int i) const { return profile_.instrs[size_t(rows_[size_t(i)])]; }
  // Gradients on their own stream count as computation in series
  // (docs/results/h200/small_steps.md).
  size_t queue_of(int i) const {
    const Stream stream = p_.program.code[size_t(i)].stream;
    return size_t(stream == Stream::gradients ? Stream::compute : stream);
  }
  double alone(int i) const {
    // Copies between host and device have a model of their own.
    if (rows_[size_t(i)] < 0 || crosses_host_link(row(i))) return 0;
    return row(i).ms / std::max(1, row(i).calls) * (communicates(row(i)) ? factor_ : 1);
  }
  int head(size_t stream) const { return at_[stream] < queues_[stream].size() ? queues_[stream][at_[stream]] : -1; }
  bool ready(int i) const {
    if (p_.waits.empty()) return true;
    const auto& waits = p_.waits[size_t(i)];
    return std::all_of(waits.begin(), waits.end(), [&](int w) { return ended_[size_t(w)]; });
  }
  // Ends instructions without time. Whether there was one.
  bool drop_empty() {
    bool any = false;
    for (size_t s = 0; s < queues_.size(); ++s)
      for (int i; (i = head(s)) >= 0 && left_[size_t(i)] <= 0 && ready(i); any = true) end(i);
    return any;
  }
  void advance(int i, double ms) {
    double& left = left_[size_t(i)];
    left -= ms;
    if (left > 1e-12) return;
    left = 0;
    end(i);
  }
  void end(int i) {
    ended_[size_t(i)] = true;
    ++at_[queue_of(i)];
  }

  const CompiledProgram& p_;
  const Profile& profile_;
  const std::vector<int>& rows_;
  const double factor_;
  std::vector<bool> ended_;
  std::vector<double> left_;
  std::array<std::vector<int>, stream_count> queues_;
  std::array<size_t, stream_count> at_ = {};
};

}  // namespace

ExposedTimes exposed_collectives(const CompiledSession& session, const Profile& profile, double factor) {
  ExposedTimes exposed;
  exposed.rows.assign(profile.instrs.size(), 0);
  std::map<std::string, std::vector<int>> rows_of;
  for (size_t r = 0; r < profile.instrs.size(); ++r) {
    const ProfileInstr& row = profile.instrs[r];
    if (session.device.kind != "cuda") {
      if (communicates(row) && !crosses_host_link(row)) exposed.rows[r] = row.ms * factor;
      continue;
    }
    auto& rows = rows_of[row.program];
    if (rows.empty()) rows.assign(session.programs[size_t(session.find(row.program))].program.code.size(), -1);
    rows[size_t(row.index)] = int(r);
  }
  for (auto& [name, rows] : rows_of)
    StreamClock(session.programs[size_t(session.find(name))], profile, rows, factor).run(exposed.rows);
  for (double ms : exposed.rows) exposed.ms += ms;
  return exposed;
}

ExposedRange hide_collectives(PredictedStep& step, const CompiledSession& session) {
  if (step.collectives_ms == 0) return {};
  const double factor = step.collectives.factor;
  const ExposedTimes exposed = exposed_collectives(session, step.profile);
  ExposedRange range{exposed_collectives(session, step.profile, 1 / factor).ms,
                     exposed_collectives(session, step.profile, factor).ms};
  step.hidden_collectives_ms = std::max(0.0, step.collectives_ms - exposed.ms);
  step.collectives_ms = exposed.ms;
  step.collectives_by_axes.clear();
  for (size_t r = 0; r < exposed.rows.size(); ++r) {
    ProfileInstr& row = step.profile.instrs[r];
    if (!communicates(row) || crosses_host_link(row)) continue;
    row.ms = exposed.rows[r];
    const Program& program = session.programs[size_t(session.find(row.program))].program;
    step.collectives_by_axes[axes_of(program.code[size_t(row.index)]).text()] += row.ms;
  }
  return range;
}

}  // namespace crest
