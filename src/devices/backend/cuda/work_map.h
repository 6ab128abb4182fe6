// The instruction and run of a device's record. Host code, always compiled.
#pragma once
#include <cstdint>
#include <string>
#include <unordered_map>
#include <vector>

#include "backend/runtime.h"

namespace crest::cuda {

// A kernel, copy or memset as recorded by the
// device. node: of its graph, 0: no graph.
struct WorkRecord {
  std::string name;
  uint64_t node = 0;
  int stream = 0;
  double start = 0, seconds = 0;
};

// Instruction and stream of each node of a graph, by the id in records.
struct NodeOf {
  int instruction = -1, stream = 0;
};
using NodeMap = std::unordered_map<uint64_t, NodeOf>;

// A replay of a graph. trace: null when nobody asked for it.
struct GraphRun {
  const NodeMap* nodes;
  size_t instructions;
  StepTrace* trace;
};

// Fills the traces of runs (in the order of their launch). A graph runs each of its nodes once, so
// the k-th record of a node belongs to the k-th run of its graph. Work outside graphs (copies of
// inputs) goes to the trace after it, as instruction -1. Fails if a traced run has no record of one
// of its nodes: the device lost some. A kernel overlapping with the one before it on its stream
// (backend/cuda/launch.h) waits until the end of that one: its record then begins there, so no time
// counts twice.
void assign_work(std::vector<WorkRecord> records, const std::vector<GraphRun>& runs);

}  // namespace crest::cuda
