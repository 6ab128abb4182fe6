#include "backend/cuda/work_map.h"

#include <fmt/format.h>

#include <algorithm>
#include <map>

#include "core/error.h"

namespace crest::cuda {

namespace {

// Rows of a trace from its work; an instruction without work starts where the one before it ended.
void summarize(StepTrace& trace, size_t instructions) {
  trace.seconds.assign(instructions, 0);
  trace.starts.assign(instructions, trace.work.empty() ? 0 : -1);
  if (trace.work.empty()) return;
  std::stable_sort(trace.work.begin(), trace.work.end(), [](auto& a, auto& b) { return a.start < b.start; });
  trace.start = trace.work.front().start;
  double end = trace.start;
  for (auto& w : trace.work) {
    end = std::max(end, w.start + w.seconds);
    if (w.instruction < 0) continue;
    double& start = trace.starts[size_t(w.instruction)];
    if (start < 0) start = w.start;
    trace.seconds[size_t(w.instruction)] += w.seconds;
  }
  trace.total = end - trace.start;
  double before = trace.start;
  for (size_t i = 0; i < instructions; ++i) {
    if (trace.starts[i] < 0) trace.starts[i] = before;
    before = trace.starts[i] + trace.seconds[i];
  }
}

}  // namespace

void assign_work(std::vector<WorkRecord> records, const std::vector<GraphRun>& runs) {
  std::stable_sort(records.begin(), records.end(), [](auto& a, auto& b) { return a.start < b.start; });
  std::unordered_map<uint64_t, std::vector<size_t>> runs_of;  // node -> numbers of the runs containing it
  for (size_t r = 0; r < runs.size(); ++r)
    for (auto& [node, instruction] : *runs[r].nodes) runs_of[node].push_back(r);
  std::unordered_map<uint64_t, size_t> seen;
  std::vector<DeviceWork> waiting;                // work outside of graphs goes to the next run
  std::map<std::pair<size_t, int>, double> ends;  // of the last work, by run and stream
  for (auto& record : records) {
    auto it = runs_of.find(record.node);
    DeviceWork work{record.name, -1, record.stream, record.start, record.seconds};
    if (record.node == 0 || it == runs_of.end()) {
      waiting.push_back(std::move(work));
      continue;
    }
    size_t k = seen[record.node]++;
    if (k >= it->second.size()) fail_internal("more records of a graph's node than runs of the graph");
    const GraphRun& run = runs[it->second[k]];
    if (!run.trace) continue;
    const NodeOf& node = run.nodes->at(record.node);
    work.instruction = node.instruction;
    double& before = ends.try_emplace({it->second[k], node.stream}, work.start).first->second;
    double end = std::max(work.start + work.seconds, before);
    work.start = std::max(work.start, before), work.seconds = end - work.start;
    before = end;
    auto& to = run.trace->work;
    to.insert(to.end(), std::make_move_iterator(waiting.begin()), std::make_move_iterator(waiting.end()));
    waiting.clear();
    to.push_back(std::move(work));
  }
  for (auto& [node, numbers] : runs_of)
    if (seen[node] < numbers.size())
      fail(fmt::format("the profiler has {} records of a kernel that ran {} times", seen[node], numbers.size()),
           "CUPTI", "Records were lost: profile fewer steps at once, or a smaller model.");
  if (!waiting.empty() && !runs.empty() && runs.back().trace) {
    auto& to = runs.back().trace->work;
    to.insert(to.end(), std::make_move_iterator(waiting.begin()), std::make_move_iterator(waiting.end()));
  }
  for (auto& run : runs)
    if (run.trace) summarize(*run.trace, run.instructions);
}

}  // namespace crest::cuda
