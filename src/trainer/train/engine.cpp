#include "train/engine.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <exception>

#include "comm/exchange.h"
#include "comm/local.h"
#include "core/error.h"
#include "core/timer.h"
#include "device/communicators.h"
#include "passes/fp8.h"
#include "plan/session_properties.h"
#include "program/op.h"
#include "run/ranks.h"
#include "run/sharded_states.h"

namespace crest {

Engine::Engine(CompiledSession session, Choices choices, Communicator* communicator, Communicator* host,
               const std::function<Choices()>& late)
    : choices_(std::move(choices)), mesh_(session.recipe.layout()) {
  sessions_.push_back(std::move(session));
  const Recipe& recipe = sessions_[0].recipe;
  if (recipe.ranks != (communicator ? communicator->size() : 1))
    fail_usage(fmt::format("{} processes are requested, and this is {}", recipe.ranks,
                           communicator ? fmt::format("one of {}", communicator->size()) : "a single one"),
               "--ranks", "crest train, bench and profile start several; here, use --data-parallel for threads.");
  if (recipe.data_parallel > 1) {
    for (int stage = 1; stage < mesh_.size(Axis::pipeline); ++stage)
      sessions_.push_back(for_stage(sessions_[0], stage));
    owned_ = make_thread_communicators(recipe.data_parallel, sessions_[0].device);
    owned_by_host_ = make_local_communicators(recipe.data_parallel);
  }
  std::vector<Communicator*> worlds;
  for (auto& c : owned_) worlds.push_back(c.get());
  for (auto& c : owned_by_host_) host_communicators_.push_back(c.get());
  if (worlds.empty()) worlds = {communicator}, host_communicators_ = {host ? host : communicator};
  const std::set<Axes> axes = axes_in_use(sessions_[0]);
  for (auto& s : sessions_)
    if (axes_in_use(s) != axes) fail_internal("pipeline stages communicate along different axes");
  for (Communicator* world : worlds)
    groups_.push_back(world ? std::make_unique<MeshGroups>(mesh_, *world, axes) : nullptr);
  if (late) choices_ = late();
  for (size_t r = 0; r < groups_.size(); ++r) {
    const size_t stage = sessions_.size() == 1 ? 0 : size_t(mesh_.coordinate(int(r), Axis::pipeline));
    executors_.push_back(std::make_unique<Executor>(sessions_[stage], groups_[r].get(), &choices_));
    calls_.push_back(training_step(sessions_[stage]));
  }
  batches_.assign(executors_.size(), std::vector<HostBatch>(1));
  for (int r = 0; r < local_ranks(); ++r) {
    int first = 0;
    while (shard_of(first) != shard_of(r)) ++first;
    readers_.push_back(size_t(first));
  }
  for (auto& e : executors_) {
    auto& list = ports_.emplace_back();
    for (int p = 0; p < int(e->session().programs.size()); ++p) {
      auto& slots = list.emplace_back();
      for (int slot = 0; slot < e->slots(p); ++slot) {
        auto find = [&](const char* name) { return e->has(p, name) ? e->tensor(p, name, slot) : TensorRef{}; };
        slots.push_back({find("tokens"), find("targets"), find("positions"), find("loss"), find(fp8_lost)});
      }
    }
  }
  for (auto& call : calls_[0])
    if (call.segment >= 0)  // a session may lack a training step
      fp8_elements_ += fp8_elements(sessions_[0].programs[size_t(call.segment)].program);
  if (int update = sessions_[0].find("update"); update >= 0)
    fp8_slots_ = fp8_slots(sessions_[0].programs[size_t(update)].program);
  positions_ = packs_documents(sessions_[0].recipe);
  for (auto& call : calls_[0]) {
    if (call.segment < 0 || call.micro_step < 0) continue;
    micro_step_ = sessions_[0].programs[size_t(call.segment)].spec;
    micro_steps_.insert(call.micro_step);
  }
  loss_scale_ = rank(0).scalars().loss_scale;
  read_whole_steps(false);
}

// If one rank's thread fails, the others must not wait for it.
void Engine::on_ranks(const std::function<void(int)>& work) {
  run_on_ranks(local_ranks(), [&](int r) {
    try {
      work(r);
    } catch (...) {
      const MeshGroups* groups = groups_[size_t(r)].get();
      if (groups) groups->leave();
      if (auto* c = host_communicators_[size_t(r)]; groups && c != &groups->world()) c->leave();
      throw;
    }
  });
}

void Engine::initialize_weights(uint64_t seed, int64_t period, bool trained_only) {
  on_ranks([&](int r) { initialize(rank(r), first_rank() + r, seed, period, trained_only); });
  weights_changed();
}

// Makes the update's results from the weights, as the previous step's update would have. After a
// restore, the tables may be an update's results for other weights.
void Engine::start() {
  if (started_) return;
  if (const int program = session().find("start"); program >= 0)
    on_ranks([&](int r) {
      for (const char* table : {fp8_record, fp8_counts})
        if (rank(r).has(program, table)) {
          const TensorRef t = rank(r).tensor(program, table);
          t.runtime->zero(t.data, t.bytes());
        }
      rank(r).run(program);
    });
  started_ = true;
}

uint64_t Engine::first_sample(int64_t step, int64_t micro_step, int r) const {
  const Recipe& recipe = session().recipe;
  return (uint64_t(step * recipe.grad_accumulation + micro_step) * uint64_t(recipe.data_ranks()) +
          uint64_t(shard_of(r))) *
         uint64_t(recipe.batch);
}

void Engine::read(HostBatch& h, const ProgramSpec& size, bool positions, uint64_t first,
                  const SampleSource& source) const {
  const int64_t batch = size.batch, own = size.seq, seq = session().recipe.padded_seq();  // padding follows
  h.tokens.resize(size_t(batch * seq)), h.targets.resize(size_t(batch * seq));
  h.positions.resize(positions ? size_t(batch * seq) : 0);
  Timer timer;
  for (int64_t b = 0; b < batch; ++b) {
    int32_t* positions_of = h.positions.empty() ? nullptr : h.positions.data() + b * seq;
    source(first + uint64_t(b), h.tokens.data() + b * seq, h.targets.data() + b * seq, positions_of);
    for (int64_t t = own; t < seq; ++t) {
      h.tokens[size_t(b * seq + t)] = 0, h.targets[size_t(b * seq + t)] = -1;
      if (positions_of) positions_of[t] = int32_t(t - own);  // a document of its own
    }
  }
  h.seconds = timer.seconds();
  h.slots = batch * own;
  h.counted = std::count_if(h.targets.begin(), h.targets.end(), [](int32_t t) { return t >= 0; });
}

void Engine::send(const HostBatch& h, int r, const SegmentCall& call) {
  const Ports& ports = ports_[size_t(r)][size_t(call.segment)][size_t(call.slot)];
  const int place = mesh_.coordinate(first_rank() + r, Axis::context), sharing = mesh_.size(Axis::context);
  std::vector<int32_t> chunks;
  auto write = [&](const TensorRef& to, const std::vector<int32_t>& all) {
    if (!to.data) return;
    if (sharing == 1) return to.write(all.data());
    chunks.clear();
    for (const DimRange& range : ranges_of(Placement::chunks(0, to.shape[1] / 2), int64_t(all.size()), place, sharing))
      chunks.insert(chunks.end(), all.begin() + range.begin, all.begin() + range.end);
    to.write(chunks.data());
  };
  write(ports.tokens, h.tokens);
  write(ports.targets, h.targets);
  write(ports.positions, h.positions);
}

// The Programs divide by all targets of the step, including uncounted ones.
Engine::Read Engine::read_step(int64_t step, const SampleSource& source) {
  std::vector<std::exception_ptr> errors(executors_.size());
  std::vector<std::vector<double>> all;  // by rank: slots, counted targets, failure
  on_ranks([&](int r) {
    std::vector<double> own(3);
    auto& batches = batches_[size_t(r)];
    const bool reads = readers_[size_t(r)] == size_t(r);
    if (reads) batches.resize(size_t(session().recipe.grad_accumulation));
    try {
      for (int64_t m : micro_steps_)
        if (reads) read(batches[size_t(m)], micro_step_, positions_, first_sample(step, m, r), source);
    } catch (...) {
      errors[size_t(r)] = std::current_exception();
      own[2] = 1;
    }
    if (counts(r))
      for (auto& h : batches) own[0] += double(h.slots), own[1] += double(h.counted);
    auto of_all = ranks() > 1 ? gather(*host_communicators_[size_t(r)], own) : std::vector<std::vector<double>>{own};
    if (r == 0) all = std::move(of_all);
  });
  for (auto& e : errors)
    if (e) std::rethrow_exception(e);
  Read sum;
  for (size_t r = 0; r < all.size(); ++r) {
    if (all[r][2] != 0) throw PeerDidNotRead{int(r)};
    sum.slots += all[r][0], sum.counted += all[r][1];
  }
  return sum;
}

int Engine::steps_ahead() const { return local_ranks() == 1 && !executors_[0]->runtime().host_memory() ? 1 : 0; }

StepResult Engine::step(int64_t step, double lr, uint64_t seed, const SampleSource& source,
                        std::vector<StepTrace>* traces) {
  if (!queued_.empty()) fail_internal("a step is run while others are queued", "engine");
  queue(step, lr, seed, source, traces);
  if (traces) rank(0).runtime().synchronize();
  return take_step();
}

StepResult Engine::timed_step(int64_t step, double lr, uint64_t seed, const SampleSource& source, CallTimes& times) {
  if (!queued_.empty()) fail_internal("a step is timed while others are queued", "engine");
  queue(step, lr, seed, source, nullptr, true);
  StepResult result = take_step();
  times = take_call_times();
  return result;
}

Engine::CallTimes Engine::take_call_times() {
  CallTimes times;
  for (auto& e : executors_) times.push_back(e->runtime().take_stamps());
  return times;
}

void Engine::queue_step(int64_t step, double lr, uint64_t seed, const SampleSource& source, bool timed) {
  queue(step, lr, seed, source, nullptr, timed);
}

void Engine::queue(int64_t step, double lr, uint64_t seed, const SampleSource& source, std::vector<StepTrace>* traces,
                   bool stamps) {
  start();
  if (traces) traces->assign(calls_[0].size(), {});
  size_t loss_call = 0;  // the last call with a loss
  for (size_t c = 0; c < calls_[0].size(); ++c)
    if (ports_[0][size_t(calls_[0][c].segment)][0].loss.data) loss_call = c;
  failed_.emplace_back();
  Queued& queued = failed_.back();
  queued.start = steady_seconds();
  StepResult& result = queued.result;
  float weight = 1;
  if (whole_steps_) {
    Read whole = read_step(step, source);
    weight = whole.weight(), result.targets = int64_t(whole.counted);
  }
  const MeshGroups* timed_groups = groups_[0] && rank(0).runtime().host_memory() ? groups_[0].get() : nullptr;
  if (timed_groups) timed_groups->take_waited();
  on_ranks([&](int r) {
    Executor& e = rank(r);
    RangeScope range(e.runtime(), fmt::format("step {}", step));
    const std::vector<SegmentCall>& calls = calls_[size_t(r)];
    for (size_t c = 0; c < calls.size(); ++c) {
      const SegmentCall& call = calls[c];
      if (stamps) e.runtime().stamp();
      if (call.micro_step >= 0) {
        uint64_t first = first_sample(step, call.micro_step, r);
        HostBatch& batch = batches_[readers_[size_t(r)]][whole_steps_ ? size_t(call.micro_step) : 0];
        if (!whole_steps_) read(batch, micro_step_, positions_, first, source);
        Scalars inputs = {};
        inputs.seed = seed;
        inputs.sample_base = int64_t(first);
        inputs.lr = float(lr);
        inputs.loss_weight = weight;
        e.set_inputs(inputs);
        if (call.begins) send(batch, r, call);
        if (!whole_steps_) result.targets += batch.counted;  // then there is only one rank
        // Reads overlap the running step, so they cost time only if they take longer.
        if (r == 0 && queued_.empty())
          result.wait_seconds += batch.seconds;
        else if (r == 0 && e.runtime().reached(queued_.back().mark))
          queued_.front().result.wait_seconds += batch.seconds;
      }
      const bool updates = session_of(r).programs[size_t(call.segment)].spec.kind == ProgramKind::update;
      const bool timed_update = r == 0 && updates && e.runtime().host_memory();
      const double before = timed_update ? steady_seconds() : 0;
      e.run(call.segment, traces && r == 0 ? &(*traces)[c] : nullptr, call.slot);
      if (timed_update) result.update_seconds = steady_seconds() - before;
      // Later Programs may reuse the memory of the loss.
      if (const TensorRef& loss = ports_[0][size_t(call.segment)][0].loss; r == 0 && c == loss_call && loss.data)
        loss.read_later(&queued.loss);
    }
    if (stamps) e.runtime().stamp();
    if (r == 0) e.read_scalars_later(queued.after);
    if (const TensorRef& lost = ports_[size_t(r)][size_t(calls.back().segment)][0].fp8_lost; r == 0 && lost.data)
      queued.fp8_lost.resize(2 * fp8_slots_.size()), lost.read_later(queued.fp8_lost.data());
    if (ranks() > 1 && steps_ahead() == 0) e.runtime().synchronize();
  });
  if (ranks() == 1) result.communication_seconds = 0;
  if (timed_groups) result.communication_seconds = timed_groups->take_waited();
  queued.mark = rank(0).runtime().mark();
  queued_.splice(queued_.end(), failed_, std::prev(failed_.end()));
}

StepResult Engine::take_step() {
  if (queued_.empty()) fail_internal("no step is queued", "engine");
  Queued& queued = queued_.front();
  rank(0).runtime().wait(queued.mark);
  double end = steady_seconds();
  StepResult result = queued.result;
  const Scalars& s = queued.after;
  result.loss_scale = loss_scale_;
  result.next_loss_scale = loss_scale_ = s.loss_scale;
  result.skipped_steps = int64_t(s.skipped);
  result.loss = queued.loss;
  if (fp8_elements_ > 0) {
    int64_t saturated = 0, vanished = 0, most = 0;
    for (size_t s = 0; s < queued.fp8_lost.size() / 2; ++s) {
      const int64_t zeros = queued.fp8_lost[2 * s + 1];
      saturated += queued.fp8_lost[2 * s], vanished += zeros;
      if (zeros > most) most = zeros, result.vanished_most = fp8_slots_[s];
    }
    result.saturated = double(saturated) / double(fp8_elements_);
    result.vanished = double(vanished) / double(fp8_elements_);
  }
  result.grad_norm = s.grad_norm;
  result.skipped = s.found_inf != 0;
  result.seconds = end - std::max(queued.start, taken_);
  taken_ = end;
  queued_.pop_front();
  return result;
}

int64_t Engine::validation_batch() const {
  const int program = forward_calls(session(), "validation").back().segment;
  return program < 0 ? 0 : session().programs[size_t(program)].spec.batch;
}

double Engine::validate(int64_t batches, const SampleSource& source, std::vector<StepTrace>* traces) {
  const int last = forward_calls(session(), "validation").back().segment;
  if (last < 0) fail_internal("the session has no validation program");
  if (traces && forward_calls(session(), "validation").size() > 1)
    fail_usage("the forward pass of a pipeline is not measured by itself yet", "--phase", "Use --phase step.");
  if (!queued_.empty()) fail_internal("validation while a step is queued", "engine");
  if (traces) traces->assign(size_t(batches), {});
  double sum = 0, slots = 0, count = 0;
  on_ranks([&](int r) {
    Scalars inputs = {};
    std::vector<double> own(2);  // slots, counted targets
    RangeScope range(rank(r).runtime(), "validation");
    rank(r).set_inputs(inputs);
    HostBatch& batch = batches_[size_t(r)][0];
    const std::vector<SegmentCall> calls = forward_calls(session_of(r), "validation");
    for (int64_t i = 0; i < batches; ++i) {
      read(batch, session().programs[size_t(last)].spec, positions_,
           uint64_t((i * session().recipe.data_ranks() + shard_of(r)) * validation_batch()), source);
      if (counts(r)) own[0] += double(batch.slots), own[1] += double(batch.counted);
      for (const SegmentCall& call : calls) {
        if (call.begins) send(batch, r, call);
        rank(r).run(call.segment, traces && r == 0 ? &(*traces)[size_t(i)] : nullptr);
      }
      if (const TensorRef& loss = ports_[0][size_t(calls.back().segment)][0].loss; r == 0 && loss.data)
        sum += loss.floats()[0];
    }
    if (traces) rank(r).runtime().synchronize();
    auto of_all = ranks() > 1 ? gather(*host_communicators_[size_t(r)], own) : std::vector<std::vector<double>>{own};
    if (r == 0)
      for (auto& rank : of_all) slots += rank[0], count += rank[1];
  });
  // A batch's loss is its sum divided by all its targets, counted or not.
  double mean = sum / double(batches);
  return count == slots ? mean : count > 0 ? mean * slots / count : 0.0;
}

std::vector<std::vector<double>> Engine::from_all_ranks(const std::function<std::vector<double>(Executor&)>& of) {
  return from_ranks([&](int r) { return of(rank(r)); });
}

std::vector<std::vector<double>> Engine::from_ranks(const std::function<std::vector<double>(int)>& of) {
  std::vector<std::vector<double>> all;
  on_ranks([&](int r) {
    std::vector<double> own = of(r);
    auto of_all =
        ranks() > 1 ? gather_lists(*host_communicators_[size_t(r)], own) : std::vector<std::vector<double>>{own};
    if (r == 0) all = std::move(of_all);
  });
  return all;
}

bool Engine::shares_weights() const {
  return mesh_.size(Axis::pipeline) > 1 ||
         std::any_of(axes_outermost_first.begin(), axes_outermost_first.end(),
                     [&](Axis axis) { return keeps_shards(session(), Role::weight, axis); });
}

static void send_tensor(Communicator& comm, const TensorRef& t) {
  if (t.data) comm.broadcast(t.data, DType::u8, t.bytes(), 0);
}

void Engine::with_states(const std::function<void()>& work) {
  if (ranks() == 1) return work ? work() : void();
  // A full disk is not the ranks' fault: they continue.
  std::exception_ptr failed;
  auto guarded = [&] {
    try {
      if (work) work();
    } catch (...) {
      failed = std::current_exception();
    }
  };
  on_ranks([&](int r) {
    rank(r).sharded().exchange(*host_communicators_[size_t(r)], groups_[size_t(r)]->world(), rank(r).between_steps(),
                               guarded);
  });
  if (failed) std::rethrow_exception(failed);
}

void Engine::load(const std::function<void()>& work) {
  with_states(work);
  if (ranks() > 1)
    on_ranks([&](int r) {
      Communicator& comm = groups_[size_t(r)]->world();
      rank(r).runtime().synchronize();  // writes queued on its streams
      comm.set_stream(nullptr);
      for (const ParameterRef& p : own_parameters(rank(r))) {
        if (!p.cut.empty()) continue;
        send_tensor(comm, p.weight);
        send_tensor(comm, p.scale);
        if (p.master.data != p.weight.data) send_tensor(comm, p.master);
        for (auto& state : p.states) send_tensor(comm, state.tensor);
      }
      if (int update = session().find("update"); update >= 0 && rank(r).has(update, fp8_amax))
        send_tensor(comm, rank(r).tensor(update, fp8_amax));
      comm.synchronize();
      Scalars s = rank(r).scalars();
      host_communicators_[size_t(r)]->broadcast(&s, DType::u8, sizeof s, 0);
      rank(r).set_scalars(s);
    });
  loss_scale_ = rank(0).scalars().loss_scale;
  weights_changed();
}

}  // namespace crest
