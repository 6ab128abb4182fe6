// Runs training steps of a compiled session: fills inputs, calls the segments of a step in order on
// every rank, and reads loss and norm. It has no user interface and no files.
#pragma once
#include <deque>
#include <functional>
#include <list>
#include <memory>
#include <set>
#include <vector>

#include "backend/choices.h"
#include "comm/comm.h"
#include "comm/mesh_groups.h"
#include "run/executor.h"
#include "run/parameters.h"

namespace crest {

// Writes seq tokens and targets of a global sample (data/loader.h). Targets below 0 do not count.
// positions: each token's index in its document; null unless the Programs have an input
// `positions`.
using SampleSource = std::function<void(uint64_t global_sample, int32_t* tokens, int32_t* targets, int32_t* positions)>;

struct StepResult {
  double loss = 0;        // mean over the counted targets
  double grad_norm = 0;   // before clipping
  int64_t targets = 0;    // counted targets
  bool skipped = false;   // gradients were NaN or infinite
  double loss_scale = 1;  // used by this step
  double next_loss_scale = 1;
  int64_t skipped_steps = 0;  // including this step
  // --precision fp8: the saturated and the vanished fraction of rank 0's quantized values.
  // Negative: nothing is quantized.
  double saturated = -1, vanished = -1;
  // The tensor with the most new zeros ("h.0.mlp.proj.weight.x", passes/fp8.h); empty: none.
  std::string vanished_most;
  double seconds = 0;  // since the step was queued, or since the step before it ended
  // Of them: rank 0's optimizer step. Negative: unknown, on a device that works by itself.
  double update_seconds = -1;
  double wait_seconds = 0;  // of them, at most: the device had nothing to do while the source gave rank 0 samples
  // Of them: rank 0 computed nothing because of collectives, with the wait for other ranks.
  // Negative: unknown, on a device that works by itself.
  double communication_seconds = -1;
};

class Engine {
 public:
  // Creates an executor for each rank of this process: recipe.data_parallel threads, or one rank if
  // the recipe has several processes, connected by `communicator`. Ranks exchange data through
  // communicators only. Weights are zero until initialized or loaded. choices: from the session to
  // continue. host: a communicator of the same ranks for host memory; null: `communicator` supports
  // it. late: called to get the choices after all ranks have connected the mesh's groups; a rank
  // may wait in it for rank 0's choices.
  explicit Engine(CompiledSession session, Choices choices = {}, Communicator* communicator = nullptr,
                  Communicator* host = nullptr, const std::function<Choices()>& late = nullptr);

  // The first local rank's.
  const CompiledSession& session() const { return sessions_[0]; }
  // Ranks of the whole run. This process has first_rank() and the local_ranks() - 1 after it.
  int ranks() const { return session().recipe.all_ranks(); }
  int local_ranks() const { return int(executors_.size()); }
  int first_rank() const { return groups_[0] ? groups_[0]->rank() : 0; }
  // A local rank, from 0.
  Executor& rank(int r) { return *executors_[size_t(r)]; }
  const Choices& choices() const { return choices_; }

  // period: run/parameters.h.
  void initialize_weights(uint64_t seed, int64_t period = 0, bool trained_only = false);
  // For other writers of weights or of fp8's scales: the next step starts with Program `start`.
  void weights_changed() { started_ = false; }
  // Whether to read the samples of all micro steps before the first one runs. Required if targets
  // may be negative, because the whole step's count weights each micro step. With several ranks it
  // is always on: ranks agree on successful reads before any of them waits for another.
  void read_whole_steps(bool whole) { whole_steps_ = whole || ranks() > 1; }
  // A step throws this before anything runs if a rank of another process could not read its
  // samples.
  struct PeerDidNotRead {
    int rank;
  };
  // Runs step number `step` (0, 1, ..) on samples step * global_batch .. of the source. `seed` is
  // for dropout. Without an update Program, runs only forward and backward passes. traces: one for
  // each call of training_step(session), with a time for each instruction (rank 0).
  StepResult step(int64_t step, double lr, uint64_t seed, const SampleSource& source,
                  std::vector<StepTrace>* traces = nullptr);
  // Also returns when each local rank started each call of training_step(session), and when it
  // ended the last one, in seconds (Runtime::stamp).
  using CallTimes = std::vector<std::vector<double>>;  // by local rank
  StepResult timed_step(int64_t step, double lr, uint64_t seed, const SampleSource& source, CallTimes& times);
  // The times of all timed steps since the last call, one step after another. Waits for queued
  // work.
  CallTimes take_call_times();
  // The same in two halves. An asynchronous device can have the next step queued before the results
  // of the present one are taken, and is then never idle between them: up to steps_ahead() besides
  // the one to be taken. Readers and writers of weights (validate, a checkpoint, broadcast) come
  // when nothing is queued. timed: with the times of its calls.
  void queue_step(int64_t step, double lr, uint64_t seed, const SampleSource& source, bool timed = false);
  StepResult take_step();  // of the oldest queued step
  int queued_steps() const { return int(queued_.size()); }
  int steps_ahead() const;
  // Mean loss over the counted targets of `batches` validation batches (samples 0, 1, ..). traces:
  // one for each batch (rank 0).
  double validate(int64_t batches, const SampleSource& source, std::vector<StepTrace>* traces = nullptr);
  int64_t validation_batch() const;
  // Whether a rank has only a part of the weights, so all ranks must run their readers.
  bool shares_weights() const;
  // Calls work(r) for the ranks of this process at once.
  void on_all_ranks(const std::function<void(int)>& work) { on_ranks(work); }
  // Results of `of` for every rank, by rank. All processes call it together.
  std::vector<std::vector<double>> from_all_ranks(const std::function<std::vector<double>(Executor&)>& of);
  // With the local rank as argument.
  std::vector<std::vector<double>> from_ranks(const std::function<std::vector<double>(int)>& of);
  // All ranks call it. Rank 0 runs work(), which may save and load parameters(rank(0)). The other
  // ranks transfer their parts of sharded states (run/sharded_states.h).
  void with_states(const std::function<void()>& work);
  // For loading: the other ranks also receive everything else from rank 0.
  void load(const std::function<void()>& work = {});

