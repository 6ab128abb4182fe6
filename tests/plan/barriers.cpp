// Ranks whose copy engines read each other's memory, simulated with random delays: no rank copies
// what is not yet written or already overwritten, and no rank waits forever.
#include "program/barriers.h"

#include <fmt/format.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <optional>
#include <random>

#include "core/error.h"
#include "device.h"
#include "passes/tiny.h"
#include "plan/addresses.h"
#include "plan/communicators.h"
#include "plan/compile.h"
#include "program/op.h"

namespace crest::test {

namespace {

struct RankProgram {
  const CompiledProgram* compiled;
  Accesses accesses;
  std::vector<int> copying;
  const Instr& at(int i) const { return compiled->program.code[size_t(i)]; }
  int size() const { return int(compiled->program.code.size()); }
};

// Whether instruction j of p writes what others copy in instruction i of q.
bool writes_copied(const RankProgram& p, int j, const RankProgram& q, int i) {
  const std::vector<Access>& list = p.accesses[size_t(j)];
  return std::any_of(list.begin(), list.end(), [&](const Access& a) {
    const bool clears = &a == &list[0] && p.at(j).attrs.has("gaps");
    return (a.writes || clears) && overlap(a, q.accesses[size_t(i)][0]);
  });
}

// Ranks that run the same Programs, on streams and with flags as on GPUs. A write begins with its
// instruction and ends with it.
class RankSimulation {
 public:
  RankSimulation(const std::vector<RankProgram>& programs, std::vector<size_t> order, int ranks, unsigned seed)
      : programs_(programs), order_(std::move(order)), random_(seed), ranks_(size_t(ranks)) {
    for (Rank& rank : ranks_) rank.flags.resize(ranks_.size()), begin(rank);
  }

  // What went wrong; empty: nothing.
  std::string run() {
    std::vector<std::pair<size_t, size_t>> can;
    uint64_t slow = 0;
    for (int step = 0;; ++step) {
      if (step % 32 == 0) slow = random_();  // bits of streams that stand still while others can go on
      can.clear();
      bool ended = true;
      for (size_t r = 0; r < ranks_.size(); ++r) {
        ended &= ranks_[r].run == order_.size();
        for (size_t s = 0; s < stream_count; ++s)
          if (can_go_on(r, s)) can.emplace_back(r, s);
      }
      if (ended) return wrong_;
      if (can.empty()) return "all ranks wait";
      auto stands = [&](auto& c) { return slow >> (c.first * stream_count + c.second) & 1; };
      if (!std::all_of(can.begin(), can.end(), stands)) std::erase_if(can, stands);
      auto [r, s] = can[random_() % can.size()];
      go_on(r, s);
      if (!wrong_.empty()) return wrong_;
    }
  }

 private:
  enum Step { begins, arrives, meets, copies, copied, arrives_after, meets_after, ends };
  struct Rank {
    size_t run = 0;  // place in the order of Programs
    std::array<std::vector<int>, stream_count> queue;
    std::array<size_t, stream_count> next = {};
    std::array<int, stream_count> step = {};
    std::vector<char> ended, has_copied;
    std::vector<std::array<bool, barrier_flags>> flags;  // by the rank that raises them
  };

  const RankProgram& program(const Rank& rank) const { return programs_[order_[rank.run]]; }

  void begin(Rank& rank) {
    if (rank.run == order_.size()) return;
    const RankProgram& p = program(rank);
    for (auto& q : rank.queue) q.clear();
    rank.next = {}, rank.step = {};
    rank.ended.assign(size_t(p.size()), false), rank.has_copied = rank.ended;
    for (int i = 0; i < p.size(); ++i) rank.queue[size_t(p.at(i).stream)].push_back(i);
  }

  std::optional<int> head(const Rank& rank, size_t s) const {
    if (rank.run == order_.size() || rank.next[s] == rank.queue[s].size()) return {};
    return rank.queue[s][rank.next[s]];
  }

  bool raised(const Rank& rank, size_t r, int flag) const {
    for (size_t q = 0; q < ranks_.size(); ++q)
      if (q != r && flag != no_barrier && !rank.flags[q][size_t(flag)]) return false;
    return true;
  }

