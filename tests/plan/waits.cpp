// Streams run concurrently, and still nothing is read or
// overwritten out of order: for every recipe, with any spread
// of instructions over streams, and exactly the waits of a GPU.
#include "program/waits.h"

#include <gtest/gtest.h>
#include <rapidcheck.h>

#include <algorithm>
#include <set>

#include "backend/cuda/stream_order.h"
#include "core/error.h"
#include "device.h"
#include "passes/tiny.h"
#include "plan/addresses.h"
#include "plan/random_program.h"
#include "plan/streams.h"
#include "run/parameters.h"
#include "train/engine.h"

using namespace crest;
using namespace crest::test;

namespace {

SessionUse train_and_validate() {
  SessionUse use;
  use.train = use.update = use.validation = true;
  return use;
}

std::string text_of(const Recipe& r) {
  return r.model.name + " " + r.precision + " fusion " + r.fusion + " recompute " + r.recompute + " " + r.optimizer +
         " x" + std::to_string(r.grad_accumulation);
}

// A third: any two of precision, recompute and optimizer still meet in every combination, and with
// every other setting.
enum class Which { all, third };
std::vector<Recipe> data_parallel_recipes(Which which = Which::all) {
  constexpr const char *precisions[] = {"fp32", "bf16", "fp16"}, *recomputes[] = {"none", "pointwise", "full"},
                       *optimizers[] = {"adamw", "muon", "adafactor"};
  std::vector<Recipe> list;
  for (bool llama : {false, true})
    for (int precision : {0, 1, 2})
      for (const char* fusion : {"on", "off"})
        for (int recompute : {0, 1, 2})
          for (int optimizer : {0, 1, 2})
            for (int64_t steps : {1, 3}) {
              if (which == Which::third && (precision + recompute + optimizer) % 3 != 0) continue;
              Recipe r = tiny_recipe(llama);
              r.model.layers = 2, r.data_parallel = 2;
              r.precision = precisions[precision], r.fusion = fusion, r.recompute = recomputes[recompute];
              r.optimizer = optimizers[optimizer], r.grad_accumulation = steps;
              list.push_back(r);
            }
  return list;
}

// Spreads of instructions over streams: gradients reduced in buckets and made on a stream of their
// own, if the device has concurrent kernels; reduced one by one; or additionally everything else on
// random streams.
enum class Spread { buckets, one_by_one, random };
constexpr Spread spreads[] = {Spread::buckets, Spread::one_by_one, Spread::random};
CompiledSession compiled(Recipe r, Spread how, uint64_t seed, const Device& device = this_cpu(2)) {
  r.pass_settings["reduce"] = how == Spread::buckets ? "bucket" : "overlap";
  r.pass_settings["bucket"] = "600B";
  if (how == Spread::buckets) r.pass_settings["gradient-overlap"] = "on";
  CompiledSession s = compile(r, device, session_programs(r, train_and_validate()));
  if (how == Spread::random) use_random_streams(s, seed);
  return s;
}

Device device_of(Spread how) { return how == Spread::buckets ? emulated_gpu(2) : this_cpu(2); }

bool conflict(const std::vector<Access>& a, const std::vector<Access>& b) {
  for (auto& x : a)
    for (auto& y : b)
      if ((x.writes || y.writes) && x.memory == y.memory && x.begin < y.end && y.begin < x.end) return true;
  return false;
}

// By instruction, everything ended when it starts, found by going back through all edges.
class Reachable {
 public:
  Reachable(const Program& p, const Waits& waits) : before_(p.code.size(), std::vector<bool>(p.code.size(), false)) {
    for (size_t i = 0; i < before_.size(); ++i) {
      auto follow = [&](size_t j) {
        before_[i][j] = true;
        for (size_t k = 0; k < j; ++k)
          if (before_[j][k]) before_[i][k] = true;
      };
      for (size_t j = i; j-- > 0;)
        if (p.code[j].stream == p.code[i].stream) {
          follow(j);
          break;
        }
      if (!waits.empty())
        for (int j : waits[i]) follow(size_t(j));
    }
  }
  bool operator()(size_t earlier, size_t later) const { return before_[later][earlier]; }