 private:
  // Tensors used by every step, for one Program on one rank. No data: the Program has no such
  // value.
  struct Ports {
    TensorRef tokens, targets, positions, loss, fp8_lost;
  };
  // A batch on its way to the device. Ranks along the axis context get their tokens of it.
  struct HostBatch {
    std::vector<int32_t> tokens, targets, positions;
    int64_t slots = 0, counted = 0;  // targets, without padding; those that count
    double seconds = 0;              // spent in the source
  };
  int shard_of(int r) const { return mesh_.coordinate(first_rank() + r, Axis::data); }
  // Whether local rank r counts for its data coordinate: values shared by its ranks count once.
  bool counts(int r) const { return mesh_.index(first_rank() + r, Axes::all().without(Axis::data)) == 0; }
  uint64_t first_sample(int64_t step, int64_t micro_step, int rank) const;
  void read(HostBatch& batch, const ProgramSpec& size, bool positions, uint64_t first_sample,
            const SampleSource& source) const;
  void send(const HostBatch& batch, int rank, const SegmentCall& call);
  // A queued step. Results arrive in this object, so it must not move.
  struct Queued {
    StepResult result;
    float loss = 0;
    std::vector<int64_t> fp8_lost;  // [slots][2]
    Scalars after = {};
    Runtime::Mark mark = 0;
    double start = 0;  // steady_seconds()
  };
  void queue(int64_t step, double lr, uint64_t seed, const SampleSource& source, std::vector<StepTrace>* traces,
             bool stamps = false);
  void start();
  // Reads local rank r's part of a whole step, and counts all ranks' targets. Throws a local rank's
  // read error.
  struct Read {
    double slots = 0, counted = 0;
    float weight() const { return counted > 0 ? float(slots / counted) : 0.0f; }
  };
  Read read_step(int64_t step, const SampleSource& source);
  void on_ranks(const std::function<void(int)>& work);  // run_on_ranks() for the ranks of this process

  const CompiledSession& session_of(int r) const { return executors_[size_t(r)]->session(); }

  std::deque<CompiledSession> sessions_;  // by pipeline stage, for stages with local ranks
  Choices choices_;
  Mesh mesh_;
  std::vector<std::unique_ptr<Communicator>> owned_, owned_by_host_;  // between threads
  // By local rank, for device memory and for host memory; null: there is one rank.
  std::vector<std::unique_ptr<MeshGroups>> groups_;
  std::vector<Communicator*> host_communicators_;
  std::vector<std::unique_ptr<Executor>> executors_;
  std::vector<std::vector<SegmentCall>> calls_;         // of a step, by local rank
  ProgramSpec micro_step_;                              // with the micro batch's size
  std::set<int64_t> micro_steps_;                       // of a step
  bool positions_ = false;                              // whether the Programs have the input
  int64_t fp8_elements_ = 0;                            // quantized by rank 0 in each step
  std::vector<std::string> fp8_slots_;                  // slots with counts
  float loss_scale_ = 1;                                // of the next step to take
  std::list<Queued> queued_, failed_;                   // failed: error while queued; their results may still arrive
  double taken_ = 0;                                    // end of the last step taken
  std::vector<std::vector<std::vector<Ports>>> ports_;  // by local rank, Program and slot
  std::vector<std::vector<HostBatch>>
      batches_;                  // by local rank and micro step (only the first, unless whole steps are read)
  std::vector<size_t> readers_;  // by local rank: reader of its batches (same data coordinate)
  bool whole_steps_ = false;
  bool started_ = false;  // the train Programs' inputs derived from weights are up to date
};

}  // namespace crest