  bool can_go_on(size_t r, size_t s) const {
    const Rank& rank = ranks_[r];
    const std::optional<int> i = head(rank, s);
    if (!i) return false;
    const Instr& instr = program(rank).at(*i);
    if (rank.step[s] == meets) return raised(rank, r, barrier_before(instr));
    if (rank.step[s] == meets_after) return raised(rank, r, barrier_after(instr));
    const Waits& waits = program(rank).compiled->waits;
    return rank.step[s] != begins || waits.empty() ||
           std::all_of(waits[size_t(*i)].begin(), waits[size_t(*i)].end(),
                       [&](int j) { return rank.ended[size_t(j)]; });
  }

  void raise(size_t r, int flag) {
    for (size_t q = 0; q < ranks_.size(); ++q)
      if (q != r && flag != no_barrier) ranks_[q].flags[r][size_t(flag)] = true;
  }
  void take_down(Rank& rank, int flag) {
    for (auto& of_rank : rank.flags)
      if (flag != no_barrier) of_rank[size_t(flag)] = false;
  }

  void go_on(size_t r, size_t s) {
    Rank& rank = ranks_[r];
    const RankProgram& p = program(rank);
    const int i = *head(rank, s);
    const bool copying = std::count(p.copying.begin(), p.copying.end(), i) > 0;
    switch (rank.step[s]) {
      case begins: check_write(r, i); break;
      case arrives: raise(r, barrier_before(p.at(i))); break;
      case meets: take_down(rank, barrier_before(p.at(i))); break;
      case copies: check_copies(r, i); break;
      case copied: rank.has_copied[size_t(i)] = true; break;
      case arrives_after: raise(r, barrier_after(p.at(i))); break;
      case meets_after: take_down(rank, barrier_after(p.at(i))); break;
      case ends: rank.ended[size_t(i)] = true, ++rank.next[s]; break;
    }
    rank.step[s] = rank.step[s] == ends ? begins : rank.step[s] == begins && !copying ? ends : rank.step[s] + 1;
    for (size_t k = 0; k < stream_count; ++k)
      if (head(rank, k)) return;
    ++rank.run, begin(rank);
  }

  // Other ranks have written what r begins to copy.
  void check_copies(size_t r, int i) {
    const Rank& rank = ranks_[r];
    for (const Rank& other : ranks_)
      for (size_t run = other.run; run <= rank.run; ++run) {
        const RankProgram& p = programs_[order_[run]];
        for (int j = 0; j < (run == rank.run ? i : p.size()); ++j)
          if (&other != &rank && writes_copied(p, j, program(rank), i) && (run > other.run || !other.ended[size_t(j)]))
            wrong_ = fmt::format("{} is copied by {} before {} has written it", program(rank).at(i).op->name, i, j);
      }
  }
  // Other ranks have copied what r begins to overwrite.
  void check_write(size_t r, int j) {
    const Rank& rank = ranks_[r];
    for (const Rank& other : ranks_)
      for (size_t run = other.run; run <= rank.run; ++run)
        for (int i : programs_[order_[run]].copying)
          if (&other != &rank && (run < rank.run || i < j) &&
              writes_copied(program(rank), j, programs_[order_[run]], i) &&
              (run > other.run || !other.has_copied[size_t(i)]))
            wrong_ = fmt::format("{} overwrites what {} copies", j, i);
  }