 private:
  std::vector<std::vector<bool>> before_;
};

// Pairs of two streams with common memory: how many are out of order.
struct Pairs {
  int all = 0, unordered = 0;
};
Pairs pairs(const Program& p, const Accesses& a, const Waits& waits) {
  Reachable ordered(p, waits);
  Pairs found;
  for (size_t i = 0; i < p.code.size(); ++i)
    for (size_t j = 0; j < i; ++j)
      if (p.code[i].stream != p.code[j].stream && conflict(a[i], a[j])) ++found.all, found.unordered += !ordered(j, i);
  return found;
}

bool refused(const Program& p, const Accesses& a, const Waits& waits) {
  try {
    verify_waits(p, a, waits);
  } catch (const Error&) {
    return true;
  }
  return false;
}

// Streams with notes of ended instructions instead of execution: an event carries its stream's
// knowledge.
class SimulatedStreams : public cuda::Streams {
 public:
  explicit SimulatedStreams(int skipped = -1) : skipped_(skipped) {}
  void record(int event, int stream) override {
    events_.resize(std::max(events_.size(), size_t(event) + 1));
    events_[size_t(event)] = ended_[size_t(stream)];
  }
  void wait(int stream, int event) override {
    if (waits_++ == skipped_) return;
    ended_[size_t(stream)].merge(std::set<int>(events_.at(size_t(event))));
  }
  // Returns everything ended when i starts.
  std::set<int> run(int i, int stream) {
    std::set<int> before = ended_[size_t(stream)];
    ended_[size_t(stream)].insert(i);
    return before;
  }
  const std::set<int>& ended(int stream) const { return ended_[size_t(stream)]; }
  int waits() const { return waits_; }

 private:
  int skipped_, waits_ = 0;
  std::set<int> ended_[stream_count];
  std::vector<std::set<int>> events_;
};

// A GPU's run of a Program: pairs with common memory, across streams and with work before the
// Program (-1) and behind it (on stream 0).
struct Launched {
  int waits = 0;
  bool ordered = true;
};
Launched launch(const CompiledProgram& c, const Accesses& a, int skipped = -1) {
  BoundProgram bound;
  bound.program = &c.program, bound.waits = &c.waits;
  bound.code.resize(c.program.code.size());
  SimulatedStreams streams(skipped);
  cuda::StreamOrder order(bound, streams);
  Launched result;
  streams.run(-1, 0);
  order.begin();
  size_t n = c.program.code.size();
  for (size_t i = 0; i < n; ++i) {
    order.before(i);
    std::set<int> before = streams.run(int(i), int(c.program.code[i].stream));
    order.after(i);
    result.ordered &= before.count(-1) == 1;
    for (size_t j = 0; j < i; ++j)
      if (conflict(a[i], a[j])) result.ordered &= before.count(int(j)) == 1;
  }
  order.end();
  result.ordered &= streams.ended(0).size() == n + 1;
  result.waits = streams.waits();
  return result;
}

}  // namespace

