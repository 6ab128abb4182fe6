// Profiles one phase of a recipe, from plan to record, for crest profile.
#pragma once
#include <cstdint>
#include <vector>

#include "bench/phase_runner.h"
#include "bench/profiler.h"
#include "device/conditions.h"
#include "host/memory_parts.h"
#include "plan/alternatives.h"
#include "store/record_options.h"

namespace crest {

struct ProfileTask {
  Recipe recipe;  // resolved
  Device device;
  BenchPhase phase = BenchPhase::step;
  int64_t limit = 0;               // bytes, of all ranks
  std::vector<ProfileRate> rates;  // as given; missing rates are measured
  bool timers = false;             // ProfilerOptions::timers
  int samples = 0, warmup = 3;     // samples 0: until the median is precise enough
  double max_seconds = 10;
  uint64_t seed = 1337;
  RecordOptions store;
  RankGroup* group = nullptr;  // the processes of recipe.ranks > 1
};

class ProfileRun {
 public:
  // Plans; throws if it does not fit.
  explicit ProfileRun(ProfileTask task);
  // Runs and records, once. Throws `interrupted`. With several processes rank 0 calls it, and the
  // others call follow(), which returns at the end.
  Profile measure();
  void follow();

  // Alternatives that need less memory, and the FLOPs of the recipe itself.
  const std::vector<Alternative>& alternatives() const { return alternatives_; }
  double flops_per_token() const { return flops_per_token_; }

 private:
  double executed_per_token(const CompiledSession& session) const;
  ProfilerOptions profiler_options() const;
  Profile profiled();
  PhaseRunner make_runner();
  void store(RunRecord& record, const Profile& profile, const Conditions& before);

  void record_memory(ProfileMemory& memory);

  ProfileTask task_;
  MemoryParts parts_{"start"};
  CompiledSession session_;
  std::vector<Alternative> alternatives_;
  double flops_per_token_ = 0;
  Recorder recorder_;
};

}  // namespace crest