  const std::vector<RankProgram>& programs_;
  const std::vector<size_t> order_;
  std::mt19937_64 random_;
  std::vector<Rank> ranks_;
  std::string wrong_;
};

std::vector<RankProgram> rank_programs(const CompiledSession& s) {
  std::vector<RankProgram> list;
  for (const CompiledProgram& c : s.programs) {
    list.push_back({&c, accesses_by_address(s, c), {}});
    for (auto& [axes, copying] : copying_instructions(s, c)) list.back().copying = copying;
  }
  return list;
}

std::string simulated(const std::vector<RankProgram>& programs, int ranks, unsigned seed) {
  std::vector<size_t> order;
  std::mt19937 random(seed);
  for (int run = 0; run < 6; ++run) order.push_back(random() % programs.size());
  return RankSimulation(programs, order, ranks, seed).run();
}

// The barriers of one Program; removed: without this one, and with flags as if it had never been.
struct PlacedBarrier {
  int instr;
  const char* place;
};
std::vector<PlacedBarrier> barriers_of(const Program& p, const std::vector<int>& copying) {
  std::vector<PlacedBarrier> list;
  for (int i : copying)
    for (const char* place : {"barrier_before", "barrier_after"})
      if (p.code[size_t(i)].attrs.has(place)) list.push_back({i, place});
  return list;
}
void remove_barrier(Program& p, const std::vector<int>& copying, size_t removed) {
  std::vector<PlacedBarrier> list = barriers_of(p, copying);
  p.code[size_t(list[removed].instr)].attrs.erase(list[removed].place);
  list.erase(list.begin() + std::ptrdiff_t(removed));
  for (size_t n = 0; n < list.size(); ++n)
    p.code[size_t(list[n].instr)].attrs.set(list[n].place, n + 1 == list.size() ? closing_flag : int(n % 2));
}

struct BarrierCase {
  int ranks;
  const char *shard, *gather;
  int64_t micro_steps;
  Axis axis = Axis::data;
};

CompiledSession copying_session(const BarrierCase& c) {
  Recipe r = tiny_recipe(false);
  r.model.layers = 3, r.ranks = c.ranks, r.fusion = "on", r.grad_accumulation = c.micro_steps;
  if (c.axis == Axis::data) {
    r.pass_settings["shard"] = c.shard, r.pass_settings["gather"] = c.gather;
    r.pass_settings["reduce"] = "bucket", r.pass_settings["bucket"] = "2kB";
  } else {
    r.mesh = {{c.axis, c.ranks}};
    r.pass_settings["tensor-overlap"] = "rows";
  }
  SessionUse use;
  use.train = use.update = use.validation = true;
  return compile(r, emulated_gpu(1), session_programs(r, use));
}

const BarrierCase barrier_cases[] = {{2, "optimizer", "update", 1},         {2, "optimizer", "forward", 1},
                                     {2, "optimizer", "forward", 2},        {2, "gradients", "update", 2},
                                     {2, "weights", "update", 1},           {3, "weights", "update", 2},
                                     {2, "none", "update", 1, Axis::tensor}};

}  // namespace

TEST(Barriers, RanksCopyWhatIsWrittenAndNotYetOverwritten) {
  for (const BarrierCase& c : barrier_cases) {
    SCOPED_TRACE(fmt::format("{} ranks, {}, {}, {}", c.ranks, c.shard, c.gather, c.micro_steps));
    const CompiledSession s = copying_session(c);
    const std::vector<RankProgram> programs = rank_programs(s);
    EXPECT_TRUE(std::any_of(programs.begin(), programs.end(), [](auto& p) { return p.copying.size() > 2; }));
    for (unsigned seed = 0; seed < 30; ++seed) ASSERT_EQ(simulated(programs, c.ranks, seed), "") << seed;
  }
}

// Each of them is needed: without it, some delay makes a rank copy wrongly or wait forever.
TEST(Barriers, NoneCanBeLeftOut) {
  for (const BarrierCase& c : barrier_cases) {
    SCOPED_TRACE(fmt::format("{} ranks, {}, {}, {}", c.ranks, c.shard, c.gather, c.micro_steps));
    CompiledSession s = copying_session(c);
    const std::vector<RankProgram> programs = rank_programs(s);
    for (size_t k = 0; k < programs.size(); ++k) {
      Program& program = s.programs[k].program;
      const RankProgram& p = programs[k];
      const std::vector<Instr> whole = program.code;
      for (size_t n = 0; n < barriers_of(program, p.copying).size(); ++n) {
        remove_barrier(program, p.copying, n);
        EXPECT_THROW(verify_barriers(program, p.accesses, p.compiled->waits, p.copying), Error) << n;
        std::string wrong;
        for (unsigned seed = 0; seed < 200 && wrong.empty(); ++seed) wrong = simulated(programs, c.ranks, seed);
        EXPECT_NE(wrong, "") << program.name << ", barrier " << n;
        program.code = whole;
      }
    }
  }
}

// Weights that no kernel of a Program writes wait for the other ranks once.
TEST(Barriers, GathersOfUnchangedWeightsShareOne) {
  for (const BarrierCase& c : {barrier_cases[1], barrier_cases[4]}) {
    const CompiledSession s = copying_session(c);
    const CompiledProgram& train = s.programs[size_t(s.find("train"))];
    int gathers = 0, met = 0;
    for (const Instr& instr : train.program.code) {
      if (instr.op->name != std::string_view("all_gather")) continue;
      ++gathers, met += barrier_before(instr) != no_barrier;
    }
    EXPECT_GE(gathers, 3);
    EXPECT_EQ(met, 1) << c.shard;
  }
}

}  // namespace crest::test