TEST(Waits, EveryPairThatSharesMemoryIsInOrder) {
  int several = 0, shared = 0, gradients = 0;
  for (const Recipe& r : data_parallel_recipes(Which::third))
    for (Spread how : spreads) {
      SCOPED_TRACE(testing::Message() << text_of(r) << " spread " << int(how));
      CompiledSession s = compiled(r, how, 1, device_of(how));
      for (auto& c : s.programs) {
        Accesses a = accesses_by_address(s, c);
        Pairs found = pairs(c.program, a, c.waits);
        ASSERT_EQ(found.unordered, 0) << c.spec.name;
        shared += found.all, several += has_several_streams(c.program);
        for (auto& instr : c.program.code) gradients += how == Spread::buckets && instr.stream == Stream::gradients;
        EXPECT_EQ(c.waits.size(), has_several_streams(c.program) ? c.program.code.size() : 0) << c.spec.name;
      }
    }
  EXPECT_GT(several, 170);
  EXPECT_GT(gradients, 500);
  EXPECT_GT(shared, 35'000) << "too little is shared to prove anything";
}

// None is superfluous, and the check finds each missing one.
TEST(Waits, WithoutAnyOneOfThemTheCheckFails) {
  int removed = 0;
  for (const Recipe& r : data_parallel_recipes()) {
    if (r.precision != "bf16" || r.recompute != "pointwise" || r.optimizer != "adamw") continue;
    for (Spread how : spreads) {
      SCOPED_TRACE(testing::Message() << text_of(r) << " spread " << int(how));
      CompiledSession s = compiled(r, how, 2, device_of(how));
      for (auto& c : s.programs) {
        Accesses a = accesses_by_address(s, c);
        ASSERT_FALSE(refused(c.program, a, c.waits));
        for (size_t i = 0; i < c.waits.size(); ++i)
          for (size_t k = 0; k < c.waits[i].size(); ++k) {
            Waits fewer = c.waits;
            fewer[i].erase(fewer[i].begin() + std::ptrdiff_t(k));
            ++removed;
            EXPECT_TRUE(refused(c.program, a, fewer))
                << c.spec.name << ": instruction " << i << " did not wait for " << c.waits[i][k];
            EXPECT_GT(pairs(c.program, a, fewer).unordered, 0) << c.spec.name << " " << i;
          }
      }
    }
  }
  EXPECT_GT(removed, 500);
}

// A GPU's calls mean the waits: with all of them every pair is in order, work before the Program
// has ended, and work behind it waits; without any one not.
TEST(Waits, LaunchesKeepTheOrder) {
  int launches = 0;
  for (const Recipe& r : data_parallel_recipes()) {
    if (r.precision != "fp32" || r.recompute != "none" || r.optimizer == "adafactor") continue;
    for (Spread how : spreads) {
      SCOPED_TRACE(testing::Message() << text_of(r) << " spread " << int(how));
      CompiledSession s = compiled(r, how, 3, device_of(how));
      for (auto& c : s.programs) {
        Accesses a = accesses_by_address(s, c);
        Launched all = launch(c, a);
        ASSERT_TRUE(all.ordered) << c.spec.name;
        EXPECT_EQ(all.waits > 0, has_several_streams(c.program));
        ++launches;
        if (r.fusion == "off" || r.grad_accumulation > 1) continue;
        for (int w = 0; w < all.waits; ++w) EXPECT_FALSE(launch(c, a, w).ordered) << c.spec.name << " wait " << w;
      }
    }
  }
  EXPECT_GT(launches, 50);
}

// Kernels may overlap with the one before them on their stream only if it is a kernel.
TEST(Waits, NoKernelOverlapsAWaitOrACollective) {
  Recipe r = tiny_recipe();
  r.fusion = "on", r.data_parallel = 2;
  CompiledSession s = compiled(r, Spread::random, 4);
  int follow = 0, waiting = 0;
  for (auto& c : s.programs) {
    BoundProgram bound;
    bound.program = &c.program, bound.waits = &c.waits;
    bound.code.resize(c.program.code.size());
    SimulatedStreams streams;
    cuda::StreamOrder order(bound, streams);
    order.begin();
    std::array<bool, stream_count> kernel = {};  // the last entry of a stream is surely a kernel
    for (size_t i = 0; i < bound.code.size(); ++i) {
      const Instr& instr = c.program.code[i];
      order.before(i);
      bool& last = kernel[size_t(instr.stream)];
      if (order.waits(i)) last = false;
      EXPECT_TRUE(last || !order.follows_kernel(i)) << c.spec.name << " instruction " << i;
      follow += order.follows_kernel(i);
      waiting += order.waits(i);
      order.after(i);
      if (instr.op->op_class == OpClass::communication)
        last = false;
      else if (instr.op->op_class != OpClass::movement)  // a view puts nothing on a stream
        last = true;
    }
  }
  EXPECT_GT(follow, 10);
  EXPECT_GT(waiting, 10);
}

TEST(Waits, RandomProgramsHaveTheFewest) {
  int removed = 0;
  bool held = rc::check("nothing is out of order, and no wait is superfluous", [&] {
    auto choices = *rc::gen::resize(100, rc::gen::container<std::vector<uint32_t>>(rc::gen::arbitrary<uint32_t>()));
    RandomProgram r = random_program(choices);
    for (size_t i = 0; i < r.program.code.size(); ++i)
      if (choices[i % choices.size()] >> 28 < 6)
        r.program.code[i].stream = Stream(choices[i % choices.size()] % stream_count);
    Accesses a = accesses_by_storage(r.program);
    Waits waits = plan_waits(r.program, a);
    verify_waits(r.program, a, waits);
    RC_ASSERT(pairs(r.program, a, waits).unordered == 0);
    for (size_t i = 0; i < waits.size(); ++i)
      for (size_t k = 0; k < waits[i].size(); ++k) {
        Waits fewer = waits;
        fewer[i].erase(fewer[i].begin() + std::ptrdiff_t(k));
        RC_ASSERT(pairs(r.program, a, fewer).unordered > 0);
        ++removed;
      }
  });
  EXPECT_TRUE(held);
  EXPECT_GT(removed, 1000);
}

TEST(Waits, AWaitForSomethingLaterIsRefused) {
  Recipe r = tiny_recipe();
  r.data_parallel = 2;
  CompiledSession s = compiled(r, Spread::buckets, 0);
  CompiledProgram& c = s.programs[size_t(s.find("train"))];
  Accesses a = accesses_by_address(s, c);
  Waits waits = c.waits;
  waits[0].push_back(int(waits.size()) - 1);
  EXPECT_TRUE(refused(c.program, a, waits));
  waits.pop_back();
  EXPECT_TRUE(refused(c.program, a, waits));
  EXPECT_TRUE(refused(c.program, a, {}));
}

// The bytes of a piece of rows depend on the rank. The waits of one Program suffice for all ranks.
TEST(Waits, PiecesOfRowsAreInOrderOnEveryRank) {
  int pieces = 0, shared = 0, needed = 0;
  for (int ranks : {2, 4}) {
    Recipe r = tensor_recipe(ranks == 2);
    r.model.layers = 2, r.fusion = "on", r.mesh = {{Axis::tensor, ranks}}, r.data_parallel = ranks;
    r.pass_settings["tensor-overlap"] = "rows";
    CompiledSession s = compile(r, this_cpu(2), session_programs(r, train_and_validate()));
    for (auto& c : s.programs) {
      std::vector<Accesses> on_rank(size_t(ranks), accesses_by_address(s, c));
      for (int place = 0; place < ranks; ++place)
        for (auto& instr : on_rank[size_t(place)])
          for (Access& a : instr) {
            if (a.pieces_of == no_value) continue;
            const int64_t bytes = a.end - a.begin, piece = (a.begin - a.pieces_begin) / bytes;
            a.begin = a.pieces_begin + (piece + place) % ranks * bytes, a.end = a.begin + bytes;
            ++pieces;
          }
      for (const Accesses& a : on_rank) {
        const Pairs found = pairs(c.program, a, c.waits);
        ASSERT_EQ(found.unordered, 0) << c.spec.name << " on " << ranks << " ranks";
        shared += found.all;
      }
      const Accesses all = accesses_by_address(s, c);
      for (size_t i = 0; i < c.waits.size(); ++i)
        for (size_t k = 0; k < c.waits[i].size(); ++k) {
          Waits fewer = c.waits;
          fewer[i].erase(fewer[i].begin() + std::ptrdiff_t(k));
          EXPECT_TRUE(refused(c.program, all, fewer)) << c.spec.name << " " << i;
          needed += std::any_of(on_rank.begin(), on_rank.end(),
                                [&](const Accesses& a) { return pairs(c.program, a, fewer).unordered > 0; });
        }
    }
  }
  EXPECT_GT(pieces, 100);
  EXPECT_GT(shared, 100);
  EXPECT_GT(needed, 10);
}

// Any possible order of streams gives the same bits: the Program is executed in it. Without waits
// collectives come too early, and do not.
TEST(Waits, EveryInterleavingGivesTheSameBits) {
  for (const char* precision : {"fp32", "bf16"})
    for (int64_t steps : {1, 2}) {
      Recipe r = tiny_recipe(steps == 2);
      r.model.layers = 2, r.fusion = "on", r.data_parallel = 2, r.precision = precision, r.grad_accumulation = steps;
      r.deterministic = true;
      std::vector<float> expected;
      // -1: as compiled. 0: the compute stream as early as it can be, 1: the others, then random.
      // 8: without waits, the others first.
      for (int order = -1; order <= 8; ++order) {
        SCOPED_TRACE(testing::Message() << text_of(r) << " order " << order);
        Spread how = order < 0 ? Spread::buckets : order < 5 || order == 8 ? Spread::one_by_one : Spread::random;
        CompiledSession s = compiled(r, how, uint64_t(order));
        if (order >= 0) {
          for (auto& c : s.programs)
            if (order == 8 && !c.waits.empty()) c.waits.assign(c.waits.size(), {});
          uint64_t drawn = 0;
          interleave(s, [&](const std::vector<int>& ready) -> size_t {
            if (order == 0) return 0;
            if (order == 1 || order == 8) return ready.size() - 1;
            return random_bits(uint64_t(order), 5, drawn++) % ready.size();
          });
          for (auto& c : s.programs) {  // one stream keeps the order
            c.waits.clear();
            for (auto& instr : c.program.code) instr.stream = Stream::compute;
          }
        }
        Engine engine(std::move(s));
        engine.initialize_weights(3);
        SampleSource source = [&](uint64_t g, int32_t* x, int32_t* y, int32_t*) {
          for (int64_t t = 0; t < r.seq_length(); ++t)
            x[t] = int32_t((g * 31 + uint64_t(t) * 7) % 11), y[t] = int32_t((x[t] * 5 + 3) % 11);
        };
        for (int step = 0; step < 3; ++step) engine.step(step, 1e-2, 11, source);
        std::vector<float> weights;
        for (int rank = 0; rank < 2; ++rank)
          for (auto& p : parameters(engine.rank(rank))) {
            std::vector<float> w(size_t(p.numel()));
            p.get(w.data());
            weights.insert(weights.end(), w.begin(), w.end());
          }
        if (order < 0) expected = weights;
        ASSERT_FALSE(weights.empty());
        EXPECT_EQ(weights == expected, order < 8);
      }
    }
}
